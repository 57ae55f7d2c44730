# Where the ZooKeeper client library has TLS, locks are acquired over it: with
# certificates that the servers and we trust, and with no others.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Tls;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $library = pkglibdir() . '/zklock.so';
plan skip_all => 'the ZooKeeper client library that zklock is built with has no TLS'
  unless slurp_file($library) =~ /\0zookeeper_init_ssl\0/;

sub pkglibdir
{
	my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
	chomp(my $dir = `$pg_config --pkglibdir`);
	return $dir;
}

my $tls = ZkLock::Tls->new;
$tls->sign('stranger', by => 'rogue');
my $zk = ZkLock::ZkServer->start(tick_time => 200, tls => $tls);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my %files = (tls_ca_file => $tls->path('ca.crt'), tls_cert_file => $tls->path('client.crt'),
	tls_key_file => $tls->path('client.key'));
my @nodes = map
{
	zklock_node($_, zk => $zk->secure_connect_string, session_timeout => '10s',
		extra_conf => join '', map { "zklock.$_ = '$files{$_}'\n" } keys %files)
} qw(a b);
my ($first, $second) = map { session($_) } @nodes;

sub with_settings
{
	my (%settings) = @_;
	my $s = session($nodes[0]);
	$s->query_ok("SET zklock.$_ = '$settings{$_}'") for sort keys %settings;
	return $s;
}

# Locks.
{
	works($first, "SELECT zk_lock('a') > 0", 't', 'a lock can be acquired over TLS');
	works($first, 'SELECT server FROM zk_session()', $zk->secure_connect_string,
		'from the port that serves nothing else');
	works($second, "SELECT zk_try_lock('a')", 'f', 'another server is excluded');
	$second->query_async("SELECT zk_lock('a')");
	wait_zk_children($zkc, '/zklock/locks/a', 2);
	$first->query_ok("SELECT zk_unlock('a')");
	like($second->wait_result, qr/^\d+$/, 'it waits, and gets the lock after a release');
	$second->query_ok('SELECT zk_unlock_all()');
	works($first, "SELECT array_length(zk_lock(array_agg('many' || i)), 1) FROM generate_series(1, 900) i",
		'900', 'many at once');
	works($second, 'SELECT count(*) FROM zk_locks WHERE granted', '900', 'all of which others see');
	$first->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'TLS leaves nothing behind');
}

# Who is not trusted, and ports of the other kind.
my %refused = (
	'an ensemble whose certificates are signed by nobody whom we trust' =>
	  { tls_ca_file => $tls->path('rogue.crt') },
	'a server that speaks no TLS' => { connect_string => $zk->connect_string });
for my $what (sort keys %refused)
{
	my $log = -s $nodes[0]->logfile;
	my $s = with_settings(%{ $refused{$what} }, connect_timeout => '1s');
	my $began = time;
	fails_with($s, "SELECT zk_lock('refused')", '08001', "$what is refused",
		like => qr/^DETAIL:.*TLS.*^HINT:.*tls_ca_file/ms);
	cmp_ok(time - $began, '<', 30, 'and not waited for without end');
	fails_with($s, 'SELECT count(*) FROM zk_locks', '08001', 'a view says so, too', like => qr/^HINT:.*tls_ca_file/m);
	like(slurp_file($nodes[0]->logfile, $log), qr/ZooKeeper client: init_ssl_for_socket@\d+: \S/,
		'the server log has what the client library says');
	$s->query_ok("RESET zklock.$_") for keys %{ $refused{$what} };
	works($s, "SELECT zk_try_lock('refused')", 't', "the session can lock when it is not $what");
	$s->quit;
}
{
	my $s = with_settings(tls_cert_file => $tls->path('stranger.crt'),
		tls_key_file => $tls->path('stranger.key'), connect_timeout => '1s');
	fails_with($s, "SELECT zk_lock('refused')", '08001',
		'a client with a certificate that the ensemble does not trust is refused',
		like => qr/^HINT:.*tls_cert_file/m);
	$s->query_ok("SET zklock.$_ = ''") for keys %files;
	fails_with($s, "SELECT zk_lock('refused')", '08001', 'and who speaks no TLS at all',
		like => qr/^HINT:.*connect_string/m, unlike => qr/TLS/);
	$s->quit;
}

