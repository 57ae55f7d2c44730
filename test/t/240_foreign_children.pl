# What others leave below a lock neither crashes nor blocks nor breaks it; other
# programs' contenders are contenders.

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node_1 = zklock_node('a', zk => $zk, session_timeout => '10s');
my $node_2 = zklock_node('b', zk => $zk, session_timeout => '10s');
my $first = session($node_1);
my $second = session($node_2);

# The whole life of a lock: exclusive, handed over, shared, upgraded.
sub lives
{
	my ($lock, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $others = () = $zkc->children("/zklock/locks/$lock");
	works($first, "SELECT zk_lock('$lock')", qr/^\d+$/,
		"$what: the lock can be acquired");
	works($second,
		"SELECT zk_try_lock('$lock'), zk_try_lock_shared('$lock')",
		'f|f', "$what: it excludes another server");
	wait_zk_children($zkc, "/zklock/locks/$lock", $others + 1);
	$second->query_async("SELECT zk_lock('$lock')");
	wait_zk_children($zkc, "/zklock/locks/$lock", $others + 2);
	ok(!$second->finished, "$what: another server waits for it");
	$first->query_ok("SELECT zk_unlock('$lock')");
	like($second->wait_result, qr/^\d+$/, "$what: and gets it after a release");
	$second->query_ok("SELECT zk_unlock('$lock')");
	works($first, "SELECT zk_lock_shared('$lock') > 0", 't',
		"$what: it can be shared");
	works($second, "SELECT zk_try_lock_shared('$lock')", 't',
		"$what: by both servers");
	$second->query_ok("SELECT zk_unlock_shared('$lock')");
	works($first, "SELECT zk_lock('$lock') > 0",
		't', "$what: and upgraded by the only sharer");
	$first->query_ok("SELECT zk_unlock('$lock')");
	works($second, "SELECT zk_try_lock_shared('$lock', '1 min')",
		't', "$what: and shared again");
	$_->query_ok('SELECT zk_unlock_all()') for $first, $second;
	nothing_left($zkc, "$what: no contender is left");
	return;
}

my $guid = '0a1b2c3d-1111-2222-3333-444455556666';
my $hex = '0a1b2c3d111122223333444455556666';
my @junk = (
	'0', '1', '-1', 'lease_holder', 'lock', 'lock-', '__WRIT__', '__READ__',
	'__lock__', '__rlock__', 'x', '0000000000', '-0000000001',
	'2147483647', "_c_$guid-lock-", "_c_$guid-__WRIT__", "$hex\__lock__",
	"_c_$guid-lock-1", "_c_$guid-__WRIT__12", "$hex\__lock__000000000",
	"_c_$guid-lock-00000000001", "_c_$guid-__READ__99999999999999999999",
	"_c_$guid-__WRIT__9999999999", "_c_$guid-__WRIT__+000000001",
	"_c_$guid-__WRIT__0x00000001", "_c_$guid-__WRIT__00000 0001",
	"_c_$guid-__writ__0000000000", "_c_$guid-lease-0000000000",
	"$hex\__lock__0000000000x", 'x-72057594037927936-0000000000',
	'x-0100000000000000-0000000000', '%', '%s%n%x', "caf\x{e9}0000000000",
	'a' x 1000, '-' x 300, '_' x 300, '9' x 300, '__READ__' x 50);

# Children that no dialect knows.
{
	$zkc->create('/zklock/locks/junk', makepath => 1);
	$zkc->create("/zklock/locks/junk/$_") for @junk;
	lives('junk', 'among unknown children');
	my @left = $zkc->children('/zklock/locks/junk');
	is(scalar(@left), scalar(@junk), 'unknown children are left alone');
}

# Ephemeral ones of others, some with children of the same names as ours.
{
	$zkc->create("/zklock/locks/eph/$_", ephemeral => 1, makepath => 1)
	  for 'a', 'master', "$guid";
	lives('eph', 'among unknown ephemeral children');
	$zkc->create('/zklock/locks/nested/sub/' . "_c_$guid-__WRIT__0000000000",
		makepath => 1);
	lives('nested', 'above a lock of the same shape');
}

# Many of them.
{
	$zkc->create('/zklock/locks/many', makepath => 1);
	$zkc->create("/zklock/locks/many/unknown-child-number-$_")
	  for 1 .. 2000;
	lives('many', 'among 2,000 unknown children');
	$zkc->delete('/zklock/locks/many', recursive => 1);
}

# Numbers around the wrap and from before: contenders with a negative number
# that nobody removes are contenders from before the wrap, or after it.
{
	my $persistent = "/zklock/locks/negative/_c_$guid-lock--000000005";
	$zkc->create($persistent, makepath => 1);
	works($first, "SELECT zk_try_lock('negative')",
		'f', 'a contender with a negative number is ahead of the number zero');
	$first->query_async("SELECT zk_lock('negative')");
	wait_zk_children($zkc, '/zklock/locks/negative', 2);
	$zkc->delete($persistent);
	like($first->wait_result, qr/^\d+$/, 'and is waited for like any other');
	$first->query_ok("SELECT zk_unlock('negative')");
	$zkc->create("/zklock/locks/negative/_c_$guid-__WRIT__$_") for
	  '-2147483649', '-9999999999', '4294967296';
	lives('negative', 'among numbers that are none');
}

# Contenders of other programs, and who waits for whom: each exclusive, or
# shared.
my %contender = (
	"Curator's mutex" => [ "_c_$guid-lock-", 1 ],
	"Curator's writer" => [ "_c_$guid-__WRIT__", 1 ],
	"Curator's reader" => [ "_c_$guid-__READ__", 0 ],
	"kazoo's lock" => [ "$hex\__lock__", 1 ],
	"kazoo's reader" => [ "$hex\__rlock__", 0 ]);
for my $what (sort keys %contender)
{
	my ($prefix, $exclusive) = @{ $contender{$what} };
	my $path = '/zklock/locks/foreign';
	my $theirs = $zkc->create("$path/$prefix",
		data => "somebody %s \x01\xff\0 else", ephemeral => 1, sequence => 1,
		makepath => 1);
	works($first, "SELECT zk_try_lock('foreign')", 'f',
		"$what excludes a writer");
	works($first, "SELECT zk_try_lock_shared('foreign')",
		$exclusive ? 'f' : 't',
		"$what " . ($exclusive ? 'excludes' : 'admits') . ' a reader');
	$first->query_ok('SELECT zk_unlock_all()');
	wait_zk_children($zkc, $path, 1);
	$first->query_async("SELECT zk_lock('foreign')");
	wait_zk_children($zkc, $path, 2);
	$second->query_async("SELECT zk_lock_shared('foreign')");
	wait_zk_children($zkc, $path, 3);
	ok(!$first->finished && !$second->finished,
		"a writer waits for $what, and a reader behind it");
	$zkc->delete($theirs);
	like($first->wait_result, qr/^\d+$/, "the writer is let in when $what goes");
	ok(!$second->finished, 'the reader is not');
	$theirs = $zkc->create("$path/$prefix", ephemeral => 1, sequence => 1);
	$first->query_ok('SELECT zk_unlock_all()');
	like($second->wait_result, qr/^\d+$/,
		"the reader comes before a later one of $what");
	$first->query_async("SELECT zk_lock('foreign')");
	wait_zk_children($zkc, $path, 3);
	$second->query_ok('SELECT zk_unlock_all()');
	wait_zk_children($zkc, $path, 2);
	ok(!$first->finished, "$what is not overtaken");
	$zkc->delete($theirs);
	like($first->wait_result, qr/^\d+$/, "and followed by who came after it");
	$first->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, "$what leaves nothing behind");
}

