# Hostile lock names and node data stay below the root, and reach terminals and the server
# log only as plain text.
#
# Promises: 10.1, 10.2

use ZkLock::Test;

use utf8;

use Encode qw(encode);
use PostgreSQL::Test::Utils;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk,
	set => { log_lock_waits => 'on', deadlock_timeout => '50ms' });
my $other = shared_node('b', zk => $zk);
my $dba = session($node);

# Names that look like paths, commands or log lines.
my @names = ('.', '..', '../..', '../x', '/', '//', '/x', 'x/', 'x/../y', '/zookeeper', 'zookeeper', 'quota',
	'/zookeeper/config', 'locks', 'semaphores', 'waits', '%2e%2e', '%2F', '%', '%00', "\n", "\r\nx", "\e[2J", "\t", "\x7f",
	"\x{85}", "\x{2028}", "\x{202e}txt", "x\x{200b}", "\x{feff}x", "\x{e0041}x", "x\x{ad}y", "x\x{115f}", "\x{3164}x", "x\x{fe0f}", "x\x{1d173}", "x\x{e0100}", "x\nLOG:  forged", '#', '#1', '*', '~', "'; DROP TABLE x; --", '$(touch x)', '`touch x`', '%s%n%x');
my $s = session($node, application_name => 'namer');
$s->query_ok('CREATE TEMP TABLE names (name text)');
$s->query_ok('INSERT INTO names VALUES ' . join ', ', map { "(E'" . (encode('UTF-8', $_) =~ s/([\\'])/$1$1/gr =~ s/([^ -~])/sprintf '\\x%02x', ord $1/ger) . "')" } @names);
works($s, 'SELECT count(DISTINCT zk_lock(name)) FROM names', scalar(@names), 'any name can be locked');
works($s, 'SELECT count(zk_acquire_permit(name, 2)) FROM names', scalar(@names), 'any name can be a semaphore');
works($dba, "SELECT count(DISTINCT (kind, name)) FROM zk_locks WHERE application_name = 'namer'",
	2 * @names, 'each name is a separate lock and semaphore');
# Characters that control a terminal, or make a text look like another one.
my $hidden = '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f]'
  . '|[\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\U0001bca0-\U0001bca3]|[\U0001d173-\U0001d17a]|[\U000e0000-\U000e0fff]';
my $all_columns = 'concat(kind, name, mode, server, datname, usename, application_name, client, session_id, znode)';
works($dba, "SELECT count(*) FILTER (WHERE $all_columns ~ '$hidden') FROM zk_locks WHERE application_name = 'namer'",
	'0', 'zk_locks shows no character that controls or hides text');
works($dba, q(SELECT name FROM zk_locks WHERE kind = 'lock' AND znode ~ '/x?%E2%80%(A8|AE|8B)(txt)?/' ORDER BY name COLLATE "C"),
	"%E2%80%A8\n%E2%80%AEtxt\nx%E2%80%8B", 'a name with such characters is shown as in its znode');
is_deeply([ sort $zkc->children('/') ], [qw(zklock zookeeper)], 'no znode is created outside the root');
is_deeply([ sort grep { !/^waits$/ } $zkc->children('/zklock') ], [qw(locks semaphores)], 'no other znode is created directly below the root');
is(scalar($zkc->children('/zklock/locks')), scalar(@names), 'the name of a lock is one path component');
is(scalar($zkc->children('/zklock/semaphores')), scalar(@names), 'the name of a semaphore is one path component');
is((join '', $zkc->children('/zklock/locks'), $zkc->children('/zklock/semaphores')) =~ s{[A-Za-z0-9_.:@~+=%-]}{}gr, '',
	'path components have only harmless characters');
my @quota = grep { !m{^/zookeeper(?:/(?:config|quota))?$} } $zkc->tree('/zookeeper');
is_deeply(\@quota, [], "ZooKeeper's own nodes are unchanged");
fails_with($s, "SELECT zk_lock(E'a\\x00b')", '22021', 'a zero byte is refused', hint => 0);
$s->quit;
nothing_left($zkc, 'hostile names leave no node');

# Data of another program, in the log and in zk_locks.
my $hostile = "worker\nLOG:  forged\r\x1b[2J\x07\x7f" . encode('UTF-8', "\x{9b}2J é\x{ad}") . "\0end";
my $guid = '_c_0a1b2c3d-1111-2222-3333-444455556666';
my $log = -s $node->logfile;
my $held = $zkc->create("/zklock/locks/hostile/$guid-__WRIT__", data => $hostile, ephemeral => 1, sequence => 1,
	makepath => 1);
my $waiter = session($node);
$waiter->query_async("SELECT zk_lock('hostile')");
wait_for_log($node, qr/still waiting for zk lock "hostile".*\n.*Blocked by: /, $log);
my ($line) = slurp_file($node->logfile, $log) =~ /^(.*Blocked by: .*(?:\n\t.*)*)\n/m;
like($line, qr/worker\?LOG:  forged\?\?\[2J/, 'the log line of a long wait shows the data of the holder');
unlike($line, qr/[^ -~\t]/, 'the log line has only printable characters');
is($dba->query(q(SELECT application_name FROM zk_locks WHERE name = 'hostile' AND granted)),
	'worker?LOG:  forged??[2J????2J ' . encode('UTF-8', 'é') . '???end',
	'zk_locks shows the data without control characters and with all others');
works($dba, "SELECT count(*) FROM zk_locks WHERE $all_columns ~ '$hidden'", '0', 'no column of zk_locks has control characters');
$zkc->delete($held);
$waiter->wait_result;
$waiter->quit;

# Every such character in every column.
my @hostile = map { chr } 0x01 .. 0x1f, 0x7f .. 0x9f, 0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b .. 0x180f, 0x200b .. 0x200f,
  0x2028 .. 0x202e, 0x2060 .. 0x206f, 0x3164, 0xfe00 .. 0xfe0f, 0xfeff, 0xffa0, 0xfff0 .. 0xfffb, 0x1bca0 .. 0x1bca3,
  0x1d173 .. 0x1d17a, 0xe0000, 0xe0001, 0xe0020 .. 0xe007f, 0xe0100, 0xe0fff;
my $corpus = join 'x', @hostile;
(my $encoded = encode('UTF-8', $corpus)) =~ s/(.)/sprintf '%%%02X', ord $1/ges;
my @places = qw(server datname usename application_name);
my @forged = $zkc->create("/zklock/locks/every/$guid-__WRIT__", data => encode('UTF-8', $corpus), ephemeral => 1, sequence => 1,
	makepath => 1);
my $victim = session($other);
$victim->query_ok("SELECT zk_lock('every $_')") for @places;
$zkc->set((queue_of($zkc, "every%20$_"))[0], "zklock $_=$encoded pid=1") for @places;
works($dba, q(SELECT client, count(*), count(*) FILTER (WHERE concat(server, datname, usename, application_name) ~ '[?x]{100,}$')
	FROM zk_locks WHERE name ~ '^every' GROUP BY client ORDER BY client), "curator|1|1\nzklock|4|4", 'data with all such characters are shown');
works($dba, "SELECT count(*) FILTER (WHERE $all_columns ~ '$hidden') FROM zk_locks WHERE name ~ '^every'", '0', 'the shown data have no such characters');
$zkc->delete($_) for @forged;
$victim->quit;

# Forged capacities of semaphores, and data of permits.
my %capacity = (
	none => '', negative => '-1', signed => '+3', spaced => ' 3', exponent => '1e3', zeros => "3\0", text => 'x' x 900_000,
	beyond => '2147483648', far => '9' x 1000, zero => '0', many => '10001', most => '999999999');
for my $what (sort keys %capacity)
{
	$zkc->create("/zklock/semaphores/forged-$what", data => $capacity{$what}, makepath => 1);
	my $number = { zero => 0, many => 10001, most => 999999999 }->{$what};
	if (defined $number)
	{
		fails_with($dba, "SELECT zk_try_acquire_permit('forged-$what', 3)", '22023', "a forged capacity of $number is refused as a different one",
			like => qr/"forged-$what" has $number permits, not 3$/m);
		next;
	}
	works($dba, "SELECT zk_try_acquire_permit('forged-$what', 3), zk_release_permit('forged-$what')", 't|t',
		"a forged capacity ($what) that is no number is ignored");
}
$zkc->create("/zklock/semaphores/large/leases/$_", data => 'x' x 900_000, ephemeral => 1, makepath => 1) for 1 .. 3;
works($dba, "SELECT zk_try_acquire_permit('large', 4), zk_try_acquire_permit('large', 4)", 't|f', 'permits with large data count as permits');
works($dba, "SELECT count(*), count(server) FROM zk_locks WHERE name = 'large'", '4|1',
	'permits with large data are shown without their data');
$dba->query_ok('SELECT zk_unlock_all()');
$zkc->delete("/zklock/semaphores/large/leases/$_") for 1 .. 3;

# Wait reports with forged names, which a waiter lists in its search.
{
	my $blocker = session($other);
	$blocker->query_ok("SELECT zk_lock('reported')");
	my $waiting = session($node);
	$waiting->query_ok("SELECT zk_lock('held')");
	$waiting->query_async("SELECT zk_lock('reported')");
	my ($own) = wait_zk_children($zkc, '/zklock/waiting', 1);
	my @forged = ('x', '@', "x\@$own", "$own\@", "$own\@x", "$own\@$own", 'f' x 16, 'f' x 17, "0$own", '-1', '%00',
		"1\@$own\@1", "\x{202e}", 'z' x 2000);
	$zkc->create("/zklock/waiting/$_", data => "\e[2J\nLOG:  forged\t", ephemeral => 1) for @forged;
	my $version = $zkc->exists("/zklock/waiting/$own")->{version};
	$zkc->set("/zklock/bells/$own", "\e[2J");
	wait_until('the answer to a ring', sub { $zkc->exists("/zklock/waiting/$own")->{version} > $version });
	ok(!$waiting->finished, 'wait reports with forged names end no wait');
	$blocker->query_ok("SELECT zk_unlock('reported')");
	like($waiting->wait_result, qr/^\d+$/, 'the waiter beside forged reports gets the lock after its release');
	$_->quit for $blocker, $waiting;
	$zkc->delete("/zklock/waiting/$_") for @forged;
}

# A znode name that zklock never creates.
my $odd = $zkc->create("/zklock/locks/a\x{202e}b\x{2028}c/$guid-__WRIT__", data => 'x', ephemeral => 1, sequence => 1,
	makepath => 1);
works($dba, q(SELECT name FROM zk_locks WHERE application_name = 'x'), 'a???b???c', 'zk_locks replaces control characters in znode names of other programs');
$zkc->delete($odd);

# Names of locks in the report of a deadlock with another server.
{
	my @name = map { "U&'$_\\202E\\000ALOG:  forged'" } 1, 2;
	my ($one, $two) = (session($node), session($other));
	$_->query_ok("SET deadlock_timeout = '50ms'") for $one, $two;
	$log = -s $node->logfile;
	my $log_other = -s $other->logfile;
	$one->query_ok("SELECT zk_lock($name[0])");
	$two->query_ok("SELECT zk_lock($name[1])");
	$one->query_async("SELECT zk_lock($name[1])");
	$two->query_async("SELECT zk_lock($name[0])");
	wait_until('a deadlock', sub { $one->finished || $two->finished });
	my ($victim, $winner) = $one->finished ? ($one, $two) : ($two, $one);
	$victim->wait_result;
	is($victim->sqlstate, '40P01', 'a deadlock of two servers is detected');
	my ($detail) = $victim->error =~ /^(DETAIL: .*?)^HINT/ms;
	like($detail, qr/waits for exclusive lock "[12]\?{4}LOG:  forged"/, 'DETAIL shows the names of the locks');
	unlike($detail, qr/[^ -~\n]/, 'DETAIL has only printable characters');
	$victim->query_ok('SELECT zk_unlock_all()');
	$winner->wait_result;
	$_->quit for $one, $two;
}

# Hostile names of roles and databases.
$other->safe_psql('postgres', qq(CREATE ROLE "evil\n\x1b[31mrole" LOGIN; CREATE DATABASE "db\n\x1b[31m"));
$other->safe_psql("db\n\x1b[31m", 'CREATE EXTENSION zklock');
{
	local $ENV{PGUSER} = "evil\n\x1b[31mrole";
	my $evil = session($other, dbname => "db\n\x1b[31m", application_name => 'plain');
	$evil->query_ok("SELECT zk_lock('by evil')");
	is($dba->query(q(SELECT usename, datname, client FROM zk_locks WHERE name = 'by evil')),
		'evil??[31mrole|db??[31m|zklock', 'names of roles and databases are shown without control characters');
	$evil->quit;
}

# PostgreSQL indents continuation lines; foreign text adds no line of its own.
for my $server ($node, $other)
{
	my $text = slurp_file($server->logfile);
	unlike($text, qr/PANIC|terminated by signal/, 'no backend has crashed');
	my @lines = grep { !/^\t/ && !/^\d{4}-\d\d-\d\d / } split /\n/, $text;
	is_deeply([ grep { /LOG/ } @lines ], [], 'no line is forged');
}
$dba->quit;
nothing_left($zkc, 'no node is left');
