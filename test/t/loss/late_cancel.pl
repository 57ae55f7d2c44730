# A cancel by a user is not taken for one of zklock's that comes a moment later, while the error of
# the first is on its way to those who handle it: a timed attempt does not answer with false, and no
# handler for a loss catches it.
#
# Promise: 5.10
# Tags: edges

use ZkLock::Test;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $node = zklock_node('a', zk => $zk);
my $library = shim_library($node, 'late_cancel');
$node->safe_psql('postgres', "CREATE FUNCTION $_ STRICT LANGUAGE c AS '$library'")
  for 'until_next_cancel(text) RETURNS void', 'after_error(text) RETURNS void', 'leave_child() RETURNS void';
$node->safe_psql('postgres', "CREATE PROCEDURE commits() LANGUAGE c AS '$library'");
my $held_up = $node->data_dir . '/held_up';
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 120);

# Cancels the statement of the session, as pg_cancel_backend() does. Returns when its error is held up; or
# false, if zklock's cancel was first, whose error then goes on.
sub cancel_held_up
{
	my ($s) = @_;
	my $is_late = -e $held_up;
	kill 'INT', $s->pid;
	return 0 if $is_late;
	wait_until('the error', sub { -e $held_up || $s->finished });
	return unlink $held_up;
}

# Returns a block of PL/pgSQL that handles a loss, and must not handle a cancel.
sub handled
{
	my ($statement, $function) = @_;
	$function //= 'until_next_cancel';
	return <<"SQL";
DO \$\$
BEGIN
	BEGIN
		PERFORM $function('$statement');
	EXCEPTION WHEN OTHERS THEN
	END;
	RAISE 'the statement runs on';
END \$\$
SQL
}

# The timeout of an attempt. If it passes before the cancel, this is repeated.
{
	my ($holder, $s) = map { session($node) } 1, 2;
	$holder->query_ok("SELECT zk_lock('taken')");
	wait_until('a cancel before the timeout', sub {
		$s->query_async(q{SELECT until_next_cancel($$SELECT zk_try_lock('taken', '5s')$$)});
		wait_blocked($s, or => sub { $s->finished });
		return 1 if cancel_held_up($s);
		$s->wait_result;
		unlink $held_up;
		return 0;
	});
	failed_with($s, '57014', 'a cancel is not lost when the timeout of an attempt passes at the same time',
		like => qr/due to user request/, hint => 0);
	works($s, 'SELECT pg_sleep(0.01)', '', 'a cancel and a timeout together end one statement');
	works($s, "SELECT zk_try_lock('taken', '10ms')", 'f', 'the next attempt returns false');
	$_->quit for $s, $holder;
}

# A loss.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('lost')");
	my $id = zk_session_id($s);
	$s->query_async(handled('SELECT pg_sleep(600)'));
	wait_asleep($s);
	ok(cancel_held_up($s), 'the cancel by a user is first');
	lose_lock($zk, $zkc, 'lost', $id);
	failed_with($s, '40001', 'a handler for a loss does not catch a cancel that was there first', like => qr/lock "lost" was lost/);
	works($s, 'SELECT pg_sleep(0.01)', '', 'the cancel and the later loss end one statement');
	$s->quit;
}

# A loss that comes after a handler of the cancel has executed a statement and raised the cancel again.
{
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE log (v text);
CREATE FUNCTION logs() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(600);
EXCEPTION WHEN query_canceled THEN
	INSERT INTO log VALUES ('cancelled');
	RAISE;
END $$
SQL
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('lost')");
	my $id = zk_session_id($s);
	$s->query_async(handled('SELECT logs()', 'after_error'));
	wait_asleep($s);
	ok(cancel_held_up($s), 'the cancel by a user is raised again');
	lose_lock($zk, $zkc, 'lost', $id);
	failed_with($s, '40001', 'a handler for a loss does not catch a cancel that was handled and raised again', like => qr/lock "lost" was lost/);
	$s->quit;
}

