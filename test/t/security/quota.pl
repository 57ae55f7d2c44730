# With enforceQuota, every program can set a quota for the root, and so prevent all locks. An
# ACL of /zookeeper/quota prevents that.

use ZkLock::Test;

my $zk = ZkLock::ZkServer->start(tick_time => 500, config => { enforceQuota => 'true' });
my $node = shared_node('a', zk => $zk);
my $s = session($node);
works($s, "SELECT zk_lock('a') > 0, zk_unlock('a')", 't|t', 'locks work with enforceQuota');

my $program = ZkLock::ZkClient->new($zk->connect_string);
my $limits = '/zookeeper/quota/zklock/zookeeper_limits';
$program->create($limits, data => 'count=-1,bytes=-1;byteHardLimit=-1;countHardLimit=1', makepath => 1);
$program->create('/zookeeper/quota/zklock/zookeeper_stats', data => 'count=1,bytes=0');
fails_with($s, "SELECT zk_lock('b')", '58000', 'another program can set a quota that no lock fits into');

my $admin = ZkLock::ZkClient->new($zk->connect_string);
$admin->add_auth('digest', 'admin:secret');
$admin->delete($_) for $limits, '/zookeeper/quota/zklock/zookeeper_stats', '/zookeeper/quota/zklock';
$admin->set_acl('/zookeeper/quota', [ [ 31, 'auth', '' ], [ 1, 'world', 'anyone' ] ]);
ok(!eval { $program->create($limits, data => 'countHardLimit=1', makepath => 1); 1 }, 'another program can set no quota with an ACL of /zookeeper/quota');
like($@, qr/NoAuth/, 'the ACL of /zookeeper/quota refuses access');
works($s, "SELECT zk_lock('b') > 0, zk_unlock('b')", 't|t', 'locks work beside the ACL of /zookeeper/quota');
