# A cancel by another session is never lost because zklock cancels the statement at the
# same time. A cancel by zklock also ends child programs. zklock withdraws its cancel when the
# lost lock is released, and does not cancel the ROLLBACK of a failed transaction.
#
# Promise: 5.10
# Tags: edges

use Time::HiRes qw(time);
use ZkLock::Pipeline;
use ZkLock::Test;
use ZkLock::Uninterruptible;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk);
my $block = ZkLock::Uninterruptible->new($node);
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

# If the timeout passes before the statement blocks, again with a longer one.
my %cancels = (
	'pg_cancel_backend()' => [
		[0], qr/due to user request/, sub { $_[0]->cancel }
	],
	statement_timeout => [
		[ 3, 9, 27 ], qr/due to statement timeout/,
		sub {
			my (undef, $end) = @_;
			wait_until('the timeout', sub { time > $end });
		}
	]);

# Returns a session whose statement ends with both cancels pending.
sub both_pending
{
	my ($kind, $sql) = @_;
	my ($timeouts, undef, $cancel) = @{ $cancels{$kind} };
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('both')");
	my $id = zk_session_id($s);
	my $end;
	for my $timeout (@$timeouts)
	{
		$s->query_ok("SET statement_timeout = '${timeout}s'");
		$s->query_async($sql);
		$block->wait_until_blocked($s, or => sub { $s->finished });

		# The timer of the timeout was started before.
		$end = time + $timeout;
		last if !$s->finished;
		$s->wait_result;
	}
	lose_lock($zk, $zkc, 'both', $id);
	$cancel->($s, $end);
	$block->end;
	return $s;
}

for my $kind (sort keys %cancels)
{
	# When the statement releases the lock, or handles its loss.
	my $s = both_pending($kind, <<"SQL");
DO \$\$
DECLARE
	released boolean;
BEGIN
	BEGIN
		released := @{[ $block->sql ]} = 1 AND zk_unlock('both');
	EXCEPTION WHEN serialization_failure THEN
		released := false;
	END;
	PERFORM pg_sleep(10);
END \$\$
SQL
	failed_with($s, '57014', "$kind is not lost at the same time as a loss", like => $cancels{$kind}[1], hint => 0);
	$s->query_ok('RESET statement_timeout');
	works($s, 'SELECT pg_sleep(0)', '', "$kind ends one statement only");
	$s->quit;

	# At PostgreSQL's next check, inside a block that catches the loss alone. A cancel by a user is not
	# caught by OTHERS; the whole statement ends, with the error of the loss.
	$s = both_pending($kind, <<"SQL");
DO \$\$
BEGIN
	BEGIN
		PERFORM @{[ $block->sql ]}, pg_sleep(0.01);
	EXCEPTION WHEN OTHERS THEN
	END;
	RAISE 'the statement runs on';
END \$\$
SQL
	failed_with($s, '40001', "a block that catches a loss does not catch $kind that comes at the same time", like => qr/lock "both" was lost/);
	$s->query_ok('RESET statement_timeout');
	works($s, 'SELECT pg_sleep(0)', '', "$kind and the loss together end one statement");
	$s->quit;
}

# Returns whether the program of a COPY runs. The backend has waited for its end when the statement has ended.
sub program_runs
{
	my ($s) = @_;
	return system('pgrep -P ' . $s->pid . ' -x sleep >/dev/null') == 0;
}

# A program started by the backend.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('program')");
	my $id = zk_session_id($s);
	$s->query_async("COPY t FROM PROGRAM 'exec sleep 100'");
	wait_until('the program', sub { program_runs($s) });
	lose_lock($zk, $zkc, 'program', $id);
	failed_with($s, '40001', 'a loss ends a statement that reads from a program', like => qr/"program"/);
	ok(!program_runs($s), 'a loss ends the program that a statement reads from');
	works($s, 'SELECT pg_sleep(0)', '', 'the loss that ended a program ends no other statement');
	$s->quit;
}

# The same in a block that handles the errors of the program.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('program')");
	my $id = zk_session_id($s);
	$s->query_async(<<'SQL');
DO $$
BEGIN
	BEGIN
		COPY t FROM PROGRAM 'exec sleep 100';
	EXCEPTION WHEN OTHERS THEN
	END;
	PERFORM pg_sleep(60);
END $$
SQL
	wait_until('the program in a block', sub { program_runs($s) });
	lose_lock($zk, $zkc, 'program', $id);
	failed_with($s, '40001', 'a loss that ends a program in a block is reported as a loss', like => qr/"program"/);
	works($s, 'SELECT pg_sleep(0)', '', 'the loss that ended a program in a block is reported once');
	$s->quit;
}

