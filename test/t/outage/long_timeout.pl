# However long the session timeout is, the pauses between the attempts to connect leave a call
# time: it succeeds if the ensemble is back well within ensemble_timeout.
#
# Promise: 4.4

use IO::Socket::INET;
use POSIX ();
use ZkLock::Test;

use constant SESSION_TIMEOUT => '40min';

my $zk = ZkLock::ZkServer->start(config => { maxSessionTimeout => 2_400_000 });
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = shared_node('a', zk => $proxy, session_timeout => SESSION_TIMEOUT);

# Asks for a lock while the servers are unreachable. They answer again after the first attempts.
sub outage
{
	my ($s, $key, $wait, $name) = @_;
	$s->query_async("SELECT zk_lock('$key')");
	$wait->();
	$proxy->retarget($zk->connect_string);
	like($s->wait_result, qr{^\d+$}, $name) || diag($s->error);
	return;
}

# A round without an answer: no server listens.  The sleeps are the length of the outage; nothing
# depends on what the session has done by then.
$proxy->refuse;
my $s = session($node);
outage($s, 'first', sub { sleep 2 }, 'a session connects after a failed attempt');
works($s, 'SELECT session_timeout FROM zk_session()', '00:40:00', 'a session whose session timeout is long connects');
my $id = zk_session_id($s);

# All sessions of a server lose their connections at once: after connections that have lasted for a second, the next
# attempts are spread over some time.
$s->query_ok('SELECT pg_sleep(1.1)');
$proxy->cut;
works($s, "SELECT zk_lock('lost') > 0", 't', 'a session connects again after a lost connection');
$s->query_ok('SELECT pg_sleep(1.1)');
$proxy->cut(refuse => 1);
outage($s, 'refused', sub { sleep 2 }, 'a session connects again also after a failed attempt');

# A server without a leader closes the connection at once.
my $closing = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64) or die "listen: $!";
my $port = $closing->sockport;
pipe(my $closed, my $report) or die "pipe: $!";
my $pid = fork // die "fork: $!";
if ($pid == 0)
{
	while (my $c = $closing->accept)
	{
		sysread($c, my $request, 1024);
		close $c;
		syswrite($report, "closed\n");
	}
	POSIX::_exit(0);
}
$s->query_ok('SELECT pg_sleep(1.1)');
$proxy->retarget("127.0.0.1:$port");
$proxy->cut;
outage($s, 'closed', sub { readline $closed }, 'a session connects again after a server without a leader');
kill 'KILL', $pid;
waitpid($pid, 0);

is(zk_session_id($s), $id, 'the session is the same all the time');
