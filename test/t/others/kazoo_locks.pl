# SQL sessions and kazoo's locks exclude each other: Lock, WriteLock and ReadLock.
#
# In kazoo 2.8.0 a waiting reader also waits for writers behind it (its pull request 650),
# so here no client queues behind its waiting readers.
#
# Promise: 9.1

use ZkLock::Contest;
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc, @servers) = contest(set => { 'zklock.node_names' => 'kazoo' });
my $python = ZkLock::Opponent->kazoo($zk->connect_string);

for ([ l => 'lock', 'exclusive' ], [ w => 'write', 'exclusive' ], [ s => 'write', 'shared' ],
	[ r => 'read', 'exclusive', no_waiter_behind => 1 ])
{
	my ($lock, $kind, $mode, %opt) = @$_;
	duel("kazoo's $kind lock against ours, $mode", $python, $kind => $lock, $mode,
		node_names => 'kazoo', %opt);
}

my ($here, $there) = map { session($_, application_name => 'payroll') } @servers;
my $reader = $python->lock(read => path('x'));
my $other_reader = $python->lock(read => path('x'));
my $writer = $python->lock(write => path('x'));

# Returns the process id, or kazoo's identifier, of each contender.
sub owners
{
	return map { node_members($_)->{pid} // $_ } @_;
}

# Readers.
{
	$here->query_ok("SELECT zk_lock_shared('x')");
	ok($reader->acquire(0), 'readers: their reader shares with ours');
	works($there, "SELECT zk_try_lock_shared('x')", 't',
		'readers: our second reader shares with both');
	ok(!$writer->acquire(0), 'readers: their writer is excluded');
	queue('x', 3);
	works($there, "SELECT zk_try_lock('x')", 'f', 'readers: our upgrade is excluded');
	$writer->acquire_async;
	queue('x', 4);
	works($here, "SELECT zk_try_lock_shared('x')", 't',
		'readers: a sharer may share again despite a waiting writer');
	ok(!$other_reader->acquire(0),
		'readers: their reader does not overtake the waiting writer');
	queue('x', 4);
	$here->query_ok('SELECT zk_unlock_all()');
	$reader->release;
	queue('x', 2);
	works($here, "SELECT zk_try_lock_shared('x')", 'f', 'readers: our reader does not overtake the waiting writer');
	ok(!$writer->finished, 'readers: their writer waits for our last reader');
	$there->query_ok("SELECT zk_unlock_shared('x')");
	ok($writer->wait_result, 'readers: their writer acquires the lock after our last reader');
	$here->query_async("SELECT zk_lock_shared('x')");
	queue('x', 2);
	$reader->acquire_async;
	$other_reader->acquire_async;
	queue('x', 4);
	$writer->release;
	like($here->wait_result, qr/^\d+$/, 'readers: our reader at the head of the queue is granted the lock');
	ok($_->wait_result, 'readers: their readers at the head of the queue are granted the lock') for $reader, $other_reader;
	$there->query_async("SELECT zk_lock('x')");
	queue('x', 4);
	$reader->release;
	$here->query_ok("SELECT zk_unlock_shared('x')");
	queue('x', 2);
	ok(!$there->finished, 'readers: our writer waits for their last reader');
	$other_reader->expire;
	like($there->wait_result, qr/^\d+$/, 'readers: our writer acquires the lock when the session of their last reader ends');
	$there->query_ok("SELECT zk_unlock('x')");
	$other_reader->release;
	nothing_left($zkc, 'readers: no node is left');
}

# Contenders.
{
	my $lock = $python->lock(lock => path('x'));
	$here->query_ok("SELECT zk_lock('x')");
	is_deeply([ owners($lock->contenders) ], [ $here->pid ],
		'contenders: kazoo lists our holder');
	is(node_members(($lock->contenders)[0])->{application_name}, 'payroll',
		'contenders: kazoo can read our application name');
	$lock->acquire_async;
	queue('x', 2);
	$there->query_async("SELECT zk_lock_shared('x')");
	queue('x', 3);
	my $look = $python->lock(write => path('x'));
	is_deeply([ owners($look->contenders) ],
		[ $here->pid, $lock->identifier, $there->pid ],
		'contenders: a write lock lists both sides in queue order');
	is_deeply([ owners($python->lock(lock => path('x'))->contenders) ],
		[ $here->pid, $lock->identifier ],
		'contenders: a lock without readers lists only exclusive contenders');
	$here->query_ok("SELECT zk_unlock('x')");
	ok($lock->wait_result, 'contenders: their lock is granted in that order');
	$lock->release;
	like($there->wait_result, qr/^\d+$/, 'contenders: our reader is granted the lock in that order');
	$there->query_ok("SELECT zk_unlock_shared('x')");
	$_->close for $lock, $look;
	nothing_left($zkc, 'contenders: no node is left');
}

# A role whose name has bytes of another database's encoding: the data that kazoo reads
# must still be text.
{
	my $lock = $python->lock(lock => path('x'));
	my $admin = $servers[0];
	$admin->safe_psql('postgres',
		"CREATE DATABASE $_ TEMPLATE template0 ENCODING '$_' LOCALE 'C'")
	  for qw(latin1 sql_ascii);
	$admin->safe_psql('latin1', "CREATE ROLE \"caf\xe9\"");
	$admin->safe_psql('sql_ascii', 'CREATE EXTENSION zklock');
	for my $dbname (qw(postgres sql_ascii))
	{
		my $session = session($admin, dbname => $dbname);
		$session->query_ok("DO 'BEGIN EXECUTE (SELECT format(
			''SET SESSION AUTHORIZATION %I'', rolname)
			FROM pg_roles ORDER BY oid DESC LIMIT 1); END'");
		works($session, "SELECT zk_lock('x')", qr/^\d+$/,
			"contenders: a role with a name that is not UTF-8 acquires the lock, in $dbname");
		like(($lock->contenders)[0], qr/^[!-~ ]* usename=caf%E9 /,
			'contenders: the role is listed in printable ASCII');
		$session->query_ok("SELECT zk_unlock('x')");
		$session->quit;
	}
	$lock->close;
}

