# The Java and the Python program of doc/interop.md wait for SQL, and continue when it
# releases, with the setting of zklock.node_names that the document asks for.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(nothing_left works);
use ZkLock::Cluster;
use ZkLock::Document;
use ZkLock::Opponent;
use ZkLock::Util qw(alive read_file spawn write_file);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node = zklock_node('a', zk => $zk, session_timeout => '10s');
my $dir = PostgreSQL::Test::Utils::tempdir();

sub program
{
	my ($file) = @_;
	write_file("$dir/$file", block_of('doc/interop.md', $file));
	return "$dir/$file";
}

my @programs = (
	[ 'Java', 'curator', 'java', '-cp', ZkLock::Opponent->class_path,
		program('Invoices.java') ],
	[ 'Python', 'kazoo', '/usr/bin/python3', program('invoices.py') ]);
for (@programs)
{
	my ($what, $node_names, @command) = @$_;
	my $session = session($node);
	$session->query_ok("SET zklock.node_names = '$node_names'");
	$session->query_ok("SELECT zk_lock('invoices')");
	my $out = "$dir/$what.out";
	my $pid = spawn([ @command, $zk->connect_string ], log => $out);
	wait_zk_waiting($zkc, '/zklock/locks/invoices', 2,
		diag => sub { read_file($out) });
	ok(alive($pid) && read_file($out) !~ /alone/,
		"$what: the program waits for SQL");
	works($session, "SELECT zk_unlock('invoices')", 't', "$what: which releases");
	wait_until('the end of the program', sub { !alive($pid) });
	like(read_file($out), qr/^alone in the cluster$/m, "$what: then it goes on");
	works($session, "SELECT zk_try_lock('invoices', '30s')", 't',
		"$what: and releases");
	$session->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, "$what: nothing is left");
}

$zkc->close;
$_->stop for $node, $zk;
done_testing();
