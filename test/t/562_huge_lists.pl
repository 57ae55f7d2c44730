# A program that may create znodes makes a list of more than 64 MB. A call that reads it
# goes on trying, which costs its backend neither memory nor a lock, until a cancel or
# lock_timeout ends it, or the list is short again.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 2000, java => ['-Xmx3g']);
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 60);
my ($node, $other) = map { zklock_node($_, zk => $zk, session_timeout => '40s', extra_conf => "deadlock_timeout = '100ms'\n") } qw(a b);
my $s = session($node);
my $holder = session($other);
$s->query_ok("SELECT zk_lock('mine'), zk_lock('long')");
$s->query_ok("SELECT zk_unlock('long')");
$holder->query_ok("SELECT zk_lock('theirs')");

sub tries_again
{
	my ($log) = @_;
	return wait_for_log($node, qr/(?:sent a message that is too long.*){2}/s, $log);
}

# The most memory that the backend has had, in kB, and its CPU time so far, in seconds.
sub cost
{
	my ($memory) = slurp_file('/proc/' . $s->pid . '/status') =~ /^VmHWM:\s+(\d+) kB/m;
	my @field = split ' ', slurp_file('/proc/' . $s->pid . '/stat') =~ s/^.*\)//sr;
	return ($memory, ($field[11] + $field[12]) / 100);
}

my ($memory, $cpu) = cost();
$zkc->crowd('/zklock/locks/long', 76, 900_000);
for my $call ("zk_lock('long')", "zk_try_lock('long')", "count(*) FROM zk_locks_of('long')")
{
	my $log = -s $node->logfile;
	$s->query_async("SELECT $call");
	tries_again($log);
	ok(!$s->finished, "$call goes on trying");
	$s->cancel;
	failed_with($s, '57014', '... and can be cancelled', hint => 0);
}
fails_with($s, "SET lock_timeout = '100ms'; SELECT zk_lock('long')", '55P03', '... lock_timeout ends it, too', hint => 0);
$s->query_ok('RESET lock_timeout');
$zkc->disperse('/zklock/locks/long');
works($s, "SELECT zk_try_lock('long'), zk_unlock('long')", 't|t', 'the lock works when the list is short');

# The wait reports, which every session lists that waits.
$zkc->crowd('/zklock/waits', 76, 900_000);
my $log = -s $node->logfile;
$s->query_async("SELECT zk_lock('theirs')");
tries_again($log);
ok(!$s->finished, 'a wait goes on beside wait reports of more than 64 MB');
$holder->query_ok("SELECT zk_unlock('theirs')");
like($s->wait_result, qr/^\d+$/, '... and ends with the release');
$zkc->disperse('/zklock/waits');
works($s, "SELECT zk_unlock('mine'), zk_unlock('theirs')", 't|t', 'no lock was lost');

my ($memory_after, $cpu_after) = cost();
cmp_ok($memory_after - $memory, '<', 16 * 1024, 'the backend has read none of the lists: less than 16 MB more memory');
cmp_ok($cpu_after - $cpu, '<', 2, '... and used less than 2 s of CPU time');

$_->quit for $s, $holder;
$zkc->close;
$_->stop for $node, $other;
$zk->stop;
done_testing();
