# A rolling upgrade: two servers with version 0.9 and two with this version use one ensemble.
# Exclusion, sharing and permits hold between them, in both directions; the views show the sessions
# of both, a deadlock across them has one victim; and locks stay excluded while a server is
# stopped, gets the new library, works with the objects of 0.9, and is updated. With the library of
# 0.9 and the new script the update is refused, and the new objects do not crash it.
#
# $ZKLOCK_EARLIER is the directory in which version 0.9 was built.
#
# Promise: 12.3

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ZkLock::Crowd;
use ZkLock::Deadlock qw(wait_until_reported);
use ZkLock::Installation;
use ZkLock::Opponent;
use ZkLock::Test;

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
test_old_library_with_new_script();
test_crowds();
test_upgrade();
nothing_left($zkc, 'nothing is left');
$_->stop for values %node;
$zkc->close;
$zk->stop;

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
		works($contender, several($other, "ARRAY['w', 'x']"), 'f', "$what: also for several names");
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

# An attempt for several names.
sub several
{
	my ($version, $names) = @_;
	return 'SELECT ' . ($version eq 'new' ? 'zk_try_lock_many' : 'zk_try_lock_all') . "($names)";
}

# A statement with a function of semaphores, by its name in this version.
sub permit
{
	my ($session, $sql) = @_;
	return $session->node->name =~ /^new/ ? $sql : $sql =~ s/_permit\(/(/r;
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
	is($holder->wait_result, 't', "two sharers upgrade: $holding, the first one, succeeds");
	works($contender, "SELECT zk_try_lock_shared('s')", 'f', "the upgrade of $holding excludes $other");
	$holder->query_ok("SELECT zk_unlock('s')");
	works($contender, "SELECT zk_try_lock_shared('s')", 't', "$other shares after a downgrade of $holding");
	works($contender, "SELECT zk_try_lock('s')", 'f', "$other is refused an upgrade");
	$_->query_ok('SELECT zk_unlock_all()') for $holder, $contender;
	$_->quit for $holder, $contender, $third;
	return;
}

sub test_permits
{
	my ($holding, $other) = @_;
	my @holders = map { session($node{$_}) } $holding, $other;
	my @others = map { session($node{$_}) } $holding, $other;
	works($_, permit($_, "SELECT zk_try_acquire_permit('p', 2)"), 't', "$holding creates a semaphore: a permit for each version") for @holders;
	works($_, permit($_, "SELECT zk_try_acquire_permit('p', 2)"), 'f', "$holding created a semaphore: no third permit") for @others;
	fails_with($others[1], permit($others[1], "SELECT zk_acquire_permit('p', 3)"), '22023', "$other finds another capacity");
	$_->query_async(permit($_, "SELECT zk_acquire_permit('p', 2) IS NULL")) for @others;
	wait_zk_children($zkc, '/zklock/semaphores/p/locks', 2);
	for my $holder (@holders)
	{
		$holder->query_ok(permit($holder, "SELECT zk_release_permit('p')"));
		wait_until('a permit to be granted', sub { grep { $_->finished } @others });
		my ($granted) = grep { $_->finished } @others;
		ok($granted->succeeded, "$holding created a semaphore: a released permit goes to one waiter");
		$granted->wait_result;
		$granted->query_ok(permit($granted, "SELECT zk_release_permit('p')"));
		@others = grep { $_ != $granted } @others;
		last unless @others;
	}
	if (@others)
	{
		$others[0]->wait_result;
		ok($others[0]->ok, "$holding created a semaphore: the other permit goes to the other waiter");
	}
	$_->query_ok('SELECT zk_unlock_all()') for @holders, @others;
	$_->quit for @holders, @others;
	wait_until('the end of the semaphore', sub { !$zkc->exists('/zklock/semaphores/p') });
	return;
}

# The views of the other version show who holds and waits.
sub test_views
{
	my ($holding, $other) = @_;
	my ($holder, $waiter, $viewer) = map { session($node{$_}) } $holding, "${holding}2", $other;
	$holder->query_ok("SELECT zk_lock('v')");
	$waiter->query_async("SELECT zk_lock('v')");
	wait_zk_children($zkc, '/zklock/locks/v', 2);
	works($viewer, "SELECT granted, queue_position, client, pid FROM zk_locks WHERE name = 'v' ORDER BY granted DESC",
		't||zklock|' . $holder->pid . "\nf|1|zklock|" . $waiter->pid, "a view of $other shows the holder and the waiter of $holding");
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
	wait_until_reported($zkc, $#s);
	ok(!(grep { $_->finished } @s[ 1 .. $#s ]), "a chain of waits that begins with $first: nobody fails");
	$s[0]->query_ok('COMMIT');
	$d->all_succeed("a chain of waits that begins with $first: everybody gets the lock");
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
	is($waiter->wait_result, 't', "a deadlock of two servers, $stuck: the waiter of $other survives it");
	$waiter->query_ok('COMMIT');
	$waiter->quit;
	return;
}

sub test_deadlock_across_versions
{
	my ($first, $second) = @_;
	my $d = ZkLock::Deadlock->new(%node);
	my ($s, $t) = map { $d->open($_) } $first, $second;
	$d->hold($s, "SELECT zk_xact_lock('a')");
	$d->hold($t, "SELECT zk_xact_lock('b')");
	$d->wait_for($s, "SELECT zk_xact_lock('b')");
	$d->wait_for($t, "SELECT zk_xact_lock('a')");
	$d->is_resolved("a deadlock of $first and $second");
	return;
}

# The files of the new version are there, but the server has the old library.
sub test_old_library_with_new_script
{
	$installation{old}->write($_, $installation{new}->read($_)) for 'zklock.control', $installation{new}->scripts('zklock');
	my $s = session($node{old});
	fails_with($s, 'ALTER EXTENSION zklock UPDATE', '42883', 'the library of 0.9 refuses the update', like => qr/could not find function/, hint => 0);
	works($s, q(SELECT zk_try_lock_all('{a,b}'), (SELECT count(*) FROM zk_locks), (SELECT scope FROM zk_held_locks WHERE name = 'a')),
		't|2|session', 'the objects of 0.9 are unchanged');

	# Those of this version, as on a standby whose library is older than that of its primary.
	my $names_back = $installation{old}->make_installable('zklock--0.10.sql');
	$s->query_ok('CREATE DATABASE newer');
	$node{old}->safe_psql('newer', "CREATE EXTENSION zklock;\n$names_back");
	my $newer = session($node{old}, dbname => 'newer');
	works($newer, "SELECT zk_lock('c') > 0, zk_try_lock('a'), zk_unlock('c'), zk_lock('c') > 0", 't|f|t|t', 'the library of 0.9 with the new script: locks');
	works($newer, 'SELECT (SELECT count(*) FROM zk_locks), (SELECT level FROM zk_held_locks), (SELECT count(*) FROM zk_stat)', '3|session|1',
		'the library of 0.9 with the new script: views');
	fails_with($newer, 'SELECT * FROM zk_session()', '39P02', 'the library of 0.9 with the new script: zk_session returned a set', hint => 0);
	fails_with($newer, q(SELECT zk_lock_many('{d}')), '42883', 'the library of 0.9 with the new script: a function that is new', hint => 0);
	$_->query_ok('SELECT zk_unlock_all()') for $s, $newer;
	$_->quit for $s, $newer;
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

# The earlier server gets the new files and restarts, while the other one holds a lock.
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
	works(session($node{old}), q(SELECT zk_try_lock('x'), (SELECT count(*) FROM zk_locks), (SELECT since <= now() FROM zk_locks WHERE name = 'x'),
		(SELECT state FROM zk_session()), (SELECT count(*) FROM zk_stat WHERE round_trips IS NULL)), 'f|3|t|connected|1',
		'the new library with the objects of 0.9');
	$node{old}->safe_psql('postgres', 'ALTER EXTENSION zklock UPDATE');
	my $after = session($node{old});
	works($after, "SELECT zk_try_lock('x'), zk_try_lock('mine'), zk_try_acquire_permit('p', 1)", 'f|f|f',
		'after the upgrade: what the other server holds is excluded');
	$after->query_async("SELECT zk_lock('x') > 0");
	wait_zk_children($zkc, '/zklock/locks/x', 2);
	$holder->query_ok('SELECT zk_unlock_all()');
	is($after->wait_result, 't', 'after the upgrade: it gets the lock after the release');
	$_->quit for $holder, $after;
	return;
}