# Files that can't be used.
{
	my $group = $tls->path('group.key');
	my $text = slurp_file($tls->path('client.key'));
	append_to_file($group, $text);
	chmod 0640, $group;
	my %bad = (
		'no key' => [ { tls_key_file => '' }, 'F0000', qr/incomplete TLS configuration/ ],
		'no certificate' => [ { tls_cert_file => '' }, 'F0000', qr/incomplete TLS configuration/ ],
		'no authority' => [ { tls_ca_file => '' }, 'F0000', qr/incomplete TLS configuration/ ],
		'a file that is not there' => [ { tls_ca_file => $tls->path('none') }, 'F0000', qr/tls_ca_file: it cannot/ ],
		'a directory' => [ { tls_cert_file => $tls->path('') }, 'F0000', qr/tls_cert_file: it is not a plain/ ],
		'a key that the group can read' => [ { tls_key_file => $group }, 'F0000', qr/tls_key_file: group/ ]);
	for my $what (sort keys %bad)
	{
		my ($settings, $sqlstate, $pattern) = @{ $bad{$what} };
		my $s = with_settings(%$settings);
		fails_with($s, "SELECT zk_lock('bad')", $sqlstate, "$what is an error at once",
			like => $pattern, unlike => qr{\Q$tls->{dir}\E});
		$s->query_ok("RESET zklock.$_") for keys %$settings;
		works($s, "SELECT zk_try_lock('bad')", 't', "the session can lock after $what");
		$s->quit;
	}

	# What is no PEM, or needs a passphrase, the library finds out.
	$tls->openssl('ec', '-in', 'client.key', '-aes128', '-passout', 'pass:opensesame', '-out', 'locked.key');
	chmod 0600, $tls->path('locked.key');
	for my $key ($tls->path('locked.key'), $tls->path('server.key'), $tls->path('openssl.log'))
	{
		chmod 0600, $key;
		my $log = -s $nodes[0]->logfile;
		my $s = with_settings(tls_key_file => $key, connect_timeout => '1s');
		fails_with($s, "SELECT zk_lock('bad')", '08001', 'a key that does not fit is an error in time',
			like => qr/^DETAIL:.*TLS/m);
		like(slurp_file($nodes[0]->logfile, $log), qr/ZooKeeper client:.*key/, 'the server log says why');
		$s->quit;
	}
	unlike(slurp_file($nodes[0]->logfile), qr/PRIVATE KEY|opensesame/, 'no secret is in the server log');
	fails_with($first, "SET zklock.tls_ca_file = '/a,b'", '22023', 'a comma in a path is refused', hint => 0);
	$nodes[0]->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
	my $s = session($nodes[0], user => 'ordinary');
	works($s, "SELECT zk_try_lock('ordinary')", 't', 'an ordinary role locks with the certificate of the server');
	for my $setting (sort keys %files)
	{
		fails_with($s, "SHOW zklock.$setting", '42501', "it cannot see $setting", hint => 0);
		fails_with($s, "SET zklock.$setting = '/etc/passwd'", '42501', 'or set it', hint => 0);
	}
	$s->quit;
}

# What happens to the connection, and to the server.
{
	my $proxy = ZkLock::Proxy->start(target => $zk->secure_connect_string);
	my $s = with_settings(connect_string => $proxy->connect_string);
	my $token = $s->query_ok("SELECT zk_lock('kept')");
	my $id = zk_session_id($s);
	$proxy->cut(refuse => 1);
	wait_state($s, 'suspended');
	$proxy->accept;
	wait_state($s, 'connected');
	is(zk_session_id($s), $id, 'a session goes on in a new TLS connection');
	works($s, "SELECT zk_lock_token('kept')", $token, 'with its lock');
	works($second, "SELECT zk_try_lock('kept')", 'f', 'which excludes others still');
	$zk->restart;
	wait_state($s, 'connected');
	works($s, "BEGIN; SET LOCAL zklock.commit_check = always; SELECT zk_lock('kept') = $token; COMMIT", 't',
		'a server that starts again is found again');
	$s->query_ok('SELECT zk_unlock_all()');

	# The library waits for a server that accepts and is silent; its caller does not.
	$proxy->freeze;
	my $silent = with_settings(connect_string => $proxy->connect_string, connect_timeout => '500ms');
	my $began = time;
	fails_with($silent, "SELECT zk_lock('silent')", '08001', 'a server that says nothing is an error');
	cmp_ok(time - $began, '<', 30, 'that comes in time');
	$silent->query_ok("SET zklock.connect_timeout = '1h'");
	$silent->query_async("SELECT zk_lock('silent')");
	wait_blocked($silent);
	$silent->cancel;
	failed_with($silent, '57014', 'or can be cancelled', hint => 0);
	$silent->query_ok("SET zklock.connect_string = '" . $zk->secure_connect_string . q('));
	works($silent, "SELECT zk_try_lock('silent')", 't', 'another server can be reached meanwhile');
	my $stuck = with_settings(connect_string => $proxy->connect_string, connect_timeout => '500ms');
	$stuck->query("SELECT zk_lock('silent')");
	$stuck->quit;
	wait_for_sql($nodes[0], 'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $stuck->pid, '0');
	$proxy->thaw;
	works($silent, 'SELECT zk_unlock_all()', '', 'and nobody is disturbed when it speaks again');
	$_->quit for $s, $silent;
	$proxy->stop;
	nothing_left($zkc, 'outages leave nothing behind');
}

# A certificate that is renewed in its place, and a reload.
{
	my $before = zk_session_id($first);
	$second->query_ok("SELECT zk_lock('held')");
	my $held = zk_session_id($second);
	$tls->sign('client');
	$_->reload for @nodes;
	wait_until('a session with the new certificate', sub {
		$first->query_ok("SELECT zk_try_lock('renewed'), zk_unlock('renewed')");
		zk_session_id($first) ne $before;
	});
	pass('after a reload an idle session is opened again with a renewed certificate');
	works($second, "SELECT zk_try_lock('more')", 't', 'one that holds something');
	is(zk_session_id($second), $held, '... goes on as it is');
	$second->query_ok('SELECT zk_unlock_all()');
}

unlike(slurp_file($_->logfile), qr/PANIC|terminated by signal/, 'no backend has crashed') for @nodes;
$_->quit for $first, $second;
$zkc->close;
$_->stop for @nodes;
done_testing();
