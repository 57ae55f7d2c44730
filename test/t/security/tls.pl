# If the ZooKeeper client library has TLS, locks can be acquired over TLS, and only with
# certificates that both sides trust.

use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use ZkLock::Test;
use ZkLock::Tls;

require_tls();
my $tls = ZkLock::Tls->new;
$tls->sign('stranger', by => 'rogue');
my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200, tls => $tls)->with_client;
my $settings = $tls->settings;
my @nodes = map { shared_node($_, zk => $zk->secure_connect_string, session_timeout => '30s', set => $settings) } qw(a b);
my ($first, $second) = map { session($_) } @nodes;

# Locks.
{
	works($first, "SELECT zk_lock('a') > 0", 't', 'a lock can be acquired over TLS');
	works($first, 'SELECT server FROM zk_session()', $zk->secure_connect_string,
		'the session uses the TLS port');
	works($second, "SELECT zk_try_lock('a')", 'f', 'another server is excluded');
	$second->query_async("SELECT zk_lock('a')");
	wait_zk_children($zkc, '/zklock/locks/a', 2);
	$first->query_ok("SELECT zk_unlock('a')");
	like($second->wait_result, qr/^\d+$/, 'the other server waits, and acquires the lock after a release');
	$second->query_ok('SELECT zk_unlock_all()');
	works($first, "SELECT array_length(zk_lock_many(array_agg('many' || i)), 1) FROM generate_series(1, 900) i",
		'900', '900 locks can be acquired in one call');
	works($second, 'SELECT count(*) FROM zk_locks WHERE granted', '900', 'another server sees all 900 locks');
	$first->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'locks over TLS leave no node');
}

# Untrusted certificates, and ports without TLS.
my %refused = (
	'an ensemble with certificates of an untrusted authority' =>
	  { tls_ca_file => $tls->path('rogue.crt') },
	'a server without TLS' => { connect_string => $zk->connect_string });
for my $what (sort keys %refused)
{
	my $log = -s $nodes[0]->logfile;
	my $s = session_with($nodes[0], %{ $refused{$what} }, ensemble_timeout => '1s');
	my $began = time;
	fails_with($s, "SELECT zk_lock('refused')", '08001', "$what is refused",
		like => qr/^DETAIL:.*TLS.*^HINT:.*tls_ca_file/ms);
	cmp_ok(time - $began, '<', 30, 'the refusal comes in bounded time');
	fails_with($s, 'SELECT count(*) FROM zk_locks', '08001', 'a view fails with the same hint', like => qr/^HINT:.*tls_ca_file/m);
	like(slurp_file($nodes[0]->logfile, $log), qr/ZooKeeper client: init_ssl_for_socket@\d+: \S/,
		'the server log has the message of the client library');
	$s->reconnect(map { ("zklock.$_" => undef) } 'ensemble_timeout', keys %{ $refused{$what} });
	works($s, "SELECT zk_try_lock('refused')", 't', "the session can lock after $what");
	$s->quit;
}
{
	my $s = session_with($nodes[0], tls_cert_file => $tls->path('stranger.crt'),
		tls_key_file => $tls->path('stranger.key'), ensemble_timeout => '1s');
	fails_with($s, "SELECT zk_lock('refused')", '08001',
		'a client with a certificate that the ensemble does not trust is refused',
		like => qr/^HINT:.*tls_cert_file/m);
	$s->reconnect(map { $_ => '' } keys %$settings);
	fails_with($s, "SELECT zk_lock('refused')", '08001', 'a client without TLS is refused',
		like => qr/^HINT:.*connect_string/m, unlike => qr/TLS/);
	$s->quit;
}

