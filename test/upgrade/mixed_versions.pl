# A rolling upgrade: two servers with an earlier version of zklock and two with this version use
# one ensemble. Exclusion, sharing and permits hold between them, in both directions; the
# reports of waits of the other version cost nobody a 40P01; and locks stay excluded while an
# earlier server is stopped, upgraded, and started again.
#
# $ZKLOCK_EARLIER is the directory in which the earlier version was built.
#
# Promise: 12.3

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(fails_with failed_with nothing_left works);
use ZkLock::Cluster;
use ZkLock::Crowd;
use ZkLock::Deadlock;
use ZkLock::Installation;
use ZkLock::Opponent;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $build = $ENV{ZKLOCK_EARLIER} // die "ZKLOCK_EARLIER is not set; run scripts/test earlier\n";
my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my %installation = map {
	$_->[0] => ZkLock::Installation->new(PostgreSQL::Test::Utils::tempdir(), build => $_->[1])
} [ old => $build ], [ new => undef ];
my %node = map {
	$_ => zklock_node($_, zk => $zk, session_timeout => '10s', extra_conf => "deadlock_timeout = '100ms'\n",
		install_path => $installation{s/2//r}->path)
} qw(old old2 new new2);

# Both directions: a holder of one version, the others of both.
my @directions = ([qw(old new)], [qw(new old)]);

test_exclusive(@{$_}) for @directions;
test_shared(@{$_}) for @directions;
test_permits(@{$_}) for @directions;
test_views(@{$_}) for @directions;
test_waits_without_deadlock(@{$_}) for @directions;
test_deadlocks_of_one_version(@{$_}) for @directions;
test_deadlock_across_versions(@{$_}) for @directions;
test_crowds();
test_upgrade();
nothing_left($zkc, 'nothing is left');
$_->stop for values %node;
$zkc->close;
$zk->stop;
done_testing();

sub test_exclusive
{
	my ($holding, $other) = @_;
	my ($holder, $contender) = map { session($node{$_}) } $holding, $other;
	for my $names (qw(curator curator_mutex kazoo))
	{
		my $what = "$holding holds, with names of $names";
		$_->reconnect('zklock.node_names' => $names) for $holder, $contender;
		my $token = $holder->query_ok("SELECT zk_lock('x')");
		works($contender, "SELECT zk_try_lock('x')", 'f', "$what: an attempt of $other is refused");
		works($contender, several($other, "ARRAY['w', 'x']"), 'f', "$what: ... also for several names");
		$contender->query_async("SELECT zk_lock('x')");
		wait_zk_children($zkc, '/zklock/locks/x', 2);
		ok(!$contender->finished, "$what: $other waits");
		$holder->query_ok("SELECT zk_unlock('x')");
		cmp_ok($contender->wait_result, '>', $token, "$what: $other gets the lock with a greater token");
		$contender->query_ok('SELECT zk_unlock_all()');
	}
	$_->quit for $holder, $contender;
	return;
}

# An attempt for several names; the earlier version has one function for one name and for several.
sub several
{
	my ($version, $names) = @_;
	return 'SELECT ' . ($version eq 'new' ? 'zk_try_lock_many' : 'zk_try_lock') . "($names)";
}

sub test_shared
{
	my ($holding, $other) = @_;
	my ($holder, $contender) = map { session($node{$_}) } $holding, $other;
	my $third = session($node{$other});
	$holder->query_ok("SELECT zk_lock_shared('s')");
	works($contender, "SELECT zk_try_lock_shared('s')", 't', "$holding shares with $other");
	works($third, "SELECT zk_try_lock('s')", 'f', "$holding shares: a writer of $other is refused");
	$holder->query_async("SELECT zk_lock('s') > 0");
	wait_zk_children($zkc, '/zklock/locks/s', 3);
	fails_with($contender, "SELECT zk_lock('s')", '40P01', "two sharers upgrade: $other, the second one, fails");
	$contender->query_ok("SELECT zk_unlock_shared('s')");
	is($holder->wait_result, 't', "... and the upgrade of $holding succeeds");
	works($contender, "SELECT zk_try_lock_shared('s')", 'f', "... and excludes $other");
	$holder->query_ok("SELECT zk_unlock('s')");
	works($contender, "SELECT zk_try_lock_shared('s')", 't', "$other shares after a downgrade of $holding");
	works($contender, "SELECT zk_try_lock('s')", 'f', '... and is refused an upgrade');
	$_->query_ok('SELECT zk_unlock_all()') for $holder, $contender;
	$_->quit for $holder, $contender, $third;
	return;
}

sub test_permits
{
	my ($holding, $other) = @_;
	my @holders = map { session($node{$_}) } $holding, $other;
	my @others = map { session($node{$_}) } $holding, $other;
	works($_, "SELECT zk_try_acquire_permit('p', 2)", 't', "$holding creates a semaphore: a permit for each version") for @holders;
	works($_, "SELECT zk_try_acquire_permit('p', 2)", 'f', '... and no third permit') for @others;
	fails_with($others[1], "SELECT zk_acquire_permit('p', 3)", '22023', "... $other finds another capacity");
	$_->query_async("SELECT zk_acquire_permit('p', 2)") for @others;
	wait_zk_children($zkc, '/zklock/semaphores/p/locks', 2);
	for my $holder (@holders)
	{
		$holder->query_ok("SELECT zk_release_permit('p')");
		wait_until('a permit to be granted', sub { grep { $_->finished } @others });
		my ($granted) = grep { $_->finished } @others;
		is($granted->wait_result, 't', '... a released permit goes to one waiter');
		$granted->query_ok("SELECT zk_release_permit('p')");
		@others = grep { $_ != $granted } @others;
		last unless @others;
	}
	is($others[0]->wait_result, 't', '... and the other one to the other waiter') if @others;
	$_->query_ok('SELECT zk_unlock_all()') for @holders, @others;
	$_->quit for @holders, @others;
	wait_until('the end of the semaphore', sub { !$zkc->exists('/zklock/semaphores/p') });
	return;
}

# The views of the other version show who holds and waits. They cannot read its node data, which had
# another form before wire format 1, so they show no process.
sub test_views
{
	my ($holding, $other) = @_;
	my ($holder, $waiter, $viewer) = map { session($node{$_}) } $holding, "${holding}2", $other;
	$holder->query_ok("SELECT zk_lock('v')");
	$waiter->query_async("SELECT zk_lock('v')");
	wait_zk_children($zkc, '/zklock/locks/v', 2);
	works($viewer, "SELECT granted, queue_position, client, pid FROM zk_locks WHERE name = 'v' ORDER BY granted DESC",
		"t||zklock|\nf|1|zklock|", "a view of $other shows the holder and the waiter of $holding");
	$holder->query_ok('SELECT zk_unlock_all()');
	$waiter->wait_result;
	$_->quit for $holder, $waiter, $viewer;
	return;
}

# Long waits, which both versions report: a queue of both, in which each waiter also holds a
# lock that the next one waits for.
sub test_waits_without_deadlock
{
	my ($first, $second) = @_;
	my $d = ZkLock::Deadlock->new(%node);
	my @s = map { $d->open($_) } $first, $second, $first, $second, $first;
	$d->hold($s[$_], "SELECT zk_xact_lock('l$_')") for 0 .. $#s;
	$d->wait_for($s[$_], "SELECT zk_xact_lock('l" . ($_ - 1) . "')") for 1 .. $#s;
	reported_by_both();
	ok(!(grep { $_->finished } @s[ 1 .. $#s ]), "a chain of waits that begins with $first: nobody fails");
	$s[0]->query_ok('COMMIT');
	$d->all_succeed('... and everybody gets the lock');
	return;
}

# Each version finds the deadlocks of its own servers, while the other one waits for a session
# in the deadlock, and holds a lock.
sub test_deadlocks_of_one_version
{
	my ($stuck, $other) = @_;
	my $d = ZkLock::Deadlock->new(%node);
	my $waiter = session($node{$other});
	my ($s, $t) = map { $d->open($_) } $stuck, "${stuck}2";
	$d->hold($s, "SELECT zk_xact_lock('a'), zk_xact_lock('c')");
	$d->hold($t, "SELECT zk_xact_lock('b')");
	$waiter->query_ok('BEGIN');
	$waiter->query_ok("SELECT zk_xact_lock('d')");
	$waiter->query_async("SELECT zk_xact_lock('c') > 0");
	wait_zk_children($zkc, '/zklock/locks/c', 2);
	$d->wait_for($s, "SELECT zk_xact_lock('b')");
	$d->wait_for($t, "SELECT zk_xact_lock('a')");
	$d->is_resolved("a deadlock of two servers, $stuck, with a waiter of $other");
	is($waiter->wait_result, 't', "... which the waiter of $other survives");
	$waiter->query_ok('COMMIT');
	$waiter->quit;
	return;
}

# Neither version finds a deadlock between both; lock_timeout ends it.
sub test_deadlock_across_versions
{
	my ($first, $second) = @_;
	my ($s, $t) = map { session($node{$_}) } $first, $second;
	$_->query_ok('BEGIN') for $s, $t;
	$s->query_ok("SELECT zk_xact_lock('a')");
	$t->query_ok("SELECT zk_xact_lock('b')");
	$s->query_async("SELECT zk_xact_lock('b') > 0");
	wait_zk_children($zkc, '/zklock/locks/b', 2);
	$t->query_ok("SET LOCAL lock_timeout = '2s'");
	fails_with($t, "SELECT zk_xact_lock('a')", '55P03', "a deadlock of $first and $second: lock_timeout of $second ends it", hint => 0);
	$t->query_ok('ROLLBACK');
	is($s->wait_result, 't', "... and $first gets the lock");
	$s->query_ok('COMMIT');
	$_->quit for $s, $t;
	return;
}

# Are there reports of long waits of both versions?
sub reported_by_both
{
	wait_until('wait reports of both versions',
		sub { $zkc->children('/zklock/waits') && $zkc->children('/zklock/waiting') });
	return;
}

sub test_crowds
{
	my $python = ZkLock::Opponent->kazoo($zk->connect_string);
	my $member = sub {
		my ($kind, $mode, $name, $server, @more) = @_;
		return { lock => $python->lock($kind => $name, sql => $node{$server}, @more), mode => $mode };
	};
	my @both = qw(old old new new);
	my $crowd = ZkLock::Crowd->new(zkc => $zkc, duration => 4000, hold_time => 3);
	my $report = $crowd->contend_safely('writers of both versions', 'w', map { $member->('exclusive', 'x', 'w', $_) } @both);
	is($report->{most}{w}, 1, 'writers of both versions: one holder at a time');
	$crowd = ZkLock::Crowd->new(zkc => $zkc, duration => 4000, hold_time => 3, meeting => 4);
	$crowd->contend_safely('readers and writers of both versions', 'rw',
		(map { $member->('shared', 's', 'rw', $_) } @both),
		map { $member->('exclusive', 'x', 'rw', $_) } qw(old new));
	return;
}

# The earlier server gets the new files and restarts, while the other one holds a lock. Versions before
# 0.9 have no update script, so the extension is created again.
sub test_upgrade
{
	my $holder = session($node{new});
	$holder->query_ok("SELECT zk_lock('x'), zk_acquire_permit('p', 1)");
	my $before = session($node{old});
	$before->query_ok("SELECT zk_lock('mine')");
	works($holder, "SELECT zk_try_lock('mine')", 'f', 'before the upgrade: the lock is held');
	$node{old}->stop;
	$installation{old}->take_zklock_of($installation{new});
	works($holder, "SELECT zk_try_lock('mine')", 't', 'a stopped server has released its locks');
	$node{old}->start;
	$node{old}->safe_psql('postgres', 'DROP EXTENSION zklock; CREATE EXTENSION zklock');
	my $after = session($node{old});
	works($after, "SELECT zk_try_lock('x'), zk_try_lock('mine'), zk_try_acquire_permit('p', 1)", 'f|f|f',
		'after the upgrade: what the other server holds is excluded');
	$after->query_async("SELECT zk_lock('x') > 0");
	wait_zk_children($zkc, '/zklock/locks/x', 2);
	$holder->query_ok('SELECT zk_unlock_all()');
	is($after->wait_result, 't', '... until it is released');
	$_->quit for $holder, $after;
	return;
}
