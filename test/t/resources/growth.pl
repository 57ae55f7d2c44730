# The use of resources does not grow, in a backend and in the ensemble.
#
# Promise: 4.2

use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = zklock_node('a',
	proxy => $proxy,
	extra_conf => "max_connections = 120\n");
my $other = zklock_node('b', zk => $zk);

# Returns the numbers of threads and of descriptors of a backend. PostgreSQL opens and
# closes files at any time, so descriptors of files are not counted.
sub usage_of
{
	my ($s) = @_;
	my $pid = $s->pid;
	my @threads = glob "/proc/$pid/task/*";
	my @descriptors =
	  grep { (readlink($_) // '') =~ /^(?:socket|pipe|anon_inode):/ }
	  glob "/proc/$pid/fd/*";
	return { task => scalar @threads, fd => scalar @descriptors };
}

# A session with a ZooKeeper session, which has already opened what it opens once.
sub warm_session
{
	my ($where) = @_;
	my $s = session($where);
	$s->query_ok("SELECT zk_try_lock('warm' || i), zk_unlock('warm' || i) "
		  . 'FROM generate_series(1, 5) i');
	return $s;
}

# Returns the server's number of watches.
sub watches
{
	my $text = $zk->four_letter('wchs') // '';
	return $text =~ /Total watches:(\d+)/ ? $1 : undef;
}

# Returns the watched znodes.
sub watched
{
	return ($zk->four_letter('wchp') // '') =~ m{^(/\S+)}gm;
}

# Checks that the backend uses no more than before. It may use less: the client
# sometimes opens a second socket.
sub usage_not_above
{
	my ($s, $before, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $now;
	for my $kind (qw(fd task))
	{
		my $fine = eval {
			wait_until('the usage to fall',
				sub { $now = usage_of($s); $now->{$kind} <= $before->{$kind} },
				timeout => 20);
		};
		ok($fine, "$what leave no " . ($kind eq 'fd' ? 'descriptor' : 'thread'))
		  || diag("$before->{$kind} before, $now->{$kind} after");
	}
	return;
}

# Locking and unlocking, without and with a contender.
{
	my $s = warm_session($node);
	my $before = usage_of($s);
	is(watches(), 0, 'there is no watch at the beginning');
	works($s,
		"SELECT count(*), bool_and(l > 0 AND u) FROM (SELECT zk_lock('pair') l, zk_unlock('pair') u FROM generate_series(1, 2000)) x",
		'2000|t', '2,000 pairs of lock and unlock succeed in one backend');
	usage_not_above($s, $before, '2,000 pairs of lock and unlock');
	is(watches(), 0, '2,000 pairs of lock and unlock leave no watch');
	works($s, 'SELECT locks FROM zk_session()', '0', '2,000 pairs of lock and unlock leave no node');

	my $contender = warm_session($other);
	my $contender_before = usage_of($contender);
	my $pairs =
	  "DO \$\$ BEGIN FOR i IN 1..300 LOOP PERFORM zk_lock('hot'); PERFORM zk_unlock('hot'); END LOOP; END \$\$";
	$_->query_async($pairs) for $s, $contender;
	$_->wait_result for $s, $contender;
	ok($s->ok && $contender->ok, 'two servers acquire the same lock in turn');
	usage_not_above($s, $before, 'two contenders');
	usage_not_above($contender, $contender_before, 'two contenders on the other server');
	is(watches(), 0, 'two contenders leave no watch');

	# A timed attempt that fails leaves no watch on the holder when the holder releases.
	$contender->query_ok("SELECT zk_lock('vain')");
	works($s,
		"SELECT count(*) FROM (SELECT zk_try_lock('vain', interval '1 ms') t FROM generate_series(1, 100)) x WHERE t",
		'0', 'a hundred timed attempts return false');
	cmp_ok(scalar(watched()), '<=', 1,
		'a hundred waits for one holder leave one watch at most');
	$contender->query_ok("SELECT zk_unlock('vain')");
	ok(wait_until('no watch', sub { watches() == 0 }),
		'no watch is left when the holder has released');
	usage_not_above($s, $before, 'failed timed attempts');
	$_->quit for $s, $contender;
	nothing_left($zkc, 'contenders leave no node');
}

# Lost connections of a session that holds a lock and waits for another one.
{
	my $s = warm_session($node);
	my $holder = session($other);
	my $before = usage_of($s);
	my $id = zk_session_id($s);
	$holder->query_ok("SELECT zk_lock('theirs')");
	$s->query_ok("SELECT zk_lock('mine')");
	$s->query_async("SELECT zk_lock('theirs')");
	wait_zk_children($zkc, '/zklock/locks/theirs', 2);
	for (1 .. 50)
	{
		$proxy->cut;
		wait_until('a connection', sub { scalar $proxy->connections });
	}
	ok(!$s->finished, 'a waiter goes on waiting over 50 lost connections');
	$holder->query_ok("SELECT zk_unlock('theirs')");
	like($s->wait_result, qr/^\d+$/, 'the waiter is granted the lock after 50 lost connections');
	is(zk_session_id($s), $id, 'the waiter has kept its ZooKeeper session');
	usage_not_above($s, $before, '50 lost connections');
	my %own = map { $_ => 1 } queue_of($zkc, 'mine'), queue_of($zkc, 'theirs');
	ok(wait_until('no watch', sub { !grep { !$own{$_} } watched() }),
		'50 lost connections leave no watch but those on held nodes');
	$_->quit for $s, $holder;
	nothing_left($zkc, 'lost connections leave no node');
}

# Successive ZooKeeper sessions in one backend.
{
	my $s = warm_session($node);
	my $before = usage_of($s);
	my $failed = 0;
	for my $i (1 .. 30)
	{
		$zkc->end_session(zk_session_id($s));
		$failed++
		  if $s->query("SELECT zk_try_lock('moved'), zk_unlock('moved')") ne 't|t';
	}
	is($failed, 0, '30 ZooKeeper sessions follow each other in one backend');
	usage_not_above($s, $before, '30 ZooKeeper sessions');
	ok( wait_until('one session',
			sub { (() = ($zk->four_letter('cons') // '') =~ /sid=0x/g) == 2 }),
		'only the last ZooKeeper session is left'
	) || diag($zk->four_letter('cons'));

	my $gate = ZkLock::Proxy->start(target => $zk);
	$s->reconnect('zklock.connect_string' => $gate->connect_string, 'zklock.session_timeout' => '1s');
	$s->query_ok("SELECT zk_lock('back'), zk_unlock('back')");
	$before = usage_of($s);
	$failed = 0;
	for my $i (1 .. 20)
	{
		$zkc->end_session(zk_session_id($s));
		$gate->cut(refuse => 1);
		$s->query_ok("SET zklock.ensemble_timeout = '20ms'");
		$s->query("SELECT zk_lock('nowhere')");
		$failed++ if $s->sqlstate !~ /^0800[16]/;
		$s->query_ok('RESET zklock.ensemble_timeout');
		$gate->accept;
		$s->query("SELECT zk_try_lock('back'), zk_unlock('back')");
		$failed++ unless $s->ok;
	}
	is($failed, 0, '20 connections fail, and the session can lock after each');
	usage_not_above($s, $before, '20 failed connections');
	$s->quit;
	nothing_left($zkc, 'ended ZooKeeper sessions leave no node');
}

# Many backends at once.
{
	my @sessions = map { session($node) } 1 .. 60;
	$_->query_async("SELECT zk_lock('own-' || pg_backend_pid())") for @sessions;
	$_->wait_result for @sessions;
	is(scalar(grep { $_->ok } @sessions), 60, '60 backends hold locks at once');
	is(scalar(map { $zkc->children("/zklock/locks/$_") }
		  grep { /^own-/ } $zkc->children('/zklock/locks')),
		60, 'each of 60 backends has a node of its own');
	$_->query_async("SELECT zk_lock('one'), zk_unlock('one')") for @sessions;
	$_->wait_result for @sessions;
	is(scalar(grep { $_->ok } @sessions), 60,
		'60 backends acquire the same lock one after the other');
	is(join(' ', grep { !m{^/zklock/locks/own-} } watched()), '',
		'60 backends leave no watch but those on their own nodes');
	$_->quit for @sessions;
	nothing_left($zkc, 'the nodes of 60 backends are removed when the backends end');
	ok( wait_until('sessions to end',
			sub { (() = ($zk->four_letter('cons') // '') =~ /sid=0x/g) == 1 }),
		'the ZooKeeper sessions of 60 backends end');
}
