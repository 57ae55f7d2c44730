# The check at commit runs before other participants of the commit have committed: if it
# fails, postgres_fdw's remote transaction is rolled back, and no notification is sent. It
# runs also at commits of transactions in which zklock saw no statement start: function
# calls of the fast-path protocol, and PL/pgSQL expressions. A pipeline is a transaction of
# several statements.
#
# Promise: 5.8
# Tags: edges

use ZkLock::Pipeline;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my $node = shared_node('a', set => { 'zklock.commit_check' => 'always' });
prepare();

# The sessions whose commit waits for a silent ensemble: until their locks are lost.
my @impatient = ('zklock.session_timeout' => '15s');

# Ways to write a local row and a remote row. Each of them runs in a session that has not
# used a foreign table before.
my $cte = "WITH there AS (INSERT INTO there VALUES ('x')) INSERT INTO here VALUES ('x')";
my %ways = (
	'a block' => [ "BEGIN; INSERT INTO here VALUES ('x'); INSERT INTO there VALUES ('x')", 'COMMIT' ],
	'a single statement' => [$cte],
	'several statements' => ["INSERT INTO here VALUES ('x')\\; INSERT INTO there VALUES ('x')\\;"],
	'a deferred trigger' => ["INSERT INTO deferred VALUES ('x')"],
	'a deferred trigger in a block' => [ "BEGIN; INSERT INTO deferred VALUES ('x')", 'COMMIT' ],
	'an immediate trigger' => ["INSERT INTO immediate VALUES ('x')"],
	'a cursor' => [ "BEGIN; INSERT INTO here VALUES ('x'); "
		  . 'DECLARE c CURSOR FOR SELECT there_too(); FETCH c', 'COMMIT' ],
	'a cursor WITH HOLD' => [ "BEGIN; INSERT INTO here VALUES ('x'); "
		  . 'DECLARE c CURSOR WITH HOLD FOR SELECT there_too()', 'COMMIT' ],
	'COPY' => ["BEGIN; INSERT INTO here VALUES ('x'); COPY there FROM PROGRAM 'echo x'", 'COMMIT'],
	'COMMIT in a procedure' => ['CALL commits()'],
	'a function that releases the lock' => ['SELECT there_and_release()'],
	'a function' => ["WITH here AS (INSERT INTO here VALUES ('x') RETURNING v) "
		  . 'SELECT there_too() FROM here'],
);

in_silence();

my $listener = ZkLock::Pipeline->new($node);
$listener->query('LISTEN c');

# Statements that acquire the lock, then wait for gate(). The remote rows are the first of their
# session, so postgres_fdw registers its callback after zklock's.
my $block = q{DO $$ DECLARE x text; BEGIN %s END $$};
my %first = (
	'NOTIFY in a SELECT' => q{SELECT zk_xact_lock('lost'), pg_notify('c', 'x'), gate()},
	'a remote write in a SELECT' =>
	  q{WITH there AS (INSERT INTO there VALUES ('x')) SELECT zk_lock('lost'), gate()},
	'NOTIFY in a block' => sprintf($block,
		q{x := zk_xact_lock('lost'); x := pg_notify('c', 'x'); x := gate();}),
	'NOTIFY after COMMIT in a block' => sprintf($block,
		q{x := zk_lock('lost'); COMMIT; x := pg_notify('c', 'x'); x := gate();}),
	'a lock after a remote write in a block' => sprintf($block,
		q{INSERT INTO there VALUES ('x'); x := zk_xact_lock('lost'); x := gate(); COMMIT;}),
	'several statements in one message' => q{SELECT zk_xact_lock('lost')\; INSERT INTO here VALUES ('x')\; }
	  . q{INSERT INTO there VALUES ('x')\; SELECT gate()\;},
	'a procedure that commits' => sprintf($block,
		q{x := zk_xact_lock('lost'); INSERT INTO here VALUES ('x'); INSERT INTO there VALUES ('x'); x := gate(); COMMIT;}),
	'a deferred trigger that takes the lock' => q{INSERT INTO lock_later VALUES ('x')},
	'a deferred trigger after the lock' => q{BEGIN\; SELECT zk_xact_lock('lost')\; INSERT INTO wait_later VALUES ('x')\; COMMIT\;},
	'a permit after a remote write in a block' => sprintf($block,
		q{INSERT INTO there VALUES ('x'); x := zk_xact_acquire_permit('lost', 1); x := gate(); COMMIT;}),
);

