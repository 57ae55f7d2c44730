# A role that is not a superuser can change none of the settings that a superuser configures, by
# no way: options of the connection, its first packet, SET in all forms, functions, its own role,
# its database. Without a configured ensemble no server is contacted.
#
# Promise: 10.2
# Tags: edges

use IO::Select;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $secret_file = credentials_file('kept:S3cr3tPassw0rd');
my $node = zklock_node('a', zk => $zk, extra_conf => <<"CONF");
zklock.root = '/configured'
zklock.auth_file = '$secret_file'
zklock.max_locks = 5
zklock.commit_check = always
CONF
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE ordinary LOGIN;
CREATE ROLE limited LOGIN;
ALTER ROLE limited SET zklock.max_locks = 2;
CREATE ROLE trusted LOGIN;
CREATE DATABASE owned OWNER ordinary;
SQL

# The attacker listens on a private port, and on the port of the former built-in default.
my @listeners = grep { defined } map { IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $_, Listen => 5) } 0, 2181;
my $thief = '127.0.0.1:' . $listeners[0]->sockport;

my %configured = (connect_string => $zk->connect_string, root => '/configured', max_locks => 5, commit_check => 'always');

sub is_configured
{
	my ($s, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->query_ok("SELECT zk_lock('x'), zk_unlock_all()");
	return works($s, join(' UNION ALL ', map { "SELECT current_setting('zklock.$_')" } sort keys %configured),
		(join "\n", map { $configured{$_} } sort keys %configured), $name);
}

# Returns the error of a connection with an option, or with a parameter of the first packet.
sub connection_error
{
	my ($role, $option) = @_;
	local $ENV{PGOPTIONS} = $option;
	my (undef, $error) = run_command([ 'psql', '-X', '-d', $node->connstr('postgres'), '-U', $role, '-c', 'SELECT 1' ]);
	return $error;
}

sub first_packet_error
{
	my ($role, $setting, $value) = @_;
	my $socket = IO::Socket::UNIX->new($node->host . '/.s.PGSQL.' . $node->port) or die "socket: $!";
	my $body = pack('N', 196608) . join('', map { "$_\0" } 'user', $role, 'database', 'postgres', $setting, $value) . "\0";
	$socket->syswrite(pack('N', 4 + length $body) . $body);
	my $answer = '';
	1 while $answer !~ /^E|Z\x00\x00\x00\x05./s && $socket->sysread($answer, 4096, length $answer);
	$socket->close;
	return $answer =~ /E....(S.*)/s ? $1 : '';
}

my %superusers = (connect_string => $thief, root => '/elsewhere', session_timeout => '1h', node_names => 'kazoo',
	commit_check => 'off', deadlock_detection => 'off', max_locks => 7143, acl => 'creator', auth_file => '/dev/null',
	tls_ca_file => '/dev/null', tls_cert_file => '/dev/null', tls_key_file => '/dev/null', client_log_level => 'error');
delete @superusers{qw(tls_ca_file tls_cert_file tls_key_file)}
  unless $node->safe_psql('postgres', q(SELECT count(*) FROM pg_settings WHERE name = 'zklock.tls_ca_file'));
my $s = session($node, user => 'ordinary', dbname => 'owned');
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_settings WHERE name LIKE 'zklock.%' AND context <> 'user')),
	scalar(keys %superusers), 'these are all settings of superusers');
