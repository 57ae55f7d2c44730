# A server that accepts connections and does not answer on them, for a fifth of the session
# timeout, costs no lock: no attempt to reconnect takes more than half of what is left.
# Less is left to a lock that was acquired just now, until the first proof.
# Alone: that session has five seconds to reconnect.
#
# Promise: 5.11
# Tags: user

use IO::Socket::INET;
use Time::HiRes qw(sleep);
use ZkLock::Test;

use constant { SESSIONS => 12, SESSION_TIMEOUT => '60s', MUTE => 12 };

my $zk = shared_zk();
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = shared_node('a', zk => $proxy->connect_string, session_timeout => SESSION_TIMEOUT);

# The sessions send their heartbeats at different times.
my @holders;
for my $n (1 .. SESSIONS)
{
	push @holders, session($node);
	$holders[-1]->query_ok("SELECT zk_lock('lock $n')");
	sleep 0.3;
}
my @ids = map { zk_session_id($_) } @holders;

wait_proven($_) for @holders;

# The kernel accepts the connections to this listener; nobody reads.
my $mute = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64) or die "listen: $!";
$proxy->retarget('127.0.0.1:' . $mute->sockport);
$proxy->cut;
sleep MUTE;
$proxy->retarget($zk->connect_string);
wait_state($_, 'connected') for @holders;
is_deeply([ map { zk_session_id($_) } @holders ], \@ids, 'the sessions reconnect');
works($_, 'SELECT count(*) FROM zk_held_locks', '1', 'the sessions hold their locks after they reconnect') for @holders;

$_->quit for @holders;

# The connection is cut right after the grant, and the next one gets no answer. Without a
# proof the lock can be trusted for a third of the session timeout, ten seconds.
ZkLock::ZkClient->new($zk->connect_string)->create('/zklock/locks/fresh', makepath => 1);
my $faults = ZkLock::FaultProxy->start(target => $zk);
my $fresh = session_with($node, connect_string => $faults->connect_string, session_timeout => '30s');
$faults->arm(fault => 'cut_after', op => 'getChildren', path => 'fresh');
$faults->arm(fault => 'swallow_request', op => 'connect', nth => 2);
$fresh->query_ok("SELECT zk_lock('fresh')");
works($fresh, "SELECT zk_lock('next') > 0", 't', 'a lock without a proof is not lost');
is($faults->hits, 2, 'the lock was kept although the server did not answer');
