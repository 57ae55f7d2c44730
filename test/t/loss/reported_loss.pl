# A lost lock is reported at once and exactly once, as an error: the running statement
# fails with 40001, or an idle session gets the error with its next statement. A lock
# whose node was removed by hand is lost, too.
#
# Promises: 5.3, 5.4
# Tags: edges

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = shared_node('a', zk => $zk);
my $cut_off = shared_node('cut_off', proxy => $proxy, session_timeout => '12s');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE t (v text);
CREATE TABLE locked ();
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
	AS 'BEGIN PERFORM pg_sleep(600); RETURN NULL; END';
CREATE TABLE checked_late (v text);
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON checked_late
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow();
CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS 'DECLARE n bigint := 0; BEGIN LOOP n := n + 1; END LOOP; END';
CREATE TABLE busy_after (v text);
CREATE TRIGGER busy AFTER INSERT ON busy_after FOR EACH ROW EXECUTE FUNCTION busy();
SQL

sub remove_by_hand
{
	my ($lock) = @_;
	my $path = "/zklock/locks/$lock";
	$zkc->delete("$path/$_") for $zkc->children($path);
	return;
}

# Waits until a session runs a statement that computes, and waits for nothing.
sub wait_running
{
	my ($s) = @_;
	return wait_for_sql($s->node, "SELECT state = 'active' AND query ~ 'LOOP|busy' "
		. 'FROM pg_stat_activity WHERE pid = ' . $s->pid, 't');
}

# Statements that take ten minutes unless they are cancelled.
my $gate = session($node);
$gate->query_ok('BEGIN; LOCK TABLE locked');
my %long = (
	query => 'SELECT pg_sleep(600)',
	writing => "INSERT INTO t SELECT 'x' FROM pg_sleep(600)",
	'PL/pgSQL' => 'DO $$ BEGIN LOOP PERFORM pg_sleep(0.001); END LOOP; END $$',
	'busy PL/pgSQL' => 'DO $$ DECLARE n bigint := 0; BEGIN LOOP n := n + 1; END LOOP; END $$',
	'trigger at the end of the statement' => "INSERT INTO busy_after VALUES ('x')",
	'trigger at the end of a query that writes' => "WITH w AS (INSERT INTO busy_after VALUES ('x') RETURNING v) SELECT v FROM w",
	utility => 'LOCK TABLE locked',
	COPY => q{COPY (SELECT pg_sleep(600)) TO '/dev/null'},
	'nested query' => q{SELECT query_to_xml('SELECT pg_sleep(600)', true, true, '')},
	'deferred trigger' => "INSERT INTO checked_late VALUES ('x'); SET CONSTRAINTS ALL IMMEDIATE",
);

for my $kind (sort keys %long)
{
	my $s = session($node);
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('running')");
	$s->query_async($long{$kind});
	my $wait = $long{$kind} =~ /LOOP|busy/ ? \&wait_running : $long{$kind} =~ /^LOCK/ ? \&wait_blocked_locally : \&wait_asleep;
	$wait->($s);
	remove_by_hand('running');
	failed_with($s, '40001', "the loss ends a running statement: $kind",
		like => qr/"running".*^DETAIL:  The znode was removed: .* the lock since\.\n^HINT/ms);
	works($s, 'ROLLBACK', '', 'the transaction can be rolled back');
	works($s, 'SELECT count(*) FROM zk_held_locks', '0', 'the loss is reported once');
	$s->quit;
}

# Parse analysis, which waits for the table, calls no hook.
{
	my $s = session($node);
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('running')");
	$s->query_async('SELECT count(*) FROM locked');
	wait_blocked_locally($s);
	remove_by_hand('running');
	failed_with($s, '57014', 'the loss ends a wait for a table in parse analysis', hint => 0);
	works($s, 'ROLLBACK', '', 'the transaction that waited in parse analysis can be rolled back');
	works($s, 'SELECT count(*) FROM zk_held_locks', '0', 'the rollback has released its lock');
	$s->quit;
}

# A scan of a foreign table begins the remote transaction when the executor starts. The server at the
# other end is silent.
{
	my ($s, $remote) = (session($node), q{application_name = 'remote'});
	my ($host, $port, $user) = ($node->host, $node->port, scalar getpwuid $>);
	$s->query_ok(<<"SQL");
CREATE EXTENSION postgres_fdw;
CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres', application_name 'remote');
CREATE USER MAPPING FOR PUBLIC SERVER remote OPTIONS (user '$user', password_required 'false');
CREATE FOREIGN TABLE remote_t (v text) SERVER remote OPTIONS (table_name 't');
SELECT count(*) FROM remote_t;
SELECT zk_lock('running');
SQL
	my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE $remote");
	hold_still($pid);
	$s->query_async('SELECT * FROM remote_t');
	wait_for_sql($node, 'SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $s->pid, 'Extension');
	remove_by_hand('running');
	failed_with($s, '40001', 'the loss ends a wait in the start of the executor', like => qr/"running"/);
	works($s, 'SELECT 1', '1', 'the loss in the start of the executor is reported once');
	kill 'CONT', $pid;
	$s->quit;
}

# A loss during COMMIT, after the end of the statement itself.
{
	my $s = session($node);
	$s->query_ok("BEGIN; INSERT INTO checked_late VALUES ('x')");
	$s->query_ok("SELECT zk_xact_lock('running')");
	$s->query_async('COMMIT');
	wait_asleep($s);
	remove_by_hand('running');
	failed_with($s, '40001', 'the loss ends a running COMMIT', like => qr/"running"/);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM checked_late'),
		0, 'the cancelled COMMIT has no effect');
	$s->quit;
}