for my $name (sort keys %superusers)
{
	my $value = $superusers{$name};
	my $denied = qr/permission denied to set parameter "zklock\.$name"/;
	like(connection_error('ordinary', "-c zklock.$name=$value"), $denied, "refused as an option of the connection: zklock.$name");
	like(first_packet_error('ordinary', "zklock.$name", $value), $denied, "refused in the first packet: zklock.$name");
	fails_with($s, $_, '42501', "refused with: $_", hint => 0)
	  for "SET zklock.$name = '$value'", "SELECT set_config('zklock.$name', '$value', true)",
	  "ALTER ROLE ordinary SET zklock.$name = '$value'", "ALTER DATABASE owned SET zklock.$name = '$value'",
	  "ALTER ROLE ordinary IN DATABASE owned SET zklock.$name = '$value'", "ALTER SYSTEM SET zklock.$name = '$value'",
	  "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql SET zklock.$name = '$value' AS 'SELECT 1'";
}
like(connection_error('ordinary', '-c ZkLock.Root=/elsewhere'), qr/permission denied/, 'the name of a setting is case-insensitive');
$s->query_ok('BEGIN');
fails_with($s, q(SET LOCAL zklock.root = '/elsewhere'), '42501', 'SET LOCAL is refused', hint => 0);
$s->query_ok('ROLLBACK');
$s->query_ok(q(CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'));
fails_with($s, q(ALTER FUNCTION f() SET zklock.root = '/elsewhere'), '42501', 'the SET clause of an own function is refused', hint => 0);
works($s, q(RESET ALL; SHOW zklock.root), '/configured', 'RESET restores the configured value');
$s->quit;
{
	local $ENV{PGOPTIONS} = '-c zklock.stale_snapshot=error -c zklock.ensemble_timeout=7s';
	$s = session($node, user => 'ordinary');
	is_configured($s, 'settings of ordinary roles can be set when connecting');
	works($s, "SELECT current_setting('zklock.stale_snapshot'), current_setting('zklock.ensemble_timeout')", 'error|7s', 'the restored values take effect');
	$s->quit;
}

# Settings of a role, and granted privileges.
like(connection_error('limited', '-c zklock.max_locks=1000'), qr/permission denied/, 'a role cannot raise its own limit');
$s = session($node, user => 'limited');
fails_with($s, "SELECT zk_lock_many(ARRAY['a', 'b', 'c'])", '53400', 'the limit of a role applies');
fails_with($s, 'ALTER ROLE limited RESET zklock.max_locks', '42501', 'the role cannot remove its limit', hint => 0);
fails_with($s, 'ALTER ROLE limited SET zklock.max_locks = 1000', '42501', 'the role cannot change its limit', hint => 0);
$s->quit;
# The SET privilege on a setting is for the start of a session, as a superuser's.
{
	$node->safe_psql('postgres', 'GRANT SET ON PARAMETER zklock.root TO trusted');
	{
		local $ENV{PGOPTIONS} = '-c zklock.root=/granted';
		$s = session($node, user => 'trusted');
	}
	works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.root')", 't|/granted', 'a role with the SET privilege can set the parameter');
	fails_with($s, $_, '55P02', "refused after the start of the session: $_", like => qr/DETAIL:/)
	  for q(SET zklock.root = '/later'), q(SELECT set_config('zklock.root', '/later', true));
	works($s, 'SHOW zklock.root', '/granted', 'a role with the SET privilege keeps what it has set');
	$s->query_ok(q(ALTER ROLE trusted SET zklock.root = '/own'));
	$s->quit;
	$s = session($node, user => 'trusted');
	works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.root')", 't|/own', 'a role with the SET privilege can set the parameter for its own role');
	fails_with($s, 'ALTER SYSTEM RESET zklock.root', '42501', 'a role with the SET privilege cannot set the parameter for the server', hint => 0);
	$s->query_ok('ALTER ROLE trusted RESET zklock.root');
	$s->quit;
	like(connection_error('trusted', "-c zklock.connect_string=$thief"), qr/permission denied/, 'a role with the SET privilege can set no other parameter');
	$node->safe_psql('postgres', 'REVOKE SET ON PARAMETER zklock.root FROM trusted');
	like(connection_error('trusted', '-c zklock.root=/granted'), qr/permission denied/, 'a role can set the parameter until the privilege is revoked');
}
{
	local $ENV{PGOPTIONS} = '-c zklock.root=/super -c zklock.max_locks=7';
	$s = session($node);
	works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.root'), current_setting('zklock.max_locks')", 't|/super|7',
		'a superuser can set all parameters');
	$s->quit;
}
# Nobody can change the settings of a ZooKeeper session after the start of a session; for later
# sessions a superuser can.
my @fixed = grep { !/^(?:commit_check|deadlock_detection|client_log_level)$/ } sort keys %superusers;
$s = session($node);
for my $name (@fixed)
{
	my $value = $superusers{$name};
	fails_with($s, $_, '55P02', "refused to a superuser: $_", like => qr/DETAIL:.*HINT:/s)
	  for "SET zklock.$name = '$value'", "SELECT set_config('zklock.$name', '$value', false)";
	$s->query_ok("SET check_function_bodies = off; CREATE OR REPLACE FUNCTION g() RETURNS int LANGUAGE sql SET zklock.$name = '$value' AS 'SELECT 1'");
	fails_with($s, 'SELECT g()', '55P02', "refused in the SET clause of a function", like => qr/DETAIL:/);
	works($s, "RESET zklock.$name; SHOW zklock.$name", $node->safe_psql('postgres', "SHOW zklock.$name"), 'RESET changes nothing');
}
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
$node->safe_psql('elsewhere', 'CREATE EXTENSION zklock');
$s->query_ok("ALTER DATABASE elsewhere SET zklock.root = '/database'");
$s->query_ok("ALTER ROLE trusted SET zklock.root = '/role'");
for ([ ordinary => '/database' ], [ trusted => '/role' ])
{
	my ($role, $root) = @$_;
	my $t = session($node, user => $role, dbname => 'elsewhere');
	works($t, "SELECT zk_lock('$role') > 0, current_setting('zklock.root')", "t|$root", "ALTER DATABASE and ALTER ROLE: $role");
	is(scalar(queue_of($zkc, $role, $root)), 1, "ALTER DATABASE and ALTER ROLE: $role has the lock");
	$t->quit;
}
$s->query_ok("ALTER ROLE trusted RESET zklock.root");
$s->quit;
is_deeply([ grep { m{^/(?:elsewhere|else|zklock)} } $zkc->children('/') ], [], 'no znode was created below another root');

# Without a configured ensemble no server is contacted.
my $bare = zklock_node('bare', zk => $zk, extra_conf => "zklock.auth_file = '$secret_file'\n");
$bare->adjust_conf('postgresql.conf', 'zklock.connect_string', undef);
$bare->reload;
$s = session($bare);
for my $sql ("SELECT zk_lock('x')", "SELECT zk_try_xact_lock_many(ARRAY['x', 'y'])", "SELECT zk_acquire_permit('x', 1)",
	'SELECT count(*) FROM zk_locks', "SELECT zk_revoke('x')")
{
	fails_with($s, $sql, 'F0000', "fails without an ensemble: $sql", like => qr/^HINT: .*zklock\.connect_string/m);
}
works($s, 'SELECT state, (SELECT count(*) FROM zk_held_locks), zk_unlock_all() FROM zk_session()', 'closed|0|',
	'functions that need no ensemble work');
$s->quit;

is_deeply([ IO::Select->new(@listeners)->can_read(0) ], [], "no connection was opened to the attacker's ports");
nothing_left($zkc, 'no node is left', root => $_) for '/zklock', '/configured';
