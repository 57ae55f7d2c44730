# Another service behind a port of zklock.connect_string, and messages that ZooKeeper never
# sends, end no backend: the server log has the reason, and the next server is tried.
#
# Promise: 10.3

use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = shared_node('a', zk => $proxy);

# Starts a service that handles each connection by the code, and returns its address.
sub service
{
	my ($handle) = @_;
	my $listen = IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1')
	  or die "no port: $!";
	my $pid = fork // die "fork: $!";
	if (!$pid)
	{
		local $SIG{PIPE} = 'IGNORE';
		local $SIG{CHLD} = 'IGNORE';
		while (my $client = $listen->accept)
		{
			next if fork;
			$handle->($client);
			POSIX::_exit(0);
		}
		POSIX::_exit(0);
	}
	return { pid => $pid, address => '127.0.0.1:' . $listen->sockport };
}

# Answers each request with the bytes, then waits until the client ends the connection.
sub answers_with
{
	my ($bytes) = @_;
	return sub {
		my ($client) = @_;
		sysread $client, my $request, 4096;
		syswrite $client, $bytes;
		1 while sysread $client, $request, 4096;
	};
}

my $handshake = pack 'N N N q> N a16 C', 37, 0, 20000, 77, 16, 'p' x 16, 0;
my %services = (
	'an HTTP server' => answers_with("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
	'random bytes' => answers_with(join '', map { chr int rand 256 } 1 .. 5000),
	'an endless stream' => sub { my ($client) = @_; 1 while syswrite $client, 'x' x 65536 },
	'a stream of zeros' => sub { my ($client) = @_; 1 while syswrite $client, "\0" x 65536 },
	'one byte, and the end' => sub { my ($client) = @_; syswrite $client, "\0"; },
	'a part of an answer, and the end' => sub { my ($client) = @_; syswrite $client, substr $handshake, 0, 30; },
	'silence' => answers_with(''),
	'a length of -1' => answers_with(pack 'N', 0xffffffff),
	'a length of 2^31-1' => answers_with(pack 'N', 0x7fffffff),
	'a length of 65 MB' => answers_with(pack 'N', 65 * 1024 * 1024),
	'a session without an id' => answers_with(pack 'N N N q> N a16 C', 37, 0, 20000, 0, 16, 'p' x 16, 0),
	'a session with a timeout of 11 days' => answers_with(pack 'N N N q> N a16 C', 37, 0, 1000000001, 77, 16, 'p' x 16, 0),
	'a read-only server' => answers_with(pack 'N N N q> N a16 C', 37, 0, 20000, 77, 16, 'p' x 16, 1),
	'a session, then an answer without a request' =>
	  answers_with($handshake . pack('N N q> N', 16, 1, 1, 0) x 1000),
	'a session, then a length of -1' => answers_with($handshake . pack 'N', 0xffffffff),
	'a session, then 65 MB' => answers_with($handshake . pack('N', 65 * 1024 * 1024) . 'x' x 65536));
my %running = map { $_ => service($services{$_}) } keys %services;
$running{'a PostgreSQL server'} = { address => '127.0.0.1:' . $node->port };

for my $what (sort keys %running)
{
	my $address = $running{$what}->{address};
	my $log = -s $node->logfile;
	my $s = session_with($node, connect_string => $address, ensemble_timeout => '2s');
	$s->query("SELECT zk_lock('alone')");
	like($s->sqlstate, qr/^080(?:01|06)$/, "$what instead of ZooKeeper is an error");
	ok(kill(0, $s->pid), "$what instead of ZooKeeper ends no backend");
	my $seen = slurp_file($node->logfile, $log);
	like($seen, qr/LOG:  ZooKeeper client: .*\Q$address\E/, "the server log names $what") unless $what eq 'silence';
	$s->quit;
	$s = session_with($node, connect_string => "$address," . $zk->connect_string);
	works($s, "SELECT zk_lock('both') > 0", 't', "the server after $what is tried");
	$s->quit;
}
end_process($_->{pid}, 'KILL') for grep { $_->{pid} } values %running;

# Returns a message in hex: the length, the xid, a zxid of 0, no error, and the body.
sub message
{
	my ($xid, $body) = @_;
	my $hex = $xid . '0' x 16 . '0' x 8 . $body;
	return sprintf('%08x', length($hex) / 2) . $hex;
}

# In the middle of a session.
my @cases = (
	[ 'an answer to credentials that were not sent', message('fffffffc', ''), after => 1 ],
	[ 'a refusal of credentials that were not sent', '00000010' . 'fffffffc' . '0' x 16 . 'ffffff8d', after => 1 ],
	[ 'a negative length', 'ffffffff00000000' ],
	[ 'an excessive length', '7fffffff00000000' ],
	[ 'a length of 65 MB', '0410000000000000' ],
	[ 'a message shorter than its header', '0000000400000000' ],
	[ 'answers without a request', message('00000001', '') x 100, op => 'delete', after => 1 ]);
my $number = 0;
for my $case (@cases)
{
	my ($what, $bytes, %how) = @$case;
	$number++;
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('held-$number')");
	my $pid = $s->pid;
	my $log = -s $node->logfile;
	$proxy->arm(fault => 'forge_answer', op => 'create2', bytes => $bytes, %how);
	my $both = "SELECT zk_lock('x-$number') > 0 AND zk_unlock('x-$number')";
	works($s, $both, 't', "$what ends no call");
	works($s, $both, 't', "$what ends no later call");
	ok(kill(0, $pid), "$what ends no backend");
	works($s, "SELECT zk_unlock('held-$number')", 't', "$what causes no loss");
	my @lines = grep { !/ connected to / } slurp_file($node->logfile, $log) =~ /(LOG:  ZooKeeper client: .*)/g;
	is(scalar(grep { / sent |unexpected server response/ } @lines), 1, "$what: the server log reports it once") || diag(join "\n", @lines);
	is($proxy->hits, $number, "$what: the forged message was sent");
	$proxy->disarm;
	$s->quit;
}

# Each refused message delays the next connection, but never beyond the session timeout.
{
	my $s = session_with($node, session_timeout => '8s');
	$s->query_ok("SELECT zk_lock('held')");
	for my $refusal (1 .. 6)
	{
		$proxy->arm(fault => 'forge_answer', op => 'create2', bytes => 'ffffffff00000000');
		works($s, "SELECT zk_lock('refused $refusal') > 0", 't', "refused message $refusal costs no session");
		$proxy->disarm;
	}
	works($s, "SELECT zk_unlock('held')", 't', 'a session with refused messages keeps its locks');
	$s->quit;
}

# A node without a transaction is refused: the token would be NULL.
{
	my $s = session($node);
	$proxy->arm(fault => 'forge_answer', op => 'getData', path => 'a-token',
		bytes => message('XXXXXXXX', '00000000' . '00' x 68), every => 1);
	fails_with($s, "SET statement_timeout = '20s'; SELECT zk_lock_many(ARRAY['a-token', 'b'])", '58000',
		'a lock whose token would be 0 is not granted');
	$proxy->disarm;
	works($s, 'SELECT count(*) FROM zk_held_locks', '0', 'a lock whose token would be 0 is not held');
	$s->quit;
}

# Two backends with one session: each would release the locks of the other.
{
	my ($first, $second) = map { session($node) } 1 .. 2;
	$first->query_ok("SELECT zk_lock('first')");
	my ($id) = zk_session_id($first) =~ /([0-9a-f]+)$/;
	$proxy->arm(fault => 'forge_answer', op => 'connect',
		bytes => '00000025' . '00000000' . '00004e20' . substr('0' x 16 . $id, -16) . '00000010' . '00' x 17);
	fails_with($second, "SET statement_timeout = '20s'; SELECT zk_lock('second')", '58000',
		'a session that another backend of this server has is refused', like => qr/the same ZooKeeper session/);
	$proxy->disarm;
	works($first, "SELECT zk_unlock('first')", 't', 'a refused session costs the other backend nothing');
	$_->quit for $first, $second;
}

# A commit does not wait as long as the server says that the session lasts.
{
	my $s = session($node);
	$proxy->arm(fault => 'forge_answer', op => 'connect',
		bytes => '00000025' . '00000000' . '38a8f200' . '00000000000000ff' . '00000010' . '00' x 17);
	$s->reconnect('zklock.session_timeout' => '3s', 'zklock.ensemble_timeout' => '3s', 'zklock.commit_check' => 'always');
	$s->query_ok("BEGIN; SELECT zk_lock('endless')");
	$proxy->arm(fault => 'silence');
	$s->query_ok("SET statement_timeout = '20s'");
	fails_with($s, 'COMMIT', '40001', 'a commit does not wait for days', like => qr/did not answer within 3000 ms|session expired/);
	$proxy->disarm;
	$s->drop;
}

# What no check can detect: a server determines the holders, and receives passwords, lock
# names and identities of clients in plain text, as does everybody on the network.
my $secret_file = credentials_file('kept:S3cr3tPassw0rd');
my $liar = ZkLock::ZkServer->start(tick_time => 200);
my $record = $liar->log_file . '.record';
my $port = free_port();
my $listener = spawn([ 'socat', '-r', $record, "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork", 'TCP:' . $liar->connect_string ]);
wait_until('socat', sub { port_listens($port) });
my $switch = ZkLock::Proxy->start(target => $zk);
my $holder = session_with($node, connect_string => $switch->connect_string);
$holder->query_ok("SELECT zk_lock('secret lock')");
my $elsewhere = shared_node('b', zk => $zk);
my $honest = session($elsewhere);
$honest->query_async("SELECT zk_lock('secret lock') > 0");
wait_zk_children($zkc, '/zklock/locks/secret%20lock', 2);
$switch->retarget("127.0.0.1:$port");
my $victim = session($node, application_name => 'victim');
$victim->reconnect('zklock.auth_file' => $secret_file, 'zklock.acl' => 'creator', 'zklock.connect_string' => $switch->connect_string);
$victim->query_async("SELECT zk_lock('secret lock') > 0");
wait_blocked_locally($victim);
pass('on one PostgreSQL server a lying ensemble cannot grant a lock to two sessions');
$holder->query_ok('SELECT zk_unlock_all()');
is($honest->wait_result, 't', 'the ensemble grants the released lock to a session of another server');
is($victim->wait_result, 't', 'a lying ensemble grants the lock that this session holds');
my $recorded = slurp_file($record);
like($recorded, qr/kept:S3cr3tPassw0rd/, 'a lying ensemble receives the password');
like($recorded, qr/secret%20lock.* application_name=victim/s, 'a lying ensemble receives the names of locks, and the identities of clients');
$_->quit for $holder, $victim, $honest;
$switch->stop;
end_process($listener, 'TERM');
