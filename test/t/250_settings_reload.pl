# A session moves to another ensemble or root when the settings change, but never while
# it holds a lock.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my @zk = map { ZkLock::ZkServer->start(tick_time => 500) } 0, 1;
my @zkc = map { ZkLock::ZkClient->new($_->connect_string) } @zk;
my @address = map { $_->connect_string } @zk;
my $node = zklock_node('a', zk => $zk[0], session_timeout => '10s');
my $other = zklock_node('b', zk => $zk[1], session_timeout => '10s');

# Changes a setting of the server; returns when each of the given sessions uses the new
# value.
sub change
{
	my ($setting, $value, @sessions) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET zklock.$setting = '$value'");
	$node->reload;
	for my $s (@sessions)
	{
		wait_until("$setting = $value",
			sub { $s->query("SHOW zklock.$setting") eq $value });
	}
	return;
}

sub has_node_in
{
	my ($zkc, $s, $lock, $root) = @_;
	my ($found) = queue_of($zkc, $lock, $root) or return 0;
	return $zkc->get($found)->{ephemeralOwner} eq zk_session_id($s);
}

# Another ensemble.
{
	my $without_lock = session($node);
	my $with_lock = session($node);
	my $in_transaction = session($node);
	$without_lock->query_ok("SELECT zk_lock('free'), zk_unlock('free')");
	$with_lock->query_ok("SELECT zk_lock('bound')");
	$in_transaction->query_ok('BEGIN');
	$in_transaction->query_ok("SELECT zk_xact_lock('busy')");
	my $server = 'SELECT server FROM zk_session()';

	change('connect_string', $address[1], $without_lock, $with_lock);
	works($without_lock, $server, $address[0],
		'a reload does not move a session');
	works($without_lock, "SELECT zk_lock('free') > 0", 't',
		'a session without locks acquires its next lock');
	works($without_lock, $server, $address[1], 'a session without locks moves to the new ensemble');
	ok(has_node_in($zkc[1], $without_lock, 'free'), 'its node is in the new ensemble');
	is(scalar(queue_of($zkc[0], 'free')), 0, 'no node is in the old ensemble');

	works($with_lock, "SELECT zk_lock('bound2') > 0", 't',
		'a session with a lock acquires its next lock');
	works($with_lock, $server, $address[0], 'a session with a lock stays in the old ensemble');
	ok(has_node_in($zkc[0], $with_lock, $_), "the node of its $_ is in the old ensemble") for 'bound', 'bound2';
	$with_lock->query_ok("SELECT zk_unlock('bound')");
	works($with_lock, "SELECT zk_lock('bound') > 0", 't',
		'a session that has released one of two locks acquires its next lock');
	works($with_lock, $server, $address[0], 'that session stays in the old ensemble');
	works($in_transaction, "SELECT zk_xact_lock('busy2') > 0", 't',
		'a transaction acquires another lock');
	works($in_transaction, 'SELECT count(*) FROM zk_held_locks WHERE state = \'held\'',
		'2', 'the transaction holds both locks');
	works($in_transaction, 'COMMIT', '', 'the transaction commits');
	$with_lock->query_ok('SELECT zk_unlock_all()');
	works($with_lock, "SELECT zk_lock('bound') > 0", 't',
		'the session acquires its next lock after zk_unlock_all()');
	works($with_lock, $server, $address[1], 'a session that holds nothing moves to the new ensemble');
	works($in_transaction, "SELECT zk_lock('busy') > 0", 't',
		'the session of the finished transaction acquires its next lock');
	works($in_transaction, $server, $address[1], 'that session moves to the new ensemble');

	my $foreign = session($other);
	works($foreign, "SELECT zk_try_lock('free'), zk_try_lock('bound')",
		'f|f', 'the locks exclude a server that uses the new ensemble');
	$_->quit for $without_lock, $with_lock, $in_transaction, $foreign;
	nothing_left($zkc[$_], "a move leaves no node (ensemble $_)")
	  for 0, 1;
}

