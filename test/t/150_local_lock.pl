# Sessions of one server meet in PostgreSQL's lock manager before any of them
# asks the ensemble: what that shows, what it finds, and that exclusion does not
# depend on it.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my ($here, $there) = map {
	zklock_node($_, zk => $zk,
		extra_conf => "deadlock_timeout = '100ms'\nlog_lock_waits = on\n")
} qw(here there);
$here->safe_psql('postgres', 'CREATE DATABASE other');
$here->safe_psql('other', 'CREATE EXTENSION zklock');
my $lock = '/zklock/locks/x';
my @here = (session($here), session($here), session($here, dbname => 'other'));
my @there = map { session($there) } 1 .. 3;

# Nothing is left of a scenario, in the ensemble and on the servers.
sub all_is_clean
{
	my ($scenario) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	nothing_left($zkc, "$scenario: no node is left");
	is( $_->safe_psql('postgres',
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
		'0',
		"$scenario: no lock is left on server " . $_->name)
	  for $here, $there;
	return;
}

# Who holds and waits for advisory locks on a server.
sub advisory
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		'SELECT pid, mode, granted FROM pg_locks '
		  . "WHERE locktype = 'advisory' "
		  . 'ORDER BY granted DESC, waitstart, pid');
}


# What shows on the server.
my ($holder, $waiter, $reader) = @here;
$holder->query_ok("SELECT zk_lock('x')");
$waiter->query_async("SELECT zk_lock('x')");
wait_blocked_locally($waiter);
$reader->query_async("SELECT zk_lock_shared('x')");
wait_blocked_locally($reader);
is( advisory($here),
	join("\n",
		$holder->pid . '|ExclusiveLock|t',
		$waiter->pid . '|ExclusiveLock|f',
		$reader->pid . '|ShareLock|f'),
	'holder and waiters of a server show in pg_locks, in their order');
is( $here->safe_psql('postgres',
		'SELECT DISTINCT database, objsubid FROM pg_locks '
		  . "WHERE locktype = 'advisory'"),
	'0|23115',
	'as advisory locks of no database, apart from those of applications');
my ($holder_pid, $waiter_pid) = ($holder->pid, $waiter->pid);
is( $here->safe_psql(
		'postgres', "SELECT pg_blocking_pids($waiter_pid)"),
	"{$holder_pid}",
	'pg_blocking_pids() names the holder');
is( $here->safe_psql(
		'postgres', 'SELECT pg_blocking_pids(' . $reader->pid . ')'),
	"{$holder_pid,$waiter_pid}",
	'and the writer in front');
is( $here->safe_psql(
		'postgres',
		"SELECT wait_event_type, wait_event FROM pg_stat_activity "
		  . "WHERE pid = $waiter_pid"),
	'Lock|advisory',
	'the wait event is that of an advisory lock');
wait_for_log($here,
	qr/process $waiter_pid still waiting for ExclusiveLock on advisory lock/);
pass('log_lock_waits logs the wait');
is(scalar(wait_zk_children($zkc, $lock, 1)),
	1, 'the ensemble sees only the holder');
$holder->query_ok("SELECT zk_unlock('x')");
like($waiter->wait_result, qr/^\d+$/, 'first come, first served');
ok(!$reader->finished, 'the reader is behind the writer');
$waiter->query_ok("SELECT zk_unlock('x')");
like($reader->wait_result, qr/^\d+$/, 'and has it at last');
$reader->query_ok("SELECT zk_unlock_shared('x')");
all_is_clean('one server');


# Two servers, three waiters on each: one of each waits in the ensemble.
my $node = foreign_node($zkc, $lock, 'WRIT');
my @waiting;
for my $i (0 .. 2)
{
	for my $s ($here[$i], $there[$i])
	{
		$s->query_async("SELECT zk_lock('x')");
		wait_blocked($s);
		push @waiting, $s;
	}
}
is(scalar(wait_zk_children($zkc, $lock, 3)),
	3, 'the queue in the ensemble has a holder and one waiter a server');
$zkc->delete($node);
my $served = 0;
while (@waiting)
{
	wait_until('the next one', sub { grep { $_->finished } @waiting });
	my @got = grep { $_->finished } @waiting;
	is(scalar(@got), 1, 'one gets it');
	cmp_ok(scalar($zkc->children($lock)), '<=', 3,
		'the queue stays as short');
	@waiting = grep { $_ != $got[0] } @waiting;
	$got[0]->wait_result;
	$got[0]->query_ok("SELECT zk_unlock('x')");
	$served++;
}
is($served, 6, 'all are served');
all_is_clean('two servers');

