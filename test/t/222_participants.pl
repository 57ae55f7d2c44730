# The check at commit runs before other participants of the commit have committed:
# if it fails, postgres_fdw's remote transaction is rolled back, too.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Pipeline;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 60);

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

my $node = zklock_node('a', zk => $zk, session_timeout => '2s');
prepare($node);
for my $way (sort keys %ways)
{
	my $s = locker(session($node));
	$zk->pause;
	my @statements = @{ $ways{$way} };
	my $last = pop @statements;
	$s->query_ok($_) for @statements;
	fails_with($s, $last, '40001', "a silent ensemble refuses $way");
	nothing_written($node, $way);
	$zk->resume;
	$s->quit;
}
in_pipeline($node);
in_first_statement($node);
accepted($node);
nothing_left($zkc, 'the refused commits leave no node');
unlike(server_log($node), qr/PANIC|terminated by signal/, 'no backend has crashed');
$node->stop;
$zkc->close;
$zk->stop;
done_testing();

sub prepare
{
	my ($node) = @_;
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
	PERFORM pg_notify(\$\$c\$\$, NULL); RETURN zk_unlock(\$\$participants\$\$); END';
CREATE TABLE deferred (v text);
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION write_both();
CREATE TABLE immediate (v text);
CREATE TRIGGER t AFTER INSERT ON immediate FOR EACH ROW EXECUTE FUNCTION write_both();
CREATE PROCEDURE commits() LANGUAGE plpgsql AS
	'BEGIN INSERT INTO here VALUES (\$\$x\$\$); PERFORM there_too(); COMMIT; END';
SQL
	return;
}

# A session with a lock that sends a check at each commit.
sub locker
{
	my ($s) = @_;
	$s->query('SET zklock.commit_check = always');
	$s->query("SELECT zk_lock('participants')");
	return $s;
}

sub rows
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT count(*) FROM here') . ' '
	  . $node->safe_psql('remote', 'SELECT count(*) FROM there');
}

sub nothing_written
{
	my ($node, $way) = @_;
	return is(rows($node), '0 0', "no local and no remote row is written by $way");
}

sub in_pipeline
{
	my ($node) = @_;
	my $p = locker(ZkLock::Pipeline->new($node));
	$zk->pause;
	is(($p->run("INSERT INTO here VALUES ('x')", "INSERT INTO there VALUES ('x')"))[-1],
		'40001', 'a silent ensemble refuses a pipeline');
	nothing_written($node, 'a pipeline');
	$zk->resume;
	return;
}

# The first statement of a session, which changes only remote data, so the transaction has no
# ID.
sub in_first_statement
{
	my ($node) = @_;
	my ($s, $blocker) = (session($node), session($node));
	$s->query_ok('SET zklock.commit_check = always');
	$blocker->query_ok('SELECT pg_advisory_lock(1)');
	$s->query_async("INSERT INTO there SELECT concat(zk_xact_lock('first'), pg_advisory_xact_lock(1))");
	wait_blocked_locally($s);
	$zk->pause;
	$blocker->query_ok('SELECT pg_advisory_unlock(1)');
	failed_with($s, '40001', "a silent ensemble refuses a session's first statement");
	nothing_written($node, "a session's first statement");
	$zk->resume;
	$_->quit for $s, $blocker;
	return;
}

sub accepted
{
	my ($node) = @_;
	my $s = locker(session($node));
	works($s, $cte, '', 'the commit succeeds when the ensemble answers');
	is(rows($node), '1 1', 'the local and the remote row are written');
	$s->quit;
	return;
}