# A waiter does not move.
{
	my $waiter = session($node);
	my $gate = foreign_node($zkc[1], '/zklock/locks/gate', 'WRIT');
	$waiter->query_async("SELECT zk_lock('gate')");
	wait_zk_children($zkc[1], '/zklock/locks/gate', 2);
	my $observer = session($node);
	change('connect_string', $address[0], $observer);
	ok(!$waiter->finished, 'a reload does not disturb a waiter');
	is(scalar(queue_of($zkc[1], 'gate')), 2, 'the waiter keeps its node');
	$zkc[1]->delete($gate);
	like($waiter->wait_result, qr/^\d+$/, 'the waiter is granted the lock');
	ok(has_node_in($zkc[1], $waiter, 'gate'), 'the lock is in the ensemble where the session waited');
	$waiter->query_ok("SELECT zk_unlock('gate')");
	works($waiter, "SELECT zk_lock('gate') > 0", 't', 'the session acquires its next lock');
	ok(has_node_in($zkc[0], $waiter, 'gate'), 'the next lock is in the other ensemble');
	$_->quit for $waiter, $observer;
	nothing_left($zkc[$_], "a waiter leaves no node (ensemble $_)")
	  for 0, 1;
}

# An unreachable ensemble: an error until the setting is valid again.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('lost')");
	$s->query_ok("SET zklock.connect_timeout = '300ms'");
	change('connect_string', '127.0.0.1:1', $s);
	works($s, "SELECT zk_lock('lost2') > 0", 't',
		'a session with a lock acquires another lock despite the bad setting');
	$s->query_ok('SELECT zk_unlock_all()');
	fails_with($s, "SELECT zk_lock('lost')", '08001',
		'a session without locks uses the bad setting');
	change('connect_string', $address[0], $s);
	$s->query_ok('RESET zklock.connect_timeout');
	works($s, "SELECT zk_lock('lost') > 0", 't', 'the session can lock when the setting is valid again');

	my ($answer, $error) =
	  $s->query("ALTER SYSTEM SET zklock.connect_string = 'no port'");
	is($s->sqlstate, '22023', 'a malformed setting is refused');
	like($error, qr/^HINT:  /m, 'the error has a hint');
	# ZooKeeper refuses the last five, also in a chroot.
	for my $root ('', '/', 'zklock', '/zklock/', '/a//b', '/a/../b',
		"/\xc2\x85", "/\xee\x80\x80", "/\xf0\x9f\x98\x80",
		"/\xef\xbf\xb0", "/\xef\xbf\xbf")
	{
		fails_with($s, "SET zklock.root = '$root'", '22023',
			"the root '$root' is refused", hint => 0);
	}
	for my $chroot ('/a//b', '/a/../b', "/\xc2\x85", "/\xee\x80\x80", "/\xef\xbf\xb0")
	{
		fails_with($s, "SET zklock.connect_string = '127.0.0.1:1$chroot'", '22023',
			"the chroot '$chroot' is refused", hint => 0);
	}
	$s->quit;
	nothing_left($zkc[0], 'bad settings leave no node');
}

# Another root.
{
	my $s = session($node);
	my $with_lock = session($node);
	$s->query_ok("SELECT zk_lock('root'), zk_unlock('root')");
	$with_lock->query_ok("SELECT zk_lock('bound')");
	change('root', '/elsewhere/deep', $s, $with_lock);
	$_->query_ok("SELECT zk_lock('root' || pg_backend_pid())") for $s, $with_lock;
	my ($name, $bound_name) = map { 'root' . $_->pid } $s, $with_lock;
	ok(has_node_in($zkc[0], $s, $name, '/elsewhere/deep'),
		'a session without locks acquires its next lock below the new root');
	ok(has_node_in($zkc[0], $with_lock, $bound_name, '/zklock'),
		'a session with a lock stays below the old root');
	$with_lock->query_ok('SELECT zk_unlock_all()');
	$with_lock->query_ok("SELECT zk_lock('$bound_name')");
	ok(has_node_in($zkc[0], $with_lock, $bound_name, '/elsewhere/deep'),
		'a session that holds nothing moves to the new root');
	$_->quit for $s, $with_lock;
	nothing_left($zkc[0], 'no node is left below the old root');
	nothing_left($zkc[0], 'no node is left below the new root', root => '/elsewhere/deep');
}

