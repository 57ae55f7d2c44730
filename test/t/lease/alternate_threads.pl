# The backend and the I/O thread of its session use the client library alternately without
# a data race: ThreadSanitizer checks the recipe layer with the real library and a real
# server, while connections break and names are resolved.

use File::Basename qw(dirname);
use File::Temp ();
use ZkLock::Test;

use constant { SECONDS => 12, CUTS => 6 };

my $tmp = File::Temp->newdir('threadsXXXXXX', TMPDIR => 1);
my ($program, $top) = ("$tmp/driving", dirname(__FILE__) . '/../../..');
my @compiler = qw(clang -std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize=thread);
write_file("$tmp/empty.c", "int main(void) { return 0; }\n");
plan skip_all => 'clang with ThreadSanitizer is not installed' unless succeeds(@compiler, '-o', "$tmp/empty", "$tmp/empty.c");
my @build = (@compiler, "-I$top/src",
	'-o', $program, "$top/test/stall/driving.c", glob("$top/src/recipe/{,*/}*.c"), qw(-l:libzookeeper_st.so.2 -lpthread));
system("@build >$tmp/build.log 2>&1") == 0 or die "driving.c does not compile\n" . read_file("$tmp/build.log");

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $pid = fork() // die "fork: $!";
if (!$pid)
{
	open(STDOUT, '>', "$tmp/out") or die "$tmp/out: $!";
	open(STDERR, '>&', \*STDOUT) or die "stderr: $!";
	exec($program, "localhost:" . $proxy->port, 2000, SECONDS) or die "$program: $!";
}
for (1 .. CUTS)
{
	sleep SECONDS / CUTS;
	$proxy->cut;
}
waitpid $pid, 0;
my $status = $?;
open my $fh, '<', "$tmp/out" or die "$tmp/out: $!";
my $output = do { local $/; <$fh> };
is($status, 0, 'no race is found') || diag($output);
like($output, qr/^[1-9]\d+ locks$/m, 'locks are acquired meanwhile');