# A loss while the statement runs that acquired the lock.
{
	my $s = session($node);
	$s->query_async("SELECT zk_lock('same'), pg_sleep(600)");
	wait_asleep($s);
	remove_by_hand('same');
	failed_with($s, '40001', 'the loss ends the statement that acquired the lock',
		like => qr/"same"/);
	works($s, "SELECT zk_lock('same') > 0", 't', 'the lost lock can be acquired again');
	remove_by_hand('same');
	wait_until('an idle session to notice its loss',
		sub { $s->query('SELECT 1'); !$s->ok });
	is($s->sqlstate, '40001', 'an idle session gets the error with its next statement');
	like($s->error, qr/"same"/, 'the error names the lock');
	works($s, 'SELECT 1', '1', 'the error is reported once');
	works($s, "SELECT zk_lock('same') > 0", 't', 'the lock can be acquired a third time');
	$s->query_async('SELECT pg_sleep(600)');
	wait_asleep($s);
	$s->cancel;
	failed_with($s, '57014', 'a cancel by another session is reported as a cancel', hint => 0);
	works($s, "SELECT zk_unlock('same')", 't', 'the session still holds its lock after the cancel');
	$s->quit;
}

# A handler can catch the error, but not undo the loss. A cancel from elsewhere that has been handled
# before, as that of an idle session or of lock_timeout, makes no difference.
$node->safe_psql('postgres', 'CREATE TABLE busy ()');
my $busy = session($node);
$busy->query_ok('BEGIN; LOCK TABLE busy');
for my $before (qw(nothing idle lock_timeout))
{
	my $s = session($node);
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_lock('caught')");
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $s->pid . ')') if $before eq 'idle';
	$s->query_async(<<"SQL" . <<'SQL');
DO \$\$
BEGIN
	BEGIN
		IF '$before' = 'lock_timeout' THEN
			SET LOCAL lock_timeout = '10ms';
			LOCK TABLE busy;
		END IF;
	EXCEPTION WHEN lock_not_available THEN
	END;
SQL
	PERFORM pg_sleep(600);
EXCEPTION WHEN serialization_failure THEN
	PERFORM pg_sleep(0.01);
	INSERT INTO t VALUES ('caught');
END $$
SQL
	wait_asleep($s);
	remove_by_hand('caught');
	$s->wait_result;
	ok($s->ok, "a cancel before: $before: a handler can catch the error, and the next statement is not cancelled")
		or diag($s->error);
	fails_with($s, 'COMMIT', '40001', "a cancel before: $before: a transaction that caught the error cannot commit");
	is($node->safe_psql('postgres', "SELECT count(*) FROM t WHERE v = 'caught'"),
		0, "a cancel before: $before: the refused commit has no effect");
	works($s, 'SELECT 1', '1', "a cancel before: $before: the next statement succeeds");
	$s->quit;
}
$busy->quit;

# A statement that releases the lost lock gets no error, but the commit of what has been read
# under the lock is refused. A lock that has been held for a moment is watched. When the watch
# fires, the session reads the node; when it has the answer, it deletes the node under its name.
for my $command ('ROLLBACK', 'ROLLBACK TO before', 'DISCARD ALL')
{
	my $s = session($node);
	$s->query_ok('BEGIN; SAVEPOINT before') if $command =~ /ROLLBACK/;
	$s->query_ok($command =~ /ROLLBACK/
		? "SELECT zk_xact_lock('unneeded')" : "SELECT zk_lock('unneeded')");
	my $id = zk_session_id($s);
	my $requests = requests_of($zk, $id);
	wait_until('the watch', sub { requests_of($zk, $id) >= $requests + 1 });
	remove_by_hand('unneeded');
	wait_until('the delete after the loss', sub { requests_of($zk, $id) >= $requests + 3 });
	$node->safe_psql('postgres', 'SELECT zk_stat_reset()');
	works($s, $command, '', "$command releases a lost lock without an error");
	works($s, 'SELECT 1', '1', 'the loss is not reported afterwards');
	is($node->safe_psql('postgres', 'SELECT locks_lost FROM zk_stat'), '1', 'the loss is counted');
	fails_with($s, 'COMMIT', '40001', 'the commit after the loss is refused', like => qr/Affected: "unneeded"/)
		if $command =~ /TO/;
	$s->quit;
}

