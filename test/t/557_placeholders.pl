# An ordinary role changes none of the settings that a superuser has configured, also
# before the library is loaded, when PostgreSQL lets anybody set unknown settings. And
# without a configured ensemble nothing is contacted.

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

# The attacker listens at a port of his own, and where the built-in default once led.
my @listeners = grep { defined } map { IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $_, Listen => 5) } 0, 2181;
my $thief = '127.0.0.1:' . $listeners[0]->sockport;

# A session whose options are set when it connects.
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
my %wish = (connect_string => $thief, root => '/elsewhere', session_timeout => '1h', node_names => 'kazoo',
	commit_check => 'off', deadlock_detection => 'off', max_locks => 100000, acl => 'creator', auth_file => '/dev/null',
	tls_ca_file => '/dev/null', log_min_messages => 'error');
for my $name (sort keys %wish)
{
	my $s = session_with("-c zklock.$name=$wish{$name}");
	lock_is_refused($s, "zklock.$name", "an ordinary role cannot set zklock.$name when it connects");
	lock_is_refused($s, "zklock.$name", 'and each further call fails likewise') if $name =~ /^(?:root|acl)$/;
	$s->quit;
}
my $s = session_with('-c ZkLock.Root=/elsewhere');
lock_is_refused($s, 'zklock.root', 'in whatever letters');
works($s, 'RESET ALL; SELECT 1', '1', 'RESET brings back what the connection asked for');
lock_is_refused($s, 'zklock.root', 'which is refused as before');
$s->quit;
$s = session_with('-c zklock.on_revoke=cancel -c zklock.connect_timeout=7s');
is_configured($s, 'what everybody may set can be set when connecting');
works($s, "SELECT current_setting('zklock.on_revoke'), current_setting('zklock.connect_timeout')", 'cancel|7s', 'and counts');
$s->quit;

# SET, in all its forms.
$s = session($node, user => 'ordinary');
$s->query_ok("SET zklock.root = '/elsewhere'");
lock_is_refused($s, 'zklock.root', 'nor with SET');
$s->query_ok('RESET zklock.root');
is_configured($s, 'once that is taken back, what was configured counts');
$s->quit;
for my $set ("SET LOCAL zklock.root = '/elsewhere'", "SET LOCAL zklock.root = '/elsewhere'; SAVEPOINT p; SET zklock.root = '/else'",
	"SET zklock.root = '/elsewhere'; SET LOCAL zklock.root = '/configured'",
	"SELECT set_config('zklock.root', '/elsewhere', true)")
{
	$s = session($node, user => 'ordinary');
	$s->query_ok("BEGIN; $set");
	lock_is_refused($s, 'zklock.root', "nor with: $set");
	$s->query_ok('ROLLBACK');
	is_configured($s, 'and it ends with the transaction');
	$s->quit;
}
$s = session($node, user => 'ordinary', dbname => 'owned');
fails_with($s, $_, '42501', "the owner of a database cannot keep such a setting: $_", hint => 0)
  for "ALTER ROLE ordinary SET zklock.root = '/elsewhere'", "ALTER DATABASE owned SET zklock.root = '/elsewhere'",
  "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET zklock.root = '/elsewhere' AS 'SELECT 1'";
$s->quit;

# What a superuser has set for a role, or hands out.
$s = session_with('-c zklock.max_locks=1000', user => 'limited');
lock_is_refused($s, 'zklock.max_locks', 'the limit of a role is not its own to raise');
$s->quit;
$s = session($node, user => 'limited');
fails_with($s, "SELECT zk_lock(ARRAY['a', 'b', 'c'])", '53400', 'it counts');
$s->quit;
$node->safe_psql('postgres', 'GRANT SET ON PARAMETER zklock.root TO trusted') if $node->pg_version >= 15;
SKIP:
{
	skip 'no privileges on settings before PostgreSQL 15', 2 if $node->pg_version < 15;
	$s = session_with('-c zklock.root=/granted', user => 'trusted');
	works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.root')", 't|/granted', 'who was granted a setting can set it');
	$s->quit;
	$s = session_with("-c zklock.root=/granted -c zklock.connect_string=$thief", user => 'trusted');
	lock_is_refused($s, 'zklock.connect_string', 'and no other');
	$s->quit;
}
{
	local $ENV{PGOPTIONS} = '-c zklock.root=/super -c zklock.max_locks=7';
	$s = session($node);
	works($s, "SELECT zk_lock('x') > 0, current_setting('zklock.root'), current_setting('zklock.max_locks')", 't|/super|7',
		'a superuser sets what he likes');
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
is_configured($s, 'and what is configured counts');
$s->quit;
is_deeply([ grep { m{^/(?:elsewhere|else|zklock)} } $zkc->children('/') ], [], 'nothing was made elsewhere');

# Nothing is contacted that nobody has configured.
my $bare = zklock_node('bare', zk => $zk, extra_conf => "zklock.auth_file = '$secret_file'\n");
$bare->adjust_conf('postgresql.conf', 'zklock.connect_string', undef);
$bare->reload;
$s = session($bare);
for my $sql ("SELECT zk_lock('x')", "SELECT zk_try_xact_lock(ARRAY['x', 'y'])", "SELECT zk_acquire('x', 1)",
	'SELECT count(*) FROM zk_locks', "SELECT zk_revoke('x')")
{
	fails_with($s, $sql, 'F0000', "without an ensemble: $sql", like => qr/^HINT: .*zklock\.connect_string/m);
}
works($s, 'SELECT state, (SELECT count(*) FROM zk_held_locks), zk_unlock_all() FROM zk_session()', 'closed|0|',
	'what needs no ensemble works');
$s->query_ok("SET zklock.connect_string = '" . $zk->connect_string . "'");
works($s, "SELECT zk_lock('x') > 0", 't', 'and with one all else');
$s->quit;

is_deeply([ IO::Select->new(@listeners)->can_read(0) ], [], 'no session was opened at the place of an attacker');
nothing_left($zkc, 'nothing is left', root => $_) for '/zklock', '/configured';
$zkc->close;
$_->stop for $node, $bare;
done_testing();
