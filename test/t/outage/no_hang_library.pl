# A call of the client library, or of the name service, does not return: no statement, no
# backend and no shutdown waits for it.
#
# Promise: 4.3

use ZkLock::NoHang;
use ZkLock::Shim;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200)->with_client(timeout => 300);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $shim = ZkLock::Shim->build;
local @ENV{ $shim->names } = $shim->values;
my $node = zklock_node('a', zk => 'localhost:' . $proxy->port, session_timeout => SESSION_TIMEOUT);

my @connected = ('locking', 'locking several', 'upgrading', 'commit check');
my %fault = (
	names => [ 'a name service that does not return', @connected ],
	init => [ 'a library that does not open', @connected ],
	events => [ 'a library that reports no event', @connected ],
	answers => ['a library that never calls back'],
	close => [ 'a library that does not close', @connected, 'connecting' ]);
for my $fault (sort keys %fault)
{
	my ($what, @unaffected) = @{ $fault{$fault} };
	# Sessions look names up again when their connection is lost.
	no_hang($what, $node, $zkc,
		sub { $shim->break($fault); $proxy->cut if $fault eq 'names' }, sub { $shim->heal($fault) }, @unaffected);
}
stale_commit($fault{answers}[0], $node,
	sub { $shim->break('answers') }, sub { $shim->heal('answers') });
