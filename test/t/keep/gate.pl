# The gate of the recipe: every transaction on three servers acquires a kept lock shared. A
# migration acquires it exclusively, while sessions are idle or in transactions.
#
# Promise: 11.3

use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my @servers = map { zklock_node($_, zk => $zk, session_timeout => '240s') } qw(one two three);
for (@servers)
{
	$_->safe_psql('postgres', <<'SQL');
CREATE TABLE rule (version int);
INSERT INTO rule VALUES (1);
CREATE TABLE orders (version int);
CREATE ROLE app LOGIN;
GRANT ALL ON rule, orders TO app;
ALTER ROLE app SET zklock.keep_time = '10min';
SQL
}
my @apps = map { session($_, user => 'app') } @servers, @servers;
my $dba = session($servers[1]);

sub watched { return scalar(() = ($zk->four_letter('wchp') // '') =~ m{^/zklock/locks/gate/}gm) }

# A transaction up to its COMMIT, which notes the version of the rule on its server.
my $begin = "BEGIN; SELECT zk_xact_lock_shared('gate');";
my $work = 'INSERT INTO orders SELECT version FROM rule';

sub transactions
{
	for my $app (@_)
	{
		$app->query_ok($_) for $begin, $work, 'COMMIT';
	}
	return;
}

sub orders
{
	return join ' ', map { $_->safe_psql('postgres', 'SELECT count(*) FILTER (WHERE version = 1), count(*) FILTER (WHERE version = 2) FROM orders') } @servers;
}

# Transactions while nobody else wants the gate.
transactions(@apps);
wait_until('all nodes to be watched', sub { watched() == @apps });
my @kept = queue_of($zkc, 'gate');
is(@kept, 6, 'each session keeps the gate');
transactions(@apps);
is_deeply([ queue_of($zkc, 'gate') ], \@kept, 'further transactions use the same nodes');
is(orders(), '4|0 4|0 4|0', 'all were committed');

# The migration.
my ($inside, $second, $later, @idle) = @apps;
push @idle, $second;
$inside->query_ok($_) for $begin, $work;
$dba->query_async("SELECT zk_lock('gate')");
wait_blocked($dba);
wait_until('the idle sessions to give it up', sub { queue_of($zkc, 'gate') == 2 });
pass('sessions that only keep the gate give it up');
ok(!$dba->finished, 'the migration waits for the transaction inside');
$later->query_async($begin);
wait_until('a later transaction to queue', sub { queue_of($zkc, 'gate') == 3 });
$inside->query_ok('COMMIT');
ok($dba->wait_result, 'the migration begins when the transaction has committed');
is(orders(), '5|0 4|0 4|0', 'the migration finds the work of the transaction done');
ok(!$later->finished, 'the later transaction waits for the migration');
$_->query_async($begin) for @idle, $inside;
$_->safe_psql('postgres', 'UPDATE rule SET version = 2') for @servers;
is(orders(), '5|0 4|0 4|0', 'nobody works during the migration');
ok(!(grep { $_->finished } $later, @idle, $inside), 'all transactions wait for it');

# Afterwards.
$dba->query_ok("SELECT zk_unlock('gate')");
for my $app ($later, @idle, $inside)
{
	$app->wait_result;
	$app->query_ok($_) for $work, 'COMMIT';
}
is(orders(), '5|2 4|2 4|2', 'all transactions that waited see the new rule, on every server');
wait_until('the queue to be empty', sub { !queue_of($zkc, 'gate') });
pass('for a minute the sessions keep the gate no more');
transactions(@apps);
is(orders(), '5|4 4|4 4|4', 'they acquire it for each transaction');
my $new = session($servers[2], user => 'app');
transactions($new);
is(queue_of($zkc, 'gate'), 1, 'a session that was not asked keeps it');

$_->quit for @apps, $dba, $new;
nothing_left($zkc, 'no node is left');
