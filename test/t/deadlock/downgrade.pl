# Promise: 7.2
#
# A deadlock through a mode that changes while others wait. Server a holds x, a writer of another
# program (kazoo) waits for it, and behind that one server b, which holds nothing. Then a shares
# x, and nothing that b watches changes. Server c, which holds y, waits to share x behind both
# writers, and a waits for y.

use ZkLock::Deadlock qw(wait_until_reported);
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client(timeout => 60);
my $d = ZkLock::Deadlock->start([qw(a b c)], zk => $zk,
	extra_conf => "deadlock_timeout = '300ms'\nzklock.node_names = 'kazoo'\n");
my $python = ZkLock::Opponent->kazoo($zk->connect_string);

sub queue { return wait_zk_children($zkc, "/zklock/locks/$_[0]", $_[1]) }

for my $case (
	[ 'exclusive at first', 'zk_lock', sub { $_[0]->query_ok("SELECT zk_lock_shared('$_[1]'), zk_unlock('$_[1]')") } ],
	[ 'shared from the start', 'zk_lock_shared', sub { } ])
{
	my ($what, $function, $change) = @$case;
	my $x = $function;
	my ($holder, $writer, $reader) = map { $d->open($_) } qw(a b c);
	$d->hold($holder, "SELECT $function('$x')");
	$d->hold($reader, "SELECT zk_xact_lock('y')");
	my $program = $python->lock(write => "/zklock/locks/$x", timeout => 60000);
	$program->acquire_async;
	queue($x, 2);
	$d->wait_for($writer, "SELECT zk_xact_lock('$x')");
	queue($x, 3);
	$change->($holder, $x);
	$d->wait_for($reader, "SELECT zk_xact_lock_shared('$x')");
	queue($x, 4);
	$d->wait_for($holder, "SELECT zk_xact_lock('y')");
	my $victim = $d->one_fails("$what: one fails", qr/lock "(?:y|$x)"/);
	isnt($victim, $writer, "$what: not the one that holds nothing");
	ok($program->wait_result, "$what: the program is granted the lock when the holder has released it");
	$program->release;
	$d->all_succeed("$what: all others succeed", $zkc);
}

nothing_left($zkc, 'no node is left');
