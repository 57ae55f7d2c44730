# A participant of a deadlock is silent: its process is stopped, or its connection is cut.
# Nobody fails with 40P01 while it cannot confirm its wait, nor when it turns out that the
# wait ended meanwhile.
#
# Promise: 7.2

use ZkLock::Deadlock qw(wait_reports wait_until_reported);
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client(timeout => 40);
my $proxy = ZkLock::Proxy->start(target => $zk);
my %node = map {
	$_->[0] => zklock_node($_->[0], zk => $_->[1],
		extra_conf => "deadlock_timeout = '100ms'\n")
} [ a => $proxy ], [ b => $zk ];
my $d = ZkLock::Deadlock->new(%node);

my %silence = (
	'a stopped process' => [ sub { $_[0]->pause }, sub { $_[0]->resume } ],
	'a cut connection' => [ sub { $proxy->cut(refuse => 1) }, sub { $proxy->accept } ],
);
for my $name (sort keys %silence)
{
	my ($begin, $end) = @{ $silence{$name} };
	my ($silent, $other) = map { $d->open($_) } qw(a b);
	# Held by the session, because an error in the transaction releases the others at once.
	$silent->query_ok("SELECT zk_lock('x')");
	$other->query_ok("SELECT zk_xact_lock('y')");
	$d->wait_for($silent, "SELECT zk_xact_lock('y')");
	wait_until_reported($zkc, 1);
	my ($report) = wait_reports($zkc);
	$begin->($silent);

	# The other session finds the deadlock, and rings for each of its claims.
	$d->wait_for($other, "SELECT zk_xact_lock('x')");
	wait_until('three claims', sub {
		$other->finished || $zkc->exists("/zklock/bells/$report")->{version} >= 3
	}, pause => 0.1);
	ok(!$other->finished, "$name: no 40P01 without an answer");

	# A stopped process ends its wait before it can answer.
	$silent->cancel;
	$end->($silent) if $name =~ /process/;
	$silent->wait_result;
	is($silent->sqlstate, '57014', "$name: the silent session's wait is cancelled");
	ok(!$other->finished, "$name: the other session waits on");
	$silent->query_ok($_) for 'ROLLBACK', "SELECT zk_unlock('x')";
	$end->($silent) if $name !~ /process/;
	$other->wait_result;
	is($other->sqlstate, '00000', "$name: it acquires the lock");
	$other->query_ok('ROLLBACK');
	$_->quit for $silent, $other;
}
nothing_left($zkc, 'no node is left');
