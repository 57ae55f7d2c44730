# A wait for a lock or permit that its holder has already released is no
# part of a deadlock, even if the node still exists because the holder's connection is
# down (a pending delete), and even if the holder waits for a row on its server. A wait
# for a lock that such a session still holds is part of one.
#
# Promise: 7.2

use Time::HiRes qw(time);
use ZkLock::Deadlock qw(wait_reports);
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 2000)->with_client;
my $proxy = ZkLock::Proxy->start(target => $zk);
my $d = ZkLock::Deadlock->start([qw(a b)], zk => $zk, extra_conf => "deadlock_timeout = '100ms'\n");

# A session of a's server whose connection to the ensemble can be cut.
sub open_through_proxy
{
	my $s = session_with($d->{nodes}{a}, connect_string => $proxy->connect_string);
	$s->query_ok("SELECT zk_lock_shared('warm'), zk_unlock_shared('warm')");
	push @{ $d->{all} }, $s;
	return $s;
}

# "cut_off" acquires locks, "far" waits for one of them, and the connection of "cut_off"
# is cut. "cut_off" then releases a lock, and waits for a row of "near", which waits for
# "far".
sub make_cycle
{
	my (%sql) = @_;
	my ($cut_off, $near, $far) = (open_through_proxy(), map { $d->open($_) } qw(a b));
	$cut_off->query_ok($_) for @{ $sql{acquire} };
	$near->query_ok('UPDATE t SET v = v + 1 WHERE id = 1');
	$far->query_ok("SELECT zk_xact_lock('y')");
	$d->wait_for($far, $sql{wait});
	$proxy->cut(refuse => 1);
	$cut_off->query_ok($_) for @{ $sql{release} };
	$d->wait_for($cut_off, 'UPDATE t SET v = v + 1 WHERE id = 1');
	$d->wait_for($near, "SELECT zk_xact_lock('y')");
	return ($cut_off, $near, $far);
}

# Rings the bells of the reporting sessions for more than a second, so that each of them
# answers and searches.
sub have_searched
{
	my $began = time();
	while (time() - $began < 1.5)
	{
		my %version = map { $_ => $zkc->exists("/zklock/waiting/$_")->{version} } wait_reports($zkc);
		$zkc->set("/zklock/bells/$_", '') for keys %version;
		wait_until('answers', sub {
			!grep { $zkc->exists("/zklock/waiting/$_")->{version} == $version{$_} } keys %version
		}, pause => 0.05);
	}
	return 1;
}

# Returns whether "near" has reported its local waiter, and "far" its wait.
sub reported_with_local_waiter
{
	return 3 == $zkc->children('/zklock/waiting') && have_searched();
}

# Returns whether "far" has reported its wait. A session that holds nothing is no local
# waiter in a report, and "near" holds nothing in the ensemble and reports nothing.
sub reported_without_local_waiter
{
	return 1 == $zkc->children('/zklock/waiting') && have_searched();
}

sub nobody_fails
{
	my ($name, $is_checked, %sql) = @_;
	my ($cut_off, $near, $far) = make_cycle(%sql);
	wait_until("the cycle check: $name", sub {
		return $near->finished || $far->finished || $is_checked->();
	});
	ok(!$near->finished && !$far->finished, "$name: nobody fails");
	$proxy->accept;
	$d->all_succeed("$name: all succeed when the connection is back");
	nothing_left($zkc, "$name: no node is left");
	return;
}

nobody_fails('a lock released by a rollback', \&reported_without_local_waiter,
	acquire => [ 'BEGIN', "SELECT zk_xact_lock('x')" ],
	wait => "SELECT zk_xact_lock('x')",
	release => ['ROLLBACK']);
nobody_fails('one of two locks released', \&reported_with_local_waiter,
	acquire => ["SELECT zk_lock('x'), zk_lock('z')"],
	wait => "SELECT zk_xact_lock_shared('x')",
	release => ["SELECT zk_unlock('x')"]);
nobody_fails('a downgrade that admits sharers', \&reported_with_local_waiter,
	acquire => ["SELECT zk_lock('x'), zk_lock_shared('x')"],
	wait => "SELECT zk_xact_lock_shared('x')",
	release => ["SELECT zk_unlock('x')"]);
nobody_fails('a permit, with a lock of its name still held', \&reported_with_local_waiter,
	acquire => ["SELECT zk_acquire_permit('p', 1), zk_lock('p')"],
	wait => "SELECT zk_xact_acquire_permit('p', 1)",
	release => ["SELECT zk_release_permit('p')"]);

for my $case (
	[   'a lock', "SELECT zk_lock('x'), zk_lock('z')",
		"SELECT zk_xact_lock_shared('z')", "SELECT zk_unlock('x')" ],
	[   'a lock held shared', "SELECT zk_lock('x'), zk_lock_shared('z')",
		"SELECT zk_xact_lock('z')", "SELECT zk_unlock('x')" ],
	[   'a permit', "SELECT zk_lock('q'), zk_acquire_permit('q', 1)",
		"SELECT zk_xact_acquire_permit('q', 1)", "SELECT zk_unlock('q')" ])
{
	my ($name, $acquire, $wait, $release) = @$case;
	make_cycle(acquire => [$acquire], wait => $wait, release => [$release]);
	my $victim = $d->one_fails("$name still held by the disconnected session: one fails",
		qr/ShareLock on transaction/);
	$proxy->accept;
	$d->all_succeed("$name: the others succeed");
}
