# With TLS: no thread runs in a handshake while exit() cleans up OpenSSL, and a connection
# whose descriptor select() cannot take is refused, and crashes nothing. What a crash leaves is
# closed over TLS.

use PostgreSQL::Test::Utils;
use ZkLock::Shim;
use ZkLock::Test;
use ZkLock::Tls;

require_tls();

# In seconds: closing a session takes at most two; the rest is for a busy machine.
use constant LIMIT => 10;

# Of select(): FD_SETSIZE.
use constant DESCRIPTORS => 1024;

my $tls = ZkLock::Tls->new;
my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200, tls => $tls)->with_client;
my $proxy = ZkLock::Proxy->start(target => $zk->secure_connect_string);
my $shim = ZkLock::Shim->build;
local @ENV{ $shim->names } = $shim->values;
my $settings = $tls->settings;
my $node = zklock_node('a', zk => $proxy->connect_string, session_timeout => '45s',
	extra_conf => join('', map { "$_ = '$settings->{$_}'\n" } keys %$settings)
	  . "max_files_per_process = 4000\nrestart_after_crash = on\n");
my $witness = session($node);
$witness->query_ok("SELECT zk_lock('witness')");

# A handshake with a silent server: the I/O thread is in OpenSSL, a substitute runs beside it.
sub wait_handshake
{
	my ($pid) = @_;
	wait_until('the handshake', sub { 3 == (() = glob "/proc/$pid/task/*") });
	return;
}

sub ends
{
	my ($what, $end, $pid) = @_;
	$end->();
	my $ended = eval { wait_until('the end', sub { !kill 0, $pid }, timeout => LIMIT); 1 };
	ok($ended, "$what: the process ends");
	ok(!$shim->seen('threads'), "$what: no thread runs in the cleanup of the process");
	$proxy->thaw;
	unlink "$shim->{dir}/threads";
	return;
}

$shim->break('exits');
{
	my $s = session($node);
	$proxy->freeze;
	$s->query_async("SET zklock.ensemble_timeout = '1h'; SELECT zk_lock('first')");
	wait_handshake($s->pid);
	ends('a backend is terminated in its first handshake', sub { $s->terminate }, $s->pid);
}
for my $how ('terminate', 'quit')
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('held')");
	$proxy->freeze;
	$proxy->cut;
	wait_handshake($s->pid);
	ends("$how in a handshake of a session with a lock", sub { $s->$how }, $s->pid);
}
$shim->heal('exits');
works($witness, "SELECT zk_lock_token('witness') > 0", 't', 'another session keeps its lock');

# A backend that has many files open.
{
	my $log = -s $node->logfile;
	my $s = session($node);
	my $files = DESCRIPTORS;
	$s->query_ok("DO \$\$ BEGIN FOR i IN 1 .. $files LOOP EXECUTE 'CREATE TABLE t' || i || ' (v int)'; END LOOP; END \$\$");
	$s->query_ok("DO \$\$ BEGIN FOR i IN 1 .. $files LOOP EXECUTE 'SELECT FROM t' || i; END LOOP; END \$\$");
	my $open = () = glob '/proc/' . $s->pid . '/fd/*';
	cmp_ok($open, '>', DESCRIPTORS, 'a backend has too many files open for select()');
	$s->query_ok("SET zklock.ensemble_timeout = '2s'");
	fails_with($s, "SELECT zk_lock('many files')", '08001', 'its session is refused');
	like(slurp_file($node->logfile, $log),
		qr/ZooKeeper client: TLS needs a file descriptor below 1024, and the lowest free one is \d+/,
		'a log line says why the session is refused');
	$s->quit;
	works($witness, "SELECT zk_try_lock('many files')", 't', 'other sessions lock');
}

unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'no backend has crashed');

# After a crash the sessions are closed over TLS, too.
{
	my $log = -s $node->logfile;
	$witness->kill9;
	wait_for_log($node, qr/closed 1 ZooKeeper sessions of processes that have crashed/, $log);
	nothing_left($zkc, 'the locks of a backend that was killed are free');
	$witness->drop;
}
