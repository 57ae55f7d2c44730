# The locks are checked also at commits of transactions in which zklock saw no statement
# start: function calls of the fast-path protocol, and PL/pgSQL expressions; also in the first
# statement of a session. A lost lock prevents notifications and remote writes there,
# too. A pipeline is a transaction of several statements.

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

# Statements that acquire the lock, then wait for gate().
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
	'a permit after a remote write in a block' => sprintf($block,
		q{INSERT INTO there VALUES ('x'); x := zk_xact_acquire('lost', 1); x := gate(); COMMIT;}),
);

my $node = zklock_node('a', zk => $zk, session_timeout => '2s',
	extra_conf => "zklock.commit_check = always\n");
prepare($node);
my $listener = ZkLock::Pipeline->new($node);
$listener->query('LISTEN c');
for my $is_first (1, 0)
{
	for my $what (sort keys %first)
	{
		my $gate = session($node);
		my $s = session($node);
		$gate->query_ok('SELECT pg_advisory_lock(1)');
		$s->query_ok("SELECT zk_lock('warm-up'), zk_unlock('warm-up')") unless $is_first;
		$s->query_async($first{$what});
		wait_blocked_locally($s);
		remove_by_hand();
		$gate->query_ok('SELECT pg_advisory_unlock(1)');
		failed_with($s, '40001', "a loss refuses $what, first statement: $is_first",
			like => qr/"lost"/);
		nothing_sent($node, $listener);
		$_->quit for $s, $gate;
	}
}
fast_path($node, $listener);
pipelines($node, $listener);
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
CREATE FUNCTION gate() RETURNS text LANGUAGE plpgsql
	AS 'DECLARE x text; BEGIN x := pg_advisory_xact_lock(1); RETURN x; END';
SQL
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
	my ($node, $listener) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$listener->query("NOTIFY c, 'last'");
	return is("@{[ $listener->notifications ]} "
		  . $node->safe_psql('remote', 'SELECT count(*) FROM there'),
		'last 0', '... no notification is sent, and no remote row is written');
}

sub fast_path
{
	my ($node, $listener) = @_;
	my $notify = $node->safe_psql('postgres', q{SELECT 'pg_notify'::regproc::oid});
	my $p = ZkLock::Pipeline->new($node);
	$p->query("SELECT zk_lock('lost')");
	is(remove_by_hand(), 1, 'the lock is removed by hand');
	is(join(' ', $p->call($notify, 'c', 'x')->until_ready), '00000 40001',
		'a loss refuses the commit of a fast-path call');
	nothing_sent($node, $listener);
	is(join(' ', $p->call($notify, 'c', 'again')->until_ready), '00000', '... once');
	$listener->query('SELECT 1');
	is(join(' ', $listener->notifications), 'again', '... and the next call succeeds');

	# The last transaction of VACUUM goes on until Sync.
	$p->query("SELECT zk_lock('lost')");
	$p->start_without_sync('VACUUM here');
	wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity
		WHERE query = 'VACUUM here' AND wait_event = 'ClientRead'}, '1');
	remove_by_hand();

	# PostgreSQL 18 leaves the transaction open after the call, until a COMMIT.
	my @states = $p->call($notify, 'c', 'x')->until_ready;
	push @states, $p->query('COMMIT') if $p->status ne 'I';
	is(join(' ', @states), '00000 00000 40001',
		'a loss refuses the commit of a fast-path call after VACUUM in a pipeline');
	nothing_sent($node, $listener);
	return;
}

# The ensemble is silent: it does not confirm that a lock was held until its release.
sub pipelines
{
	my ($node, $listener) = @_;
	my $unlock = "SELECT zk_unlock('released')";
	my %states = (
		$unlock => '00000 40001',
		"NOTIFY c, 'x'; $unlock" => '00000 00000 40001',
		"SELECT 1; SELECT pg_notify('c', 'x'), zk_unlock('released')" => '00000 00000 40001');
	for my $statements (sort keys %states)
	{
		my $p = ZkLock::Pipeline->new($node);
		$p->query("SELECT zk_lock('released')");
		$zk->pause;
		is(join(' ', $p->run(split /; /, $statements)), $states{$statements},
			"a silent ensemble and the pipeline: $statements");
		$zk->resume;
		nothing_sent($node, $listener);
	}
	return;
}
