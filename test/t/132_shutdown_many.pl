# A fast shutdown with many sessions does not wait for a silent ensemble.
#
# Alone: it measures time.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use ZkLock::Cluster;
use ZkLock::Pipeline;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkServer;

use constant SESSIONS => 200;

my $zk = ZkLock::ZkServer->start(tick_time => 200, config => { maxClientCnxns => 0, maxSessionTimeout => 60000 });
my $node = zklock_node('a', zk => $zk, session_timeout => '30s',
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
my $began = time;
$node->stop('fast', fail_ok => 1);
my $took = time - $began;
cmp_ok($took, '<', 20, 'a fast shutdown does not wait for a silent ensemble');
note(sprintf '%d sessions: shut down after %.1f s', SESSIONS, $took);
$zk->resume;
$zk->stop;
done_testing();
