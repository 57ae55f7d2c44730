# A session moves to another ensemble or another root when the settings say so,
# but never while it holds something.

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

# For the whole server, as an administrator does it; returns when every session
# given has seen it.
sub change
{
	my ($setting, $value, @sessions) = @_;

	# PostgreSQL does not know the setting before the extension is loaded.
	$node->safe_psql('postgres',
		"LOAD 'zklock'; ALTER SYSTEM SET zklock.$setting = '$value'");
	$node->reload;
	for my $s (@sessions)
	{
		wait_until("$setting = $value",
			sub { $s->query("SHOW zklock.$setting") eq $value });
	}
	return;
}

sub owns
{
	my ($zkc, $s, $lock, $root) = @_;
	my ($found) = queue_of($zkc, $lock, $root) or return 0;
	return $zkc->get($found)->{ephemeralOwner} eq zk_session_id($s);
}

# Another ensemble.
{
	my $free = session($node);
	my $bound = session($node);
	my $busy = session($node);
	$free->query_ok("SELECT zk_lock('free'), zk_unlock('free')");
	$bound->query_ok("SELECT zk_lock('bound')");
	$busy->query_ok('BEGIN');
	$busy->query_ok("SELECT zk_xact_lock('busy')");
	my $server = 'SELECT server FROM zk_session()';

	change('connect_string', $address[1], $free, $bound);
	works($free, $server, $address[0],
		'a reload by itself does not touch a session');
	works($free, "SELECT zk_lock('free') > 0", 't',
		'a session without locks takes its next lock');
	works($free, $server, $address[1], 'in the new ensemble');
	ok(owns($zkc[1], $free, 'free'), 'where its node is');
	is(scalar(queue_of($zkc[0], 'free')), 0, 'and not in the old one');

	works($bound, "SELECT zk_lock('bound2') > 0", 't',
		'a session with a lock takes its next lock');
	works($bound, $server, $address[0], 'in the old ensemble');
	ok(owns($zkc[0], $bound, $_), "where its $_ is") for 'bound', 'bound2';
	$bound->query_ok("SELECT zk_unlock('bound')");
	works($bound, "SELECT zk_lock('bound') > 0", 't',
		'also when it has released one of two locks');
	works($bound, $server, $address[0], 'it stays there');
	works($busy, "SELECT zk_xact_lock('busy2') > 0", 't',
		'a transaction goes on taking locks');
	works($busy, 'SELECT count(*) FROM zk_held_locks WHERE state = \'held\'',
		'2', 'in the session that it began with');
	works($busy, 'COMMIT', '', 'and commits');
	$bound->query_ok('SELECT zk_unlock_all()');
	works($bound, "SELECT zk_lock('bound') > 0", 't',
		'when it holds nothing it takes its next lock');
	works($bound, $server, $address[1], 'in the new ensemble');
	works($busy, "SELECT zk_lock('busy') > 0", 't',
		'as does the session of the finished transaction');
	works($busy, $server, $address[1], 'there');

	my $foreign = session($other);
	works($foreign, "SELECT zk_try_lock('free'), zk_try_lock('bound')",
		'f|f', 'they meet the sessions of other servers there');
	$_->quit for $free, $bound, $busy, $foreign;
	nothing_left($zkc[$_], "a move leaves nothing behind (ensemble $_)")
	  for 0, 1;
}

# A waiter stays where it waits.
{
	my $holder = session($node);
	my $gate = foreign_node($zkc[1], '/zklock/locks/gate', 'WRIT');
	$holder->query_async("SELECT zk_lock('gate')");
	wait_zk_children($zkc[1], '/zklock/locks/gate', 2);
	my $looker = session($node);
	change('connect_string', $address[0], $looker);
	ok(!$holder->finished, 'a reload does not disturb a waiter');
	is(scalar(queue_of($zkc[1], 'gate')), 2, 'which keeps its place');
	$zkc[1]->delete($gate);
	like($holder->wait_result, qr/^\d+$/, 'and gets its lock');
	ok(owns($zkc[1], $holder, 'gate'), 'where it waited');
	$holder->query_ok("SELECT zk_unlock('gate')");
	works($holder, "SELECT zk_lock('gate') > 0", 't', 'the next lock');
	ok(owns($zkc[0], $holder, 'gate'), 'is elsewhere');
	$_->quit for $holder, $looker;
	nothing_left($zkc[$_], "a waiter leaves nothing behind (ensemble $_)")
	  for 0, 1;
}