for my $used (0, 1)
{
	for my $what (sort keys %first)
	{
		my ($gate, $s) = (session($node), session($node));
		$gate->query_ok('SELECT pg_advisory_lock(1)');
		$s->query_ok("SELECT zk_lock('warm-up'), zk_unlock('warm-up')") if $used;
		$s->query_async($first{$what});
		wait_blocked_locally($s);
		remove_by_hand();
		if ($what =~ /^a deferred trigger/)
		{
			# The loss ends the wait, which is behind all statements.
			failed_with($s, '57014', "a loss refuses $what, used before: $used", hint => 0);
			$gate->query_ok('SELECT pg_advisory_unlock(1)');
		}
		else
		{
			$gate->query_ok('SELECT pg_advisory_unlock(1)');
			failed_with($s, '40001', "a loss refuses $what, used before: $used", like => qr/"lost"/);
		}
		nothing_sent();
		is(rows(), '0 0', "no row is written by $what");
		$_->quit for $s, $gate;
	}
}
fast_path($_) for qw(on off);
fast_path_after_vacuum($_) for 'COMMIT', 'Describe';
pipelines();
accepted();
nothing_left($zkc, 'the refused commits leave no node');

sub prepare
{
	my ($host, $port, $user) = ($node->host, $node->port, scalar getpwuid $>);
	$node->safe_psql('postgres', 'CREATE DATABASE remote');
	$node->safe_psql('remote', 'CREATE TABLE there (v text)');
	$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION postgres_fdw;
CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw
	OPTIONS (host '$host', port '$port', dbname 'remote');
CREATE USER MAPPING FOR PUBLIC SERVER remote OPTIONS (user '$user', password_required 'false');
CREATE FOREIGN TABLE there (v text) SERVER remote;
CREATE TABLE here (v text);
CREATE FUNCTION there_too() RETURNS text LANGUAGE plpgsql
	AS 'BEGIN INSERT INTO there VALUES (\$\$x\$\$); RETURN NULL; END';
CREATE FUNCTION write_both() RETURNS trigger LANGUAGE plpgsql
	AS 'BEGIN INSERT INTO here VALUES (\$\$x\$\$); PERFORM there_too(); RETURN NULL; END';
CREATE FUNCTION there_and_release() RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM there_too();
	PERFORM pg_notify(\$\$c\$\$, NULL); RETURN zk_unlock_shared(\$\$participants\$\$); END';
CREATE TABLE deferred (v text);
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION write_both();
CREATE TABLE immediate (v text);
CREATE TRIGGER t AFTER INSERT ON immediate FOR EACH ROW EXECUTE FUNCTION write_both();
CREATE PROCEDURE commits() LANGUAGE plpgsql AS
	'BEGIN INSERT INTO here VALUES (\$\$x\$\$); PERFORM there_too(); COMMIT; END';
CREATE FUNCTION gate() RETURNS text LANGUAGE plpgsql
	AS 'DECLARE x text; BEGIN x := pg_advisory_xact_lock(1); RETURN x; END';
CREATE FUNCTION lock_and_wait() RETURNS trigger LANGUAGE plpgsql AS 'DECLARE x text; BEGIN
	PERFORM there_too(); x := zk_xact_lock(\$\$lost\$\$); x := gate(); RETURN NULL; END';
CREATE FUNCTION write_and_wait() RETURNS trigger LANGUAGE plpgsql AS 'DECLARE x text; BEGIN
	INSERT INTO here VALUES (\$\$x\$\$); PERFORM there_too(); x := gate(); RETURN NULL; END';
CREATE TABLE lock_later (v text);
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON lock_later DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION lock_and_wait();
CREATE TABLE wait_later (v text);
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON wait_later DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION write_and_wait();
SQL
	return;
}

# A session with a lock that sends a check at each commit.
sub locker
{
	my ($s) = @_;
	$s->query("SELECT zk_lock_shared('participants')");
	return $s;
}

sub rows
{
	return $node->safe_psql('postgres', 'SELECT count(*) FROM here') . ' '
	  . $node->safe_psql('remote', 'SELECT count(*) FROM there');
}