# A deferred trigger, whose statements run inside no other one; a loop over a query has a portal of its own.
for my $wait ('PERFORM %s, pg_sleep(0.01);', 'FOR r IN SELECT %s, pg_sleep(0.01) LOOP END LOOP;')
{
	my $waits = sprintf $wait, $block->sql;
	my ($kind) = $wait =~ /^(\w+)/;
	$node->safe_psql('postgres', <<"SQL");
DROP TABLE IF EXISTS deferred;
CREATE OR REPLACE FUNCTION catches() RETURNS trigger LANGUAGE plpgsql AS \$\$
DECLARE
	r record;
BEGIN
	BEGIN
		$waits
	EXCEPTION WHEN OTHERS THEN
	END;
	RAISE 'the commit goes on';
END \$\$;
CREATE TABLE deferred (v text);
CREATE CONSTRAINT TRIGGER d AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION catches();
SQL
	my $s = both_pending('pg_cancel_backend()', "INSERT INTO deferred VALUES ('x')");
	failed_with($s, '57014', "a deferred trigger that handles a loss does not catch a cancel that comes at the same time: $kind",
		like => qr/due to user request/, hint => 0);
	fails_with($s, 'SELECT 1', '40001', "the statement after a cancelled commit reports the loss: $kind", like => qr/lock "both" was lost/);
	works($s, 'SELECT pg_sleep(0)', '', "the loss and the cancel of a commit end one statement each: $kind");
	$s->quit;
}

# A failed PL/pgSQL block releases the lock while the cancel is pending. The commit is refused.
for my $others (0, 1)
{
	my $s = connected_session($node);
	my $with = $others ? 'with another lock' : 'with no other lock';
	$s->query_ok("SELECT zk_lock('other')") if $others;
	my $id = zk_session_id($s);
	$s->query_async(<<"SQL");
DO \$\$
BEGIN
	BEGIN
		PERFORM zk_xact_lock('inner');
		PERFORM @{[ $block->sql ]} / 0;
	EXCEPTION WHEN division_by_zero THEN
		PERFORM pg_sleep(0.01);
	END;
END \$\$
SQL
	$block->wait_until_blocked($s);
	lose_lock($zk, $zkc, 'inner', $id);
	$block->end;
	$s->wait_result;
	is($s->error =~ s/^.*?ERROR: +//sr =~ s/\n.*//sr,
		'could not commit because a lock that this transaction relied on was lost',
		"a loss of a lock that a failed block releases cancels nothing, $with");
	works($s, 'SELECT pg_sleep(0)', '', "the next statement succeeds, $with");
	works($s, 'SELECT count(*) FROM zk_held_locks', $others, "the other locks are held, $with");
	$s->quit;
}

# A handler around the function catches a loss that has ended a block of the function, in a statement or in an
# expression, whose rollback has released the lock.
for my $sleep ('PERFORM pg_sleep(600)', 'x := pg_sleep(600)')
{
	my $s = connected_session($node);
	my $id = zk_session_id($s);
	$node->safe_psql('postgres', <<"SQL");
CREATE OR REPLACE FUNCTION waits_in_block() RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE
	x text;
BEGIN
	BEGIN
		x := zk_xact_lock('inner');
		$sleep;
	EXCEPTION WHEN division_by_zero THEN
	END;
END \$\$
SQL
	$s->query_async(<<'SQL');
DO $$
BEGIN
	PERFORM waits_in_block();
EXCEPTION WHEN serialization_failure THEN
	RAISE NOTICE 'handled: %', SQLERRM;
END $$
SQL
	wait_asleep($s);
	lose_lock($zk, $zkc, 'inner', $id);
	$s->wait_result;
	like($s->error, qr/handled: lock "inner" was lost/, "a handler catches a loss whose lock a block has released: $sleep");
	is($s->sqlstate, '40001', "the commit is refused after that: $sleep");
	works($s, 'SELECT pg_sleep(0)', '', "the loss that was handled ends no other statement: $sleep");
	$s->quit;
}

