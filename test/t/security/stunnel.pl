# The configuration of doc/security.md for TLS with stunnel, with paths and ports of the
# test: locks are acquired over TLS only.

use PostgreSQL::Test::Utils;
use ZkLock::Test;
use ZkLock::Tls;

my $dir = PostgreSQL::Test::Utils::tempdir();
my %shown = files_shown('doc/security.md');
is_deeply([ sort keys %shown ], [qw(postgresql.conf stunnel.conf zoo.cfg)], 'the document shows three files');

# Returns the code blocks of a document that name a file.
sub files_shown
{
	my ($path) = @_;
	my %files;
	my $text = slurp_file($path);
	$files{$1} = $2 while $text =~ /^```ini file=(\S+)\n(.*?)^```$/msg;
	return %files;
}

# Replaces patterns; each pattern must match.
sub substitute
{
	my ($text, @changes) = @_;
	while (my ($from, $to) = splice @changes, 0, 2)
	{
		$text =~ s/$from/$to/g or die "the document no longer has $from\n";
	}
	return $text;
}

# The server with the zoo.cfg of the document, and a plain port for the test.
my @names = $shown{'stunnel.conf'} =~ /^checkHost = (\S+)$/mg;
is(scalar(@names), 3, 'each tunnel checks the name of its server');
my $tls = ZkLock::Tls->new(names => \@names);
$tls->sign('stranger', by => 'rogue');
my $secure = free_port();
my %zoo = substitute($shown{'zoo.cfg'}, qr/\b2281\b/, $secure, qr{/etc/zookeeper/tls}, $tls->path('')) =~ /^(\S+?)=(.*)$/mg;
my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200, secure_port => $secure,
	config => { %zoo, secureClientPortAddress => '127.0.0.1' })->with_client;

# stunnel, with ports of the test, and without a change of user, which needs root.
my @shown_ports = $shown{'stunnel.conf'} =~ /^accept = 127\.0\.0\.1:(\d+)$/mg;
is_deeply([ grep { $_ >= 1024 } @shown_ports ], [], 'the local ports of the manual can be bound only by root');
my %port = map { $_ => free_port() } @shown_ports;
my $stunnel_conf = substitute($shown{'stunnel.conf'}, qr/^set[ug]id = stunnel4\n/m, "",
	qr{/etc/stunnel/zookeeper}, $tls->path(''), qr/^(connect = )\S+$/m, "connect = 127.0.0.1:$secure",
	map { (qr/\b$_\b/ => $port{$_}) } @shown_ports);
my $conf = substitute($shown{'postgresql.conf'}, map { (qr/\b$_\b/ => $port{$_}) } @shown_ports);
my $stunnel;

sub start_stunnel
{
	my (%changes) = @_;
	my $file = "$dir/stunnel.conf";
	unlink $file;
	append_to_file($file, "pid =\n" . substitute($stunnel_conf, %changes));
	$stunnel = spawn([ 'stunnel', $file ], log => "$dir/stunnel.log");
	wait_until('stunnel', sub {
		die "stunnel ended\n" . log_tail("$dir/stunnel.log") unless alive($stunnel);
		@shown_ports == grep { port_listens($_) } values %port;
	});
	return;
}

sub stop_stunnel
{
	end_process($stunnel, 'KILL');
	return;
}

start_stunnel();
my @nodes = map { zklock_node($_, zk => 'unused:1', extra_conf => "$conf\nzklock.ensemble_timeout = '1min'\n") } qw(a b);
my ($first, $second) = map { session($_) } @nodes;

# Locks.
works($first, "SELECT zk_lock('a') > 0", 't', 'a lock can be acquired through stunnel');
like($first->query('SELECT server FROM zk_session()'), qr/^127\.0\.0\.1:(??{join '|', values %port})$/,
	'the session uses a port of stunnel');
works($second, "SELECT zk_try_lock('a')", 'f', 'another server is excluded');
$second->query_async("SELECT zk_lock('a')");
wait_zk_children($zkc, '/zklock/locks/a', 2);
$first->query_ok("SELECT zk_unlock('a')");
like($second->wait_result, qr/^\d+$/, 'the other server waits, and acquires the lock after a release');

# stunnel is killed and restarted.
my $id = zk_session_id($second);
$second->query_ok('BEGIN');
$second->query_ok("SELECT zk_xact_lock('x')");
$first->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, '/zklock/locks/x', 2);
stop_stunnel();
wait_state($second, 'suspended');
works($second, q(SELECT state FROM zk_held_locks WHERE name = 'x'), 'suspect',
	'without stunnel the connection is lost and the lock is suspect');
my $new = session($nodes[0]);
$new->query_ok("SET zklock.ensemble_timeout = '500ms'");
fails_with($new, "SELECT zk_lock('new')", '08001', 'a new session cannot connect without stunnel');
start_stunnel();
wait_state($second, 'connected');
is(zk_session_id($second), $id, 'the session continues when stunnel is restarted');
works($second, 'COMMIT', '', "the session's transaction commits");
like($first->wait_result, qr/^\d+$/, 'the waiter acquires the lock');
$new->query_ok('RESET zklock.ensemble_timeout');
works($new, "SELECT zk_try_lock('new')", 't', 'new sessions can connect again');
$_->query_ok('SELECT zk_unlock_all()') for $first, $second;
$new->quit;

# Connections without TLS or with other certificates are refused.
sub is_refused
{
	my ($what, %changes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	stop_stunnel();
	start_stunnel(%changes);
	my $s = session($nodes[0]);
	$s->query_ok("SET zklock.ensemble_timeout = '1s'");
	fails_with($s, "SELECT zk_lock('refused')", '08001', $what);
	$s->quit;
	return;
}

my $plain = session_with($nodes[0], connect_string => "127.0.0.1:$secure", ensemble_timeout => '1s');
fails_with($plain, "SELECT zk_lock('plain')", '08001', 'plain text is refused at the port for TLS');
$plain->quit;
is_refused('a client certificate that another authority signed is refused',
	qr{/client\.}, '/stranger.');
is_refused('a client without a certificate is refused', qr/^(?:cert|key) = .*\n/m, '');
is_refused('a server with a certificate of another authority is refused', qr{/ca\.crt}, '/rogue.crt');
is_refused('a server with another name is refused', qr/^(checkHost = )\S+$/m, 'checkHost = elsewhere');

stop_stunnel();
nothing_left($zkc, 'no node is left');
