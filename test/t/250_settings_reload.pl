# The settings of a ZooKeeper session are fixed for the life of a backend: after a reload new
# sessions use the new values, and the others stay where their locks are, whatever they hold and
# also when they open another ZooKeeper session. Malformed values are refused.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Util qw(wait_until write_file);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my @zk = map { ZkLock::ZkServer->start(tick_time => 500) } 0, 1;
my @zkc = map { ZkLock::ZkClient->new($_->connect_string) } @zk;
my @address = map { $_->connect_string } @zk;
my $node = zklock_node('a', zk => $zk[0], session_timeout => '10s');

# Changes a setting of the server; returns when each of the given sessions has read it.
sub change
{
	my ($setting, $value, @sessions) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET zklock.$setting = '$value'");
	$node->reload;
	for my $s (@sessions)
	{
		wait_until("$setting = $value", sub { $s->query("SHOW zklock.$setting") eq $value });
	}
	wait_for_sql($node, "SHOW zklock.$setting", $value);
	return;
}

sub has_node_in
{
	my ($zkc, $s, $lock, $root) = @_;
	my ($found) = queue_of($zkc, $lock, $root) or return 0;
	return $zkc->get($found)->{ephemeralOwner} eq zk_session_id($s);
}

# Each setting: sessions that hold nothing, a lock, or nothing yet in the ensemble.
my $file = PostgreSQL::Test::Utils::tempdir() . '/each';
write_file($file, "digest each:one\n");
chmod 0600, $file or die "$file: $!";
my %new = (connect_string => $address[1], root => '/elsewhere/deep', session_timeout => '8s', node_names => 'kazoo',
	max_locks => 7, acl => 'creator', auth_file => $file);
for my $setting ('root', 'connect_string', 'session_timeout', 'node_names', 'max_locks', 'auth_file', 'acl')
{
	my ($idle, $holding, $unused) = map { session($node) } 1 .. 3;
	my $before = $idle->query("SHOW zklock.$setting");
	$idle->query_ok("SELECT zk_lock('idle'), zk_unlock('idle')");
	$holding->query_ok("SELECT zk_lock('held')");
	my %id = map { $_ => zk_session_id($_) } $idle, $holding;
	change($setting, $new{$setting}, $idle, $holding, $unused);
	for my $s ($idle, $holding)
	{
		my $what = $s == $idle ? 'holds nothing' : 'holds a lock';
		works($s, "SELECT zk_try_lock('more' || pg_backend_pid())", 't', "$setting: a session that $what acquires its next lock");
		is(zk_session_id($s), $id{$s}, '... in the same ZooKeeper session');
		ok(has_node_in($zkc[0], $s, 'more' . $s->pid), '... in the same place');
		$s->query_ok('SELECT zk_unlock_all()');
		$zkc[0]->end_session(zk_session_id($s));
		works($s, "SELECT zk_try_lock('again' || pg_backend_pid())", 't', '... and again in another ZooKeeper session');
		ok(has_node_in($zkc[0], $s, 'again' . $s->pid), '... in the same place');
	}
	$_->quit for $idle, $holding, $unused;
	nothing_left($zkc[0], "$setting: no node is left");
	$node->safe_psql('postgres', "ALTER SYSTEM RESET zklock.$setting");
	$node->reload;
	wait_for_sql($node, "SHOW zklock.$setting", $before);
}

# A session that has not used the ensemble yet, and a new one.
{
	my $unused = session($node);
	$unused->query_ok("SELECT zk_lock_token('x'), zk_unlock_all()");
	change('connect_string', $address[1], $unused);
	my $new = session($node);
	$_->query_ok("SELECT zk_lock('moved' || pg_backend_pid())") for $unused, $new;
	ok(has_node_in($zkc[1], $_, 'moved' . $_->pid), 'a session that is new in the ensemble is in the new one') for $unused, $new;
	$_->quit for $unused, $new;
	nothing_left($zkc[1], 'no node is left');
}

# A waiter does not move.
{
	my $waiter = session($node);
	my $gate = foreign_node($zkc[1], '/zklock/locks/gate', 'WRIT');
	$waiter->query_async("SELECT zk_lock('gate')");
	wait_zk_children($zkc[1], '/zklock/locks/gate', 2);
	change('connect_string', $address[0]);
	ok(!$waiter->finished, 'a reload does not disturb a waiter');
	$zkc[1]->delete($gate);
	like($waiter->wait_result, qr/^\d+$/, 'the waiter is granted the lock');
	ok(has_node_in($zkc[1], $waiter, 'gate'), 'the lock is in the ensemble where the session waited');
	$waiter->quit;
	nothing_left($zkc[1], 'a waiter leaves no node');
}

# Without an ensemble nothing is fixed.
{
	change('connect_string', '');
	my $s = session($node);
	fails_with($s, q(SELECT zk_lock('x')), 'F0000', 'no ensemble is configured');
	change('connect_string', $address[0], $s);
	works($s, q(SELECT zk_lock('x') > 0), 't', '... until one is configured');
	$s->quit;
}

# Malformed values. ZooKeeper refuses the last five, also in a chroot.
{
	my $s = session($node);
	fails_with($s, "ALTER SYSTEM SET zklock.connect_string = 'no port'", '22023', 'a malformed setting is refused');
	for my $root ('', '/', 'zklock', '/zklock/', '/a//b', '/a/../b',
		"/\xc2\x85", "/\xee\x80\x80", "/\xf0\x9f\x98\x80", "/\xef\xbf\xb0", "/\xef\xbf\xbf")
	{
		fails_with($s, "ALTER SYSTEM SET zklock.root = '$root'", '22023', "the root '$root' is refused", hint => 0);
	}
	for my $chroot ('/a//b', '/a/../b', "/\xc2\x85", "/\xee\x80\x80", "/\xef\xbf\xb0")
	{
		fails_with($s, "ALTER SYSTEM SET zklock.connect_string = '127.0.0.1:1$chroot'", '22023',
			"the chroot '$chroot' is refused", hint => 0);
	}
	$s->quit;
}

# Credentials: a file is read whenever a ZooKeeper session is opened.
{
	my $creator = sub {
		my ($found) = queue_of($zkc[0], $_[0], '/credentials');
		my ($id) = map { $_->[2] } grep { $_->[1] eq 'digest' } $zkc[0]->get_acls($found);
		return $id =~ s/:.*//r;
	};
	my $s = session($node)->reconnect('zklock.root' => '/credentials', 'zklock.acl' => 'creator', 'zklock.auth_file' => $file);
	$s->query_ok("SELECT zk_lock('c.first')");
	is($creator->('c.first'), 'each', 'a node has the credentials in the file');
	$s->query_ok('SELECT zk_unlock_all()');
	write_file($file, "digest second:two\n");
	$s->query_ok("SELECT zk_lock('c.same')");
	is($creator->('c.same'), 'each', 'a ZooKeeper session keeps its credentials');
	$s->query_ok('SELECT zk_unlock_all()');
	$zkc[0]->end_session(zk_session_id($s));
	fails_with($s, "SELECT zk_lock('c.second')", '42501', 'the next one has those in the file');
	$s->quit;
	nothing_left($zkc[0], 'other credentials leave no node', root => '/credentials');
}

$_->close for @zkc;
$_->stop for $node, @zk;
done_testing();
