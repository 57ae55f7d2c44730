# Unknown children of a lock's znode do not affect the lock. Contenders of other programs
# are contenders.
#
# Promise: 10.1

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $node_1 = shared_node('a', zk => $zk);
my $node_2 = shared_node('b', zk => $zk);
my $first = session($node_1);
my $second = session($node_2);

# Checks all uses of a lock: exclusive, waited for, shared, upgraded.
sub can_be_used
{
	my ($lock, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $others = () = $zkc->children("/zklock/locks/$lock");
	works($first, "SELECT zk_lock('$lock')", qr/^\d+$/,
		"$what: the lock can be acquired");
	works($second,
		"SELECT zk_try_lock('$lock'), zk_try_lock_shared('$lock')",
		'f|f', "$what: the lock excludes another server");
	wait_zk_children($zkc, "/zklock/locks/$lock", $others + 1);
	$second->query_async("SELECT zk_lock('$lock')");
	wait_zk_children($zkc, "/zklock/locks/$lock", $others + 2);
	ok(!$second->finished, "$what: another server waits for the lock");
	$first->query_ok("SELECT zk_unlock('$lock')");
	like($second->wait_result, qr/^\d+$/, "$what: another server is granted the lock after a release");
	$second->query_ok("SELECT zk_unlock('$lock')");
	works($first, "SELECT zk_lock_shared('$lock') > 0", 't',
		"$what: the lock can be shared");
	works($second, "SELECT zk_try_lock_shared('$lock')", 't',
		"$what: both servers can share the lock");
	$second->query_ok("SELECT zk_unlock_shared('$lock')");
	works($first, "SELECT zk_lock('$lock') > 0",
		't', "$what: the only sharer can upgrade the lock");
	$first->query_ok("SELECT zk_unlock('$lock')");
	works($second, "SELECT zk_try_lock_shared('$lock', '1 min')",
		't', "$what: the lock can be shared again");
	$_->query_ok('SELECT zk_unlock_all()') for $first, $second;
	nothing_left($zkc, "$what: no contender is left");
	return;
}

my $guid = '0a1b2c3d-1111-2222-3333-444455556666';
my $hex = '0a1b2c3d111122223333444455556666';
my @unknown = (
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

# Children that are not node names of any lock recipe.
{
	$zkc->create('/zklock/locks/unknown', makepath => 1);
	$zkc->create("/zklock/locks/unknown/$_") for @unknown;
	can_be_used('unknown', 'among unknown children');
	my @left = $zkc->children('/zklock/locks/unknown');
	is(scalar(@left), scalar(@unknown), 'unknown children are not deleted');
}

# Unknown ephemeral children, and an unknown child above a node named like a contender.
{
	$zkc->create("/zklock/locks/eph/$_", ephemeral => 1, makepath => 1)
	  for 'a', 'master', "$guid";
	can_be_used('eph', 'among unknown ephemeral children');
	$zkc->create('/zklock/locks/nested/sub/' . "_c_$guid-__WRIT__0000000000",
		makepath => 1);
	can_be_used('nested', 'above a node named like a contender');
}

# Contenders of other programs, exclusive or shared, and the order of waiting.
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
		data => "other %s \x01\xff\0 else", ephemeral => 1, sequence => 1,
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
		"a writer waits for $what, and a reader waits behind the writer");
	$zkc->delete($theirs);
	like($first->wait_result, qr/^\d+$/, "the writer is granted the lock when $what releases it");
	ok(!$second->finished, 'the reader still waits');
	$theirs = $zkc->create("$path/$prefix", ephemeral => 1, sequence => 1);
	$first->query_ok('SELECT zk_unlock_all()');
	like($second->wait_result, qr/^\d+$/,
		"the reader is granted the lock before a later node of $what");
	$first->query_async("SELECT zk_lock('foreign')");
	wait_zk_children($zkc, $path, 3);
	$second->query_ok('SELECT zk_unlock_all()');
	wait_zk_children($zkc, $path, 2);
	ok(!$first->finished, "a writer does not overtake $what");
	$zkc->delete($theirs);
	like($first->wait_result, qr/^\d+$/, "the writer is granted the lock after $what");
	$first->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, "$what leaves no node");
}

