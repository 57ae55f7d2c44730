# zk_stat counts what happened: for the whole server when it preloads the
# extension, else for the backend.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $way = ZkLock::Proxy->start(target => $zk);
my $server = zklock_node('preloaded', proxy => $way, preload => 1, session_timeout => '2s');
my $plain = zklock_node('plain', zk => $zk);
$server->safe_psql('postgres', 'CREATE TABLE t (n int)');

my $counters = 'acquisitions, waits, timeouts, cancels, deadlocks, sessions_opened, '
  . 'sessions_lost, locks_lost, commits_refused, revocations';
my %none = map { $_ => 0 } split /, /, $counters;
my $reader = session($server);
$reader->query_ok('SELECT zk_stat_reset()');

sub counts
{
	my ($s) = @_;
	my %counts;
	@counts{ split /, /, $counters } =
	  split /\|/, $s->query("SELECT $counters FROM zk_stat");
	return \%counts;
}

# One assertion: since the last call these counters, and no others, went up.
my %last = %none;

sub counted
{
	my ($name, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $now = counts($reader);
	my %difference = map { $_ => $now->{$_} - $last{$_} } keys %$now;
	%last = %$now;
	return is_deeply(\%difference, { %none, %expected }, $name);
}

# Asks for a lock that another server holds, and returns when the backend knows
# that it has to wait.
sub start_waiting
{
	my ($s, $lock) = @_;
	my $log = -s $server->logfile;
	$s->query_ok("SET log_lock_waits = on; SET deadlock_timeout = '10ms'");
	$s->query_async("SELECT zk_lock('$lock')");
	wait_for_log($server, qr/still waiting for zk lock "$lock"/, $log);
	return;
}

is($reader->query('SELECT scope, stats_reset <= clock_timestamp() FROM zk_stat'),
	'server|t', 'preloaded, the counters are the server\'s');

my $a = session($server);
my $b = session($server);
my $far = session($plain);
$a->query_ok("SELECT zk_lock('x')");
counted('a lock and the session for it', acquisitions => 1, sessions_opened => 1);
$a->query_ok("SELECT zk_lock('x'), zk_lock_shared(ARRAY['y', 'z'])");
counted('what is held already, and each name of an array', acquisitions => 3);
$b->query_ok("SELECT zk_try_lock('x')");
counted('a try that does not wait is no wait', sessions_opened => 1);
$b->query_ok("SELECT zk_try_lock('x', '1 ms')");
counted('a try whose time passes', waits => 1, timeouts => 1);
$b->query_ok("SET lock_timeout = 1");
$b->query("SELECT zk_lock('x')");
counted('lock_timeout on one server', waits => 1, timeouts => 1);
$b->query_ok("SET lock_timeout = 0");

$far->query_ok("SELECT zk_lock('far')");
$b->query_ok("SET lock_timeout = 500");
$b->query("SELECT zk_lock('far')");
is($b->sqlstate, '55P03', 'a lock that is held elsewhere');
counted('lock_timeout across servers', waits => 1, timeouts => 1);
$b->query_ok("SET lock_timeout = 0");
start_waiting($b, 'far');
$b->cancel;
$b->wait_result;
counted('a wait that is cancelled', waits => 1, cancels => 1);
$b->query_ok('RESET ALL');
my $before = $reader->query('SELECT wait_time FROM zk_stat');
start_waiting($b, 'far');
$far->query_ok("SELECT pg_sleep(0.01), zk_unlock('far')");
like($b->wait_result, qr/^\d+$/, 'a wait that is granted');
$b->query_ok('RESET ALL');
counted('is a wait and a lock', waits => 1, acquisitions => 1);
is($reader->query("SELECT wait_time > '$before' FROM zk_stat"),
	't', 'and takes time');

$a->query_ok("SELECT zk_lock('one')");
$b->query_ok("SELECT zk_lock('two')");
$a->query_async("SELECT zk_lock('two')");
wait_blocked_locally($a);
$b->query_async("SELECT zk_lock('one')");
wait_until('one to fail', sub { $a->finished || $b->finished });
my ($loser, $winner) = $b->finished ? ($b, $a) : ($a, $b);
$loser->wait_result;
$loser->query_ok('SELECT zk_unlock_all()');
$winner->wait_result;
counted('a deadlock', acquisitions => 3, waits => 2, deadlocks => 1);
$_->query_ok('SELECT zk_unlock_all()') for $a, $b;

# Loss.
$a->query_ok("BEGIN; SELECT zk_xact_lock('x'), zk_lock('y'); INSERT INTO t VALUES (1)");
counted('two locks', acquisitions => 2);
$zkc->delete("/zklock/locks/x/$_") for $zkc->children('/zklock/locks/x');
$a->query_async('SELECT pg_sleep(600)');
$a->wait_result;
is($a->sqlstate, '40001', 'a lock is lost');
counted('a lost lock', locks_lost => 1);
$a->query_ok('ROLLBACK');
counted('a rollback is no refused commit');
$a->query_ok("BEGIN; SET LOCAL zklock.commit_check = always; SET LOCAL statement_timeout = '1s'");
$a->query_ok("SELECT zk_xact_lock('x'); INSERT INTO t VALUES (1)");
$way->freeze;
$a->query('COMMIT');
isnt($a->sqlstate, '00000', 'a commit that cannot be confirmed');
counted('is a refused one', acquisitions => 1, commits_refused => 1);
$a->query('SELECT pg_sleep(600)');
is($a->sqlstate, '40001', 'a session is lost with its lock');
counted('a lost session', locks_lost => 1, sessions_lost => 1);
$way->thaw;

# Round trips.
$b->query("SELECT 1");
$b->query_ok("SELECT zk_lock('warm'), zk_unlock('warm')");
wait_zk_empty($zkc, '/zklock/locks/warm');
$b->query_ok('SELECT * FROM zk_stat');
my $trips = $reader->query('SELECT round_trips FROM zk_stat');
$b->query_ok("SELECT zk_lock('warm'), zk_unlock('warm')");
wait_zk_empty($zkc, '/zklock/locks/warm');
wait_until('the answers to be counted', sub {
	$b->query_ok('SELECT * FROM zk_stat');
	return $reader->query('SELECT round_trips FROM zk_stat') - $trips >= 3;
});
pass('a lock and its release are three round trips');

# Reset, and who may.
$reader->query_ok('SELECT zk_stat_reset()');
%last = %none;
counted('a reset forgets all');
is($reader->query('SELECT wait_time, round_trips FROM zk_stat'),
	'00:00:00|0', 'times and round trips as well');
$server->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
my $ordinary = session($server, user => 'ordinary');
is($ordinary->query('SELECT scope FROM zk_stat'), 'server', 'everybody may look');
$ordinary->query('SELECT zk_stat_reset()');
is($ordinary->sqlstate, '42501', 'but not reset');
$server->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION zk_stat_reset() TO ordinary');
$ordinary->query_ok('SELECT zk_stat_reset()');

# Not preloaded: each backend has its own.
my $one = session($plain);
my $two = session($plain);
$one->query_ok("SELECT zk_lock('mine')");
is($one->query('SELECT scope, acquisitions FROM zk_stat'),
	'backend|1', 'not preloaded, a backend counts for itself');
is($two->query('SELECT scope, acquisitions, sessions_opened FROM zk_stat'),
	'backend|0|0', 'and looking does not connect');

# A server that is restarted counts again; a crash of one backend clears them too.
$server->restart;
$reader = session($server);
is($reader->query('SELECT acquisitions FROM zk_stat'), '0', 'a restart is a reset');

$_->quit for $reader, $far, $one, $two;
nothing_left($zkc, 'no node is left');
$_->stop for $server, $plain;
done_testing();
