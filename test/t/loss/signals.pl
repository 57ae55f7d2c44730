# The signal with which zklock cancels a statement reaches the backend's own thread, also if the user of
# the server has no more signals to be queued, and no thread of another library. PostgreSQL's signals
# reach no thread of zklock.
# Promise: 5.3
# Tags: edges

use File::Temp ();
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk, session_timeout => '300s');
my $tmp = File::Temp->newdir('moduleXXXXXX', TMPDIR => 1);
chmod 0755, $tmp->dirname;
my $library = $tmp->dirname . '/other_thread.so';
system($ENV{CC} // 'cc', qw(-Wall -fPIC -shared -pthread -I), $node->config_data('--includedir-server'),
	'-o', $library, 'test/shim/other_thread.c') == 0
  or die 'test/shim/other_thread.c does not compile';
$node->safe_psql('postgres', <<"SQL");
CREATE FUNCTION start_thread() RETURNS void LANGUAGE c AS '$library';
CREATE FUNCTION wait_for_signal() RETURNS void LANGUAGE c AS '$library';
SQL

# The limit counts the signals of all processes of the user, so 0 is as if others had used it up.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('limited')");
	my $id = zk_session_id($s);
	is(system('prlimit', '--pid', $s->pid, '--sigpending=0'), 0, 'no more signals can be queued');
	$s->query_async('SELECT pg_sleep(600)');
	wait_asleep($s);
	lose_lock($zk, $zkc, 'limited', $id);
	failed_with($s, '40001', 'a loss ends the statement all the same', like => qr/"limited"/);
	$s->quit;
}

# The backend's own thread blocks the signal for a while. Another one does not.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('blocked')");
	my $id = zk_session_id($s);
	$s->query_ok('SELECT start_thread()');
	$s->query_async("SELECT set_config('application_name', 'blocks', false), wait_for_signal()");
	wait_for_sql($node, 'SELECT application_name FROM pg_stat_activity WHERE pid = ' . $s->pid, 'blocks');
	lose_lock($zk, $zkc, 'blocked', $id);
	failed_with($s, '40001', 'a loss ends the statement when the signal is no longer blocked', like => qr/"blocked"/);
	like($s->error, qr/handler ran in no other thread/, 'the handler runs in the thread of the backend');
	$s->quit;
}

# The thread of a ZooKeeper session blocks all signals that the process handles. The C library has two of
# its own, 32 and 33, which cannot be blocked.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('thread')");
	my @threads = grep { $_ != $s->pid } map { m{/(\d+)$} } glob '/proc/' . $s->pid . '/task/*';
	ok(@threads > 0, 'a session has a thread');
	for my $thread (@threads)
	{
		my %mask = read_file("/proc/$thread/status") =~ /^Sig(Blk|Cgt):\s*([[:xdigit:]]+)$/mg;
		my ($blocked, $handled) = map { hex } @mask{qw(Blk Cgt)};
		is(sprintf('%x', $handled & ~$blocked & ~(3 << 31)), '0', 'it takes no signal that PostgreSQL handles');
	}
	$s->quit;
}

nothing_left($zkc, 'nothing is left');
