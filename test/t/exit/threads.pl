# At the end of a process no thread of zklock runs while exit() cleans up the libraries that
# the thread may be using (OpenSSL, for one), whatever the thread is doing; and no process
# waits for a thread.
#
# Promise: 3.3

use ZkLock::Shim;
use ZkLock::Test;

# In seconds: closing a session takes at most two; the rest is for a busy machine.
use constant LIMIT => 6;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $shim = ZkLock::Shim->build;
local @ENV{ $shim->names } = $shim->values;
my $node = zklock_node('a', zk => 'localhost:' . $proxy->port, session_timeout => '45s');
$shim->break('exits');

# Each state is reached by a session that holds a lock, or is about to connect.
my %states = (
	'a connected session' => [ sub { }, sub { } ],
	'a session in an outage' => [ sub { $proxy->cut(refuse => 1) }, sub { $proxy->accept } ],
	'a silent server' => [ sub { $proxy->freeze }, sub { $proxy->thaw } ],
	'a silent server while reconnecting' => [ sub { $proxy->freeze; $proxy->cut }, sub { $proxy->thaw } ],
	'a name that is looked up' => [ sub { $shim->break('names') }, sub { $shim->heal('names') }, 'connecting' ],
	'a session that opens' => [ sub { $shim->break('init') }, sub { $shim->heal('init') }, 'connecting' ],
	'a session that closes' => [ sub { $shim->break('close') }, sub { $shim->heal('close') } ]);
my %ends = (
	'the client disconnects' => sub { $_[0]->quit },
	'the backend is terminated' => sub { $_[0]->terminate });

for my $state (sort keys %states)
{
	my ($begin, $end, $connecting) = @{ $states{$state} };
	for my $how (sort keys %ends)
	{
		my $s = session($node);
		my $pid = $s->pid;
		$s->query_ok("SELECT zk_lock('x' || pg_backend_pid())") unless $connecting;
		$begin->();
		$s->query("SET zklock.ensemble_timeout = '300ms'; SELECT zk_lock('y' || pg_backend_pid())")
		  if $connecting || $state =~ /outage|reconnecting/;
		$ends{$how}->($s);
		my $ended = eval { wait_until('the end', sub { !kill 0, $pid }, timeout => LIMIT); 1 };
		ok($ended, "$state, $how: the process ends");
		ok(!$shim->seen('threads'), "$state, $how: no thread runs in the cleanup of the process");
		$end->();
		unlink "$shim->{dir}/threads";
	}
}
