# A backend that can allocate no more memory ends no other: calls fail, the session may be lost,
# and PostgreSQL goes on.
#
# Promise: 10.3

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = zklock_node('a', zk => $proxy, extra_conf => "zklock.ensemble_timeout = '1min'\nmax_locks_per_transaction = 1000\n");
my $witness = session($node);
my $pid = $witness->pid;

# Locks, arrays and releases, with a warning for whatever fails; and how many allocations have failed.
my $work = q(DO $$ BEGIN FOR i IN 1 .. 25 LOOP BEGIN
	PERFORM zk_lock('one ' || i), zk_lock_many(ARRAY['x' || i, 'y' || i, 'z' || i]), zk_unlock('one ' || i);
	PERFORM zk_lock_many_shared((SELECT array_agg('many ' || i || ' ' || k) FROM generate_series(1, 40) AS k));
	EXCEPTION WHEN OTHERS THEN RAISE WARNING 'failed: %', SQLSTATE; END; END LOOP; END $$);
my $failures = 0;

# For sessions at a limit, which may lose their locks, when they have acquired the first ones.
my $impatient = q(SET zklock.ensemble_timeout = '1s');

sub work
{
	my ($s) = @_;
	$s->query($work);
	$failures += () = $s->error =~ /(?:failed: 53[02]00|ERROR:.*out of memory)/g;
	return;
}

for my $room (0, 32, 96, 256, 512, 1024, 1120, 1180, 1220, 1300, 1500, 2048)
{
	my $s = session_with($node, session_timeout => '4s');
	$s->query_ok("SELECT zk_lock('warm'), zk_lock_many(ARRAY['w', 'v'])\\; $impatient\\; SET statement_timeout = '1500ms'");
	my ($size) = slurp_file('/proc/' . $s->pid . '/status') =~ /^VmSize:\s+(\d+) kB/m;
	my $limit = ($size + $room) * 1024;
	system('prlimit', '--pid', $s->pid, "--as=$limit:") == 0 or die "prlimit: $?";
	work($s);
	$proxy->cut if $room % 64 == 0;
	work($s);
	$s->query('SELECT zk_unlock_all()');
	ok(kill(0, $pid), "a limit of $room kB above the use ends no other backend");
	$s->drop;
	last if !kill 0, $pid;
}
cmp_ok($failures, '>', 0, 'allocations have failed');

# A session that opens at the limit: its thread has no room for an arena of its own. The
# connection is lost again and again while many requests are in flight.
my $crowd = zklock_node('b', zk => $zk, session_timeout => '60s');
my @holders = map { session($crowd) } 1 .. 3;
$holders[$_]->query_ok("SELECT zk_lock_many((SELECT array_agg('crowd $_ ' || i || repeat('x', 40)) FROM generate_series(1, 500) AS i))") for 0 .. 2;
my $reads = q(DO $$ BEGIN FOR i IN 1 .. 300 LOOP BEGIN
	PERFORM count(*) FROM zk_locks;
	EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$);
my ($stack) = slurp_file('/proc/self/limits') =~ /^Max stack size\s+(\d+)/m;
for my $room (map { ($stack // 8192 * 1024) / 1024 + 2400 + 40 * $_ } 1 .. 15)
{
	last if !kill 0, $pid;
	my $s = session_with($node, session_timeout => '4s');
	$s->query_ok("LOAD 'zklock'; DO 'BEGIN END'; $impatient; SET statement_timeout = '2500ms'");
	my ($size) = slurp_file('/proc/' . $s->pid . '/status') =~ /^VmSize:\s+(\d+) kB/m;
	my $limit = ($size + $room) * 1024;
	system('prlimit', '--pid', $s->pid, "--as=$limit:") == 0 or die "prlimit: $?";
	$s->query_async($reads);
	wait_until('the reads', sub { $proxy->cut; $s->finished }, pause => 0.15);
	$s->wait_result;
	ok(kill(0, $pid), "a session that opens with a limit of $room kB above the use ends no other backend");
	$s->drop;
}
$_->quit for @holders;
$crowd->stop;
works($witness, "SELECT zk_try_lock('witness', '20s')", 't', 'another backend has a lock');
unlike(slurp_file($node->logfile), qr/terminated by signal/, 'no backend was ended');
