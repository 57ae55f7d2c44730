# The programs of doc/interop.md, complete ones in doc/examples and fragments, wait for a SQL
# session and continue when it releases, with the zklock.node_names of the document, and also
# with credentials. The complete programs end when their connection breaks.

use PostgreSQL::Test::Utils;
use ZkLock::Document;
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk);
my $dir = PostgreSQL::Test::Utils::tempdir();
my @java = ('java', '-cp', ZkLock::Opponent->class_path);
my @python = ('/usr/bin/python3');

# Writes a block of the document to a file, with code around it that makes it a program.
sub program
{
	my ($file, $before, $after) = @_;
	write_file("$dir/$file", join '', $before // '', block_of('doc/interop.md', $file), $after // '');
	return "$dir/$file";
}

sub java_frame
{
	my ($class) = @_;
	return (<<"BEFORE", <<'AFTER');
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.curator.framework.*;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

public class $class {
    public static void main(String[] args) throws Exception {
        String hosts = args[0];
BEFORE
        try (zk) {
            zk.start();
            var lock = new InterProcessReadWriteLock(zk, "/closed/locks/orders%2Fnorth").writeLock();
            lock.acquire();
            System.out.println("alone in the cluster");
            lock.release();
        }
    }
}
AFTER
}

sub python_lock
{
	my ($lock) = @_;
	return <<"AFTER";

zk.start()
with $lock:
    print("alone in the cluster")
zk.stop()
AFTER
}

sub check_program
{
	my ($what, $settings, $root, @command) = @_;
	my $session = session($node);
	$session->reconnect(map { /^(\w+) = '?([^']*)/ ? ("zklock.$1" => $2) : () } @$settings);
	$session->query_ok("SELECT zk_lock('orders/north')");
	my $out = "$dir/$what.out";
	my $pid = spawn([ @command, $zk->connect_string, 0 ], log => $out);
	wait_until("$what: the wait of the program",
		sub { alive($pid) && $zkc->children("$root/locks/orders%2Fnorth") == 2 },
		diag => sub { read_file($out) });
	unlike(read_file($out), qr/alone/, "$what: the program waits for the SQL session");
	works($session, "SELECT zk_unlock('orders/north')", 't', "$what: the SQL session releases");
	wait_until('the end of the program', sub { !alive($pid) });
	like(read_file($out), qr/^alone in the cluster$/m, "$what: the program continues after the release");
	works($session, "SELECT zk_try_lock('orders/north', '30s')", 't',
		"$what: the program releases the lock");
	$session->query_ok('SELECT zk_unlock_all()');
	$session->quit;
	nothing_left($zkc, "$what: no node is left", root => $root);
	return;
}

my @orders = ([ @java, 'doc/examples/Orders.java' ], [ @python, 'doc/examples/orders.py' ]);
check_program('Orders.java', [ "node_names = 'curator'" ], '/zklock', @{ $orders[0] });
check_program('orders.py', [ "node_names = 'kazoo'" ], '/zklock', @{ $orders[1] });

my $client = "import sys\nfrom kazoo.client import KazooClient\nhosts = sys.argv[1]\n";
check_program('curator_mutex.py', [ "node_names = 'curator_mutex'" ], '/zklock', @python,
	program('curator_mutex.py', "${client}zk = KazooClient(hosts)\n",
		python_lock('CuratorMutex(zk, "/zklock/locks/orders%2Fnorth")')));

my $auth_file = credentials_file('locks:secret');
my @closed = ("auth_file = '$auth_file'", "acl = 'creator'", "root = '/closed'");
check_program('credentials.java', [ @closed, "node_names = 'curator'" ], '/closed', @java,
	program('credentials.java', java_frame('Credentials')));
check_program('credentials.py', [ @closed, "node_names = 'kazoo'" ], '/closed', @python,
	program('credentials.py', $client, python_lock('zk.Lock("/closed/locks/orders%2Fnorth")')));

# The two programs do not recognize each other's nodes, so both hold the lock.
{
	my @running = map { { log => "$dir/lost.$_", pid => spawn([ @{ $orders[$_] }, $zk->connect_string, 600_000 ], log => "$dir/lost.$_") } } 0, 1;
	for my $program (@running)
	{
		wait_until('the program to acquire the lock', sub { -e $program->{log} && read_file($program->{log}) =~ /alone/ },
			diag => sub { read_file($program->{log}) });
	}
	$zk->kill9;
	for my $program (@running)
	{
		wait_until('the end of the program', sub { !alive($program->{pid}) }, diag => sub { read_file($program->{log}) });
		like(read_file($program->{log}), qr/^stopped: SUSPENDED$/m, 'a program ends when its connection breaks');
	}
	$zk->restart;
}