# Our downgrade and upgrade next to their contenders.
{
	my $token = $here->query_ok("SELECT zk_lock('x')");
	$writer->acquire_async;
	queue('x', 2);
	works($here, "SELECT zk_lock_shared('x'), zk_unlock('x')", "$token|t",
		'our downgrade: exclusive becomes shared with the same token');
	wait_until(
		'their writer to watch our reader',
		sub {
			my ($ours) = queue_of($zkc, 'x');
			return ($zk->four_letter('wchp') // '') =~ /^\Q$ours\E$/m
			  && $ours =~ /__rlock__/;
		});
	ok(!$writer->finished, 'our downgrade: their writer still waits');
	works($here, "SELECT zk_lock('x')", $token,
		'our upgrade: we upgrade ahead of their waiting writer');
	works($here, "SELECT zk_unlock('x')", 't', 'our upgrade: we release the exclusive lock');
	ok(!$writer->finished, 'our upgrade: our shared lock still excludes their writer');
	$here->query_ok("SELECT zk_unlock_shared('x')");
	ok($writer->wait_result, 'our upgrade: their writer acquires the lock after our release');

	# Their reader waits already: kazoo fails if the server has deleted the empty container.
	$reader->acquire_async;
	queue('x', 2);
	$writer->release;
	ok($reader->wait_result, 'our upgrade: their reader acquires the lock');
	$here->query_ok("SELECT zk_lock_shared('x')");
	$here->query_async("SELECT zk_lock('x')");
	queue('x', 3);
	ok(!$here->finished, 'our upgrade: it waits for their reader');
	$reader->release;
	like($here->wait_result, qr/^\d+$/, 'our upgrade: it succeeds after their release');
	$here->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'our upgrade: no node is left');
}