# A cancel that the body of a loop has caught does not make a loss in the query of the loop somebody else's.
{
	my ($gate, $s) = map { session($node) } 1, 2;
	$gate->query_ok('SELECT pg_advisory_lock(77)');
	$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION waits_at_11(g int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	x text;
BEGIN
	IF g = 11 THEN
		x := pg_advisory_lock(77);
	END IF;
	RETURN g;
END $$
SQL
	$s->query_ok("SELECT zk_lock('lost')");
	my $id = zk_session_id($s);
	$s->query_async(<<'SQL');
DO $$
DECLARE
	x text;
	r record;
BEGIN
	FOR r IN SELECT waits_at_11(g) AS g FROM generate_series(1, 20) g LOOP
		BEGIN
			IF r.g = 1 THEN
				x := pg_sleep(600);
			END IF;
		EXCEPTION WHEN query_canceled THEN
		END;
	END LOOP;
EXCEPTION WHEN serialization_failure THEN
	RAISE NOTICE 'handled: %', SQLERRM;
END $$
SQL
	wait_asleep($s);
	$s->cancel;
	wait_blocked_locally($s);
	lose_lock($zk, $zkc, 'lost', $id);
	$s->wait_result;
	like($s->error, qr/handled: lock "lost" was lost/, 'a handler catches a loss in a loop whose body has caught a cancel');
	$_->quit for $s, $gate;
}

# A cancel that a handler raises again after an attempt whose timeout has passed is not taken for a loss, which the
# rollback of the handler's block has left unreported.
{
	my ($holder, $s) = (session($node), connected_session($node));
	my $id = zk_session_id($s);
	$holder->query_ok("SELECT zk_lock('journal')");
	$node->safe_psql('postgres', <<"SQL");
CREATE FUNCTION raises_again() RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE
	is_locked boolean;
BEGIN
	PERFORM zk_xact_lock('inner');
	PERFORM @{[ $block->sql ]}, pg_sleep(0.01);
EXCEPTION WHEN query_canceled THEN
	is_locked := zk_try_lock('journal', '100ms');
	RAISE;
END \$\$
SQL
	$s->query_async(<<'SQL');
DO $$
BEGIN
	BEGIN
		PERFORM raises_again();
	EXCEPTION WHEN OTHERS THEN
	END;
	RAISE 'the statement runs on';
END $$
SQL
	$block->wait_until_blocked($s);
	lose_lock($zk, $zkc, 'inner', $id);
	$s->cancel;
	$block->end;
	failed_with($s, '40001', 'a cancel that is raised again after an attempt ends the whole statement', like => qr/lock "inner" was lost/);
	$_->quit for $s, $holder;
}

# The cancel ends a PL/pgSQL block in an expression, which calls no hook. PL/pgSQL rolls the block back,
# which releases the lost lock, before zklock sees the error.
for my $caught ('division_by_zero', 'OTHERS')
{
	my $s = connected_session($node);
	my $id = zk_session_id($s);
	$s->query_async(<<"SQL");
DO \$\$
DECLARE
	x text;
BEGIN
	BEGIN
		x := zk_xact_lock('inner');
		x := pg_sleep(600);
	EXCEPTION WHEN $caught THEN
	END;
	x := pg_sleep(600);
END \$\$
SQL
	wait_asleep($s);
	lose_lock($zk, $zkc, 'inner', $id);
	failed_with($s, '40001', "a loss that ends a block with a handler for $caught is reported as a loss",
		like => qr/lock "inner" was lost/);
	works($s, 'SELECT pg_sleep(0)', '', "the loss that ended a block with a handler for $caught is reported once");
	$s->quit;
}

# A ROLLBACK that PostgreSQL parses for a long time. A loss that is noticed after the ROLLBACK
# comes too late, so this is repeated.
{
	my $observer = session($node);
	my $p = ZkLock::Pipeline->new($node);
	my $activity = q{SELECT state FROM pg_stat_activity WHERE query ~ '^ROLLBACK'};
	my (@states, $state);
	wait_until('a loss during a ROLLBACK', sub {
		$p->query("SELECT zk_lock('failed')");
		my $id = $observer->query_ok("SELECT session_id FROM zk_locks WHERE name = 'failed'");
		wait_watched($zk, 'failed');
		$p->query('BEGIN');
		$p->query('SELECT 1 / 0');
		$p->start_query('ROLLBACK ' . "/**/\n" x 20_000_000);
		wait_until('ROLLBACK', sub { $observer->query_ok($activity) });
		lose_lock($zk, $zkc, 'failed', $id);
		my $still = $observer->query_ok($activity);
		@states = $p->until_ready;
		wait_until('the report', sub { ($state) = $p->query('SELECT 1'); $state ne '00000' });
		return $still eq 'active';
	});
	is_deeply(\@states, ['00000'], 'a loss does not cancel the ROLLBACK of a failed transaction');
	is($state, '40001', 'the statement after the ROLLBACK reports the loss');
	is_deeply([ $p->query('SELECT 1') ], ['00000'], 'the loss that the ROLLBACK met is reported once');
	$observer->quit;
}

# A user cancels the ROLLBACK of a failed transaction after a loss. A cancel that arrives when
# PostgreSQL has parsed the ROLLBACK comes too late, so this is repeated.
{
	my $p = ZkLock::Pipeline->new($node);
	my $observer = session($node);
	my @states;
	wait_until('a cancelled ROLLBACK', sub {
		$p->query("SELECT zk_lock('failed')");
		my $id = $observer->query_ok("SELECT session_id FROM zk_locks WHERE name = 'failed'");
		$p->query('BEGIN');
		$p->query('SELECT 1 / 0');
		lose_lock($zk, $zkc, 'failed', $id);
		$p->start_query('ROLLBACK ' . "/**/\n" x 10_000_000);
		wait_until('the cancel', sub {
			$observer->query_ok(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query ~ '^ROLLBACK'}) eq 't';
		});
		@states = $p->until_ready;
		return 1 if $states[0] ne '00000';
		$p->query('SELECT 1');
		return 0;
	});
	is_deeply(\@states, ['57014'], 'the cancel of a ROLLBACK by a user is not reported as a loss');
	is_deeply([ $p->query('ROLLBACK') ], ['00000'], 'the next ROLLBACK after a cancelled one succeeds');
	is_deeply([ $p->query('SELECT 1') ], ['40001'], 'the statement after a cancelled ROLLBACK reports the loss');
	is_deeply([ $p->query('SELECT 1') ], ['00000'], 'the loss that the cancelled ROLLBACK met is reported once');
	$observer->quit;
}