# ROLLBACK TO SAVEPOINT releases two lost locks, after one that was held until its release.
{
	my $s = session($node);
	$s->query_ok("SET zklock.commit_check = always");
	$s->query_ok("BEGIN; SAVEPOINT before; SELECT zk_xact_lock('held'); ROLLBACK TO before");
	$s->query_ok("SELECT zk_xact_lock('first'), zk_xact_lock('second')");
	my $id = zk_session_id($s);
	my $requests = requests_of($zk, $id);
	wait_until('the watches', sub { requests_of($zk, $id) >= $requests + 2 });
	remove_by_hand($_) for qw(first second);
	wait_until('the deletes after the losses', sub { requests_of($zk, $id) >= $requests + 6 });
	works($s, 'ROLLBACK TO before', '', 'ROLLBACK TO releases two lost locks');
	fails_with($s, 'COMMIT', '40001', 'the refused commit counts both losses, and nothing else',
		like => qr/Affected: "(?:first|second)" and 1 other\./);
	$s->quit;
}

# During an outage the loss is reported after the session timeout.
{
	my $s = session($cut_off);
	my $without_lock = session($cut_off);
	$without_lock->query_ok("SELECT zk_lock('released'), zk_unlock('released')");
	$without_lock->query_async('SELECT pg_sleep(600)');
	$s->query_ok("SELECT zk_lock('silent')");
	my %several;
	for my $n (2, 3)
	{
		$several{$n} = session($cut_off);
		$several{$n}->query_ok("SELECT zk_lock('$n-' || i) FROM generate_series(1, $n) i");
	}
	for my $each ($s, values %several)
	{
		$each->query_async('SELECT pg_sleep(600)');
		wait_asleep($each);
	}
	$proxy->freeze;
	failed_with($s, '40001', 'silence for longer than the session timeout is a loss',
		like => qr/"silent"/);
	my %others = (2 => '1 other', 3 => '2 others');
	failed_with($several{$_}, '40001', "the loss of $_ locks names one, and counts the others",
		like => qr/locks "$_-\d" and $others{$_} were lost/)
	  for sort keys %several;
	$_->quit for values %several;
	$proxy->thaw;
	works($s, "SELECT zk_lock('silent') > 0", 't', 'the lost lock can be acquired after the outage');
	ok(!$without_lock->finished, 'a session without locks gets no error') or diag($without_lock->so_far);
	$without_lock->drop;
	$s->quit;
}

# The report names a lock whose name the client's encoding does not have, as a znode. The
# error of a failed conversion would hide that the transaction can be retried.
for my $case ([ 'LATIN1', '%E2%82%AC' ], [ 'UTF8', "\xe2\x82\xac" ])
{
	my ($encoding, $shown) = @$case;
	for my $reports ('SELECT 1', 'COMMIT')
	{
		my $s = session($node);
		$s->query_ok("SET client_encoding = '$encoding'");
		my $id = $s->query_ok('SELECT zk_lock(chr(8364)) > 0; SELECT session_id FROM zk_session()') =~ s/.*\n//sr;
		$s->query_ok('BEGIN');
		lose_lock($zk, $zkc, '%E2%82%AC', $id);
		fails_with($s, $reports, '40001', "with client_encoding $encoding, $reports reports the loss of lock $shown",
			like => qr/"$shown"/);
		$s->query('ROLLBACK');
		$s->quit;
	}
}
# ... also if the encoding has changed since the lock was acquired.
{
	my $s = session($node);
	$s->query_ok('BEGIN; SELECT zk_lock_shared(chr(8364)), zk_xact_lock_shared(chr(8364))');
	$gate->query_ok('SELECT zk_lock_shared(chr(8364))');
	$s->query_ok("SET client_encoding = 'LATIN1'; SET lock_timeout = '10ms'");
	fails_with($s, 'SAVEPOINT s; SELECT zk_lock(chr(8364))', '55P03', 'lock_timeout with another client_encoding', hint => 0);
	$s->query_ok('ROLLBACK TO s');
	fails_with($s, q(PREPARE TRANSACTION 'p'), '0A000', 'PREPARE TRANSACTION names the lock in another client_encoding', like => qr/"%E2%82%AC"/);
	$s->quit;
}
$gate->quit;
# A node that may not be read for a while, as after "setAcl -R", is watched all the same.
{
	my $watching = ZkLock::FaultProxy->start(target => $zk);
	my $s = session($node);
	my $lock = '/zklock/locks/unreadable';
	$s->reconnect('zklock.connect_string' => $watching->connect_string);
	$s->query_ok('SET zklock.commit_check = off');
	$s->query_ok("SELECT zk_lock('unreadable')");
	$zkc->set_acl("$lock/$_", { digest => 'other:secret' }) for $zkc->children($lock);
	wait_until('the refused read', sub {
		grep { $_->{op} eq 'getData' && $_->{paths}[0] =~ m{^\Q$lock\E/} && $_->{error} } $watching->record });
	$s->query_async('SELECT pg_sleep(600)');
	wait_asleep($s);
	remove_by_hand('unreadable');
	failed_with($s, '40001', 'the removal of a node that could not be read cancels the statement', like => qr/"unreadable"/);
	$s->quit;
	$watching->stop;
}

nothing_left($zkc, 'lost locks leave no node');
