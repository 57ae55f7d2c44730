# An ordinary role cannot change the settings that a superuser has configured, not even
# before the library is loaded, when PostgreSQL lets every role set unknown settings.
# Without a configured ensemble no server is contacted.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $secret_file = PostgreSQL::Test::Utils::tempdir() . '/secret';
append_to_file($secret_file, "digest kept:S3cr3tPassw0rd\n");
chmod 0600, $secret_file or die "$secret_file: $!";
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

# Opens a session with options of the connection.
sub session_with
{
	my ($options, %opt) = @_;
	local $ENV{PGOPTIONS} = $options;
	return session($opt{node} // $node, user => 'ordinary', %opt);
}

sub lock_is_refused
{
	my ($s, $setting, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($s, "SELECT zk_lock('x')", '42501', $name,
		like => qr/ERROR: .*permission denied to set parameter "\Q$setting\E".*^HINT: .*shared_preload_libraries/ims);
}

my %configured = (connect_string => $zk->connect_string, root => '/configured', max_locks => 5, commit_check => 'always');

sub is_configured
{
	my ($s, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->query_ok("SELECT zk_lock('x'), zk_unlock_all()");
	return works($s, join(' UNION ALL ', map { "SELECT current_setting('zklock.$_')" } sort keys %configured),
		(join "\n", map { $configured{$_} } sort keys %configured), $name);
}

# The options of a connection.
my %attempted = (connect_string => $thief, root => '/elsewhere', session_timeout => '1h', node_names => 'kazoo',
	commit_check => 'off', deadlock_detection => 'off', max_locks => 100000, acl => 'creator', auth_file => '/dev/null',
	tls_ca_file => '/dev/null', log_min_messages => 'error');
for my $name (sort keys %attempted)
{
	my $s = session_with("-c zklock.$name=$attempted{$name}");
	lock_is_refused($s, "zklock.$name", "an ordinary role cannot set zklock.$name when it connects");
	lock_is_refused($s, "zklock.$name", 'each further call fails as well') if $name =~ /^(?:root|acl)$/;
	$s->quit;
}
my $s = session_with('-c ZkLock.Root=/elsewhere');
lock_is_refused($s, 'zklock.root', 'the name of a setting is case-insensitive');
works($s, 'RESET ALL; SELECT 1', '1', 'RESET works, and restores the value of the connection');
lock_is_refused($s, 'zklock.root', 'the value of the connection is still refused');
$s->quit;
$s = session_with('-c zklock.on_revoke=cancel -c zklock.connect_timeout=7s');
is_configured($s, 'settings of ordinary roles can be set when connecting');
works($s, "SELECT current_setting('zklock.on_revoke'), current_setting('zklock.connect_timeout')", 'cancel|7s', 'settings of ordinary roles take effect');
$s->quit;

# SET, in all its forms.
$s = session($node, user => 'ordinary');
$s->query_ok("SET zklock.root = '/elsewhere'");
lock_is_refused($s, 'zklock.root', 'an ordinary role cannot use SET');
$s->query_ok('RESET zklock.root');
is_configured($s, 'the configured values apply after RESET');
$s->quit;
for my $set ("SET LOCAL zklock.root = '/elsewhere'", "SET LOCAL zklock.root = '/elsewhere'; SAVEPOINT p; SET zklock.root = '/else'",
	"SET zklock.root = '/elsewhere'; SET LOCAL zklock.root = '/configured'",
	"SELECT set_config('zklock.root', '/elsewhere', true)")
{
	$s = session($node, user => 'ordinary');
	$s->query_ok("BEGIN; $set");
	lock_is_refused($s, 'zklock.root', "an ordinary role cannot use: $set");
	$s->query_ok('ROLLBACK');
	is_configured($s, 'the configured values apply after the transaction');
	$s->quit;
}
$s = session($node, user => 'ordinary', dbname => 'owned');
fails_with($s, $_, '42501', "the owner of a database cannot store such a setting: $_", hint => 0)
  for "ALTER ROLE ordinary SET zklock.root = '/elsewhere'", "ALTER DATABASE owned SET zklock.root = '/elsewhere'",
  "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET zklock.root = '/elsewhere' AS 'SELECT 1'";
$s->quit;

# Settings of a role, and granted privileges.
$s = session_with('-c zklock.max_locks=1000', user => 'limited');
lock_is_refused($s, 'zklock.max_locks', 'a role cannot raise its own limit');
$s->quit;
$s = session($node, user => 'limited');
fails_with($s, "SELECT zk_lock(ARRAY['a', 'b', 'c'])", '53400', 'the limit of a role applies');
$s->quit;
$node->safe_psql('postgres', 'GRANT SET ON PARAMETER zklock.root TO trusted') if $node->pg_version >= 15;
SKIP:
{
	skip 'no privileges on settings before PostgreSQL 15', 2 if $node->pg_version < 15;
	$s = session_with('-c zklock.root=/granted', user => 'trusted');
	works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.root')", 't|/granted', 'a role with the SET privilege can set the parameter');
	$s->quit;
	$s = session_with("-c zklock.root=/granted -c zklock.connect_string=$thief", user => 'trusted');
	lock_is_refused($s, 'zklock.connect_string', 'a role with the SET privilege cannot set another parameter');
	$s->quit;
}
{
	local $ENV{PGOPTIONS} = '-c zklock.root=/super -c zklock.max_locks=7';
	$s = session($node);
	works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.root'), current_setting('zklock.max_locks')", 't|/super|7',
		'a superuser can set all parameters');
	$s->quit;
}

# With the library loaded when the server starts, the connection itself is refused.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'zklock'");
$node->restart;
{
	local $ENV{PGOPTIONS} = "-c zklock.connect_string=$thief";
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT zk_lock('x')", extra_params => [ '-U', 'ordinary' ]);
	like($err, qr/FATAL:  permission denied to set parameter "zklock\.connect_string"/,
		'with shared_preload_libraries PostgreSQL refuses the connection');
}
$s = session($node, user => 'ordinary');
is_configured($s, 'with shared_preload_libraries the configured values apply');
$s->quit;
is_deeply([ grep { m{^/(?:elsewhere|else|zklock)} } $zkc->children('/') ], [], 'no znode was created below another root');

# Without a configured ensemble no server is contacted.
my $bare = zklock_node('bare', zk => $zk, extra_conf => "zklock.auth_file = '$secret_file'\n");
$bare->adjust_conf('postgresql.conf', 'zklock.connect_string', undef);
$bare->reload;
$s = session($bare);
for my $sql ("SELECT zk_lock('x')", "SELECT zk_try_xact_lock(ARRAY['x', 'y'])", "SELECT zk_acquire('x', 1)",
	'SELECT count(*) FROM zk_locks', "SELECT zk_revoke('x')")
{
	fails_with($s, $sql, 'F0000', "fails without an ensemble: $sql", like => qr/^HINT: .*zklock\.connect_string/m);
}
works($s, 'SELECT state, (SELECT count(*) FROM zk_held_locks), zk_unlock_all() FROM zk_session()', 'closed|0|',
	'functions that need no ensemble work');
$s->query_ok("SET zklock.connect_string = '" . $zk->connect_string . "'");
works($s, "SELECT zk_lock('x') > 0", 't', 'locks work with a configured ensemble');
$s->quit;

is_deeply([ IO::Select->new(@listeners)->can_read(0) ], [], "no connection was opened to the attacker's ports");
nothing_left($zkc, 'no node is left', root => $_) for '/zklock', '/configured';
$zkc->close;
$_->stop for $node, $bare;
done_testing();