# The same by the death of the other program.
{
	my $dying = ZkLock::ZkClient->new($zk->connect_string, timeout => 2);
	foreign_node($dying, '/zklock/locks/foreign', 'WRIT');
	$first->query_async("SELECT zk_lock('foreign')");
	wait_zk_children($zkc, '/zklock/locks/foreign', 2);
	$dying->drop;
	like($first->wait_result, qr/^\d+$/,
		'the lock of a program that died is free when its session expires');
	$first->query_ok('SELECT zk_unlock_all()');
}

# Somebody removes the node of a session that waits.
{
	$first->query_ok("SELECT zk_lock('removed')");
	$second->query_async("SELECT zk_lock('removed')");
	wait_zk_children($zkc, '/zklock/locks/removed', 2);
	my (undef, $waiting) = queue_of($zkc, 'removed');
	$zkc->delete($waiting);
	$first->query_ok("SELECT zk_unlock('removed')");
	like($second->wait_result, qr/^\d+$/,
		'a waiter whose node was removed queues again and gets the lock');
	is($second->error, '', 'silently');
	my ($mine) = queue_of($zkc, 'removed');
	isnt($mine, $waiting, 'with a new node');
	works($first, "SELECT zk_try_lock('removed')", 'f',
		'the lock is held by it');
	$second->query_ok('SELECT zk_unlock_all()');

	# Several names, one of which is touched.
	$first->query_ok("SELECT zk_lock('removed')");
	$second->query_async("SELECT zk_lock(ARRAY['removed', 'removed2'])");
	wait_zk_children($zkc, '/zklock/locks/removed', 2);
	$zkc->delete((queue_of($zkc, 'removed'))[1]);
	$first->query_ok("SELECT zk_unlock('removed')");
	like($second->wait_result, qr/^\{\d+,\d+\}$/,
		'the same for one node of several');
	works($first, "SELECT zk_try_lock('removed'), zk_try_lock('removed2')",
		'f|f', 'all of which are held then');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'removed nodes leave nothing behind');
}

