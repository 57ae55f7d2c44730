# A program that may create znodes makes a children list of more than 64 MB. A call that
# reads the list fails. Its backend loses no lock, and uses little memory.
#
# Promise: 10.3

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 2000, java => ['-Xmx3g'])->with_client(timeout => 60);
my ($node, $other) = map { shared_node($_, zk => $zk, session_timeout => '5min',
		set => { deadlock_timeout => '100ms', 'zklock.ensemble_timeout' => '5min' }) } qw(a b);
my $s = session($node);
my $holder = session($other);
$s->query_ok("SELECT zk_lock('mine'), zk_lock('long')");
$s->query_ok("SELECT zk_unlock('long')");
$holder->query_ok("SELECT zk_lock('theirs')");

# Returns the backend's peak memory in kB, and its CPU time in seconds.
sub cost
{
	my ($memory) = slurp_file('/proc/' . $s->pid . '/status') =~ /^VmHWM:\s+(\d+) kB/m;
	my @field = split ' ', slurp_file('/proc/' . $s->pid . '/stat') =~ s/^.*\)//sr;
	return ($memory, ($field[11] + $field[12]) / 100);
}

my ($memory, $cpu) = cost();
$zkc->create_children('/zklock/locks/long', 76, 900_000);
my $start = -s $node->logfile;
for my $call ("zk_lock('long')", "zk_try_lock('long')", "count(*) FROM zk_locks_of('long')")
{
	fails_with($s, "SELECT $call", '58000', "$call fails", like => qr/unexpected answer/);
}
$zkc->delete_children('/zklock/locks/long');
works($s, "SELECT zk_try_lock('long'), zk_unlock('long')", 't|t', 'the lock works when the list is short');

# The wait reports, which every waiter lists.
$zkc->create_children('/zklock/waiting', 76, 900_000);
my $reports = $zkc->exists('/zklock/waiting')->{cversion};
$s->query_async("SELECT zk_lock('theirs')");
wait_until('a wait report', sub { $zkc->exists('/zklock/waiting')->{cversion} > $reports });
ok(!$s->finished, 'a wait continues among wait reports of more than 64 MB');
$holder->query_ok("SELECT zk_unlock('theirs')");
like($s->wait_result, qr/^\d+$/, 'a wait among huge reports ends with the release');
$zkc->delete_children('/zklock/waiting');
works($s, "SELECT zk_unlock('mine'), zk_unlock('theirs')", 't|t', 'no lock was lost');

my ($memory_after, $cpu_after) = cost();
like(slurp_file($node->logfile, $start), qr/sent a message that is too long/, 'the server log has the reason');
cmp_ok($memory_after - $memory, '<', 16 * 1024, 'the backend has not stored the lists: less than 16 MB more memory');
cmp_ok($cpu_after - $cpu, '<', 2, 'the backend used less than 2 s of CPU time');
