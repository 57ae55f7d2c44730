# SQL sessions and kazoo's locks exclude each other: Lock, WriteLock and ReadLock.
#
# kazoo 2.8.0 lets a reader that waits wait for writers behind it as well (its pull
# request 650); so nobody queues behind its readers here while they wait.

use strict;
use warnings;

use JSON::PP qw(decode_json);
use Test::More;
use ZkLock::Check qw(nothing_left queue_of works);
use ZkLock::Cluster;
use ZkLock::Contest;
use ZkLock::Opponent;

my ($zk, $zkc, @servers) = contest("zklock.node_names = 'kazoo'\nrestart_after_crash = on\n");
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

# What a contender's identifier says, in kazoo's order.
sub who
{
	return map { /^\{/ ? decode_json($_)->{pid} : $_ } @_;
}

# Readers.
{
	$here->query_ok("SELECT zk_lock_shared('x')");
	ok($reader->acquire(0), 'readers: a reader of theirs is let in to ours');
	works($there, "SELECT zk_try_lock_shared('x')", 't',
		'readers: and another of ours to both');
	ok(!$writer->acquire(0), 'readers: no writer of theirs is');
	queue('x', 3);
	works($there, "SELECT zk_try_lock('x')", 'f', 'readers: nor an upgrade of ours');
	$writer->acquire_async;
	queue('x', 4);
	works($here, "SELECT zk_try_lock_shared('x')", 't',
		'readers: who shares with us already may do so again');
	ok(!$other_reader->acquire(0),
		'readers: no reader of theirs passes the writer that waits');
	queue('x', 4);
	$here->query_ok('SELECT zk_unlock_all()');
	$reader->release;
	queue('x', 2);
	works($here, "SELECT zk_try_lock_shared('x')", 'f', 'readers: nor one of ours');
	ok(!$writer->finished, 'readers: which waits for the last of ours');
	$there->query_ok("SELECT zk_unlock_shared('x')");
	ok($writer->wait_result, 'readers: and is next');
	$here->query_async("SELECT zk_lock_shared('x')");
	queue('x', 2);
	$reader->acquire_async;
	$other_reader->acquire_async;
	queue('x', 4);
	$writer->release;
	like($here->wait_result, qr/^\d+$/, 'readers: all at the head are let in, ours');
	ok($_->wait_result, 'readers: and theirs') for $reader, $other_reader;
	$there->query_async("SELECT zk_lock('x')");
	queue('x', 4);
	$reader->release;
	$here->query_ok("SELECT zk_unlock_shared('x')");
	queue('x', 2);
	ok(!$there->finished, 'readers: a writer of ours waits for the last of theirs');
	$other_reader->expire;
	like($there->wait_result, qr/^\d+$/, 'readers: also where its session ends');
	$there->query_ok("SELECT zk_unlock('x')");
	$other_reader->release;
	nothing_left($zkc, 'readers: nothing is left');
}

# Who contends.
{
	my $lock = $python->lock(lock => path('x'));
	$here->query_ok("SELECT zk_lock('x')");
	is_deeply([ who($lock->contenders) ], [ $here->pid ],
		'contenders: the holder is ours');
	is(decode_json(($lock->contenders)[0])->{application_name}, 'payroll',
		'contenders: whose application one can read');
	$lock->acquire_async;
	queue('x', 2);
	$there->query_async("SELECT zk_lock_shared('x')");
	queue('x', 3);
	my $look = $python->lock(write => path('x'));
	is_deeply([ who($look->contenders) ],
		[ $here->pid, $lock->identifier, $there->pid ],
		'contenders: all of both sides in the order of the queue');
	is_deeply([ who($python->lock(lock => path('x'))->contenders) ],
		[ $here->pid, $lock->identifier ],
		'contenders: a lock without readers lists the others');
	$here->query_ok("SELECT zk_unlock('x')");
	ok($lock->wait_result, 'contenders: they are served in that order');
	$lock->release;
	like($there->wait_result, qr/^\d+$/, 'contenders: each of them');
	$there->query_ok("SELECT zk_unlock_shared('x')");
	$_->close for $lock, $look;
	nothing_left($zkc, 'contenders: nothing is left');
}

# A role whose name has bytes of another database's encoding: what kazoo reads must
# be UTF-8 all the same.
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
			"contenders: one with a name that is not UTF-8, in $dbname");
		is(decode_json(($lock->contenders)[0])->{usename}, 'caf?',
			'contenders: is listed in UTF-8');
		$session->query_ok("SELECT zk_unlock('x')");
		$session->quit;
	}
	$lock->close;
}

