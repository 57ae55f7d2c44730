# SQL sessions exclude Curator's exclusive locks, and these exclude SQL sessions:
# InterProcessMutex, InterProcessMultiLock, the write lock of InterProcessReadWriteLock, and
# a Python program that uses Curator's node names.
#
# Promise: 9.1

use ZkLock::Contest;
use ZkLock::Opponent;
use ZkLock::Test;

# Nobody connects to a server that starts before it has read its sessions.
my $proxy = ZkLock::Proxy->start(target => shared_zk());
my ($zk, $zkc, @servers) = contest(session_timeout => '5min', zk => $proxy);
my $java = ZkLock::Opponent->curator($proxy->connect_string);
my $python = ZkLock::Opponent->kazoo($proxy->connect_string);

# A SQL session with the node names of InterProcessMutex.
sub mutex_session
{
	my ($server, %opt) = @_;
	my $session = session($server, %opt);
	$session->reconnect('zklock.node_names' => 'curator_mutex');
	return $session;
}

duel("Curator's mutex", $java, mutex => 'm', 'exclusive',
	node_names => 'curator_mutex');
duel("Curator's write lock", $java, write => 'w', 'exclusive',
	node_names => 'curator');
duel("kazoo's lock with the node names of Curator's mutex", $python, curator_mutex => 'k', 'exclusive',
	node_names => 'curator_mutex');

my ($here, $there) = map { mutex_session($_, application_name => 'payroll') } @servers;
my $theirs = $java->lock(mutex => path('x'), timeout => 60000);

# Participants.
{
	$here->query_ok("SELECT zk_lock('x')");
	$theirs->acquire_async;
	queue('x', 2);
	$there->query_async("SELECT zk_lock('x')");
	my @nodes = sort { substr($a, -10) <=> substr($b, -10) } queue('x', 3);
	my $watcher = $java->lock(mutex => path('x'));
	is_deeply([ $watcher->participants ], \@nodes,
		'participants: Curator lists our nodes and theirs, in queue order');
	my @owners = map {
		my $data = $watcher->data(path("x/$_"));
		node_members($data)->{pid} // 'Java';
	} @nodes;
	is_deeply(\@owners, [ $here->pid, 'Java', $there->pid ],
		'participants: a Java program can read our process ids');
	is(node_members($watcher->data(path("x/$nodes[0]")))->{application_name},
		'payroll', 'participants: a Java program can read our application name');
	$here->query_ok("SELECT zk_unlock('x')");
	ok($theirs->wait_result, 'participants: the Java program is granted the lock in that order');
	$theirs->release;
	like($there->wait_result, qr/^\d+$/, 'participants: our second session is granted the lock in that order');
	$there->query_ok("SELECT zk_unlock('x')");
	$watcher->close;
	nothing_left($zkc, 'participants: no node is left');
}

# The ZooKeeper server crashes and restarts while each side holds a lock and waits.
{
	my $other_holder = mutex_session($servers[1]);
	$here->query_ok("SELECT zk_lock('x')");
	$other_holder->query_ok("SELECT zk_lock('y')");
	$theirs->acquire_async;
	queue('x', 2);
	my $holder = $java->lock(mutex => path('z'), timeout => 60000);
	$holder->acquire;
	$there->query_async("SELECT zk_lock('z')");
	queue('z', 2);
	$proxy->cut(refuse => 1);
	$zk->kill9;
	$zk->restart;
	$proxy->accept;
	queue('x', 2);
	ok(!$theirs->finished && !$there->finished,
		'restart: waits survive a crash of the ensemble');
	works($other_holder, "SELECT zk_unlock('y')", 't', 'restart: a held lock survives the crash');
	works($here, "SELECT zk_unlock('x')", 't', 'restart: we release');
	ok($theirs->wait_result, 'restart: they acquire the lock after our release');
	$theirs->release;
	$holder->release;
	like($there->wait_result, qr/^\d+$/, 'restart: we acquire the lock after their release');
	$there->query_ok("SELECT zk_unlock('z')");
	nothing_left($zkc, 'restart: no node is left');
}

# Several locks at once: they acquire one after another, we all together.
{
	my $multi = $java->lock(multi => path('p') . ' ' . path('q'));
	$here->query_ok("SELECT zk_lock('q')");
	ok(!$multi->acquire(0), 'several: they acquire all locks or none');
	works($there, "SELECT zk_try_lock('p', '30s')", 't',
		'several: they release the locks of a failed attempt');
	$multi->acquire_async;
	queue('p', 2);
	works($there, "SELECT zk_unlock('p')", 't', 'several: we release one lock');
	queue('p', 1);
	queue('q', 2);
	ok(!$multi->finished, 'several: they wait for the other lock');
	works($here, "SELECT zk_unlock('q')", 't', 'several: we release the other lock');
	ok($multi->wait_result, 'several: they acquire both locks');
	works($here, "SELECT zk_try_lock_many(ARRAY['p', 'q'])", 'f',
		'several: both locks exclude our array');
	works($here, "SELECT zk_try_lock('p'), zk_try_lock('q')", 'f|f',
		'several: each lock excludes us');
	$here->query_async("SELECT zk_lock_many(ARRAY['q', 'p'])");
	queue('p', 2);
	queue('q', 2);
	$multi->release;
	like($here->wait_result, qr/^\{\d+,\d+\}$/,
		'several: we acquire both locks when they release');
	ok(!$multi->acquire(0), 'several: they acquire none while we hold both');
	works($here, "SELECT zk_unlock_many(ARRAY['p', 'q'])", '{t,t}', 'several: we release');
	ok($multi->acquire(30000), 'several: they acquire both locks after our release');
	$multi->release;

	# Our array has acquired the second lock when they acquire the first.
	works($there, "SELECT zk_try_lock('p', '30s')", 't', 'crosswise: we acquire one lock');
	$multi->acquire_async;
	queue('p', 2);
	$here->query_async("SELECT zk_lock_many(ARRAY['p', 'q'])");
	queue('p', 3);
	queue('q', 1);
	$there->query_ok("SELECT zk_unlock('p')");
	queue('q', 2);
	ok(!$here->finished && !$multi->finished, 'crosswise: each waits for the other');
	$multi->interrupt;
	$multi->outcome;
	like($multi->failed, qr/^InterruptedException/, 'crosswise: their attempt is interrupted');
	like($here->wait_result, qr/^\{\d+,\d+\}$/, 'crosswise: we acquire both locks');
	$here->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'several: no node is left');
}
