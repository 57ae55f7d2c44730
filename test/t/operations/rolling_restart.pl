# A rolling restart of the ensemble, including the leader, with holders, a waiter and
# working sessions. No lock is lost and no session gets an error.
#
# Promises: 5.11, 12.2

use ZkLock::Test;

# Long enough for an election, which takes twenty seconds if the first votes are lost.
use constant TIMEOUT => '30s';

my ($ensemble, $zkc) = ZkLock::ZkEnsemble->start(
	size => 3,
	tick_time => 500)->with_client(timeout => 30);
my @nodes = map {
	shared_node($_, zk => $ensemble, session_timeout => TIMEOUT,
		set => { 'zklock.ensemble_timeout' => TIMEOUT })
} qw(one two);
$_->safe_psql('postgres', 'CREATE TABLE t (v text); CREATE TABLE enough ()') for @nodes;

my ($holder, $waiter) = map { session($_) } @nodes;
$holder->query_ok("SELECT zk_lock('session'), zk_acquire_permit('permits', 1)");
$holder->query_ok('BEGIN');
my $token = $holder->query_ok("SELECT zk_xact_lock('transaction')");
$holder->query_ok("INSERT INTO t VALUES ('written')");
$waiter->query_async("SELECT zk_lock('transaction')");
my @queue = wait_zk_children($zkc, '/zklock/locks/transaction', 2);

# Each worker counts its commits. The sessions are connected to random members.
my @workers = map { session($_) } @nodes, @nodes;
$_->query_async(<<'SQL') for @workers;
DO $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM enough) LOOP
		PERFORM zk_xact_lock('work');
		INSERT INTO t VALUES ('work');
		COMMIT;
	END LOOP;
END $$
SQL

sub work_done
{
	my $done = 0;
	$done += $_->safe_psql('postgres', "SELECT count(*) FROM t WHERE v = 'work'") for @nodes;
	return $done;
}

sub work_continues
{
	my ($from) = (work_done());
	return wait_until('more work', sub { work_done() > $from + 10 });
}

my $id = zk_session_id($holder);
my $leader = $ensemble->leader;
for my $member ((grep { $_ != $leader } $ensemble->members), $leader)
{
	my $what = ($member == $leader ? 'leader ' : 'follower ') . $member->connect_string;
	$member->stop;
	$ensemble->wait_ready(2);
	ok(work_continues(), "$what is stopped: work continues with the other members");
	wait_state($holder, 'connected');
	$member->launch;
	$ensemble->wait_ready;
	ok(work_continues(), "$what is restarted: work continues");
	wait_state($holder, 'connected');
	works($holder, "SELECT string_agg(state, ' ') FROM zk_held_locks", 'held held held',
		"$what: locks and permits are held");
	is_deeply([ zk_session_id($holder), scalar $holder->query("SELECT zk_lock_token('transaction')") ],
		[ $id, $token ], "$what: the session and the token are unchanged");
	ok(!$waiter->finished, "$what: the waiter still waits");
}
wait_until('the tree', sub { eval { $zkc->children('/zklock/locks/transaction') } });
is_deeply([ $zkc->children('/zklock/locks/transaction') ],
	\@queue, 'the nodes of holder and waiter are unchanged');

works($holder, 'COMMIT', '', 'a transaction that began before the restart commits after it');
like($waiter->wait_result, qr/^\d+$/, 'the waiter acquires the lock');
$_->safe_psql('postgres', 'INSERT INTO enough DEFAULT VALUES') for @nodes;
$_->wait_result for @workers;
is(join('', map { $_->error } @workers), '', 'no working session got an error');
is($_->safe_psql('postgres', "SELECT count(*) FROM t WHERE v = 'written'"),
	$_ == $nodes[0] ? 1 : 0, 'the row of the transaction is on its server only') for @nodes;

$_->quit for $holder, $waiter, @workers;
nothing_left($zkc, 'a rolling restart leaves no node');