# Unusable files.
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
		my ($changed, $sqlstate, $pattern) = @{ $bad{$what} };
		my $s = session_with($nodes[0], %$changed);
		fails_with($s, "SELECT zk_lock('bad')", $sqlstate, "$what is an error at once",
			like => $pattern, unlike => qr{\Q$tls->{dir}\E});
		$s->reconnect(map { ("zklock.$_" => undef) } keys %$changed);
		works($s, "SELECT zk_try_lock('bad')", 't', "the session can lock after $what");
		$s->quit;
	}

	# The client library detects files that are not PEM, or need a passphrase.
	$tls->openssl('ec', '-in', 'client.key', '-aes128', '-passout', 'pass:opensesame', '-out', 'locked.key');
	chmod 0600, $tls->path('locked.key');
	for my $key ($tls->path('locked.key'), $tls->path('server.key'), $tls->path('openssl.log'))
	{
		chmod 0600, $key;
		my $log = -s $nodes[0]->logfile;
		my $s = session_with($nodes[0], tls_key_file => $key, ensemble_timeout => '1s');
		fails_with($s, "SELECT zk_lock('bad')", '08001', 'an unusable key is an error in bounded time',
			like => qr/^DETAIL:.*TLS/m);
		like(slurp_file($nodes[0]->logfile, $log), qr/ZooKeeper client:.*key/, 'the server log has the reason');
		$s->quit;
	}
	unlike(slurp_file($nodes[0]->logfile), qr/PRIVATE KEY|opensesame/, 'no secret is in the server log');
	fails_with($first, "SET zklock.tls_ca_file = '/a,b'", '22023', 'a comma in a path is refused', hint => 0);
	$nodes[0]->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
	my $s = session($nodes[0], user => 'ordinary');
	works($s, "SELECT zk_try_lock('ordinary')", 't', 'an ordinary role locks with the certificate of the server');
	for my $setting (sort keys %$settings)
	{
		fails_with($s, "SHOW $setting", '42501', "an ordinary role cannot see $setting", hint => 0);
		fails_with($s, "SET $setting = '/etc/passwd'", '42501', "an ordinary role cannot set $setting", hint => 0);
	}
	$s->quit;
}

# Lost connections and a restart of the server.
{
	my $proxy = ZkLock::Proxy->start(target => $zk->secure_connect_string);
	my $s = session_with($nodes[0], connect_string => $proxy->connect_string);
	my $token = $s->query_ok("SELECT zk_lock('kept')");
	my $id = zk_session_id($s);
	$proxy->cut(refuse => 1);
	wait_state($s, 'suspended');
	$proxy->accept;
	wait_state($s, 'connected');
	is(zk_session_id($s), $id, 'a session continues over a new TLS connection');
	works($s, "SELECT zk_lock_token('kept')", $token, 'the session keeps its lock');
	works($second, "SELECT zk_try_lock('kept')", 'f', 'the lock still excludes other sessions');
	$zk->restart;
	wait_state($s, 'connected');
	works($s, "BEGIN; SET LOCAL zklock.commit_check = always; SELECT zk_lock('kept') = $token; COMMIT", 't',
		'the session reconnects to a restarted server');
	$s->query_ok('SELECT zk_unlock_all()');

	# The client library waits for a server that accepts and does not answer; its caller does
	# not.
	$proxy->freeze;
	my $silent = session_with($nodes[0], connect_string => $proxy->connect_string, ensemble_timeout => '500ms');
	my $began = time;
	fails_with($silent, "SELECT zk_lock('silent')", '08001', 'a server that does not answer is an error');
	cmp_ok(time - $began, '<', 30, 'the error of a silent server comes in bounded time');
	$silent->query_ok("SET zklock.ensemble_timeout = '1h'");
	$silent->query_async("SELECT zk_lock('silent')");
	wait_blocked($silent);
	$silent->cancel;
	failed_with($silent, '57014', 'a wait for a silent server can be cancelled', hint => 0);
	$silent->reconnect('zklock.connect_string' => $zk->secure_connect_string);
	works($silent, "SELECT zk_try_lock('silent')", 't', 'the session can use another server');
	my $stuck = session_with($nodes[0], connect_string => $proxy->connect_string, ensemble_timeout => '500ms');
	$stuck->query("SELECT zk_lock('silent')");
	$stuck->quit;
	wait_for_sql($nodes[0], 'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $stuck->pid, '0');
	$proxy->thaw;
	works($silent, 'SELECT zk_unlock_all()', '', 'the silent server affects no session when it answers again');
	$_->quit for $s, $silent;
	$proxy->stop;
	nothing_left($zkc, 'outages leave no node');
}

# A renewed certificate in the same files.
{
	$second->query_ok("SELECT zk_lock('held')");
	my $held = zk_session_id($second);
	$tls->sign('client');
	works($first, "SELECT zk_try_lock('renewed'), zk_unlock('renewed')", 't|t', 'a session goes on after a renewal');
	my $before = zk_session_id($first);
	$zkc->end_session($before);
	works($first, "SELECT zk_try_lock('renewed'), zk_unlock('renewed')", 't|t', 'the next ZooKeeper session has the new certificate');
	isnt(zk_session_id($first), $before, 'the new certificate is another one');
	works(my $new = session($nodes[0]), "SELECT zk_try_lock('renewed'), zk_unlock('renewed')", 't|t', 'a new session has the new certificate');
	$new->quit;
	works($second, "SELECT zk_try_lock('more')", 't', 'a session that holds a lock works');
	is(zk_session_id($second), $held, 'a session that holds a lock is not reopened');
	$second->query_ok('SELECT zk_unlock_all()');
}
