# Nothing grows: neither in a backend nor in the ensemble.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $way = ZkLock::Proxy->start(target => $zk);
my $node = zklock_node('a',
	proxy => $way,
	session_timeout => '10s',
	extra_conf => "max_connections = 120\n");
my $other = zklock_node('b', zk => $zk, session_timeout => '10s');

# What a backend uses: its threads and descriptors. PostgreSQL opens and closes
# files as it likes, so only the others count.
sub used
{
	my ($s) = @_;
	my $pid = $s->pid;
	my @threads = glob "/proc/$pid/task/*";
	my @descriptors =
	  grep { (readlink($_) // '') =~ /^(?:socket|pipe|anon_inode):/ }
	  glob "/proc/$pid/fd/*";
	return { task => scalar @threads, fd => scalar @descriptors };
}

# Backend of a session that has a ZooKeeper session and has opened what it
# opens once.
sub warm_session
{
	my ($where) = @_;
	my $s = session($where);
	$s->query_ok("SELECT zk_try_lock('warm' || i), zk_unlock('warm' || i) "
		  . 'FROM generate_series(1, 5) i');
	return $s;
}

# Total of watches, as the server counts them.
sub watches
{
	my $text = $zk->four_letter('wchs') // '';
	return $text =~ /Total watches:(\d+)/ ? $1 : undef;
}

# The znodes that are watched.
sub watched
{
	return ($zk->four_letter('wchp') // '') =~ m{^(/\S+)}gm;
}

# May be less afterwards: the client opens a second socket now and then.
sub no_more
{
	my ($s, $before, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $now;
	for my $kind (qw(fd task))
	{
		my $fine = eval {
			wait_until('use to fall',
				sub { $now = used($s); $now->{$kind} <= $before->{$kind} },
				timeout => 20);
		};
		ok($fine, "$what left no " . ($kind eq 'fd' ? 'descriptor' : 'thread'))
		  || diag("$before->{$kind} before, $now->{$kind} after");
	}
	return;
}

# Locking and unlocking, alone and in competition.
{
	my $s = warm_session($node);
	my $before = used($s);
	is(watches(), 0, 'nobody watches anything at the beginning');
	works($s,
		"SELECT count(*), bool_and(l > 0 AND u) FROM (SELECT zk_lock('pair') l, zk_unlock('pair') u FROM generate_series(1, 2000)) x",
		'2000|t', '2,000 pairs of lock and unlock succeed in one backend');
	no_more($s, $before, '2,000 pairs of lock and unlock');
	is(watches(), 0, 'they leave no watch');
	works($s, 'SELECT locks FROM zk_session()', '0', 'nor a node');

	my $rival = warm_session($other);
	my $rival_before = used($rival);
	my $pairs =
	  "DO \$\$ BEGIN FOR i IN 1..300 LOOP PERFORM zk_lock('hot'); PERFORM zk_unlock('hot'); END LOOP; END \$\$";
	$_->query_async($pairs) for $s, $rival;
	$_->wait_result for $s, $rival;
	ok($s->ok && $rival->ok, 'two servers hand a lock to and fro');
	no_more($s, $before, 'competition');
	no_more($rival, $rival_before, 'competition on the other side');
	is(watches(), 0, 'competition leaves no watch');

	# Waiting in vain must not leave the watch on the holder, either, when the
	# holder goes.
	$rival->query_ok("SELECT zk_lock('vain')");
	works($s,
		"SELECT count(*) FROM (SELECT zk_try_lock('vain', interval '1 ms') t FROM generate_series(1, 100)) x WHERE t",
		'0', 'a hundred tries wait in vain');
	cmp_ok(scalar(watched()), '<=', 1,
		'a hundred waits for one holder leave one watch at most');
	$rival->query_ok("SELECT zk_unlock('vain')");
	ok(wait_until('no watch', sub { watches() == 0 }),
		'and none when it has gone');
	no_more($s, $before, 'waiting in vain');
	$_->quit for $s, $rival;
	nothing_left($zkc, 'all that leaves nothing behind');
}

# Connections that come and go, with a lock held and one waited for.
{
	my $s = warm_session($node);
	my $holder = session($other);
	my $before = used($s);
	my $id = zk_session_id($s);
	$holder->query_ok("SELECT zk_lock('theirs')");
	$s->query_ok("SELECT zk_lock('mine')");
	$s->query_async("SELECT zk_lock('theirs')");
	wait_zk_children($zkc, '/zklock/locks/theirs', 2);
	for (1 .. 50)
	{
		$way->cut;
		wait_until('a connection', sub { scalar $way->connections });
	}
	ok(!$s->finished, 'a waiter sits out 50 lost connections');
	$holder->query_ok("SELECT zk_unlock('theirs')");
	like($s->wait_result, qr/^\d+$/, 'and gets the lock');
	is(zk_session_id($s), $id, 'in the ZooKeeper session that it began with');
	no_more($s, $before, '50 lost connections');
	my %own = map { $_ => 1 } queue_of($zkc, 'mine'), queue_of($zkc, 'theirs');
	ok(wait_until('no watch', sub { !grep { !$own{$_} } watched() }),
		'50 lost connections leave no watch but over what is held');
	$_->quit for $s, $holder;
	nothing_left($zkc, 'lost connections leave nothing behind');
}

# ZooKeeper sessions that come and go in one backend.
{
	my $s = warm_session($node);
	my $before = used($s);
	my $failed = 0;
	my $root = $zk->connect_string;
	for my $i (1 .. 30)
	{
		$s->query_ok("SET zklock.root = '/zklock$i'");
		$failed++
		  if $s->query("SELECT zk_try_lock('moved'), zk_unlock('moved')") ne 't|t';
	}
	is($failed, 0, '30 ZooKeeper sessions follow each other in one backend');
	no_more($s, $before, '30 ZooKeeper sessions');
	ok( wait_until('one session',
			sub { (() = ($zk->four_letter('cons') // '') =~ /sid=0x/g) == 2 }),
		'the ensemble keeps the last of them only'
	) || diag($zk->four_letter('cons'));

	$before = used($s);
	$failed = 0;
	for my $i (1 .. 20)
	{
		$s->query_ok("SET zklock.connect_timeout = '20ms'");
		$s->query_ok("SET zklock.connect_string = '127.0.0.1:1'");
		$s->query("SELECT zk_lock('nowhere')");
		$failed++ if $s->sqlstate ne '08001';
		$s->query_ok('RESET zklock.connect_timeout');
		$s->query_ok("SET zklock.connect_string = '$root'");
		$s->query("SELECT zk_try_lock('back'), zk_unlock('back')");
		$failed++ unless $s->ok;
	}
	is($failed, 0, '20 failed connections are failures, and over afterwards');
	no_more($s, $before, '20 failed connections');
	$s->quit;
	nothing_left($zkc, 'ended ZooKeeper sessions leave nothing behind');
}

# Many backends at once.
{
	my @sessions = map { session($node) } 1 .. 60;
	$_->query_async("SELECT zk_lock('own-' || pg_backend_pid())") for @sessions;
	$_->wait_result for @sessions;
	is(scalar(grep { $_->ok } @sessions), 60, '60 backends hold locks at once');
	is(scalar(map { $zkc->children("/zklock/locks/$_") }
		  grep { /^own-/ } $zkc->children('/zklock/locks')),
		60, 'each in a ZooKeeper session of its own');
	$_->query_async("SELECT zk_lock('one'), zk_unlock('one')") for @sessions;
	$_->wait_result for @sessions;
	is(scalar(grep { $_->ok } @sessions), 60,
		'60 backends take the same lock one after the other');
	is(join(' ', grep { !m{^/zklock/locks/own-} } watched()), '',
		'which leaves no watch but each holder\'s over its own');
	$_->quit for @sessions;
	nothing_left($zkc, 'the nodes of 60 backends go when they end');
	ok( wait_until('sessions to end',
			sub { (() = ($zk->four_letter('cons') // '') =~ /sid=0x/g) == 1 }),
		'as do their ZooKeeper sessions');
}

$zkc->close;
$_->stop for $node, $other;
$way->stop;
$zk->stop;
done_testing();
