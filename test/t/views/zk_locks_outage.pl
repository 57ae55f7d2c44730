# zk_locks fails when the ensemble cannot be read: an empty result would mean that there
# are no holders. It fails with 08001 or 08006, within ensemble_timeout, and can be
# cancelled meanwhile. Views that do not read the ensemble continue to work.
#
# Promise: 4.1

use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = zklock_node('a', zk => $proxy);
my $other = zklock_node('b', zk => $zk);
my $holder = session($other, application_name => 'holder');
$holder->query_ok("SELECT zk_lock('l' || i) FROM generate_series(1, 5) AS i");
my $count_locks = 'SELECT count(*) FROM zk_locks';

# One assertion: an error with this SQLSTATE and reason, and a hint.
sub unreadable
{
	my ($s, $sqlstate, $reason, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($s, $count_locks, $sqlstate, $name,
		like => qr/could not read the locks of the ensemble: $reason/);
}

# An ensemble that never answers.
{
	my $s = session_with($node, connect_string => '127.0.0.1:' . free_port(), ensemble_timeout => '300ms');
	unreadable($s, '08001', 'no connection', 'a port without a listener is an error');
	works($s, 'SELECT state FROM zk_session()', 'closed', 'the failed session is closed');
	works($s, 'SELECT (SELECT count(*) FROM zk_held_locks) + (SELECT count(*) FROM zk_stat)', '1',
		'zk_held_locks and zk_stat need no ensemble');
	fails_with($s, "SELECT * FROM zk_blocking(1)", '08001', 'zk_blocking() reads the ensemble as well');
	$s->query_ok('BEGIN');
	unreadable($s, '08001', 'no connection', 'the view fails the same way in a transaction');
	fails_with($s, 'SELECT 1', '25P02', 'the error fails the transaction', hint => 0);
	$s->query_ok('ROLLBACK');
	$s->query_ok(q(SET lock_timeout = '1ms'));
	unreadable($s, '08001', 'no connection', 'lock_timeout does not apply');
	$s->query_ok(q(SET zklock.ensemble_timeout = '1h'));
	fails_with($s, "SET statement_timeout = '300ms'; $count_locks", '57014',
		'statement_timeout ends the wait', hint => 0);
	$s->query_ok('RESET statement_timeout');
	$s->query_async($count_locks);
	wait_blocked($s);
	$s->cancel;
	failed_with($s, '57014', 'a cancel ends the wait', hint => 0);
	$s->reconnect('zklock.connect_string' => $proxy->connect_string);
	works($s, $count_locks, '5', 'the view works with a reachable ensemble');
	$s->quit;
}

# A cancel.
{
	my $file = credentials_file('me:secret');
	my $s = session_with($node, auth_file => $file);
	works($s, $count_locks, '5', 'the view works with credentials');
	$proxy->arm(fault => 'hold_answer', op => 'sync');
	$s->query_async($count_locks);
	wait_until('the sync', sub { $proxy->hits });
	$s->cancel;
	failed_with($s, '57014', 'a cancel works while the ensemble does not answer', hint => 0,
		like => qr/CONTEXT:  while trying to read/);
	$proxy->disarm->release;
	works($s, $count_locks, '5', 'the session works after the cancel');
	$s->quit;
}

# The connection is lost during a read, and restored.
for my $op (qw(sync getChildren exists getData))
{
	for my $fault (qw(lose_request lose_answer))
	{
		my $s = session_with($node, ensemble_timeout => '30s');
		$s->query_ok($count_locks);
		my $before = $proxy->hits;
		$proxy->arm(fault => $fault, op => $op, $op =~ /^(?:exists|getData)$/ ? (path => 'l3') : ());
		my $answer = $s->query($count_locks);
		ok($answer eq '5' && $s->error eq '' && $proxy->hits == $before + 1, "$fault of $op: all locks are read")
		  || diag("answer: $answer\n" . $s->error);
		$proxy->disarm;
		$s->quit;
	}
}

# Nodes are removed during a read, after the lists or after the stats: the others are shown.
for my $op (qw(getChildren exists getData))
{
	my @made = map { foreign_node($zkc, "/zklock/locks/l$_", 'WRIT') } 2, 4;
	my $s = session_with($node, ensemble_timeout => '30s');
	works($s, $count_locks, '7', 'the nodes of another program are shown');
	$proxy->arm(fault => 'hold_request', op => $op, path => '/l1');
	my $before = $proxy->hits;
	$s->query_async($count_locks);
	wait_until("the $op", sub { $proxy->hits > $before });
	$zkc->delete($_) for @made;
	$proxy->disarm->release;
	is($s->wait_result, '5', "nodes that are removed before a $op are left out, and the others are shown");
	is($s->error, '', "nodes that are removed before a $op cause no warning");
	$s->quit;
}

# The connection is lost and not restored.
{
	my $s = session($node);
	$s->query_ok($count_locks);
	# Long enough for the answers before the loss.
	$s->query_ok("SET zklock.ensemble_timeout = '2s'");
	$proxy->arm(fault => 'lose_request', op => 'getData', path => 'l3', down => 1);
	unreadable($s, '08006', 'lost the connection', 'a connection that is not restored is an error');
	$s->query_ok("SET zklock.ensemble_timeout = '300ms'");
	unreadable($s, '08006', 'lost the connection', 'a connection that was lost before is an error');
	$proxy->disarm->up;
	$s->query_ok("SET zklock.ensemble_timeout = '30s'");
	works($s, $count_locks, '5', 'the view works when the connection is restored');

	# With a lock held: the session is kept.
	$s->query_ok("SELECT zk_lock('own')");
	$s->query_ok("SET zklock.ensemble_timeout = '2s'; SET zklock.commit_check = off");
	$proxy->arm(fault => 'lose_request', op => 'getData', path => 'l3', down => 1);
	unreadable($s, '08006', 'lost the connection', 'a holder gets the same error');
	works($s, 'SELECT state FROM zk_held_locks', 'suspect', 'the lock is suspect');
	$proxy->disarm->up;
	wait_state($s, 'connected');
	works($s, 'SELECT state FROM zk_held_locks', 'held', 'the lock is held again');
	$s->quit;
}

# The session expires during a read.
{
	my $s = session_with($node, ensemble_timeout => '30s');
	$s->query_ok($count_locks);
	my $id = zk_session_id($s);
	$proxy->arm(fault => 'expire', op => 'getData', path => 'l3');
	works($s, $count_locks, '5', 'a session that expires is replaced by another');
	isnt(zk_session_id($s), $id, 'the session is a new one');
	$proxy->disarm;
	$s->quit;
}

# With a lock held: the loss is reported.
{
	my $s = session_with($node, ensemble_timeout => '30s');
	$s->query_ok("SELECT zk_lock('lost')");
	$proxy->arm(fault => 'expire', op => 'getData', path => 'l3');
	fails_with($s, $count_locks, '40001', 'a lock that is lost during the read is reported', like => qr/"lost"/);
	$proxy->disarm;
	works($s, $count_locks, '5', 'the loss is reported once, and the next read works');
	$s->quit;
}

# Termination.
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('end')");
	$proxy->arm(fault => 'hold_answer', op => 'getData', path => 'l3');
	$s->query_async($count_locks);
	wait_until('the request', sub { grep { $_->{fault} } $proxy->record });
	$s->terminate;
	$s->wait_result;
	is($s->sqlstate, 'lost', 'a backend can be terminated during the read');
	$proxy->disarm->release;
	wait_zk_empty($zkc, '/zklock/locks/end');
	pass('a terminated backend leaves no node');
}

$holder->query_ok('SELECT zk_unlock_all()');
nothing_left($zkc, 'no node is left');