# Each setting of the ZooKeeper session.
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/each';
	open my $fh, '>', $file or die "$file: $!";
	print $fh "digest each:one\n";
	close $fh;
	chmod 0600, $file or die "$file: $!";
	my $s = session($node);
	my $lock = sub {
		$s->query_ok("SELECT zk_lock('each.$_[0]'), zk_unlock('each.$_[0]')");
		return zk_session_id($s);
	};
	my $id = $lock->('first');
	for ([ root => '/each' ], [ connect_string => "$address[0],$address[0]" ],
		[ session_timeout => '8s' ], [ node_names => 'kazoo' ],
		[ max_locks => 7 ], [ auth_file => $file ], [ acl => 'creator' ])
	{
		my ($name, $value) = @$_;
		$s->query_ok("SET zklock.$name = '$value'");
		isnt($lock->($name), $id, "a changed $name opens a new ZooKeeper session");
		$id = $lock->($name);
		$s->query_ok("SET zklock.$name = '$value'");
		is($lock->($name), $id, 'the same value keeps the ZooKeeper session');
	}
	$s->query_ok('RESET zklock.connect_timeout');
	is($lock->('acl'), $id, 'another kind of setting keeps the ZooKeeper session');
	$s->quit;
	nothing_left($zkc[0], 'nothing is left', root => '/each');
}

# Other credentials in the same file.
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/credentials';
	my $write = sub {
		open my $fh, '>', $file or die "$file: $!";
		print $fh "digest $_[0]\n";
		close $fh;
		chmod 0600, $file or die "$file: $!";
	};
	my $creator = sub {
		my ($found) = queue_of($zkc[0], $_[0], '/elsewhere/deep');
		my ($id) = map { $_->[2] } grep { $_->[1] eq 'digest' } $zkc[0]->get_acls($found);
		return $id =~ s/:.*//r;
	};
	$write->('first:one');
	change('acl', 'creator');
	change('auth_file', $file);
	my ($s, $with_lock) = (session($node), session($node));
	# Each lock has a name of its own: its znode belongs to the first creator.
	$s->query_ok("SELECT zk_lock('c.first')");
	$with_lock->query_ok("SELECT zk_lock('c.bound')");
	is($creator->('c.first'), 'first', 'a node has the credentials in the file');
	$s->query_ok('SELECT zk_unlock_all()');

	$write->('second:two');
	$s->query_ok("SELECT zk_lock('c.unread')");
	is($creator->('c.unread'), 'first', 'a changed file is not read before a reload');
	$s->query_ok('SELECT zk_unlock_all()');
	change('log_min_messages', 'error', $s, $with_lock);
	$s->query_ok("SELECT zk_lock('c.second')");
	$with_lock->query_ok("SELECT zk_lock('c.more')");
	is($creator->('c.second'), 'second', 'after a reload a session without locks reads the file again');
	is($creator->('c.more'), 'first', 'after a reload a session with a lock keeps its credentials');
	$_->query_ok('SELECT zk_unlock_all()') for $s, $with_lock;
	$with_lock->query_ok("SELECT zk_lock('c.last')");
	is($creator->('c.last'), 'second', 'that session reads the file when it holds nothing');

	chmod 0644, $file or die "$file: $!";
	change('log_min_messages', 'warning', $s, $with_lock);
	fails_with($s, "SELECT zk_lock('c.second')", 'F0000',
		'a session without locks gets the error about an invalid file');
	works($with_lock, "SELECT zk_lock('c.last') > 0", 't',
		'a session with a lock gets no error');
	$_->quit for $s, $with_lock;
	nothing_left($zkc[0], 'other credentials leave no node', root => '/elsewhere/deep');
}

$_->close for @zkc;
$_->stop for $node, $other, @zk;
done_testing();
