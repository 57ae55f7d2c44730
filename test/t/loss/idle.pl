# A session that has lost a lock, and idles, blocks nobody: the sessions of its own server
# can have the lock at once. The loss is still reported by its next statement.
#
# Promise: 5.3
# Tags: user, edges

use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my ($node, $elsewhere) = map { shared_node($_, zk => $zk) } qw(a b);
my ($here, $there) = (session($node), session($elsewhere));

# How the locks are lost: the znode is removed, or the session expires while the ensemble is
# silent.
my %losses = (
	'its znode is removed' => sub { lose_lock($zk, $zkc, 'idle', $_[0]) },
	'its session expires' => sub {
		$zk->pause;
		wait_until('the end of the session', sub { !local_locks() });
		$zk->resume;
	});

# How a session comes to idle.
my %idles = (
	'after its lock' => [],
	'after a second lock of the same name' => ["SELECT zk_lock('idle'), zk_lock_shared('idle')"],
	'after COMMIT' => [ 'BEGIN', 'SELECT 1', 'COMMIT' ],
	'after a failed transaction' => [ 'BEGIN', 'SELECT 1/0', 'ROLLBACK' ]);

# Returns the number of local locks that are held.
sub local_locks
{
	return $node->safe_psql('postgres',
		q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted});
}

for my $loss (sort keys %losses)
{
	for my $idle (sort keys %idles)
	{
		my $case = "a session idles $idle, and $loss";
		my $s = session_with($node, node_names => 'curator', session_timeout => $loss =~ /expires/ ? '3s' : '60s');
		$s->query_ok("SELECT zk_lock('idle')");
		$s->query($_) for @{ $idles{$idle} };
		my $waiter = connected_session($node);
		if ($loss eq 'its znode is removed')
		{
			$waiter->query_async("SELECT zk_lock('idle')");
			wait_blocked_locally($waiter);
			$losses{$loss}->(zk_session_id_of($s));
			like($waiter->wait_result, qr/^\d+$/, "$case: a session that waits on the same server is granted the lock");
		}
		else
		{
			$losses{$loss}->();
			like($waiter->query("SELECT zk_lock('idle')"), qr/^\d+$/, "$case: a session of the same server is granted the lock");
		}
		$waiter->query_ok("SELECT zk_unlock('idle')");
		works($there, "SELECT zk_try_lock('idle', '1min'), zk_unlock('idle')", 't|t', "$case: another server can have the lock");
		works($here, "SELECT zk_try_lock('idle', '1min'), zk_unlock('idle')", 't|t', "$case: an attempt on the same server succeeds");
		fails_with($s, 'SELECT 1', '40001', "$case: the next statement reports the loss", like => qr/lock "idle" was lost/);
		works($s, 'SELECT count(*) FROM zk_held_locks', 0, "$case: the loss is reported once, and the lock is gone");
		works($s, "SELECT zk_lock('idle') > 0, zk_unlock('idle')", 't|t', "$case: the session can lock again");
		$_->quit for $s, $waiter;
	}
}

# Returns the ZooKeeper session of another session, which stays idle meanwhile.
sub zk_session_id_of
{
	my ($s) = @_;
	return $here->query_ok(q{SELECT session_id FROM zk_locks WHERE name = 'idle' AND pid = } . $s->pid . ' LIMIT 1');
}

# The idle backend runs one transaction for a loss, not one after the other until the report.
{
	my ($s, $waiter) = (session($node), session($node));
	$s->query_ok("SELECT zk_lock('idle')");
	my $id = zk_session_id_of($s);
	$s->query_ok('SET log_min_messages = debug4');
	my $runs = sub {
		my $lines = slurp_file($node->logfile);
		return scalar(() = $lines =~ /ProcessCatchupEvent outside transaction/g);
	};
	my $before = $runs->();
	$waiter->query_async("SELECT zk_lock('idle')");
	wait_blocked_locally($waiter);
	lose_lock($zk, $zkc, 'idle', $id);
	$waiter->wait_result;
	my $began = time;
	wait_until('more than the time between two signals of a loss', sub { time > $began + 1.3 });
	is($runs->() - $before, 1, 'an idle session runs one transaction for a loss');
	fails_with($s, 'SELECT 1', '40001', 'an idle session reports the loss in its next transaction');
	$waiter->query_ok("SELECT zk_unlock('idle')");
	$_->quit for $s, $waiter;
}

# ... and then sleeps: the signals of the loss, which must end the wait of a later statement,
# come more rarely until the client sends one.
{
	my $s = session_with($node, session_timeout => '3s');
	$s->query_ok("SELECT zk_lock('idle')");
	my $wakes = sub {
		my ($n) = slurp_file('/proc/' . $s->pid . '/status') =~ /^voluntary_ctxt_switches:\s+(\d+)$/m;
		return $n;
	};
	$losses{'its session expires'}->();
	my ($before, $since) = (-1, time);
	wait_until('more than twice the time between the first signals of a loss, without a wakeup', sub {
		my $n = $wakes->();
		($before, $since) = ($n, time) if $n != $before;
		return time > $since + 1.3;
	});
	pass('an idle session that has an unreported loss is not woken twice a second');
	my $gate = session($node);
	$node->safe_psql('postgres', 'CREATE TABLE gated (v text)');
	$gate->query_ok('BEGIN; LOCK TABLE gated');
	fails_with($s, 'SELECT count(*) FROM gated', '57014', 'the loss ends a wait in parse analysis of the next statement, although no hook has been called', hint => 0);
	$gate->quit;
	fails_with($s, 'SELECT 1', '40001', 'the statement that gets past parsing reports the loss');
	$s->quit;
}

# A session that idles in a failed transaction cannot run one; it does after the ROLLBACK.
{
	my ($s, $waiter) = (session($node), connected_session($node));
	$s->query_ok("SELECT zk_lock('idle')");
	my $id = zk_session_id_of($s);
	$s->query($_) for 'BEGIN', 'SELECT 1/0';
	$waiter->query_async("SELECT zk_lock('idle')");
	wait_blocked_locally($waiter);
	lose_lock($zk, $zkc, 'idle', $id);
	$s->query_ok('ROLLBACK');
	like($waiter->wait_result, qr/^\d+$/, 'a loss in a failed transaction: after its ROLLBACK a waiter of the same server is granted the lock');
	fails_with($s, 'SELECT 1', '40001', 'the statement after the ROLLBACK reports the loss');
	$waiter->query_ok("SELECT zk_unlock('idle')");
	$_->quit for $s, $waiter;
}

# Inside of a transaction block the local lock stays until the next statement or the end of
# the session.
{
	my ($s, $waiter) = (session($node), session($node));
	$s->query_ok("SELECT zk_lock('idle')");
	my $id = zk_session_id_of($s);
	$s->query_ok('BEGIN');
	$waiter->query_async("SELECT zk_lock('idle')");
	wait_blocked_locally($waiter);
	lose_lock($zk, $zkc, 'idle', $id);
	ok(!$waiter->finished, 'a session idles in a transaction block: after the loss a waiter of the same server waits on');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $s->pid . ')');
	like($waiter->wait_result, qr/^\d+$/, 'the end of that session lets the waiter go on');
	$waiter->quit;
	$s->drop;
}

$_->quit for $here, $there;
nothing_left($zkc, 'nothing is left');