# Sharers do not wait for each other there.
$_->query_ok("SELECT zk_lock_shared('x')") for @here, @there;
is(scalar($zkc->children($lock)), 6, 'each sharer has a node of its own');
is(advisory($here),
	join("\n",
		map { "$_|ShareLock|t" } sort { $a <=> $b } map { $_->pid } @here),
	'and a shared lock on its server');
$_->query_ok("SELECT zk_unlock_shared('x')") for @here, @there;
all_is_clean('sharers');


# Ends of a wait for a session of the own server.
$holder->query_ok("SELECT zk_lock('x')");
$waiter->query_ok("SET lock_timeout = '100ms'");
$waiter->query("SELECT zk_lock('x')");
is($waiter->sqlstate, '55P03', 'lock_timeout ends a wait for the own server');
is($waiter->query("SELECT zk_try_lock('x', interval '10 ms')"),
	'f', 'a limit that is shorter is no error');
$waiter->query("SELECT zk_try_lock('x', interval '1 h')");
is($waiter->sqlstate, '55P03', 'lock_timeout ends a longer limit');
is($waiter->query('SHOW lock_timeout'), '100ms', 'the setting is as it was');
$waiter->query_ok("RESET lock_timeout; SET statement_timeout = '100ms'");
$waiter->query("SELECT zk_try_lock('x', interval '1 h')");
is($waiter->sqlstate, '57014', 'statement_timeout ends it');
$waiter->query_ok('RESET statement_timeout');
$waiter->query_async("SELECT zk_try_lock('x', interval '1 h')");
wait_blocked($waiter);
$waiter->cancel;
$waiter->wait_result;
is($waiter->sqlstate, '57014', 'and so does a cancel');
is($waiter->query('SHOW lock_timeout'), '0', 'no setting is left changed');
$waiter->query_ok('BEGIN; CREATE TEMP TABLE seen (n integer)');
$waiter->query_ok('INSERT INTO seen VALUES (1)');
is($waiter->query("SELECT zk_try_xact_lock('x', interval '10 ms')"),
	'f', 'a try that waits in vain in a transaction');
is($waiter->query('SELECT n FROM seen'), '1', 'does it no harm');
$waiter->query_ok('COMMIT');
$waiter->query_async("SELECT zk_try_lock('x', interval '1 h')");
wait_blocked($waiter);
$holder->query_ok("SELECT zk_unlock('x')");
is($waiter->wait_result, 't', 'one that waits long enough gets the lock');
$waiter->query_ok("SELECT zk_unlock('x')");
all_is_clean('ends of a wait');


# Deadlocks on one server. Runs both, in this order, and returns the SQLSTATEs.
sub meet
{
	my ($first, $first_sql, $second, $second_sql) = @_;
	$first->query_async($first_sql);
	wait_blocked($first);
	$second->query_async($second_sql);
	wait_until('a victim', sub { $first->finished || $second->finished });
	my ($victim, $other) =
	  $first->finished ? ($first, $second) : ($second, $first);
	$victim->wait_result;

	# The victim's end lets the other one go on: that may be seen first.
	if ($victim->ok)
	{
		($victim, $other) = ($other, $victim);
		$victim->wait_result;
	}
	my $state = $victim->sqlstate;
	my $detail = $victim->error;
	$victim->query('ROLLBACK');
	$victim->query('SELECT zk_unlock_all(), pg_advisory_unlock_all()');
	$other->wait_result if $other->is_busy;
	my @states = ($state, $other->sqlstate);
	$other->query('ROLLBACK');
	$other->query('SELECT zk_unlock_all(), pg_advisory_unlock_all()');
	return (join(' ', @states), $detail);
}

$here->safe_psql('postgres', 'CREATE TABLE t AS SELECT 1 AS n');
$holder->query_ok("BEGIN; UPDATE t SET n = n + 1");
$waiter->query_ok("BEGIN; SELECT zk_xact_lock('x')");
my ($states, $detail) = meet($holder, "SELECT zk_xact_lock('x')", $waiter,
	'UPDATE t SET n = n + 1');
is($states, '40P01 00000',
	'a deadlock of a row lock and a zk lock has one victim');
like($detail, qr/DETAIL:.*waits for \w+Lock on advisory lock/s,
	'and the cycle is in the error');
all_is_clean('deadlock with a row lock');

$holder->query_ok("BEGIN; SELECT zk_xact_lock('x')");
$waiter->query_ok("SELECT zk_lock('y')");
($states) = meet($holder, "SELECT zk_xact_lock('y')", $waiter,
	"SELECT zk_lock_shared('x')");
