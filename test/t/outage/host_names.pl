# Names cost no lock: a session connects to the servers whose names are resolved, however
# the lookups of the others fail, and reconnects to the addresses that it knows already
# while the name service fails. Changed addresses are used. Rare failures cost no lock.
#
# Promise: 4.3

use ZkLock::PrivateNetwork;
use ZkLock::Shim;
use ZkLock::Test;

# Each session tries the servers in an order of its own.
use constant SESSIONS => 4;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $port = $proxy->port;
my $shim = ZkLock::Shim->build;
local @ENV{ $shim->names } = $shim->values;
my $node = zklock_node('a', zk => $zk, extra_conf => "zklock.ensemble_timeout = '1min'\n");
my $locks = 0;

# Returns sessions that hold a lock, reached by these servers.
sub holders
{
	my ($servers, $what) = @_;
	my @holders = map { session_with($node, connect_string => $servers) } 1 .. SESSIONS;
	works($_, "SELECT zk_lock('lock " . ++$locks . "') > 0", 't', $what) for @holders;
	return @holders;
}

# A session that was lost would fail with its next statement.
sub survive
{
	my ($what, $break, @holders) = @_;
	my @ids = map { zk_session_id($_) } @holders;
	$break->();
	works($_, "SELECT zk_lock('lock " . ++$locks . "') > 0", 't', $what) for @holders;
	is_deeply([ map { zk_session_id($_) } @holders ], \@ids, 'no session is lost while names resolve slowly');
	return;
}

my %lookups = (
	'fails' => \&fail_lookups,
	'gets no answer' => \&silence_lookups);
my $three = join ',', map { "zk$_.example:$port" } 1 .. 3;
for my $how (sort keys %lookups)
{
	$lookups{$how}->();
	name_host('zk1.example', 'zk2.example');
	my @holders = holders($three, "the lookup of one of three names $how: a session connects");
	survive("the lookup of one of three names $how: a session reconnects", sub { $proxy->cut }, @holders);
	survive("the lookup of each name $how: a session reconnects", sub { forget_hosts(); $proxy->cut },
		@holders);
	$_->quit for @holders;
}
wait_for_log($node, qr/ZooKeeper client: the name of server "zk3\.example" could not be resolved: /);

# A session connects when its names are resolved at last.
{
	fail_lookups();
	my $s = session_with($node, connect_string => "late.example:$port");
	$s->query_async("SELECT zk_lock('late') > 0");
	wait_blocked($s);
	name_host('late.example');
	is($s->wait_result, 't', 'a session connects when its names are resolved at last');
	$s->quit;
}

# The servers get other addresses.
{
	name_host('moved.example');
	my @holders = holders("moved.example:$port", 'a session connects to a name');
	my $other = ZkLock::Proxy->start(target => $zk, address => '127.0.0.2', port => $port);
	name_host_at('127.0.0.2', 'moved.example');
	survive('a session reconnects to the new address of a name', sub { $proxy->cut(refuse => 1) }, @holders);
	is($_->query('SELECT server FROM zk_session()'), "127.0.0.2:$port", 'the address of the session is shown') for @holders;
	$_->quit for @holders;
	$other->stop;
	$proxy->accept;
}

# If the name service is silent after the connection is lost, a lost lock is still
# reported after the session timeout.
{
	my ($idle, $busy, $new) = map { session_with($node, connect_string => "localhost:$port", session_timeout => '6s') } 1 .. 3;
	$idle->query_ok("SELECT zk_lock('idle')");
	$busy->query_ok("BEGIN; SELECT zk_xact_lock('busy')");
	$busy->query_async('SELECT pg_sleep(600)');
	$shim->break('names');
	$proxy->cut(refuse => 1);
	failed_with($busy, '40001', 'the running statement is cancelled', like => qr/"busy"/);
	fails_with($idle, 'SELECT 1', '40001', 'an idle session gets the error with its next statement', like => qr/"idle"/);
	$shim->heal('names');

	# Proves that the name service is used.
	$proxy->accept;
	$busy->query_ok('ROLLBACK');
	works($busy, "SELECT zk_try_lock('again')", 't', 'a session can be opened when the name service answers');
	$shim->break('names');
	$new->query_ok("SET zklock.ensemble_timeout = '1s'");
	fails_with($new, "SELECT zk_lock('x')", '08001', 'no session can be opened while the name service is silent');
	$shim->heal('names');

	$_->quit for $idle, $busy, $new;
}

my @proxies = map { ZkLock::Proxy->start(target => $zk) } 1 .. 2;

# Returns the proxy that the session uses, and the other one.
sub by_use
{
	my ($s) = @_;
	my $server = $s->query_ok('SELECT server FROM zk_session()');
	return sort { ($b->connect_string eq $server) <=> ($a->connect_string eq $server) } @proxies;
}

sub threads { return scalar(() = glob '/proc/' . $_[0]->pid . '/task/*') }

# A connection without an answer is ended also if epoll has refused it.
{
	$shim->break('epoll');
	my $s = session_with($node, connect_string => join(',', map { $_->connect_string } @proxies),
		session_timeout => '36s');
	works($s, "SELECT zk_lock('epoll') > 0", 't', 'a session locks although epoll has no room');
	my $id = zk_session_id($s);
	my ($used, $other) = by_use($s);
	$used->freeze;
	works($s, "SELECT zk_lock('more') > 0", 't', 'a silent server is left in time');
	works($s, 'SELECT server FROM zk_session()', $other->connect_string, 'another server is taken in place of a silent one');
	is(zk_session_id($s), $id, 'the session is the same with another server');
	$used->thaw;
	$s->quit;
	$shim->heal('epoll');
}

# The answer to an old lookup of a name does not replace that of a newer one.
{
	my $moved = ZkLock::Proxy->start(target => $zk, address => '127.0.0.2', port => $port);
	$shim->break('late');
	name_host('moved.example');
	my $s = session_with($node, connect_string => "moved.example:$port");
	works($s, "SELECT zk_lock('moved') > 0", 't', 'a session connects while a lookup has no answer');
	name_host_at('127.0.0.2', 'moved.example');
	$proxy->cut(refuse => 1);
	works($s, "SELECT zk_lock('moved 2') > 0", 't', 'a session reconnects to a new address');
	works($s, 'SELECT server FROM zk_session()', "127.0.0.2:$port", 'the new address is shown');
	my $id = zk_session_id($s);
	forget_hosts();
	my $threads = threads($s);
	$shim->heal('late');
	wait_until('the old lookup to end', sub { threads($s) < $threads });
	$moved->cut;
	works($s, "SELECT zk_lock('moved 3') > 0", 't', 'the late answer to an old lookup does not replace the new address');
	is(zk_session_id($s), $id, 'no session is lost by the late answer to an old lookup');
	$s->quit;
	$moved->stop;
}