# A cancel by a user that a block has caught; then a loss that zk_unlock() reports while its own cancel is pending. This
# cancel is withdrawn: it does not end the handler of the loss.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('both')");
	my $id = zk_session_id($s);
	$s->query_async(<<"SQL");
DO \$\$
DECLARE
	x text;
	released boolean;
BEGIN
	BEGIN
		x := pg_sleep(600);
	EXCEPTION WHEN query_canceled THEN
	END;
	BEGIN
		released := @{[ $block->sql ]} = 1 AND zk_unlock('both');
	EXCEPTION WHEN serialization_failure THEN
		x := pg_sleep(0.01);
		RAISE NOTICE 'handled: %', SQLERRM;
	END;
END \$\$
SQL
	wait_asleep($s);
	$s->cancel;
	$block->wait_until_blocked($s);
	lose_lock($zk, $zkc, 'both', $id);
	$block->end;
	$s->wait_result;
	like($s->error, qr/handled: lock "both" was lost/, 'the cancel of a loss that is reported does not end the handler of the loss');
	is($s->sqlstate, '40001', 'a commit behind a handler of the loss is refused');
	$s->quit;
}

# A second loss in a transaction, whose lock the rollback of a block releases.
{
	my $s = connected_session($node);
	my $id = zk_session_id($s);
	$s->query_async(<<'SQL');
DO $$
DECLARE
	x text;
BEGIN
	BEGIN
		PERFORM zk_xact_lock('first'), pg_sleep(600);
	EXCEPTION WHEN serialization_failure THEN
	END;
	BEGIN
		x := zk_xact_lock('second');
		x := pg_sleep(600);
	EXCEPTION WHEN division_by_zero THEN
	END;
END $$
SQL
	wait_asleep($s);
	lose_lock($zk, $zkc, 'first', $id);
	wait_watched($zk, 'second');
	wait_asleep($s);
	lose_lock($zk, $zkc, 'second', $id);
	failed_with($s, '40001', 'a second loss, whose lock the rollback of its block has released, is reported as a loss', like => qr/lock "second" was lost/);
	$s->quit;
}

# Of several lost locks, the rollback of blocks has released some before the loss is reported: the error counts them, too.
for my $outer ('NULL', "PERFORM zk_lock('outer')")
{
	my $s = connected_session($node, session_timeout => '3s');
	$s->query_async(<<"SQL");
DO \$\$
DECLARE
	x text;
BEGIN
	$outer;
	BEGIN
		x := zk_xact_lock('middle');
		BEGIN
			x := zk_xact_lock('inner');
			x := pg_sleep(600);
		EXCEPTION WHEN division_by_zero THEN
		END;
	EXCEPTION WHEN division_by_zero THEN
	END;
END \$\$
SQL
	wait_asleep($s);
	$zk->pause;
	my $names = $outer eq 'NULL' ? '"inner" and 1 other' : '"outer" and 2 others';
	failed_with($s, '40001', "the error of a loss counts locks that the rollback of blocks has released, with: $outer", like => qr/locks $names were lost/);
	$zk->resume;
	$s->query('SELECT zk_unlock_all()');
	$s->quit;
}

nothing_left($zkc, 'nothing is left');