# Returns a session that asks a silent ensemble, and whose cancel is held up until the loss. If the lock is lost
# before the cancel, this is repeated.
sub cancelled_in_silence
{
	my ($setup, $statement) = @_;
	my $s;
	wait_until("a cancel before the loss: $statement", sub {
		$s = session_with($node, session_timeout => '20s');
		$s->query_ok($setup);
		$zk->pause;
		$s->query_async($statement);
		wait_blocked($s, or => sub { $s->finished });
		return 1 if cancel_held_up($s);
		$zk->resume;
		$s->wait_result;
		$s->quit;
		unlink $held_up;
		return 0;
	});
	return $s;
}

# While zk_fence() asks the ensemble, as it does when a kept lock was acquired again.
{
	my $s = cancelled_in_silence(
		"SET zklock.keep_time = '10min'; SELECT zk_lock('kept'), zk_unlock('kept'), zk_lock('kept')",
		handled("SELECT zk_fence(''kept'')"));
	failed_with($s, '40001', 'a handler for the loss of a lock that is fenced does not catch a cancel', like => qr/lock "kept" was lost/);
	$zk->resume;
	works($s, 'SELECT pg_sleep(0.01)', '', 'the cancel of a fence and the loss end one statement');
	$s->quit;
}

# A procedure in C can catch the error of its commit.
{
	my $s = cancelled_in_silence("SET zklock.commit_check = always; SELECT zk_lock('commit')", 'CALL commits()');
	$s->wait_result;
	like($s->error, qr/the commit has failed with 57014/, 'a cancel of the commit of a procedure is not reported as a loss that comes at the same time');
	$zk->resume;
	$s->query('SELECT zk_unlock_all()');
	$s->quit;
}

# A cancel that a procedure has caught does not make a later loss somebody else's, while its commit asks the ensemble.
{
	$node->safe_psql('postgres', <<'SQL');
CREATE PROCEDURE commits_later() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM zk_xact_lock('later');
	BEGIN
		PERFORM pg_sleep(600);
	EXCEPTION WHEN query_canceled THEN
	END;
	COMMIT;
END $$
SQL
	my $s = session_with($node, session_timeout => '10s');
	$s->query_ok('SET zklock.commit_check = always');
	$s->query_async('CALL commits_later()');
	wait_asleep($s);
	$zk->pause;
	$s->cancel;
	failed_with($s, '40001', 'a loss in the check of a commit behind a cancel that was caught is reported as a loss', like => qr/lock "later" was lost/);
	$zk->resume;
	$s->quit;
}

# One cancel is one error: a handler of it is not ended by the timeout of the attempt, which has passed meanwhile. If
# the timeout passes before the cancel, this is repeated.
{
	my ($holder, $s) = map { session($node) } 1, 2;
	$holder->query_ok("SELECT zk_lock('taken')");
	wait_until('a cancel before the timeout', sub {
		$s->query_async(<<'SQL');
DO $$
DECLARE
	x text;
BEGIN
	PERFORM until_next_cancel('SELECT zk_try_lock(''taken'', ''5s'')');
EXCEPTION WHEN query_canceled THEN
	x := pg_sleep(0.01);
	RAISE NOTICE 'handled: %', SQLERRM;
END $$
SQL
		wait_blocked($s, or => sub { $s->finished });
		return 1 if cancel_held_up($s);
		$s->wait_result;
		unlink $held_up;
		return 0;
	});
	$s->wait_result;
	like($s->error, qr/handled: canceling statement due to user request/, 'the timeout of an attempt does not end the handler of a cancel');
	$_->quit for $s, $holder;
}

# A child process that has ended, and that nobody has asked about, gets no signal.
{
	my $s = session($node);
	$s->query_ok("SELECT leave_child(), zk_lock('lost')");
	my $id = zk_session_id($s);
	$s->query_async(<<'SQL');
DO $$
BEGIN
	PERFORM pg_sleep(600);
EXCEPTION WHEN serialization_failure THEN
	RAISE NOTICE 'handled: %', SQLERRM;
END $$
SQL
	wait_asleep($s);
	lose_lock($zk, $zkc, 'lost', $id);
	$s->wait_result;
	like($s->error, qr/handled: lock "lost" was lost/, 'a handler catches a loss in a backend with a child that has ended');
	$s->quit;
}

nothing_left($zkc, 'nothing is left');
