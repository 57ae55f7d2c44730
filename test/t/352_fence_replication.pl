# A publication FOR ALL TABLES contains zklock_fences. A recorded token never decreases on
# the subscriber, in whatever order changes arrive, and the apply worker never fails when
# both servers have fenced the same lock.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Util qw(read_file);
use ZkLock::ZkServer;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my ($publisher, $subscriber) = map {
	zklock_node($_,
		zk => $zk,
		session_timeout => '10s',
		init => [ allows_streaming => 'logical' ])
} qw(publisher subscriber);
my ($pub, $sub) = map { session($_) } $publisher, $subscriber;

# Locks, fences and unlocks in one session; returns the token.
sub fence
{
	my ($s, $lock) = @_;
	$s->query_ok("SELECT zk_lock('$lock')");
	my $token = $s->query_ok("SELECT zk_fence('$lock')");
	$s->query_ok("SELECT zk_unlock('$lock')");
	return $token;
}

# Fences in a transaction that continues after the release of the lock; returns the token.
sub fence_late
{
	my ($s, $lock) = @_;
	$s->query_ok('BEGIN');
	return fence($s, $lock);
}

sub recorded
{
	my ($s, $lock) = @_;
	return $s->query("SELECT token FROM zklock_fences WHERE lock = '$lock'");
}

sub caught_up { return $publisher->wait_for_catchup('fences') }

