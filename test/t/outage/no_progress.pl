# A call that an answer of the ensemble is due to, and that makes no progress for
# ensemble_timeout, fails: whatever else the ensemble answers, and whether or not the
# connection counts as lost. A call that is known to wait for another holder is due no answer.
#
# Promise: 4.1
# Tags: user

use PostgreSQL::Test::Utils qw(slurp_file);
use ZkLock::Test;

# The client library notices a silent server after two thirds of this: too late for a test.
use constant SESSION_TIMEOUT => '200s';

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200)->with_client;
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = zklock_node('a', zk => $proxy, session_timeout => SESSION_TIMEOUT);
my $shorter = zklock_node('c', zk => $proxy, session_timeout => '10s');
my $near = zklock_node('b', zk => $zk);

# Opens a connected session, whose release has arrived. The statement_timeout ends a call that waits without end.
sub caller_with
{
	my ($ensemble_timeout, $server, %settings) = @_;
	my $s = session($server // $node)->reconnect(%settings);
	$s->query_ok("SELECT zk_unlock('connected') FROM zk_lock('connected')");
	wait_zk_children($zkc, '/zklock/locks/connected', 0);
	$s->query_ok("SET zklock.ensemble_timeout = '$ensemble_timeout'");
	$s->query_ok("SET statement_timeout = '20s'");
	return $s;
}

# The server is silent, and the connection counts as connected all the time.
{
	my %calls = (
		lock => "SELECT zk_lock('silent')",
		'non-blocking attempt' => "SELECT zk_try_lock('silent')",
		permit => "SELECT zk_acquire_permit('silent', 2)",
		view => 'SELECT count(*) FROM zk_locks');
	for my $call (sort keys %calls)
	{
		my $s = caller_with('500ms');
		$proxy->arm(fault => 'silence');
		fails_with($s, $calls{$call}, '08006', "silent server, $call: no answer for ensemble_timeout is an error",
			like => qr/ensemble does not answer.*DETAIL:  The server at 127\.0\.0\.1:\d+ did not answer within 500 ms/s);
		works($s, 'SELECT state FROM zk_session()', 'connected', 'the error comes before the connection counts as lost');
		$proxy->disarm;
		$s->drop;
	}
}

# Each connection answers the sync before the list and dies of the list.
{
	my $s = caller_with('6s', $shorter);
	my $hits = $proxy->hits;
	$proxy->arm(fault => 'lose_answer', op => 'getChildren', path => 'dies', every => 1);
	fails_with($s, "SELECT zk_lock('dies')", '08006',
		'connections that die of the same request again and again are no progress');
	cmp_ok($proxy->hits - $hits, '>', 1, 'the session had connected again');
	cmp_ok($proxy->hits - $hits, '<', 15, 'the session connected again with pauses');
	$proxy->disarm;
	works($s, "SELECT zk_unlock('dies') FROM zk_lock('dies')", 't', 'the session works after connections without progress');
	$s->quit;
}

# The same with two names, of which the first one is answered each time.
{
	my $s = caller_with('4s', $shorter);
	$proxy->arm(fault => 'lose_answer', op => 'getChildren', path => 'z dies|z%20dies', every => 1);
	fails_with($s, "SELECT zk_lock_many(ARRAY['a lives', 'z dies'])", '08006',
		'an answer that only repeats what was known is no progress');
	$proxy->disarm;
	$s->quit;
}

# An attempt ends with its own timeout, if this is shorter.
{
	my $s = caller_with('1h');
	$proxy->arm(fault => 'silence');
	fails_with($s, "SELECT zk_try_lock('timed', '1s')", '08006',
		'an attempt does not wait longer than its timeout for an answer');
	$proxy->disarm;
	$s->drop;
	my $new = session($node);
	$new->reconnect('zklock.ensemble_timeout' => '1h', 'zklock.connect_string' => '127.0.0.1:' . free_port(),
		statement_timeout => '20s');
	fails_with($new, "SELECT zk_try_lock('timed', '1s')", '08001', 'an attempt does not wait longer than its timeout for a session');
	$new->reconnect('zklock.connect_string' => $proxy->connect_string);
	works($new, "SELECT zk_try_lock('timed', '1ms')", 't', 'a short timeout does not end an attempt that nothing blocks');
	$new->quit;
}

# A wait for another holder goes on, before and after the connection is lost.
{
	my $cut = ZkLock::Proxy->start(target => $zk);
	my $holder = session($near);
	my ($s, $timed) = map { caller_with('5s', $shorter, 'zklock.connect_string' => $cut->connect_string) } 1 .. 2;
	my $report = "SET log_lock_waits = on; SET deadlock_timeout = '10ms'";
	my $offset = -s $shorter->logfile;
	$holder->query_ok("SELECT zk_lock('held'), zk_lock('timed')");
	$_->query_ok($report) for $s, $timed;
	$timed->query_ok("SET zklock.ensemble_timeout = '1h'");
	$s->query_async("SELECT zk_lock('held')");
	$timed->query_async("SELECT zk_try_lock('timed', '10s')");
	wait_for_log($shorter, qr/still waiting for zk lock "$_"/, $offset) for qw(held timed);
	$holder->query_ok('SELECT pg_sleep(6)');
	ok(!$s->finished, 'a wait for another holder goes on after ensemble_timeout');
	$cut->cut(refuse => 1);
	is($timed->wait_result, 'f', 'an attempt that has queued returns false after its timeout');
	ok(!$s->finished, 'a wait for another holder goes on while the connection is lost');
	$cut->accept;
	$holder->query_ok(q(SELECT zk_unlock('held')));
	like($s->wait_result, qr/^\d+$/, 'a wait over a lost connection gets the lock afterwards');

	# A permit: the mutex of the semaphore is held, so the attempt waits for it.
	$s->query_ok("SET zklock.ensemble_timeout = '20s'");
	$s->query_ok("SELECT zk_unlock('held'), zk_release_permit('sem') FROM zk_acquire_permit('sem', 2)");
	my $mutex = $zkc->create('/zklock/semaphores/sem/locks/_c_00000000-0000-0000-0000-000000000000-lock-',
		ephemeral => 1, sequence => 1);
	$s->query_ok("SET zklock.ensemble_timeout = '4s'");
	# It gives up after a second: if that was before the cut, again.
	for my $try (1 .. 20)
	{
		$s->query_async("SELECT zk_try_acquire_permit('sem', 2)");
		wait_until('the attempt in the queue of the mutex, or its end',
			sub { $s->finished || 2 == $zkc->children('/zklock/semaphores/sem/locks') });
		$cut->cut(refuse => 1);
		wait_until('the end of the attempt', sub { $s->finished });
		last if !$s->succeeded || $try == 20;
		is($s->wait_result, 'f', 'an attempt for a permit that ends before the cut returns false');
		$cut->accept;
		wait_state($s, 'connected');
		wait_zk_children($zkc, '/zklock/semaphores/sem/locks', 1);
	}
	failed_with($s, '08006', 'a non-blocking attempt for a permit fails when the connection is lost',
		like => qr/DETAIL:  The connection to the server at \S+ was lost, and no answer came within 4000 ms\. The ZooKeeper client reports: .*$/m);
	$cut->accept;
	$zkc->delete($mutex);
	$_->quit for $s, $timed, $holder;
	$cut->stop;
}

# The error and the log say why, and when the connection is back.
{
	my $restarting = ZkLock::ZkServer->start(tick_time => 200);
	my $s = session($node);
	my $log = -s $node->logfile;
	$s->reconnect('zklock.ensemble_timeout' => '2s',
		'zklock.connect_string' => 'zk1.invalid:2181');
	fails_with($s, "SELECT zk_lock('name')", '08001', 'a host name that does not exist',
		like => qr/DETAIL:.*the name of server "zk1\.invalid" could not be resolved/s);
	$s->reconnect('zklock.connect_string' => '127.0.0.1:' . free_port());
	fails_with($s, "SELECT zk_lock('port')", '08001', 'a port that nobody listens on',
		like => qr/DETAIL:.*Connection refused/s);
	$s->reconnect('zklock.connect_string' => $restarting->connect_string, 'zklock.ensemble_timeout' => '20s');
	$s->query_ok("SELECT zk_lock('restart'); SET zklock.commit_check = off");
	$restarting->restart;
	works($s, "SELECT zk_lock('again') > 0", 't', 'a session survives the restart of its server');
	my $lines = slurp_file($node->logfile, $log);
	like($lines, qr/ZooKeeper client: connected to the server at 127/, 'the log says that the connection is back');
	like($lines, qr/ZooKeeper client: .*errno=112\(.*\): failed while receiving a server response$/m,
		'the log says that a server has closed the connection');
	$s->quit;
	$restarting->stop;
}
