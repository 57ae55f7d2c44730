# zk_locks fails when the ensemble cannot be read, because an empty result would
# say that nobody holds anything: with 08001 or 08006, within connect_timeout, and it
# can be cancelled meanwhile. What does not ask the ensemble goes on working.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::Util qw(free_port wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = zklock_node('a', zk => $proxy, session_timeout => '10s');
my $other = zklock_node('b', zk => $zk, session_timeout => '20s');
my $holder = session($other, application_name => 'holder');
$holder->query_ok("SELECT zk_lock('l' || i) FROM generate_series(1, 5) AS i");
my $look = 'SELECT count(*) FROM zk_locks';

# One assertion: an error with this SQLSTATE and reason, and a hint.
sub unreadable
{
	my ($s, $sqlstate, $reason, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($s, $look, $sqlstate, $name,
		like => qr/could not read the locks of the ensemble: $reason/);
}

# A session of the view's own, with a short patience.
sub looker
{
	my (%settings) = @_;
	my $s = session($node);
	$settings{connect_timeout} //= '300ms';
	$s->query_ok("SET zklock.$_ = '$settings{$_}'") for sort keys %settings;
	return $s;
}

# Never there.
{
	my $s = looker(connect_string => '127.0.0.1:' . free_port());
	unreadable($s, '08001', 'no connection', 'a port where nothing listens is an error');
	works($s, 'SELECT state FROM zk_session()', 'closed', 'and the next read connects again');
	works($s, 'SELECT (SELECT count(*) FROM zk_held_locks) + (SELECT count(*) FROM zk_stat)', '1',
		'zk_held_locks and zk_stat need no ensemble');
	fails_with($s, "SELECT * FROM zk_blocking(1)", '08001', 'zk_blocking reads the same queues');
	$s->query_ok('BEGIN');
	unreadable($s, '08001', 'no connection', 'in a transaction as well');
	fails_with($s, 'SELECT 1', '25P02', 'which has failed', hint => 0);
	$s->query_ok('ROLLBACK');
	$s->query_ok(q(SET lock_timeout = '1ms'));
	unreadable($s, '08001', 'no connection', 'lock_timeout has no part in it');
	$s->query_ok(q(SET zklock.connect_timeout = '1h'));
	fails_with($s, "SET statement_timeout = '300ms'; $look", '57014',
		'statement_timeout ends the wait', hint => 0);
	$s->query_ok('RESET statement_timeout');
	$s->query_async($look);
	wait_for_sql($node, 'SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $s->pid,
		'Extension');
	$s->cancel;
	failed_with($s, '57014', 'so does a cancel', hint => 0);
	$s->query_ok('SET zklock.connect_string = ' . "'" . $proxy->connect_string . "'");
	works($s, $look, '5', 'and then it is back');
	$s->quit;
}

# Cancelled.
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/auth';
	append_to_file($file, "digest me:secret\n");
	chmod 0600, $file;
	my $s = looker(auth_file => $file);
	works($s, $look, '5', 'with credentials');
	$proxy->arm(fault => 'hold_answer', op => 'sync');
	$s->query_async($look);
	wait_until('the sync', sub { $proxy->hits });
	$s->cancel;
	failed_with($s, '57014', 'a cancel while the ensemble is silent', hint => 0);
	$proxy->disarm->release;
	works($s, $look, '5', 'leaves the session as it was');
	$s->quit;
}

# Lost in the middle, and back.
for my $op (qw(sync getChildren multiRead))
{
	for my $fault (qw(lose_request lose_answer))
	{
		my $s = looker(connect_timeout => '30s');
		$s->query_ok($look);
		my $before = $proxy->hits;
		$proxy->arm(fault => $fault, op => $op, $op eq 'multiRead' ? (path => 'l3') : ());
		my $answer = $s->query($look);
		ok($answer eq '5' && $s->error eq '' && $proxy->hits == $before + 1, "$fault of $op: all is read all the same")
		  || diag("answer: $answer\n" . $s->error);
		$proxy->disarm;
		$s->quit;
	}
}

# Lost, and not back.
{
	my $s = looker();
	$s->query_ok($look);
	$proxy->arm(fault => 'lose_request', op => 'multiRead', path => 'l3', down => 1);
	unreadable($s, '08006', 'lost the connection', 'so is a connection that does not come back');
	unreadable($s, '08006', 'lost the connection', 'also when it was lost before');
	$proxy->disarm->up;
	$s->query_ok("SET zklock.connect_timeout = '30s'");
	works($s, $look, '5', 'and it comes back');

	# With a lock: the session is kept until it is lost, and the loss told once.
	$s->query_ok("SELECT zk_lock('own')");
	$s->query_ok("SET zklock.connect_timeout = '300ms'");
	$proxy->arm(fault => 'lose_request', op => 'multiRead', path => 'l3', down => 1);
	unreadable($s, '08006', 'lost the connection', 'a holder gets the same error');
	works($s, 'SELECT state FROM zk_held_locks', 'suspect', 'the lock is suspect');
	$proxy->disarm->up;
	wait_state($s, 'connected');
	works($s, 'SELECT state FROM zk_held_locks', 'held', 'and held again');
	$s->quit;
}

# The session expires in the middle.
{
	my $s = looker(connect_timeout => '30s');
	$s->query_ok($look);
	my $id = zk_session_id($s);
	$proxy->arm(fault => 'expire', op => 'multiRead', path => 'l3');
	works($s, $look, '5', 'a session that expires is replaced by another');
	isnt(zk_session_id($s), $id, 'which it is');
	$proxy->disarm;
	$s->quit;
}

# With a lock held: that is lost, and told as a loss.
{
	my $s = looker(connect_timeout => '30s');
	$s->query_ok("SELECT zk_lock('lost')");
	$proxy->arm(fault => 'expire', op => 'multiRead', path => 'l3');
	fails_with($s, $look, '40001', 'a lock that is lost meanwhile is reported', like => qr/"lost"/);
	$proxy->disarm;
	works($s, $look, '5', 'once, and then all is read again');
	$s->quit;
}

# Terminated.
{
	my $s = looker();
	$s->query_ok("SELECT zk_lock('end')");
	$proxy->arm(fault => 'hold_answer', op => 'multiRead', path => 'l3');
	$s->query_async($look);
	wait_until('the question', sub { grep { $_->{fault} } $proxy->record });
	$s->terminate;
	$s->wait_result;
	is($s->sqlstate, 'lost', 'a backend can be terminated meanwhile');
	$proxy->disarm->release;
	wait_zk_empty($zkc, '/zklock/locks/end');
	pass('and leaves nothing');
}

$holder->query_ok('SELECT zk_unlock_all()');
nothing_left($zkc, 'nothing is left');
done_testing();
