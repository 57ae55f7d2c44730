# A fast shutdown with many sessions does not wait for a silent ensemble: it ends although
# the ensemble stays silent.
#
# Promises: 3.3, 4.3
# Tags: edges

use ZkLock::Pipeline;
use ZkLock::Test;

use constant SESSIONS => 200;

my $zk = ZkLock::ZkServer->start(tick_time => 200, config => { maxClientCnxns => 0 });
my $node = zklock_node('a', zk => $zk, session_timeout => '600s',
	extra_conf => 'max_connections = ' . (SESSIONS + 20) . "\n");
my @connections = map { ZkLock::Pipeline->new($node) } 1 .. SESSIONS;
my $n = 0;
for my $c (@connections)
{
	my @states = $c->query("SELECT zk_lock('many " . ++$n . "')");
	is($states[0], '00000', 'a session has a lock') if $states[0] ne '00000';
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), SESSIONS, 'many sessions hold a lock');
$zk->pause;
ok($node->stop('fast', timeout => 300, fail_ok => 1), 'a fast shutdown does not wait for a silent ensemble');
