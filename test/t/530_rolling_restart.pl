# A rolling restart of the ensemble: its servers are stopped and started one after
# the other, the leader included, under holders, a waiter and sessions at work.
# Nothing is lost and nobody sees an error.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;

# Long enough for an election on a busy machine.
use constant TIMEOUT => '30s';

my $ensemble = ZkLock::ZkEnsemble->start(
	size => 3,
	tick_time => 500,
	config => { maxSessionTimeout => 60000 });
my $zkc = ZkLock::ZkClient->new($ensemble->connect_string, timeout => 30);
my @nodes = map { zklock_node($_, zk => $ensemble, session_timeout => TIMEOUT) } qw(one two);
$_->safe_psql('postgres', 'CREATE TABLE t (v text); CREATE TABLE enough ()') for @nodes;

my ($holder, $waiter) = map { session($_) } @nodes;
$holder->query_ok("SELECT zk_lock('session'), zk_acquire('permits', 1)");
$holder->query_ok('BEGIN');
my $token = $holder->query_ok("SELECT zk_xact_lock('transaction')");
$holder->query_ok("INSERT INTO t VALUES ('written')");
$waiter->query_async("SELECT zk_lock('transaction')");
my @queue = wait_zk_children($zkc, '/zklock/locks/transaction', 2);

# Each counts what it commits. Whose sessions are connected where is left to chance.
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

sub goes_on
{
	my ($from) = (work_done());
	return wait_until('more work', sub { work_done() > $from + 10 });
}

my $id = zk_session_id($holder);
my @others = $ensemble->followers;
my %led = map { $_->port => 0 } $ensemble->members;
for my $member (@others, grep { my $m = $_; !grep { $m == $_ } @others } $ensemble->members)
{
	my $what = ($ensemble->modes->{ $member->port } // '') . ' ' . $member->connect_string;
	$led{ $member->port } = 1 if $what =~ /leader/;
	$member->stop;
	$ensemble->wait_ready(2);
	ok(goes_on(), "$what is stopped: work goes on with the others");
	wait_state($holder, 'connected');
	$member->launch;
	$ensemble->wait_ready;
	ok(goes_on(), "$what is back: work goes on");
	wait_state($holder, 'connected');
	works($holder, "SELECT string_agg(state, ' ') FROM zk_held_locks", 'held held held',
		"$what: locks and permits are held");
	is_deeply([ zk_session_id($holder), scalar $holder->query("SELECT zk_lock_token('transaction')") ],
		[ $id, $token ], "$what: in the same session, with the same token");
	ok(!$waiter->finished, "$what: the waiter waits");
}
is(scalar(grep { $_ } values %led), 1, 'a leader was among them');
wait_until('the tree', sub { eval { $zkc->children('/zklock/locks/transaction') } });
is_deeply([ $zkc->children('/zklock/locks/transaction') ],
	\@queue, 'holder and waiter have the nodes that they began with');

works($holder, 'COMMIT', '', 'the transaction that began before commits after it');
like($waiter->wait_result, qr/^\d+$/, 'and the waiter has the lock');
$_->safe_psql('postgres', 'INSERT INTO enough DEFAULT VALUES') for @nodes;
$_->wait_result for @workers;
is(join('', map { $_->error } @workers), '', 'nobody who was at work has seen an error');
is($_->safe_psql('postgres', "SELECT count(*) FROM t WHERE v = 'written'"),
	$_ == $nodes[0] ? 1 : 0, 'the row is there') for @nodes;

$_->quit for $holder, $waiter, @workers;
nothing_left($zkc, 'a rolling restart leaves nothing behind');
$_->stop for @nodes;
$zkc->close;
$ensemble->stop;
done_testing();
