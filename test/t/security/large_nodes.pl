# Another program fills the queues of a world-writable root with nodes of a megabyte each. A
# query of zk_locks shows them, but does not make the ZooKeeper server send their data, for
# which the memory of the server may not suffice.
#
# Promise: 10.3

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client(timeout => 30);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = shared_node('a', zk => $zk);
my $holder = session_with($node, connect_string => $proxy->connect_string);
$holder->query_ok("SELECT zk_lock('held')");

my $n = 5;
for my $i (1 .. $n)
{
	my $name = sprintf 'large%02d', $i;
	$zkc->create("/zklock/locks/$name/_c_0a1b2c3d-1111-2222-3333-444455556666-lock-0000000000", data => 'x' x 900_000, makepath => 1);
}
$zkc->create('/zklock/semaphores/large', data => 'x' x 900_000, makepath => 1);

$proxy->clear_record;
works($holder, "SELECT count(*) FILTER (WHERE name LIKE 'large%' AND token > 0 AND server IS NULL), count(*) FILTER (WHERE name = 'held' AND pid > 0) FROM zk_locks",
	"$n|1", 'zk_locks shows all of them, and what zklock wrote');
is(join(' ', grep { m{large\d\d/|semaphores/} } map { @{ $_->{paths} } } grep { $_->{op} =~ /^(?:getData)$/ } $proxy->record),
	'', 'the data of large nodes are not read');
works($holder, "SELECT count(*) FROM zk_locks_of('large03')", '1', 'zk_locks_of() shows one of them');
works($holder, "SELECT zk_unlock('held')", 't', 'the session and its lock live on');
like($zk->four_letter('srvr'), qr/Mode: standalone/, 'the ZooKeeper server goes on');