# An ensemble that is not there: an error, until the setting is good again.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('lost')");
	$s->query_ok("SET zklock.connect_timeout = '300ms'");
	change('connect_string', '127.0.0.1:1', $s);
	works($s, "SELECT zk_lock('lost2') > 0", 't',
		'a session with a lock does not care for a bad setting');
	$s->query_ok('SELECT zk_unlock_all()');
	fails_with($s, "SELECT zk_lock('lost')", '08001',
		'one that holds nothing goes where the setting says');
	change('connect_string', $address[0], $s);
	$s->query_ok('RESET zklock.connect_timeout');
	works($s, "SELECT zk_lock('lost') > 0", 't', 'until it is good again');

	my ($answer, $error) =
	  $s->query("ALTER SYSTEM SET zklock.connect_string = 'no port'");
	is($s->sqlstate, '22023', 'a malformed setting is refused');
	like($error, qr/^HINT:  /m, 'with a hint');
	for my $root ('', '/', 'zklock', '/zklock/', '/a//b', '/a/../b')
	{
		fails_with($s, "SET zklock.root = '$root'", '22023',
			"the root '$root' is refused", hint => 0);
	}
	$s->quit;
	nothing_left($zkc[0], 'bad settings leave nothing behind');
}

# Another root.
{
	my $s = session($node);
	my $bound = session($node);
	$s->query_ok("SELECT zk_lock('root'), zk_unlock('root')");
	$bound->query_ok("SELECT zk_lock('bound')");
	change('root', '/elsewhere/deep', $s, $bound);
	$_->query_ok("SELECT zk_lock('root' || pg_backend_pid())") for $s, $bound;
	my ($name, $bound_name) = map { 'root' . $_->pid } $s, $bound;
	ok(owns($zkc[0], $s, $name, '/elsewhere/deep'),
		'a session without locks takes its next lock below the new root');
	ok(owns($zkc[0], $bound, $bound_name, '/zklock'),
		'one with a lock stays below the old root');
	$bound->query_ok('SELECT zk_unlock_all()');
	$bound->query_ok("SELECT zk_lock('$bound_name')");
	ok(owns($zkc[0], $bound, $bound_name, '/elsewhere/deep'),
		'until it holds nothing');
	$_->quit for $s, $bound;
	nothing_left($zkc[0], 'a new root leaves nothing behind in the old one');
	nothing_left($zkc[0], 'nor in itself', root => '/elsewhere/deep');
}

# Each of the settings that say where and how.
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
		isnt($lock->($name), $id, "another $name makes another session");
		$id = $lock->($name);
		$s->query_ok("SET zklock.$name = '$value'");
		is($lock->($name), $id, 'and the same once more does not');
	}
	$s->query_ok('RESET zklock.connect_timeout');
	is($lock->('acl'), $id, 'nor does a setting of another kind');
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
	my ($s, $bound) = (session($node), session($node));
	# Each lock has a name of its own: its znode belongs to who made it first.
	$s->query_ok("SELECT zk_lock('c.first')");
	$bound->query_ok("SELECT zk_lock('c.bound')");
	is($creator->('c.first'), 'first', 'a node belongs to the credentials in the file');
	$s->query_ok('SELECT zk_unlock_all()');

	$write->('second:two');
	$s->query_ok("SELECT zk_lock('c.unread')");
	is($creator->('c.unread'), 'first', 'a file that changes is read again');
	$s->query_ok('SELECT zk_unlock_all()');
	change('log_min_messages', 'error', $s, $bound);
	$s->query_ok("SELECT zk_lock('c.second')");
	$bound->query_ok("SELECT zk_lock('c.more')");
	is($creator->('c.second'), 'second', 'after a reload');
	is($creator->('c.more'), 'first', 'by a session that holds nothing');
	$_->query_ok('SELECT zk_unlock_all()') for $s, $bound;
	$bound->query_ok("SELECT zk_lock('c.last')");
	is($creator->('c.last'), 'second', 'as soon as it holds nothing');

	chmod 0644, $file or die "$file: $!";
	change('log_min_messages', 'warning', $s, $bound);
	fails_with($s, "SELECT zk_lock('c.second')", 'F0000',
		'a file that may not be used is reported then');
	works($bound, "SELECT zk_lock('c.last') > 0", 't',
		'and not to a session that goes on');
	$_->quit for $s, $bound;
	nothing_left($zkc[0], 'other credentials leave nothing behind', root => '/elsewhere/deep');
}

$_->close for @zkc;
$_->stop for $node, $other, @zk;
done_testing();
