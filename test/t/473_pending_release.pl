# Promise 7.2: a wait for a lock or permit that its holder has already released is no
# part of a deadlock, although the delete of the node is pending because the holder's
# connection is down, and although the holder waits for a row on its server. A wait
# for what such a session still holds is.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::Deadlock qw(wait_reports);
use ZkLock::Proxy;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 2000);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $proxy = ZkLock::Proxy->start(target => $zk);
my %node = map {
	my $node = zklock_node($_, zk => $zk, session_timeout => '30s',
		extra_conf => "deadlock_timeout = '100ms'\n");
	$node->safe_psql('postgres',
		'CREATE TABLE t AS SELECT g AS id, 0 AS v FROM generate_series(1, 9) g');
	($_ => $node)
} qw(a b);
my $d = ZkLock::Deadlock->new(%node);

# A session of a's server whose connection to the ensemble can be cut.
sub open_apart
{
	my $s = session($node{a});
	$s->query_ok("SET zklock.connect_string = '" . $proxy->connect_string . "'");
	$s->query_ok("SELECT zk_lock_shared('warm'), zk_unlock_shared('warm')");
	push @{ $d->{all} }, $s;
	return $s;
}

# "cut_off" has taken something, "far" waits for that, and the connection of the first
# is cut. It then releases, and waits for a row of "near", which waits for "far".
sub circle
{
	my (%sql) = @_;
	my ($cut_off, $near, $far) = (open_apart(), map { $d->open($_) } qw(a b));
	$cut_off->query_ok($_) for @{ $sql{take} };
	$near->query_ok('UPDATE t SET v = v + 1 WHERE id = 1');
	$far->query_ok("SELECT zk_xact_lock('y')");
	$d->wait_for($far, $sql{want});
	$proxy->cut(refuse => 1);
	$cut_off->query_ok($_) for @{ $sql{release} };
	$d->wait_for($cut_off, 'UPDATE t SET v = v + 1 WHERE id = 1');
	$d->wait_for($near, "SELECT zk_xact_lock('y')");
	return ($cut_off, $near, $far);
}

# Has somebody reported the wait again so often that the circle has been looked at twice?
sub looked_at_twice
{
	return grep { /^[0-9a-f]+\.[0-9a-f]+\.([0-9a-f]+)\./ && hex($1) >= 6 }
	  wait_reports($zkc);
}

# Have "near" and "far" reported their waits, without a local waiter? A session that
# holds nothing is no local waiter in a report, so there is no circle to look at.
sub reported_without_local_waiters
{
	return 2 == grep { /^[0-9a-f]+\.[0-9a-f]+\.[0-9a-f]+\.w\.[^.]+\.\.\d+$/ } wait_reports($zkc);
}

sub nobody_fails
{
	my ($name, $is_looked_at, %sql) = @_;
	my ($cut_off, $near, $far) = circle(%sql);
	wait_until("the circle to be looked at: $name", sub {
		return $near->finished || $far->finished || $is_looked_at->();
	});
	ok(!$near->finished && !$far->finished, "$name: nobody fails");
	$proxy->accept;
	$d->all_succeed('... all go on when the connection is back');
	nothing_left($zkc, '... nothing is left');
	return;
}

nobody_fails('a lock released by a rollback', \&reported_without_local_waiters,
	take => [ 'BEGIN', "SELECT zk_xact_lock('x')" ],
	want => "SELECT zk_xact_lock('x')",
	release => ['ROLLBACK']);
nobody_fails('one of two locks released', \&looked_at_twice,
	take => ["SELECT zk_lock('x'), zk_lock('z')"],
	want => "SELECT zk_xact_lock_shared('x')",
	release => ["SELECT zk_unlock('x')"]);
nobody_fails('a downgrade that lets sharers in', \&looked_at_twice,
	take => ["SELECT zk_lock('x'), zk_lock_shared('x')"],
	want => "SELECT zk_xact_lock_shared('x')",
	release => ["SELECT zk_unlock('x')"]);
nobody_fails('a permit, with a lock of its name still held', \&looked_at_twice,
	take => ["SELECT zk_acquire('p', 1), zk_lock('p')"],
	want => "SELECT zk_xact_acquire('p', 1)",
	release => ["SELECT zk_release('p')"]);

for my $case (
	[   'a lock', "SELECT zk_lock('x'), zk_lock('z')",
		"SELECT zk_xact_lock_shared('z')", "SELECT zk_unlock('x')" ],
	[   'a lock held shared', "SELECT zk_lock('x'), zk_lock_shared('z')",
		"SELECT zk_xact_lock('z')", "SELECT zk_unlock('x')" ],
	[   'a permit', "SELECT zk_lock('q'), zk_acquire('q', 1)",
		"SELECT zk_xact_acquire('q', 1)", "SELECT zk_unlock('q')" ])
{
	my ($name, $take, $want, $release) = @$case;
	circle(take => [$take], want => $want, release => [$release]);
	my $victim = $d->one_fails("$name still held by the one cut off: one fails",
		qr/ShareLock on transaction/);
	$proxy->accept;
	$d->all_succeed('... the others go on');
}

$zkc->close;
done_testing();
