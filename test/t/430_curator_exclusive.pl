# SQL sessions and Curator's exclusive locks exclude each other: InterProcessMutex,
# InterProcessMultiLock, the write lock of InterProcessReadWriteLock; and a Python
# program that gives its nodes Curator's names.

use strict;
use warnings;

use JSON::PP qw(decode_json);
use Test::More;
use ZkLock::Check qw(nothing_left works);
use ZkLock::Cluster;
use ZkLock::Contest;
use ZkLock::Opponent;

my ($zk, $zkc, @servers) = contest("restart_after_crash = on\n");
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);

# A session of ours among InterProcessMutexes.
sub mutex_session
{
	my ($server, %opt) = @_;
	my $session = session($server, %opt);
	$session->query_ok("SET zklock.node_names = 'curator_mutex'");
	return $session;
}

duel("Curator's mutex", $java, mutex => 'm', 'exclusive',
	node_names => 'curator_mutex');
duel("Curator's write lock", $java, write => 'w', 'exclusive',
	node_names => 'curator');
duel("kazoo's lock under the names of Curator's mutex", $python, curator_mutex => 'k', 'exclusive',
	node_names => 'curator_mutex');

my ($here, $there) = map { mutex_session($_, application_name => 'payroll') } @servers;
my $theirs = $java->lock(mutex => path('x'));