# The same, if the other program dies.
{
	my $dying = ZkLock::ZkClient->new($zk->connect_string, timeout => 2);
	foreign_node($dying, '/zklock/locks/foreign', 'WRIT');
	$first->query_async("SELECT zk_lock('foreign')");
	wait_queued_or_ended($zkc, '/zklock/locks/foreign', $first);
	$dying->drop;
	like($first->wait_result, qr/^\d+$/,
		'the lock of a dead program is free when its session expires');
	$first->query_ok('SELECT zk_unlock_all()');
}

# The node of a waiter is removed by hand.
{
	$first->query_ok("SELECT zk_lock('removed')");
	$second->query_async("SELECT zk_lock('removed')");
	wait_zk_children($zkc, '/zklock/locks/removed', 2);
	my (undef, $waiting) = queue_of($zkc, 'removed');
	$zkc->delete($waiting);
	$first->query_ok("SELECT zk_unlock('removed')");
	like($second->wait_result, qr/^\d+$/,
		'a waiter whose node was removed queues again and gets the lock');
	is($second->error, '', 'the waiter gets no message');
	my ($mine) = queue_of($zkc, 'removed');
	isnt($mine, $waiting, 'the waiter has a new node');
	works($first, "SELECT zk_try_lock('removed')", 'f',
		'the waiter holds the lock');
	$second->query_ok('SELECT zk_unlock_all()');

	# One of several nodes of a waiter is removed.
	$first->query_ok("SELECT zk_lock('removed')");
	$second->query_async("SELECT zk_lock_many(ARRAY['removed', 'removed2'])");
	wait_zk_children($zkc, '/zklock/locks/removed', 2);
	$zkc->delete((queue_of($zkc, 'removed'))[1]);
	$first->query_ok("SELECT zk_unlock('removed')");
	like($second->wait_result, qr/^\{\d+,\d+\}$/,
		'a waiter for several names queues again when one node was removed');
	works($first, "SELECT zk_try_lock('removed'), zk_try_lock('removed2')",
		'f|f', 'the waiter holds all names');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'removed nodes leave no node');
}

# The predecessor of a waiter is removed. The holder before it still holds the lock, so
# the waiter must not overtake the holder.
{
	my $third = session($node_2);
	my $holder = foreign_node($zkc, '/zklock/locks/between', 'WRIT');
	my $predecessor = foreign_node($zkc, '/zklock/locks/between', 'WRIT');
	$first->query_async("SELECT zk_lock('between')");
	wait_zk_children($zkc, '/zklock/locks/between', 3);
	wait_blocked($first);
	$zkc->delete($predecessor);
	works($third, "SELECT zk_try_lock('between')",
		'f', 'an attempt is refused after the predecessor is removed');
	ok(!$first->finished, 'the waiter waits for the holder');
	$zkc->delete($holder);
	like($first->wait_result, qr/^\d+$/, 'the waiter is granted the lock when the holder is removed');
	$first->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'removed predecessors leave no node');
}

# The znode of the lock itself.
{
	$first->query_ok("SELECT zk_lock('parent')");
	$second->query_async("SELECT zk_lock('parent')");
	wait_zk_children($zkc, '/zklock/locks/parent', 2);
	$zkc->set('/zklock/locks/parent', "anything\0at all");
	$zkc->delete('/zklock/locks/parent', recursive => 1);
	like($second->wait_result, qr/^\d+$/,
		'a lock whose znode was removed with its queue can be acquired');
	works($second, "SELECT zk_unlock('parent')", 't', 'that lock can be released');
	$first->query("SELECT zk_unlock('parent')");
	ok($first->sqlstate =~ /^(?:00000|40001)$/,
		'the former holder gets no error, or an error that its lock was lost');
	$zkc->create('/zklock/locks/plain', makepath => 1);
	can_be_used('plain', 'below a znode that is no container');
	$zkc->create('/zklock/locks/eph-parent', ephemeral => 1);
	fails_with($first, "SELECT zk_lock('eph-parent')", '58000',
		'a lock fails if its znode cannot have children',
		like => qr/"eph-parent"/);
	$zkc->delete('/zklock/locks/eph-parent');
	works($first, "SELECT zk_try_lock('eph-parent'), zk_unlock('eph-parent')",
		't|t', 'the lock can be acquired when that znode is removed');
	nothing_left($zkc, 'odd znodes leave no node');
}