# All these commits are refused in one silence of the ensemble.
sub in_silence
{
	my %s = map { $_ => locker(session($node)->reconnect(@impatient)) } sort keys %ways;
	for my $way (sort keys %ways)
	{
		my @statements = @{ $ways{$way} };
		$s{$way}->query_ok($_) for @statements[ 0 .. $#statements - 1 ];
	}
	my $p = locker(ZkLock::Pipeline->new($node, @impatient));

	# The lock call is the first in its session. The statement changes only remote data, so the
	# transaction has no ID.
	my ($first, $blocker) = (session($node)->reconnect(@impatient), session($node));
	$blocker->query_ok('SELECT pg_advisory_lock(1)');
	$first->query_async("INSERT INTO there SELECT concat(zk_xact_lock('first'), pg_advisory_xact_lock(1))");
	wait_blocked_locally($first);

	$zk->pause;
	$s{$_}->query_async($ways{$_}[-1]) for sort keys %ways;
	$p->start("INSERT INTO here VALUES ('x')", "INSERT INTO there VALUES ('x')");
	$blocker->query_ok('SELECT pg_advisory_unlock(1)');
	failed_with($s{$_}, '40001', "a silent ensemble refuses $_") for sort keys %ways;
	is(($p->until_ready)[-1], '40001', 'a silent ensemble refuses a pipeline');
	failed_with($first, '40001', "a silent ensemble refuses a session's first statement");
	is(rows(), '0 0', 'no local and no remote row is written during a silence');
	$zk->resume;
	$_->quit for values %s, $first, $blocker;
	return;
}

sub accepted
{
	my $s = locker(session($node));
	works($s, $cte, '', 'the commit succeeds when the ensemble answers');
	is(rows(), '1 1', 'the local and the remote row are written');
	$s->quit;
	return;
}

sub remove_by_hand
{
	my @nodes = queue_of($zkc, 'lost');
	push @nodes, map { "/zklock/semaphores/lost/leases/$_" }
	  $zkc->children('/zklock/semaphores/lost/leases');
	$zkc->delete($_) for @nodes;
	return scalar @nodes;
}

# One assertion. The listener receives its own notification after earlier ones.
sub nothing_sent
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$listener->query("NOTIFY c, 'last'");
	return is("@{[ $listener->notifications ]} "
		  . $node->safe_psql('remote', 'SELECT count(*) FROM there'),
		'last 0', 'no notification is sent, and no remote row is written');
}

# Without track_activities PostgreSQL does not say that a call is one of the fast path.
sub fast_path
{
	my ($track_activities) = @_;
	my $notify = $node->safe_psql('postgres', q{SELECT 'pg_notify'::regproc::oid});
	my $p = ZkLock::Pipeline->new($node);
	my $with = "track_activities = $track_activities";
	$p->query("SET $with");
	$p->query("SELECT zk_lock('lost')");
	is(remove_by_hand(), 1, "the lock is removed by hand, $with");
	is(join(' ', $p->call($notify, 'c', 'x')->until_ready), '00000 40001',
		"a loss refuses the commit of a fast-path call, $with");
	nothing_sent();
	is(join(' ', $p->call($notify, 'c', 'again')->until_ready), '00000', "the loss in a fast-path call is reported once, $with");
	$listener->query('SELECT 1');
	is(join(' ', $listener->notifications), 'again', "the fast-path call after a loss succeeds, $with");
	return;
}

# The last transaction of VACUUM goes on until Sync. PostgreSQL 18 leaves the transaction open after the
# call, until a COMMIT, or a Sync behind another message.
sub fast_path_after_vacuum
{
	my ($end) = @_;
	my $notify = $node->safe_psql('postgres', q{SELECT 'pg_notify'::regproc::oid});
	my $p = ZkLock::Pipeline->new($node);
	$p->query("SELECT zk_lock('lost')");
	$p->start_without_sync('VACUUM here');
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity
		WHERE query = 'VACUUM here' AND wait_event = 'ClientRead'}, '1');
	remove_by_hand();

	my @states = $p->call($notify, 'c', 'x')->until_ready;
	push @states, $end eq 'COMMIT' ? $p->query($end) : $p->describe('') if $p->status ne 'I';
	is(join(' ', @states), '00000 00000 40001',
		"a loss refuses the commit of a fast-path call after VACUUM in a pipeline that ends with $end");
	nothing_sent();
	is(join(' ', $p->query('SELECT 1')), '00000', "the loss in a pipeline that ends with $end is reported once");
	return;
}

# The ensemble is silent: it does not confirm that a lock was held until its release.
sub pipelines
{
	my $unlock = "SELECT zk_unlock_shared('released')";
	my %states = (
		$unlock => '00000 40001',
		"NOTIFY c, 'x'; $unlock" => '40001',	# a command outside of a block is checked first
		"SELECT 1; SELECT pg_notify('c', 'x'), zk_unlock_shared('released')" => '00000 00000 40001');
	my %p = map { $_ => ZkLock::Pipeline->new($node, @impatient) } sort keys %states;
	$_->query("SELECT zk_lock_shared('released')") for values %p;
	$zk->pause;
	$p{$_}->start(split /; /, $_) for sort keys %states;
	is(join(' ', $p{$_}->until_ready), $states{$_}, "a silent ensemble and the pipeline: $_") for sort keys %states;
	$zk->resume;
	nothing_sent();
	return;
}