# Rows of both servers before the subscription.
my $old = fence($pub, 'copied-late');
my $new = fence($sub, 'copied-late');
fence($sub, 'copied');
my $later = fence($pub, 'copied');
$pub->query_ok('CREATE PUBLICATION everything FOR ALL TABLES');
$sub->query_ok("CREATE SUBSCRIPTION fences CONNECTION '"
	  . $publisher->connstr . q( dbname=postgres' PUBLICATION everything));
wait_for_sql($subscriber, q(SELECT count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel));
is(recorded($sub, 'copied-late'), $new, 'the initial copy keeps a greater token');
is(recorded($sub, 'copied'), $later, 'the initial copy replaces a smaller token');

# The token of a later holder arrives, as an insert, then as an update.
fence($sub, 'in-order');
for my $what ('insert', 'update')
{
	my $token = fence($pub, 'in-order');
	caught_up();
	is(recorded($sub, 'in-order'), $token, "a later token replaces the earlier one, $what");
}

# The token of an earlier holder arrives late.
for my $what ('insert', 'update')
{
	$old = fence_late($pub, 'late');
	$new = fence($sub, 'late');
	$pub->query_ok('COMMIT');
	caught_up();
	ok($old < $new && recorded($sub, 'late') eq $new, "a late token changes nothing, $what");
}

# A small token arrives after a great one was recorded: smaller tokens are still refused.
$sub->query_ok(q(INSERT INTO zklock_fences VALUES ('rare', 9223372036854775807, now(), 'x')));
fence($pub, 'rare');
caught_up();
$sub->query_ok(q(SELECT zk_lock('rare')));
fails_with($sub, q(SELECT zk_fence('rare')), '40001', 'a smaller token is still refused');
$sub->query_ok('SELECT zk_unlock_all()');

# Functions that remove rows on the publisher remove none on the subscriber.
$pub->query_ok(q(SELECT zk_fence_reset('in-order')));
my $kept = recorded($sub, 'in-order');
$pub->query_ok(q(INSERT INTO zklock_fences VALUES ('vacuumed', 7, 'epoch', 'x')));
caught_up();
works($pub, q(SELECT zk_fence_vacuum('1 year')), '1', 'an old row is removed');
fails_with($pub, 'TRUNCATE zklock_fences', '55000', 'the table cannot be truncated');
caught_up();
is(recorded($sub, 'in-order'), $kept, 'zk_fence_reset() affects one database');
is(recorded($sub, 'vacuumed'), 7, 'zk_fence_vacuum() affects one database');
fence($pub, 'in-order');
caught_up();
ok(recorded($sub, 'in-order') > $kept, 'the next token arrives');

# The subscriber fences while a change arrives: the apply worker waits.
for my $end ('COMMIT', 'ROLLBACK')
{
	for my $what ('insert', 'update')
	{
		my $lock = "concurrent-$end";
		fence_late($sub, $lock);
		my $token = fence($pub, $lock);
		wait_for_sql($subscriber, <<'SQL', 't');
SELECT count(*) > 0 FROM pg_locks AS l JOIN pg_stat_subscription AS s USING (pid) WHERE NOT granted
SQL
		$sub->query_ok($end);
		caught_up();
		is(recorded($sub, $lock), $token, "an $what that waited for a fence is applied, $end");
	}
}

# zk_fence() waits for another transaction that changes its row.
for my $end ('COMMIT', 'ROLLBACK')
{
	fence($sub, "changing-$end");
	my $writer = session($subscriber);
	$writer->query_ok('BEGIN');
	$writer->query_ok("UPDATE zklock_fences SET token = token + 1 WHERE lock = 'changing-$end'");
	$sub->query_ok("SELECT zk_lock('changing-$end')");
	$sub->query_async("SELECT zk_fence('changing-$end') = zk_lock_token('changing-$end')");
	wait_blocked($sub);
	$writer->query_ok($end);
	is($sub->wait_result, 't', "a fence waits for a change of its row, $end");
	works($sub, "SELECT token = zk_lock_token('changing-$end') FROM zklock_fences WHERE lock = 'changing-$end'",
		't', 'the fence records its token');
	$sub->query_ok('SELECT zk_unlock_all()');
	$writer->quit;
}
{
	fence($sub, 'vanishing');
	my $writer = session($subscriber);
	$writer->query_ok('BEGIN');
	$writer->query_ok("UPDATE zklock_fences SET fenced_at = 'epoch' WHERE lock = 'vanishing'");
	$writer->query_ok("SELECT zk_fence_vacuum('1 year')");
	$sub->query_ok("SELECT zk_lock('vanishing')");
	$sub->query_async("SELECT zk_fence('vanishing') = zk_lock_token('vanishing')");
	wait_blocked($sub);
	$writer->query_ok('COMMIT');
	is($sub->wait_result, 't', 'a fence waits for the removal of its row');
	works($sub, "SELECT token = zk_lock_token('vanishing') FROM zklock_fences WHERE lock = 'vanishing'",
		't', 'the fence records its token');
	$sub->query_ok('SELECT zk_unlock_all()');
	$writer->quit;
}

# After a restore with --disable-triggers the table's triggers do not fire in apply workers.
# Fences stop until they do.
my $archive = $publisher->basedir . '/fences';
$publisher->command_ok([ 'pg_dump', '-Fc', '-f', $archive, $publisher->connstr('postgres') ], 'dump');
$sub->query_ok('SELECT zk_fence_reset()');
$subscriber->command_ok(
	[ 'pg_restore', '-e', '--data-only', '--disable-triggers', '-t', 'zklock_fences', '-d', $subscriber->connstr('postgres'), $archive ],
	'restore with --disable-triggers');
is(recorded($sub, 'late'), recorded($pub, 'late'), '... restores tokens');
$sub->query_ok(q(SELECT zk_lock('restored')));
fails_with($sub, q(SELECT zk_fence('restored')), '55000', 'fences stop after a restore with --disable-triggers',
	like => qr/HINT:.*ENABLE ALWAYS TRIGGER/);
$sub->query_ok('ALTER TABLE zklock_fences ENABLE ALWAYS TRIGGER zklock_fences_keep, ENABLE ALWAYS TRIGGER zklock_fences_keep_all');
works($sub, q(SELECT zk_fence('restored') = zk_lock_token('restored')), 't', '... until the statement of the hint has run');
$sub->query_ok('SELECT zk_unlock_all()');
for my $what ('update', 'insert')
{
	my $lock = $what eq 'update' ? 'late' : 'late-restored';
	$old = fence_late($pub, $lock);
	$new = fence($sub, $lock);
	$pub->query_ok('COMMIT');
	caught_up();
	ok($old < $new && recorded($sub, $lock) eq $new, "a late token changes nothing, $what");
}

# Replication connections and apply workers have no session-level locks.
{
	my (undef, undef, $error) = $publisher->psql('postgres', q(SELECT zk_lock('stream')), replication => 'database');
	like($error, qr/session-level locks are not available in replication connections/, 'no session-level lock in a walsender');
	is($publisher->safe_psql('postgres', q(SELECT zk_xact_lock('stream') > 0), replication => 'database'), 't',
		'... but one at transaction level');
	$_->query_ok('CREATE TABLE applied (i int PRIMARY KEY)') for $pub, $sub;
	$sub->query_ok(<<'SQL');
CREATE FUNCTION locks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM public.zk_xact_lock('applied');
	BEGIN
		PERFORM public.zk_lock('applied');
	EXCEPTION WHEN feature_not_supported THEN
		RETURN NEW;
	END;
	RETURN NULL;
END $$;
CREATE TRIGGER locks BEFORE INSERT ON applied FOR EACH ROW EXECUTE FUNCTION locks();
ALTER TABLE applied ENABLE ALWAYS TRIGGER locks;
ALTER SUBSCRIPTION fences REFRESH PUBLICATION;
SQL
	wait_for_sql($subscriber, q(SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel));
	$pub->query_ok('INSERT INTO applied VALUES (1)');
	caught_up();
	works($sub, 'SELECT count(*) FROM applied', '1', '... likewise in an apply worker');
}

my $log = read_file($subscriber->logfile);
unlike($log, qr/ERROR:.*(duplicate key|concurrently updated)/, 'the apply worker had no error');
is(() = $log =~ /logical replication apply worker .* has started/g, 1, 'the apply worker was never restarted');
nothing_left($zkc, 'nothing is left in the ensemble');

$sub->query_ok('DROP SUBSCRIPTION fences');

done_testing();
