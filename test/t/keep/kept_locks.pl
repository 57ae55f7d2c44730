# Kept locks (zklock.keep_time): a session takes a lock that it has released again without a
# request, and gives it up as soon as another session wants it.
#
# Promises: 11.1, 11.2, 11.3, 11.5, 11.6

use ZkLock::Test;

# A lease of 80 seconds, so that no proof is due, and each session looks at its queues only
# every 20 seconds.
my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my ($here, $there) = map { shared_node($_, session_timeout => '240s') } qw(here there);

# A session that keeps what it releases for ten minutes.
sub keeper
{
	my ($server, %settings) = @_;
	my $s = session($server);
	$s->reconnect('zklock.keep_time' => '10min', %settings);
	return $s;
}

# Waits until the session watches its node of the lock, and returns the node's path.
sub kept_node
{
	my ($lock) = @_;
	wait_watched($zk, $lock);
	my @nodes = queue_of($zkc, $lock);
	is(@nodes, 1, "$lock: one node is kept");
	return $nodes[0];
}

sub is_kept
{
	my ($s, $lock) = @_;
	return $s->query_ok("SELECT string_agg(granted || ' ' || kept, ',') FROM zk_locks WHERE name = '$lock'");
}

# Makes the session keep the lock.
sub keep
{
	my ($s, $lock, $mode) = @_;
	$mode //= '';
	my $token = $s->query_ok("SELECT zk_xact_lock$mode('$lock')");
	kept_node($lock);
	return $token;
}

my $s = keeper($here);
my $t = session($there);

# Again.
{
	my $token = keep($s, 'a');
	my $id = zk_session_id($s);
	my $before = requests_of($zk, $id);
	is($s->query_ok("SELECT zk_xact_lock('a')"), $token, 'again: the token is the same')
	  for 1 .. 3;
	is($s->query_ok("SELECT zk_lock('a')"), $token, 'again: also at session level');
	is($s->query_ok("SELECT zk_try_lock('a')"), 't', 'again: also in an attempt');
	is(requests_of($zk, $id), $before, 'again: without a request');
	$s->query_ok("SELECT zk_unlock('a'), zk_unlock('a')");
	is(requests_of($zk, $id), $before, 'again: nor has the release one');
	is($s->query_ok('SELECT count(*) FROM zk_held_locks'), 0, 'again: it is not held');
	is($s->query_ok('SELECT locks FROM zk_session()'), 0, 'zk_session() shows that the kept lock is not held');
	is(is_kept($t, 'a'), 'true true', 'again: zk_locks shows it as kept');
}

# Another session.
{
	$t->query_ok("SELECT zk_lock('a')");
	is(queue_of($zkc, 'a'), 1, 'wanted: the other session has it, and the node of the first is gone');
	$s->query_async("BEGIN; SELECT zk_xact_lock('a')");
	wait_zk_children($zkc, '/zklock/locks/a', 2);
	$t->query_ok("SELECT zk_unlock('a')");
	$s->wait_result;
	$s->query_ok('COMMIT');
	wait_zk_empty($zkc, '/zklock/locks/a');
	pass('wanted: for a minute the first session does not keep it any more');
	keep($s, 'b');
	is($t->query_ok("SELECT zk_try_lock('b')"), 't', 'wanted: an attempt gets what is only kept');
	$t->query_ok("SELECT zk_unlock('b')");

	keep($s, 'c');
	$s->query_ok("BEGIN; SELECT zk_xact_lock('c')");
	is($t->query_ok("SELECT zk_try_lock('c')"), 'f', 'in use: an attempt is refused');
	is(is_kept($t, 'c'), 'true false', 'in use: zk_locks shows that it is not only kept');
	$t->query_async("SELECT zk_lock('c')");
	wait_blocked($t);
	$s->query_ok('COMMIT');
	ok($t->wait_result, 'in use: the release ends it');
	is(queue_of($zkc, 'c'), 1, 'in use: the node goes with the release');
	$t->query_ok("SELECT zk_unlock('c')");
}