# Somebody removes the node before a waiter, which is not a release: of two
# waiters the second must not overtake the holder.
{
	my $third = session($node_2);
	my $guard = foreign_node($zkc, '/zklock/locks/between', 'WRIT');
	my $middle = foreign_node($zkc, '/zklock/locks/between', 'WRIT');
	$first->query_async("SELECT zk_lock('between')");
	wait_zk_children($zkc, '/zklock/locks/between', 3);
	wait_blocked($first);
	$zkc->delete($middle);
	works($third, "SELECT zk_try_lock('between')",
		'f', 'a waiter that gives up lets nobody in');
	ok(!$first->finished, 'who watched it waits for the next before it');
	$zkc->delete($guard);
	like($first->wait_result, qr/^\d+$/, 'until that one goes, too');
	$first->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'nor does that leave anything behind');
}

# The lock's znode itself.
{
	$first->query_ok("SELECT zk_lock('parent')");
	$second->query_async("SELECT zk_lock('parent')");
	wait_zk_children($zkc, '/zklock/locks/parent', 2);
	$zkc->set('/zklock/locks/parent', "anything\0at all");
	$zkc->delete('/zklock/locks/parent', recursive => 1);
	like($second->wait_result, qr/^\d+$/,
		'a lock whose znode was removed with all its queue can be acquired');
	works($second, "SELECT zk_unlock('parent')", 't', 'and released');
	my ($answer, $error) =
	  $first->query("SELECT zk_unlock('parent')");
	ok($first->sqlstate =~ /^(?:00000|40001)$/,
		'the former holder is not disturbed by that, or told of its loss');
	$zkc->create('/zklock/locks/plain', makepath => 1);
	lives('plain', 'in a znode that is no container');
	$zkc->create('/zklock/locks/eph-parent', ephemeral => 1);
	fails_with($first, "SELECT zk_lock('eph-parent')", '58000',
		'a znode that cannot have children is an error',
		like => qr/"eph-parent"/);
	$zkc->delete('/zklock/locks/eph-parent');
	works($first, "SELECT zk_try_lock('eph-parent'), zk_unlock('eph-parent')",
		't|t', 'until somebody removes it');
	nothing_left($zkc, 'odd znodes leave nothing behind');
}

unlike(slurp_file($_->logfile), qr/PANIC|terminated by signal/,
	'no backend has crashed')
  for $node_1, $node_2;
$zkc->close;
$_->stop for $node_1, $node_2;
$zk->stop;
done_testing();
