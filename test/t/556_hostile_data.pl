# What others call their locks and write into their nodes stays below the root, and
# reaches neither a terminal nor the server log as anything but plain text.

use strict;
use warnings;
use utf8;

use Encode qw(encode);
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node = zklock_node('a', zk => $zk, session_timeout => '20s',
	extra_conf => "log_lock_waits = on\ndeadlock_timeout = '50ms'\n");
my $other = zklock_node('b', zk => $zk, session_timeout => '20s');
my $dba = session($node);

# Names that would like to be somewhere else.
my @names = ('.', '..', '../..', '../x', '/', '//', '/x', 'x/', 'x/../y', '/zookeeper', 'zookeeper', 'quota',
	'/zookeeper/config', 'locks', 'semaphores', 'waits', '%2e%2e', '%2F', '%', '%00', "\n", "\r\nx", "\e[2J", "\t", "\x7f",
	"\x{85}", "\x{2028}", "x\nLOG:  forged", '#', '#1', '*', '~', "'; DROP TABLE x; --", '$(touch x)', '`touch x`', '%s%n%x');
my $s = session($node, application_name => 'namer');
$s->query_ok('CREATE TEMP TABLE names (name text)');
$s->query_ok('INSERT INTO names VALUES ' . join ', ', map { "(E'" . (encode('UTF-8', $_) =~ s/([\\'])/$1$1/gr =~ s/([^ -~])/sprintf '\\x%02x', ord $1/ger) . "')" } @names);
works($s, 'SELECT count(DISTINCT zk_lock(name)) FROM names', scalar(@names), 'any name can be locked');
works($s, 'SELECT count(zk_acquire(name, 2)) FROM names', scalar(@names), 'and be a semaphore');
works($dba, "SELECT count(DISTINCT (kind, name)) FROM zk_locks WHERE application_name = 'namer'",
	2 * @names, 'each is one of its own');
is_deeply([ sort $zkc->children('/') ], [qw(zklock zookeeper)], 'nothing is made beside the root');
is_deeply([ sort grep { !/^waits$/ } $zkc->children('/zklock') ], [qw(locks semaphores)], 'or right below it');
is(scalar($zkc->children('/zklock/locks')), scalar(@names), 'a name is one component of a path, for locks');
is(scalar($zkc->children('/zklock/semaphores')), scalar(@names), 'and for semaphores');
is((join '', $zkc->children('/zklock/locks'), $zkc->children('/zklock/semaphores')) =~ s{[A-Za-z0-9_.:@~+=%-]}{}gr, '',
	'of harmless characters only');
my @quota = grep { !m{^/zookeeper(?:/(?:config|quota))?$} } $zkc->tree('/zookeeper');
is_deeply(\@quota, [], "and ZooKeeper's own nodes are left alone");
fails_with($s, "SELECT zk_lock(E'a\\x00b')", '22021', 'a zero byte is no character', hint => 0);
$s->quit;
nothing_left($zkc, 'odd names leave nothing behind');

# What another program tells about itself, where a DBA looks.
my $hostile = "worker\nLOG:  forged\r\x1b[2J\x07\x7f" . encode('UTF-8', "\x{9b}2J é\x{ad}") . "\0end";
my $guid = '_c_0a1b2c3d-1111-2222-3333-444455556666';
my $log = -s $node->logfile;
my $held = $zkc->create("/zklock/locks/hostile/$guid-__WRIT__", data => $hostile, ephemeral => 1, sequence => 1,
	makepath => 1);
my $waiter = session($node);
$waiter->query_async("SELECT zk_lock('hostile')");
wait_for_log($node, qr/still waiting for zk lock "hostile".*\n.*In the way: /, $log);
my ($line) = slurp_file($node->logfile, $log) =~ /^(.*In the way: .*(?:\n\t.*)*)\n/m;
like($line, qr/worker\?LOG:  forged\?\?\[2J/, 'the log line of a long wait tells what the holder says of itself');
unlike($line, qr/[^ -~\t]/, 'in one line, of printable characters');
is($dba->query(q(SELECT application_name FROM zk_locks WHERE name = 'hostile' AND granted)),
	'worker?LOG:  forged??[2J????2J ' . encode('UTF-8', "é\x{ad}") . '?end',
	'zk_locks shows it without control characters, and all else as it is');
works($dba, q(SELECT count(*) FROM zk_locks WHERE concat(server, datname, usename, application_name, client, znode) ~ '[[:cntrl:]]'),
	'0', 'and so all its columns but the name of the lock');
$zkc->delete($held);
$waiter->wait_result;
$waiter->quit;

# What a PostgreSQL server tells about its users.
$other->safe_psql('postgres', qq(CREATE ROLE "evil\n\x1b[31mrole" LOGIN; CREATE DATABASE "db\n\x1b[31m"));
$other->safe_psql("db\n\x1b[31m", 'CREATE EXTENSION zklock');
{
	local $ENV{PGUSER} = "evil\n\x1b[31mrole";
	my $evil = session($other, dbname => "db\n\x1b[31m", application_name => 'plain');
	$evil->query_ok("SELECT zk_lock('by evil')");
	is($dba->query(q(SELECT usename, datname, client FROM zk_locks WHERE name = 'by evil')),
		'evil??[31mrole|db??[31m|zklock', 'names of roles and databases are shown in the same way');
	$evil->quit;
}

unlike(slurp_file($_->logfile), qr/PANIC|terminated by signal|^LOG:  forged/m, 'no backend has crashed, no line is forged')
  for $node, $other;
$dba->quit;
nothing_left($zkc, 'nothing is left');
$zkc->close;
$_->stop for $node, $other;
done_testing();