# Many readers.
{
	my @readers = map { keeper($_) } ($here, $there) x 3;
	$_->query_ok("SELECT zk_xact_lock_shared('r')") for @readers;
	wait_until('six watches', sub { 6 == (() = ($zk->four_letter('wchp') // '') =~ m{^/zklock/locks/r/}gm) });
	is(queue_of($zkc, 'r'), 6, 'readers: all keep it');
	is($t->query_ok("SELECT zk_try_lock('r')"), 't', 'readers: a writer gets it at once');
	is(queue_of($zkc, 'r'), 1, 'readers: alone');
	$t->query_ok("SELECT zk_unlock('r')");
	$readers[0]->query_ok("BEGIN; SELECT zk_xact_lock_shared('r')");
	is($t->query_ok("SELECT zk_try_lock('r')"), 'f', 'readers: not while one uses it');
	$readers[0]->query_ok('COMMIT');
	$_->quit for @readers;
}

# What gives it up.
{
	my $k = keeper($here);
	keep($k, 'd', '_shared');
	$k->query_ok("BEGIN; SELECT zk_xact_lock('d')");
	is(queue_of($zkc, 'd'), 1, 'another mode: the first node is deleted');
	$k->query_ok('COMMIT');
	$k->query_ok("SELECT zk_xact_lock_many('{d,e}')");
	wait_zk_empty($zkc, '/zklock/locks/d');
	is(queue_of($zkc, 'e'), 0, 'an array is not kept, and what was kept before is deleted');
	keep($k, 'd');
	my $other = session($here);
	$other->query_ok("SELECT zk_lock('e')");
	$k->query_async("SELECT zk_xact_lock_many('{d,e}')");
	wait_blocked($k);
	wait_zk_empty($zkc, '/zklock/locks/d');
	pass('the kept node is deleted before the array waits for a session of the same server');
	$other->quit;
	$k->wait_result;
	for my $end ('SELECT zk_unlock_all()', 'DISCARD ALL')
	{
		keep($k, 'd');
		$k->query_ok($end);
		wait_zk_empty($zkc, '/zklock/locks/d');
		pass("$end: it is gone");
	}
	keep($k, 'd');
	$k->quit;
	wait_zk_empty($zkc, '/zklock/locks/d');
	pass('the end of the connection: it is gone');

	$k = keeper($here, 'zklock.keep_time' => '1s');
	$k->query_ok("SELECT zk_xact_lock('d')");
	wait_zk_empty($zkc, '/zklock/locks/d');
	pass('zklock.keep_time has passed: it is gone');

	$k = keeper($here, 'zklock.max_locks' => 2);
	keep($k, 'd');
	keep($k, 'e');
	$k->query_ok("SELECT zk_xact_lock('f')");
	wait_zk_empty($zkc, '/zklock/locks/d');
	is(queue_of($zkc, $_), 1, "zklock.max_locks: $_ is still kept") for qw(e f);
	$k->quit;
}

# Sessions of the same server.
{
	my ($k, $local) = (keeper($here), session($here));
	keep($k, 'g');
	is($local->query_ok("SELECT zk_try_lock('g')"), 't', 'same server: an attempt gets it');
	$local->query_ok("SELECT zk_unlock('g')");
	$k->query_ok("BEGIN; SELECT zk_xact_lock('h')");
	$local->query_async("SELECT zk_lock('h')");
	wait_blocked_locally($local);
	$local->pause;
	$k->query_ok('COMMIT');
	is(wait_zk_empty($zkc, '/zklock/locks/h'), 0, 'same server: with a waiter it is not kept');
	$local->resume;
	$local->wait_result;
	$local->query_ok("SELECT zk_unlock('h')");
}

# A node that is gone is no loss.
{
	my $token = keep($s, 'i');
	lose_lock($zk, $zkc, 'i', zk_session_id($s));
	$s->query_ok('SELECT 1');
	cmp_ok($s->query_ok("SELECT zk_xact_lock('i')"), '>', $token, 'removed by hand: nothing is reported, and it is acquired again');
	keep($s, 'j');
	my $id = zk_session_id($s);
	$zkc->end_session($id);
	wait_state($s, 'expired');
	$s->query_ok("SELECT zk_xact_lock('j')");
	isnt(zk_session_id($s), $id, 'expired: nothing is reported, and it is acquired in another session');
}

# A request to release it.
{
	keep($s, 'k');
	$t->query_ok("SELECT zk_revoke('k')");
	wait_zk_empty($zkc, '/zklock/locks/k');
	pass('zk_revoke: a lock that is only kept is given up');
}

# No wait for what is kept takes part in a deadlock.
{
	keep($s, 'l');
	$t->query_ok("SELECT zk_lock('m')");
	$s->query_async("SELECT zk_lock('m')");
	wait_until('the wait to be reported', sub { !queue_of($zkc, 'l') });
	is($t->query_ok("SELECT zk_try_lock('l')"), 't', 'a session that waits for long keeps nothing');
	$t->query_ok('SELECT zk_unlock_all()');
	ok($s->wait_result, 'a session that waits for long gets what it waits for');
	$s->query_ok('SELECT zk_unlock_all()');
}

$_->quit for $s, $t;
nothing_left($zkc, 'no node is left');
