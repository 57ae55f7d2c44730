# The cost of deadlock detection: 200 waiters on three servers that hold nothing
# (ZKLOCK_TEST_WAITERS=500: so many) send no request for it, however long they wait. Proxies
# count the requests. zk_stat counts the
# reads of PostgreSQL's lock table: each ensemble waiter reads it once when a new long wait
# for a local lock appears, and at no other time. A local waiter that holds nothing is not
# followed to its blockers, and of a queue before one that holds something at most one of each mode.
#
# Promise: 7.3
#
# test/unit/test_deadlock_cost.c tests what a session sends that holds something, with a
# simulated clock.
#
# Promise: 7.3

use List::Util qw(max);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use ZkLock::Deadlock qw(wait_until_reported);
use ZkLock::Test;

my $all = $ENV{ZKLOCK_TEST_WAITERS} // 200;
my %count = map { $_->[0] => int(($all + $_->[1]) / 3) } [ a => 2 ], [ b => 1 ], [ c => 0 ];
my $names = max values %count;
# The session timeout is long to reduce keepalive reads, which are no part of detection:
# on a busy machine an answer may be late.
my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client(timeout => 40);
my %proxy = map { $_ => ZkLock::FaultProxy->start(target => $zk) } sort keys %count;
my %node = map {
	$_ => zklock_node($_, zk => $proxy{$_} // $zk,
		session_timeout => '40s',
		extra_conf => "max_connections = " . ($names + 40) . "\nzklock.ensemble_timeout = '60s'\n"
		  . "log_min_messages = debug1\n")
} sort(keys %count), 'd';

# Returns the requests of all waiters for reports and bells.
sub requests_for_waits
{
	return grep {
		grep { m{^/zklock/(?:waiting|bells)} } @{ $_->{paths} }
	} map { $_->record } values %proxy;
}

# Returns how often each server's lock table was read.
sub reads
{
	return join ' ', map {
		scalar(() = slurp_file($node{$_}->logfile) =~ /the lock table was read to find deadlocks across servers/g)
	} sort keys %count;
}

# Returns a holder of a local advisory lock, and a session that waits for it.
sub local_wait
{
	my ($node, $id) = @_;
	my @sessions = map { session($node) } 1 .. 2;
	$sessions[0]->query_ok("BEGIN; SELECT pg_advisory_xact_lock($id)");
	$sessions[1]->query_async("SELECT pg_advisory_xact_lock($id)");
	wait_blocked($sessions[1]);
	return @sessions;
}

my $holder = session($node{d});
my $list = join ', ', map { "'x$_'" } 0 .. $names - 1;
$holder->query_ok("SELECT zk_lock_many(ARRAY[$list])");

# The waiters. pgbench ends when all of its clients have acquired their lock.
my %bench;
for my $server (sort keys %count)
{
	my $script = $node{$server}->basedir . '/wait.sql';
	append_to_file($script, "SELECT zk_lock('x' || :client_id);\n");
	$bench{$server} = spawn(
		[ $node{$server}->installed_command('pgbench'), '-n', '-t', '1',
			'-c', $count{$server}, '-f', $script, '-d', $node{$server}->connstr('postgres') ],
		log => $node{$server}->basedir . '/pgbench.log');
}
wait_until('all waiters', sub {
		$all == grep { /-__WRIT__/ && !/0000000000$/ } $zkc->tree('/zklock/locks');
	}, pause => 0.5, timeout => 600, diag => sub { join "\n", map { log_tail($_->basedir . '/pgbench.log') } values %node });

# A session that holds something, and begins to wait after all others, reports its wait.
my $reporter = session($node{d});
$reporter->query_ok("SELECT zk_lock('mine')");
my $other = session($node{a});
$other->query_ok("SELECT zk_lock('theirs')");
$_->clear_record for values %proxy;
$reporter->query_async("SELECT zk_lock('theirs')");
wait_until_reported($zkc, 1);
is(reads(), '0 0 0', 'the lock table is not read while no session waits for a local lock');

# Each waiter looks at its server.
my @local_sessions;
for my $look (1 .. 3)
{
	push @local_sessions, local_wait($node{a}, $look);
	my $once = $look * $count{a} . ' 0 0';
	wait_until('the lock table to be read', sub { reads() eq $once }, pause => 0.2,
		diag => sub { 'read: ' . reads() });
	pass('each waiter of a server reads the lock table once after a new local wait');
}

# Which waits were followed, in the last reads of server a.
sub last_followed
{
	my @all = slurp_file($node{a}->logfile) =~ /(\d+) of \d+ waits followed/g;
	return @all < $count{a} ? '' : join ' ', keys %{ { map { $_ => 1 } @all[ -$count{a} .. -1 ] } };
}
is(last_followed(), '0', 'a local waiter that holds nothing is not followed');

# A queue of waiters that hold nothing, and behind it one that holds a zk lock and waits for the
# same lock: exclusively, so that it waits for the same holder as all before it; or shared.
my $followed = 0;
for my $case ([ '', 1 ], [ '_shared', 2 ])
{
	my ($form, $more) = @{$case};
	my @queue = (local_wait($node{a}, "100 + $followed"), map { session($node{a}) } 1 .. 5);
	$_->query_async("SELECT pg_advisory_xact_lock(100 + $followed)") for @queue[ 2 .. 6 ];
	wait_blocked($_) for @queue[ 2 .. 6 ];
	push @queue, session($node{a});
	$queue[-1]->query_ok("SELECT zk_lock('held$form')");
	$queue[-1]->query_async("SELECT pg_advisory_xact_lock$form(100 + $followed)");
	push @local_sessions, @queue;
	$followed += $more;
	wait_until("the wait$form to be followed", sub { last_followed() eq $followed }, pause => 0.2,
		diag => sub { 'followed: ' . last_followed() });
	pass("behind a queue$form of six that hold nothing, waits are followed: $more");
}
is(scalar(requests_for_waits()), 0, "$all waiters that hold nothing send no request for deadlock detection");
wait_until_reported($zkc, 1);
$_->quit for $other;
$reporter->wait_result;
$reporter->quit;

# All waiters acquire their locks.
$_->drop for @local_sessions;
$holder->quit;
wait_until('all to get the lock', sub { !grep { alive($_) } values %bench }, pause => 0.2);
is_deeply([ map { slurp_file($_->basedir . '/pgbench.log') =~ m{actually processed: (\d+)/}}
	@node{ sort keys %count } ], [ @count{ sort keys %count } ],
	'all waiters acquire their lock in the end');
nothing_left($zkc, 'no node is left');
is_deeply([ $zkc->children('/zklock/waiting') ], [], 'no wait report is left');
