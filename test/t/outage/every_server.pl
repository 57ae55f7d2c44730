# A session finds the only reachable server of its connect string, however many others
# the connect string has, and finds it again after a lost connection.
#
# Promise: 4.4

use PostgreSQL::Test::Utils qw(slurp_file);
use ZkLock::SlowServers qw(end_server full_server slow_server);
use ZkLock::Test;

my $zk = shared_zk();
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = shared_node('a', zk => $zk);

# Each session tries the servers in an order of its own.
for my $closed (1, 2, 3, 5, 64)
{
	my @servers = ((map { '127.0.0.1:' . free_port() } 1 .. $closed), $proxy->connect_string);
	my @sessions = map { session($node) } 1 .. 4;
	for my $s (@sessions)
	{
		$s->reconnect('zklock.connect_string' => join(',', @servers));
		$s->query_ok("SELECT zk_lock('every ' || pg_backend_pid())");
	}
	my @ids = map { zk_session_id($_) } @sessions;
	$proxy->cut;
	wait_state($_, 'connected') for @sessions;
	is_deeply([ map { zk_session_id($_) } @sessions ], \@ids,
		"the only reachable server beside $closed others is found, and found again");
	$_->quit for @sessions;
}

# A server may have several addresses or names in the connect string.
{
	my ($open, $port) = ($proxy->connect_string, $proxy->port);
	my $closed = '127.0.0.1:' . free_port();
	for my $servers ("$open,$open,$closed", "localhost:$port,$open,$closed",
		"$closed,$open,$closed,$open,$closed")
	{
		my $s = session_with($node, connect_string => $servers);
		works($s, "SELECT zk_lock('twice') > 0", 't', 'a server is found that the connect string has twice');
		$proxy->cut;
		works($s, "SELECT zk_lock('again') > 0", 't', 'a server that the connect string has twice is found again');
		$s->quit;
	}
}

# A server that does not answer, or does not even accept the connection, does not use up
# zklock.ensemble_timeout, however long the session timeout is.
{
	my $silent = ZkLock::Proxy->start(target => $zk);
	$silent->freeze;
	my $full = full_server();
	my %servers = (
		'answer' => $silent->connect_string,
		'accept connections' => $full->{connect_string});
	for my $what (sort keys %servers)
	{
		my @sessions = map { session($node) } 1 .. 4;
		for my $s (@sessions)
		{
			$s->reconnect('zklock.session_timeout' => '3min', 'zklock.ensemble_timeout' => '30s',
				'zklock.connect_string' => "$servers{$what}," . $proxy->connect_string);
			works($s, "SELECT zk_lock('first ' || pg_backend_pid()) > 0", 't',
				"a session connects despite a server that does not $what");
		}
		$proxy->cut;
		works($_, "SELECT zk_lock('second ' || pg_backend_pid()) > 0", 't',
			"a session finds its server again after a lost connection")
		  for @sessions;
		$_->quit for @sessions;
	}

	# The message of the library would mean that the server has closed the connection.
	for my $what (sort keys %servers)
	{
		my $s = session($node);
		my $log = -s $node->logfile;
		$s->reconnect('zklock.session_timeout' => '9s', 'zklock.ensemble_timeout' => '9s',
			'zklock.connect_string' => $servers{$what});
		fails_with($s, "SELECT zk_lock('none')", '08001', "no server can $what");
		wait_for_log($node,
			qr/ZooKeeper client: the server at $servers{$what} did not answer within 3000 ms$/m, $log);
		unlike(slurp_file($node->logfile, $log), qr/errno=/, 'the server log shows no errno');
		$s->quit;
	}
	$silent->stop;
	end_server($full);
}

# After a failure, a session tries the other servers before the same one again.
{
	my @proxies = map { ZkLock::Proxy->start(target => $zk) } 1 .. 3;
	my $servers = join ',', map { $_->connect_string } @proxies;
	for (1 .. 3)
	{
		my $s = session_with($node, connect_string => $servers);
		$s->query_ok("SELECT zk_lock('left')");
		my $left = $s->query('SELECT server FROM zk_session()');
		$_->cut for grep { $_->connect_string eq $left } @proxies;
		works($s, "SELECT zk_lock('then') > 0", 't', 'a session reconnects');
		isnt($s->query('SELECT server FROM zk_session()'), $left, 'a session reconnects to another server');
		$s->quit;
	}

	$_->freeze for @proxies[ 0, 1 ];
	my @sessions = map { session($node) } 1 .. 6;
	for my $s (@sessions)
	{
		$s->reconnect('zklock.session_timeout' => '6s', 'zklock.ensemble_timeout' => '1min', 'zklock.connect_string' => $servers);
		$s->query_async("SELECT zk_lock('one ' || pg_backend_pid()) > 0");
	}
	is($_->wait_result, 't', 'a session connects despite two servers that do not answer')
	  || diag($_->error)
	  for @sessions;
	$_->quit for @sessions;
	$_->stop for @proxies;
}

# Later attempts to connect may take longer: the only server can be slow.
{
	my $slow = slow_server($zk->connect_string, 4);
	my $s = session_with($node, session_timeout => '60s', ensemble_timeout => '1min',
		connect_string => $slow->{connect_string});
	works($s, "SELECT zk_lock('slow') > 0", 't', 'a session connects to a server that answers late');
	$s->quit;
	end_server($slow);
}

# An IPv6 address has brackets in the connect string.
{
	my $on_ipv6 = ZkLock::Proxy->start(target => $zk, address => '[::1]');
	my $s = session_with($node, connect_string => $on_ipv6->connect_string);
	works($s, "SELECT zk_lock('by address') > 0", 't', 'a session connects to an IPv6 address');
	$s->quit;
	$on_ipv6->stop;
}
