# What an idle holder costs the ensemble, counted: at most 0.7 requests a second with the
# default session timeout.
#
# Promise: 5.11

use Time::HiRes qw(time);
use ZkLock::Test;

# So many that the first one does not count much: it can come at once.
use constant PROOFS => 10;
use constant LIMIT => 0.7;

my $zk = ZkLock::ZkServer->start(tick_time => 2000);
my $proxy = ZkLock::FaultProxy->start(target => $zk);

sub proofs { return grep { $_->{op} eq 'multi' } $proxy->record }

my $node = zklock_node('a', zk => $proxy, session_timeout => '10s');
my $s = session($node);
$s->query_ok("SELECT zk_lock('idle')");
wait_until('the node to be watched', sub { grep { $_->{watch} && $_->{answered} } $proxy->record });

# A busy machine can be slow to answer, and a keepalive read of the root follows.
my $began = time;
$proxy->clear_record;
wait_until('proofs of the idle session', sub { (() = proofs()) >= PROOFS }, pause => 0.1, timeout => 120);
my $rate = PROOFS / (time - $began);
my @others = grep { $_->{op} ne 'multi' && $_->{paths}[0] ne '/zklock' } $proxy->record;
is(join(' ', map { $_->{op} } @others), '', 'an idle holder sends nothing but proofs');
note(sprintf '%.2f proofs a second', $rate);
cmp_ok($rate, '<=', LIMIT, 'an idle holder sends few requests');