is($states, '40P01 00000', 'so has one of two zk locks');
all_is_clean('deadlock of two zk locks');

$holder->query_ok("SELECT zk_lock_shared('x')");
$waiter->query_ok("SELECT zk_lock_shared('x')");
($states) =
  meet($holder, "SELECT zk_lock('x')", $waiter, "SELECT zk_lock('x')");
is($states, '40P01 00000', 'so have two upgrades');
all_is_clean('deadlock of two upgrades');

$holder->query_ok("SELECT pg_advisory_lock(1)");
$waiter->query_ok("SELECT zk_lock('x')");
($states) = meet($holder, "SELECT zk_try_lock('x', interval '1 h')",
	$waiter, 'SELECT pg_try_advisory_lock(2), pg_advisory_lock(1)');
is($states, '40P01 00000', 'so has a try that waits');
all_is_clean('deadlock with a native lock');

# Who waits has a snapshot that CREATE INDEX CONCURRENTLY waits for.
$holder->query_ok("SELECT zk_lock('x')");
$waiter->query_async("SELECT zk_lock('x')");
wait_blocked($waiter);
$holder->query('CREATE INDEX CONCURRENTLY i ON t (n)');
my $builder = $holder->sqlstate;
$holder->query_ok('SELECT zk_unlock_all()');
$waiter->wait_result;
is(join(' ', sort $builder, $waiter->sqlstate),
	'00000 40P01',
	'a deadlock with CREATE INDEX CONCURRENTLY is found');
$waiter->query_ok('SELECT zk_unlock_all()');
all_is_clean('CREATE INDEX CONCURRENTLY');


# The local lock may be removed: the ensemble is the authority.
$holder->query_ok("SELECT zk_lock('x'), zk_lock_shared('y')");
my (undef, $said) = $holder->query('SELECT pg_advisory_unlock_all()');
is($said, '', 'pg_advisory_unlock_all() is silent');
is(advisory($here), '', 'and takes away the locks of the server');
is($waiter->query("SELECT zk_try_lock('x')"),
	'f', 'the same server is excluded still');
is($waiter->query("SELECT zk_try_lock_shared('x')"),
	'f', 'from sharing as well');
is($waiter->query("SELECT zk_try_lock_shared('y')"),
	't', 'what is shared can be shared');
is($there[0]->query("SELECT zk_try_lock('x')"),
	'f', 'another server is excluded still');
is($there[0]->query("SELECT zk_try_lock('y')"),
	'f', 'also from what is shared');
is($holder->query("SELECT zk_try_lock('x')"),
	't', 'the holder can take it again');
$waiter->query_async("SELECT zk_lock('x')");
wait_blocked($waiter);
(undef, $said) = $holder->query("SELECT zk_unlock('x'), zk_unlock('x')");
is($said, '', 'and unlock it without a word');
like($waiter->wait_result, qr/^\d+$/, 'the next one gets it then');
(undef, $said) = $holder->query("SELECT zk_unlock_shared('y')");
is($said, '', 'a shared one likewise');
$waiter->query_ok('SELECT zk_unlock_all()');
all_is_clean('pg_advisory_unlock_all()');

# A waiter behind a holder whose local lock was removed queues in the
# ensemble, and the next one behind that on the server.
$holder->query_ok("SELECT zk_lock('x'), pg_advisory_unlock_all()");
$waiter->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, $lock, 2);
$reader->query_async("SELECT zk_lock_shared('x')");
wait_blocked($reader);
is(scalar(wait_zk_children($zkc, $lock, 2)), 2, 'the order is kept');
$holder->query_ok("SELECT zk_unlock('x')");
like($waiter->wait_result, qr/^\d+$/, 'the writer first');
$waiter->query_ok("SELECT zk_unlock('x')");
like($reader->wait_result, qr/^\d+$/, 'the reader next');
$reader->query_ok("SELECT zk_unlock_shared('x')");
all_is_clean('queue behind pg_advisory_unlock_all()');

# Native advisory locks are another matter.
$holder->query_ok("SELECT zk_lock(7::bigint), zk_lock(7, 8)");
is( $waiter->query(
		'SELECT pg_try_advisory_lock(7), pg_try_advisory_lock(7, 8)'),
	't|t', 'native advisory locks of the same keys are other locks');
$waiter->query_ok('SELECT pg_advisory_unlock_all()');
$holder->query_ok('SELECT zk_unlock_all()');
all_is_clean('native locks');

$_->quit for @here, @there;
$_->stop for $here, $there;
done_testing();
