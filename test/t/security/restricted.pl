# The owner of a table or a materialized view writes code that a superuser's maintenance
# commands run in the superuser's session. That code cannot acquire, release or give up the
# locks of the session, nor hide that one was lost.
#
# Promise: 5.3
# Tags: edges

use ZkLock::Test;

my $zk = shared_zk();
my $node = shared_node('a', zk => $zk);
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION zklock_advisory;
CREATE ROLE hostile LOGIN;
GRANT CREATE ON SCHEMA public TO hostile;
SQL

# The code runs what its owner writes into a table.
my $owner = session($node, user => 'hostile');
$owner->query_ok(<<'SQL');
CREATE TABLE attack (statement text);
INSERT INTO attack VALUES ('SELECT 1');
CREATE FUNCTION run() RETURNS void LANGUAGE plpgsql AS $$
DECLARE s text;
BEGIN
	SELECT statement INTO s FROM public.attack;
	EXECUTE s;
END $$;
CREATE FUNCTION expression(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN PERFORM public.run(); RETURN v; END $$;
CREATE FUNCTION row_of_view() RETURNS int LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.run(); RETURN 1; END $$;
CREATE TABLE indexed (v int);
INSERT INTO indexed SELECT generate_series(1, 10);
CREATE INDEX indexed_v ON indexed (public.expression(v));
CLUSTER indexed USING indexed_v;
CREATE TABLE counted (v int);
INSERT INTO counted SELECT generate_series(1, 10);
CREATE STATISTICS counted_v ON (public.expression(v)) FROM counted;
CREATE MATERIALIZED VIEW seen AS SELECT public.row_of_view() AS v;
SQL

my @commands = ('VACUUM FULL indexed', 'ANALYZE indexed', 'ANALYZE counted', 'REINDEX TABLE indexed',
	'REINDEX INDEX CONCURRENTLY indexed_v', 'CLUSTER indexed', 'REFRESH MATERIALIZED VIEW seen',
	'CREATE INDEX other ON indexed ((public.expression(v) + 1))');
my @attacks = (
	q(SELECT public.zk_unlock_all()), q(SELECT public.zk_unlock('held')), q(SELECT public.zk_unlock_many(ARRAY['held'])),
	q(SELECT public.zk_unlock('1')), q(SELECT public.zk_unlock('1,2')), q(SELECT public.zk_unlock_shared('shared')),
	q(SELECT public.zk_release_permit('permit')), q(SELECT public.zk_lock('planted')), q(SELECT public.zk_lock('held')),
	q(SELECT public.zk_lock_many(ARRAY['planted'])), q(SELECT public.zk_lock_shared('planted')), q(SELECT public.zk_try_lock('planted')),
	q(SELECT public.zk_try_lock('planted', '1s')), q(SELECT public.zk_try_lock_shared('7')), q(SELECT public.zk_acquire_permit('planted', 1)),
	q(SELECT public.zk_try_acquire_permit('planted', 1)), q(SELECT zklock_advisory.pg_advisory_unlock_all()),
	q(SELECT zklock_advisory.pg_advisory_unlock(3)), q(SELECT zklock_advisory.pg_advisory_lock(4)),
	q(SELECT zklock_advisory.pg_try_advisory_lock(4)), 'CALL public.zk_lock_wait(\'planted\')',
);

my $s = session($node);
$s->query_ok("SELECT zk_lock('held'), zk_lock_shared('shared'), zk_lock('1'), zk_lock('1,2'), zk_acquire_permit('permit', 2), zklock_advisory.pg_advisory_lock(3)");
my $held = 'SELECT string_agg(kind || name || mode || level || hold_count, chr(44) ORDER BY name) FROM zk_held_locks';
my $before = $s->query_ok($held);

for my $attack (@attacks)
{
	my $quoted = $attack =~ s/'/''/gr;
	$owner->query_ok("UPDATE attack SET statement = '$quoted'");
	my $state = $attack =~ /^CALL/ ? '25001' : '42501';
	# one command for each attack, and all commands for one of them
	my @some = $attack eq $attacks[0] ? @commands : $commands[ length($attack) % @commands ];
	fails_with($s, $_, $state, "$attack in $_ fails", hint => $state eq '42501') for @some;
	works($s, $held, $before, "$attack in $_ changes no lock");
}

# What ends with the command, or changes nothing, is allowed.
for my $allowed (q(SELECT public.zk_xact_lock('own')), q(SELECT public.zk_try_xact_lock('own')), q(SELECT public.zk_lock_token('held')),
	q(SELECT * FROM public.zk_held_locks))
{
	my $quoted = $allowed =~ s/'/''/gr;
	$owner->query_ok("UPDATE attack SET statement = '$quoted'");
	$s->query_ok('ANALYZE indexed');
	works($s, $held, $before, "$allowed is allowed there, and keeps nothing");
}

# The code catches the error of a loss, so the command succeeds, and the session still learns of it.
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
$owner->query_ok(<<'SQL');
CREATE FUNCTION hide() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		BEGIN
			PERFORM pg_catalog.pg_sleep(0.02);
			PERFORM public.zk_fence('none');
		EXCEPTION
			WHEN serialization_failure THEN RETURN;
			WHEN OTHERS THEN NULL;
		END;
	END LOOP;
END $$;
UPDATE attack SET statement = 'SELECT public.hide()';
SQL
my $other = session($node);
for my $command ('VACUUM FULL indexed', 'ANALYZE indexed', 'REINDEX INDEX CONCURRENTLY indexed_v')
{
	for my $idle (0, 1)
	{
		$s->query_ok("SELECT zk_lock('lost')");
		my $id = zk_session_id($s);
		$s->query_async($command);
		wait_asleep($s);
		lose_lock($zk, $zkc, 'lost', $id);
		$s->wait_result;
		works($other, q(SELECT zk_try_lock('lost', '20s'), zk_unlock('lost')), 't|t', "$command: the lost lock blocks nobody") if $idle;
		# The command or the next statement: not both.
		$s->query('SELECT 1') if $s->sqlstate ne '40001';
		is($s->sqlstate, '40001', "$command: the session learns that it has lost a lock");
		like($s->error, qr/"lost"/, "$command: the lost lock is named");
		works($s, 'SELECT 1', '1', "$command: the loss is reported once");
		works($s, $held, $before, "$command: the session holds its other locks");
	}
}

# Nobody catches the error, so the client has got it.
my $lost = $node->safe_psql('postgres', 'SELECT locks_lost FROM zk_stat');
$owner->query_ok("UPDATE attack SET statement = 'SELECT pg_catalog.pg_sleep(60) WHERE public.zk_xact_lock(''view'') > 0'");
$s->query_ok("SELECT zk_lock('lost')");
my $holder = zk_session_id($s);
$s->query_ok('BEGIN');
$s->query_async('REFRESH MATERIALIZED VIEW seen');
wait_asleep($s);
lose_lock($zk, $zkc, 'lost', $holder);
failed_with($s, '40001', 'a loss in REFRESH ends it', like => qr/"lost"/);
$s->query_ok('ROLLBACK');
$owner->query_ok("UPDATE attack SET statement = 'SELECT public.zk_xact_lock(''view'')'");
works($s, 'BEGIN; REFRESH MATERIALIZED VIEW seen; COMMIT', '', 'the transaction of a REFRESH that a loss has ended can be repeated');
works($s, $held, $before, 'the session of a REFRESH that a loss has ended holds its other locks');

# A fence that waits for the transaction of an earlier holder.
$other->query_ok(q(SELECT zk_lock('fenced')));
$other->query_ok(q(BEGIN; SELECT zk_fence('fenced'), zk_unlock('fenced')));
$s->query_ok(q(BEGIN; SELECT zk_xact_lock('fenced')));
$s->query_async(q(SELECT zk_fence('fenced')));
wait_blocked($s);
lose_lock($zk, $zkc, 'fenced', $holder);
failed_with($s, '40001', 'a loss while a fence waits is reported', like => qr/"fenced"/);
$s->query_ok('ROLLBACK');
works($s, 'SELECT 1', '1', 'a loss while a fence waits is reported once');

# A handler around it runs.
$s->query_ok(q(BEGIN; SELECT zk_xact_lock('fenced')));
$s->query_async(q(DO $$ BEGIN PERFORM zk_fence('fenced'); EXCEPTION WHEN serialization_failure THEN RAISE NOTICE 'caught'; END $$));
wait_blocked($s);
lose_lock($zk, $zkc, 'fenced', $holder);
$s->wait_result;
like($s->error, qr/NOTICE:\s+caught/, 'a handler of the session runs after a loss while a fence waits');
fails_with($s, 'COMMIT', '40001', 'the transaction whose fence waited during a loss cannot commit', like => qr/"fenced"/);
$other->query_ok('ROLLBACK');
works($other, "SELECT locks_lost - $lost FROM zk_stat", '3', 'all losses are counted');
$other->quit;

# Outside such a command, code of others runs with the rights of the session, as in PostgreSQL.
$owner->query_ok("UPDATE attack SET statement = 'SELECT public.zk_unlock_all()'");
$s->query_ok('SELECT expression(1)');
works($s, 'SELECT count(*) FROM zk_held_locks', '0', 'a call that the session itself makes is not restricted');