# Downgrade and upgrade of ours among theirs.
{
	my $token = $here->query_ok("SELECT zk_lock('x')");
	$writer->acquire_async;
	queue('x', 2);
	works($here, "SELECT zk_lock_shared('x'), zk_unlock('x')", "$token|t",
		'our downgrade: exclusive becomes shared under the same token');
	wait_until(
		'their writer to watch our reader',
		sub {
			my ($ours) = queue_of($zkc, 'x');
			return ($zk->four_letter('wchp') // '') =~ /^\Q$ours\E$/m
			  && $ours =~ /__rlock__/;
		});
	ok(!$writer->finished, 'our downgrade: lets no writer of theirs in');
	works($here, "SELECT zk_lock('x')", $token,
		'our upgrade: ahead of a writer of theirs that waits');
	works($here, "SELECT zk_unlock('x')", 't', 'our upgrade: released');
	ok(!$writer->finished, 'our upgrade: and still shared');
	$here->query_ok("SELECT zk_unlock_shared('x')");
	ok($writer->wait_result, 'our upgrade: then the writer is next');
	$writer->release;

	ok($reader->acquire(0), 'our upgrade: they share');
	$here->query_ok("SELECT zk_lock_shared('x')");
	$here->query_async("SELECT zk_lock('x')");
	queue('x', 3);
	ok(!$here->finished, 'our upgrade: it waits for a reader of theirs');
	$reader->release;
	like($here->wait_result, qr/^\d+$/, 'our upgrade: and no longer');
	$here->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'our upgrade: nothing is left');
}

# Orders of theirs that end a wait, or come twice.
{
	my $lock = $python->lock(lock => path('x'));
	$here->query_ok("SELECT zk_lock('x')");
	$lock->acquire_async;
	queue('x', 2);
	$lock->cancel;
	$lock->outcome;
	like($lock->failed, qr/^CancelledError/, 'cancelled: a wait of theirs for us');
	queue('x', 1);
	$there->query_async("SELECT zk_lock('x')");
	queue('x', 2);
	$here->query_ok("SELECT zk_unlock('x')");
	like($there->wait_result, qr/^\d+$/, 'cancelled: it is in nobody\'s way');
	$there->query_ok("SELECT zk_unlock('x')");
	ok($lock->acquire(30000), 'cancelled: and can restart');
	ok(!$lock->acquire(0), 'twice: kazoo counts no holds');
	works($here, "SELECT zk_try_lock('x')", 'f', 'twice: it holds once');
	ok($lock->release, 'twice: and is released');
	ok(!$lock->release, 'twice: no second time');
	works($here, "SELECT zk_try_lock('x', '30s')", 't', 'twice: then it is ours');
	$here->query_ok("SELECT zk_unlock('x')");
	$lock->close;
}

# A name of SQL as part of a path: what Python quotes, leaving :@+= alone.
{
	my %paths = (
		'month/2024' => 'month%2F2024',
		'a b' => 'a%20b',
		'x:y@z~1.5+2=3_-' => 'x:y@z~1.5+2=3_-',
		"caf\xc3\xa9" => 'caf%C3%A9',
		'..' => '%2E%2E');
	for my $name (sort keys %paths)
	{
		my $lock = $python->lock(lock => path($paths{$name}));
		ok($lock->acquire(0), "names: the path for \"$name\"");
		works($here, "SELECT zk_try_lock('$name')", 'f',
			'names: is where SQL has its lock');
		$lock->release;
		$lock->close;
	}
}

# A backend that is killed, and a program that is.
{
	my $lock = $python->lock(lock => path('x'));
	my $doomed = session($servers[0]);
	$doomed->query_ok("SET zklock.session_timeout = '1s'");
	$doomed->query_ok("SELECT zk_lock('x')");
	$lock->acquire_async;
	queue('x', 2);
	$doomed->kill9;
	ok($lock->wait_result, 'killed: they get it when our backend was killed');
	works($there, "SELECT zk_try_lock('x')", 'f', 'killed: and hold it');
	$lock->release;

	my $crashing = ZkLock::Opponent->kazoo($zk->connect_string);
	my $lost = $crashing->lock(lock => path('x'), timeout => 1000);
	$lost->acquire;
	$there->query_async("SELECT zk_lock('x')");
	queue('x', 2);
	$crashing->stop;
	like($there->wait_result, qr/^\d+$/,
		'killed: we get it when their program was killed');
	$there->query_ok('SELECT zk_unlock_all()');

	my $silent = ZkLock::Opponent->kazoo($zk->connect_string);
	my $cut = $silent->lock(lock => path('x'), timeout => 1000);
	$cut->acquire;
	$there->query_async("SELECT zk_lock('x')");
	queue('x', 2);
	$silent->pause;
	like($there->wait_result, qr/^\d+$/,
		'killed: also when it is only silent for too long');
	$silent->resume;
	$there->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'killed: nothing is left');
}

# A lock that outlives its program, as kazoo can make one, is a lock.
{
	my $node = $zkc->create(path('x') . '/0123456789abcdef0123456789abcdef__lock__',
		sequence => 1);
	works($there, "SELECT zk_try_lock('x')", 'f',
		'persistent: a node that no session owns excludes us');
	$there->query_async("SELECT zk_lock('x')");
	queue('x', 2);
	$zkc->delete($node);
	like($there->wait_result, qr/^\d+$/, 'persistent: until it is deleted');
	$there->query_ok("SELECT zk_unlock('x')");
}

$zkc->close;
$_->stop for $python, @servers, $zk;
done_testing();