# Who takes part.
{
	$here->query_ok("SELECT zk_lock('x')");
	$theirs->acquire_async;
	queue('x', 2);
	$there->query_async("SELECT zk_lock('x')");
	my @nodes = sort { substr($a, -10) <=> substr($b, -10) } queue('x', 3);
	my $watcher = $java->lock(mutex => path('x'));
	is_deeply([ $watcher->participants ], \@nodes,
		'participants: Curator lists ours and theirs, in the order of the queue');
	my @who = map {
		my $data = $watcher->data(path("x/$_"));
		$data =~ /^\{/ ? decode_json($data)->{pid} : 'Java';
	} @nodes;
	is_deeply(\@who, [ $here->pid, 'Java', $there->pid ],
		'participants: a Java program can read who we are');
	is(decode_json($watcher->data(path("x/$nodes[0]")))->{application_name},
		'payroll', 'participants: and which application');
	$here->query_ok("SELECT zk_unlock('x')");
	ok($theirs->wait_result, 'participants: they are served in that order');
	$theirs->release;
	like($there->wait_result, qr/^\d+$/, 'participants: each of them');
	$there->query_ok("SELECT zk_unlock('x')");
	$watcher->close;
	nothing_left($zkc, 'participants: nothing is left');
}

# Counted holds, on either side.
{
	$theirs->acquire for 1 .. 3;
	$theirs->release for 1 .. 2;
	works($here, "SELECT zk_try_lock('x')", 'f',
		'counted: theirs is held until released as often as taken');
	queue('x', 1);
	$theirs->release;
	works($here, "SELECT zk_try_lock('x'), zk_try_lock('x')", 't|t',
		'counted: then it is ours, twice');
	works($here, "SELECT zk_unlock('x')", 't', 'counted: released once');
	ok(!$theirs->acquire(0), 'counted: it is still ours');
	works($here, "SELECT zk_unlock('x')", 't', 'counted: released twice');
	ok($theirs->acquire(30000), 'counted: it is theirs');
	my $same = $java->lock(mutex => path('x'), with => $theirs);
	ok(!$same->acquire(0), 'counted: another thread of theirs is another holder');
	$theirs->release;
	nothing_left($zkc, 'counted: nothing is left');
}

# A thread that is interrupted while it waits for us.
{
	$here->query_ok("SELECT zk_lock('x')");
	$theirs->acquire_async;
	queue('x', 2);
	$theirs->interrupt;
	$theirs->outcome;
	like($theirs->failed, qr/^InterruptedException/,
		'interrupted: a thread that waits for us can be');
	queue('x', 1);
	$here->query_ok("SELECT zk_unlock('x')");
	ok($theirs->acquire(30000), 'interrupted: and can have the lock later');
	$theirs->release;
}

# A namespace, and a namespace without the rest.
{
	my $inside = $java->lock(mutex => '/locks/x', namespace => 'zklock');
	$here->query_ok("SELECT zk_lock('x')");
	ok(!$inside->acquire(0), 'namespace: they are excluded in their namespace');
	$inside->acquire_async;
	queue('x', 2);
	$here->query_ok("SELECT zk_unlock('x')");
	ok($inside->wait_result, 'namespace: and get what we release');
	works($here, "SELECT zk_try_lock('x')", 'f', 'namespace: and exclude us');
	$inside->release;
	$inside->close;
}

# The ensemble's server is started again while one of each holds, and waits.
{
	my $patient = mutex_session($servers[1]);
	$here->query_ok("SELECT zk_lock('x')");
	$patient->query_ok("SELECT zk_lock('y')");
	$theirs->acquire_async;
	queue('x', 2);
	my $holder = $java->lock(mutex => path('z'));
	$holder->acquire;
	$there->query_async("SELECT zk_lock('z')");
	queue('z', 2);
	$zk->kill9;
	$zk->restart;
	queue('x', 2);
	ok(!$theirs->finished && !$there->finished,
		'restart: waiting goes on across a crash of the ensemble');
	works($patient, "SELECT zk_unlock('y')", 't', 'restart: so does holding');
	works($here, "SELECT zk_unlock('x')", 't', 'restart: we release');
	ok($theirs->wait_result, 'restart: and they follow');
	$theirs->release;
	$holder->release;
	like($there->wait_result, qr/^\d+$/, 'restart: they release, and we follow');
	$there->query_ok("SELECT zk_unlock('z')");
	nothing_left($zkc, 'restart: nothing is left');
}

# Several locks at once: theirs one after another, ours all together.
{
	my $multi = $java->lock(multi => path('p') . ' ' . path('q'));
	$here->query_ok("SELECT zk_lock('q')");
	ok(!$multi->acquire(0), 'several: all of theirs, or none');
	works($there, "SELECT zk_try_lock('p', '30s')", 't',
		'several: what they got of it they release');
	$multi->acquire_async;
	queue('p', 2);
	works($there, "SELECT zk_unlock('p')", 't', 'several: one of ours is released');
	queue('p', 1);
	queue('q', 2);
	ok(!$multi->finished, 'several: they wait for the other');
	works($here, "SELECT zk_unlock('q')", 't', 'several: it is released');
	ok($multi->wait_result, 'several: they have both');
	works($here, "SELECT zk_try_lock(ARRAY['p', 'q'])", 'f',
		'several: which excludes an array of ours');
	works($here, "SELECT zk_try_lock('p'), zk_try_lock('q')", 'f|f',
		'several: and each of them');
	$here->query_async("SELECT zk_lock(ARRAY['q', 'p'])");
	queue('p', 2);
	queue('q', 2);
	$multi->release;
	like($here->wait_result, qr/^\{\d+,\d+\}$/,
		'several: we get both when they release');
	ok(!$multi->acquire(0), 'several: then they get none');
	works($here, "SELECT zk_unlock(ARRAY['p', 'q'])", 't', 'several: we release');
	ok($multi->acquire(30000), 'several: and they get both');
	$multi->release;

	# An array of ours has the second already when they get the first.
	works($there, "SELECT zk_try_lock('p', '30s')", 't', 'crosswise: one is ours');
	$multi->acquire_async(2000);
	queue('p', 2);
	$here->query_async("SELECT zk_lock(ARRAY['p', 'q'])");
	queue('p', 3);
	queue('q', 1);
	$there->query_ok("SELECT zk_unlock('p')");
	queue('q', 2);
	ok(!$here->finished && !$multi->finished, 'crosswise: each waits for the other');
	ok(!$multi->wait_result, 'crosswise: they give up when their time has passed');
	like($here->wait_result, qr/^\{\d+,\d+\}$/, 'crosswise: and we get both');
	$here->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'several: nothing is left');
}

# A backend that is killed, and a program that is.
{
	my $doomed = mutex_session($servers[0]);
	$doomed->query_ok("SET zklock.session_timeout = '1s'");
	$doomed->query_ok("SELECT zk_lock('x')");
	$theirs->acquire_async;
	queue('x', 2);
	$doomed->kill9;
	ok($theirs->wait_result, 'killed: they get it when our backend was killed');
	wait_for_sql($servers[0], "SELECT pg_is_in_recovery()", 'f');
	my $after = mutex_session($servers[0]);
	works($after, "SELECT zk_try_lock('x')", 'f',
		'killed: which they hold while our server has recovered');
	$theirs->release;

	my $crashing = ZkLock::Opponent->curator($zk->connect_string);
	my $lost = $crashing->lock(mutex => path('x'), timeout => 1000);
	$lost->acquire;
	$after->query_async("SELECT zk_lock('x')");
	queue('x', 2);
	$crashing->stop;
	like($after->wait_result, qr/^\d+$/,
		'killed: we get it when their program was killed');
	$after->quit;
	nothing_left($zkc, 'killed: nothing is left');
}

$zkc->close;
$_->stop for $java, $python, @servers, $zk;
done_testing();
