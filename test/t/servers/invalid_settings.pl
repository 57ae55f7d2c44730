# An invalid value of a setting is refused where it is written, and a server does not start with
# one. One that was stored for a database before the server had the library is reported with a
# warning, as PostgreSQL does for its own settings.
#
# Tags: edges

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $node = zklock_node('a', zk => $zk, extra_conf => "zklock.root = '/configured'\n");
$node->safe_psql('postgres', 'CREATE DATABASE inv');
$node->safe_psql('inv', 'CREATE EXTENSION zklock');

# Every kind of setting, in every place that a statement writes.
my %invalid = (connect_string => 'zk1,zk2', root => 'app', session_timeout => '50ms', ensemble_timeout => 'soon', acl => 'creater',
	node_names => 'curators', commit_check => 'allways', stale_snapshot => 'errors', max_locks => '100001',
	deadlock_detection => 'maybe', client_log_level => 'loud');
my $s = session($node);
for my $name (sort keys %invalid)
{
	fails_with($s, "$_ SET zklock.$name = '$invalid{$name}'", '22023', "refused: $_ SET zklock.$name = '$invalid{$name}'", hint => 0)
	  for 'ALTER DATABASE inv', 'ALTER ROLE ALL', 'ALTER SYSTEM';
}
fails_with($s, "ALTER DATABASE inv SET zklock.rot = '/x'", '42602', 'an unknown setting is refused', hint => 0);

# A configuration file. A running server keeps the former value, and reports it in the log.
my $offset = -s $node->logfile;
$node->append_conf('postgresql.conf', "zklock.root = 'app'\n");
$node->reload;
wait_for_log($node, qr/invalid value for parameter "zklock\.root": "app"/, $offset);
works($s, "SELECT zk_lock('kept') > 0, current_setting('zklock.root')", 't|/configured', 'a session keeps the former value');
works(session($node), "SELECT current_setting('zklock.root')", '/configured', 'a new session keeps the former value');
$s->quit;
$node->stop;
ok(!$node->start(fail_ok => 1), 'a server does not start with an invalid value');
like(slurp_file($node->logfile), qr/FATAL:  invalid value for parameter "zklock\.root": "app"\n.*DETAIL:/, 'the server log has the reason why the server does not start');
$node->adjust_conf('postgresql.conf', 'zklock.root', undef);
for my $name (sort keys %invalid)
{
	$node->append_conf('postgresql.conf', "zklock.$name = '$invalid{$name}'\n");
	ok(!$node->start(fail_ok => 1), "a server does not start with zklock.$name = '$invalid{$name}'");
	$node->adjust_conf('postgresql.conf', "zklock.$name", undef);
}
$node->append_conf('postgresql.conf', 'zklock.connect_string = ' . q(') . $zk->connect_string . "'\n");
$node->append_conf('postgresql.conf', "zklock.root = '/corrected'\n");

# Without the library PostgreSQL cannot check a value.
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q(''));
$node->start;
$node->safe_psql('postgres', "ALTER DATABASE inv SET zklock.root = 'app'");
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q('zklock'));
$node->restart;
my ($rc, $out, $err) = $node->psql('inv', "SELECT zk_lock('x') > 0, current_setting('zklock.root')");
is($out, 't|/corrected', 'a value stored before that is replaced by that of the file');
like($err, qr/^WARNING:  invalid value for parameter "zklock\.root": "app"/m, 'the replaced value causes a warning');

is_deeply([ grep { $_ eq 'zklock' } map { s{^/}{}r } $zkc->children('/') ], [], 'no znode was created below the built-in root');
nothing_left($zkc, "no node is left below $_", root => $_) for '/configured', '/corrected';
