# The cost of deadlock detection: 200 waiters on three servers, for more than a minute.
# Proxies count the requests to the ensemble. A wait that is shorter than
# deadlock_timeout sends none. A longer wait sends a few requests once, and then one
# getChildren from time to time, at growing intervals. zk_stat counts the reads of
# PostgreSQL's lock table: each ensemble waiter reads it once when a new long wait for a
# local lock appears, and at no other time.
#
# test/unit/test_pace.c tests the time after the first minute with a simulated clock.

use strict;
use warnings;

use List::Util qw(max sum);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::Util qw(alive log_tail spawn wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my %count = (a => 67, b => 67, c => 66);
my $all = sum values %count;
my $names = max values %count;
my $waits = '/zklock/waiting';

# Seconds after the first cycle check at which further checks are due.
my @schedule = (0, 10, 30, 70, 150);

# The session timeout is long to reduce keepalive reads, which are no part of detection:
# on a busy machine an answer may be late.
my $zk = ZkLock::ZkServer->start(tick_time => 500,
	config => { maxSessionTimeout => 60000 });
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 40);
my %proxy = map { $_ => ZkLock::FaultProxy->start(target => $zk) } sort keys %count;
my %node = map {
	$_ => zklock_node($_, zk => $proxy{$_} // $zk, preload => 1,
		session_timeout => '40s',
		extra_conf => "max_connections = 90\nzklock.connect_timeout = '60s'\n")
} sort(keys %count), 'd';

sub requests_for_waits
{
	my ($server) = @_;
	return grep {
		grep { m{^$waits} } @{ $_->{paths} }
	} $proxy{$server}->record;
}

# Returns the requests since clear_record(): the number of each kind over all sessions,
# and "most", the largest number of getChildren requests of one session.
sub count_requests
{
	my (%kinds, @most);
	for my $server (sort keys %count)
	{
		my %lists;
		for my $request (requests_for_waits($server))
		{
			$request->{op} =~ /^getChildren/
			  ? $lists{ $request->{connection} }++
			  : $kinds{ $request->{op} }++;
		}
		$kinds{lists} += sum(values %lists) // 0;
		push @most, max(values %lists) // 0;
	}
	return { %kinds, most => max @most };
}

# Returns how often each server's lock table was read.
sub reads
{
	return join ' ', map {
		$node{$_}->safe_psql('postgres', 'SELECT lock_table_reads FROM zk_stat')
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
$holder->query_ok("SELECT zk_lock(ARRAY[$list])");

# Short waits.
{
	my $s = session($node{a});
	$s->query_ok("SET deadlock_timeout = '1min'");
	is($s->query("SELECT zk_try_lock('x1', '1500ms')"), 'f',
		'a timed attempt ends before deadlock_timeout');
	is(scalar(requests_for_waits('a')), 0, '... and sends no request for deadlock detection');
	$s->quit;
}
$_->clear_record for values %proxy;

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
my $began = time();
wait_until('all wait reports', sub { $zkc->children($waits) == $all }, pause => 0.2,
	diag => sub { join "\n", map { log_tail($_->basedir . '/pgbench.log') } values %node });
wait_until('the first cycle checks', sub { count_requests()->{lists} >= $all }, pause => 0.5);
my $first = count_requests();
my $sum = sum(values %$first) - $first->{most};
note(join ', ', map { "$_ $first->{$_}" } sort keys %$first);

# Each sends create, watch and getChildren; the first ones also create the parent.
cmp_ok($sum, '<=', 4 * $all,
	"$all long waits are reported and checked with $sum requests");
is(reads(), '0 0 0', 'the lock table is not read while no session waits for a local lock');

# Each waiter checks again when the check is due, and not earlier.
my @local_sessions;
for my $check (1 .. 3)
{
	my $seen;
	wait_until("$check further checks by all waiters", sub {
			$seen = count_requests();
			return $seen->{lists} >= $all * ($check + 1);
		}, pause => 1, timeout => 90);
	my $passed = time() - $began;
	my $due = grep { $_ <= $passed } @schedule;
	cmp_ok($seen->{most}, '<=', $due,
		sprintf '%d further checks in %.0f s: no session has checked more than %d times',
		$check, $passed, $due);
	is_deeply({ %$seen, lists => 0, most => 0 }, { %$first, lists => 0, most => 0 },
		'... and no other request is sent');

	# In between a session waits for a local lock.
	is(reads(), ($check - 1) * $count{a} . ' 0 0',
		'the lock table is not read again while the same sessions wait');
	next if $check == 3;
	push @local_sessions, local_wait($node{a}, $check);
	my $once = $check * $count{a} . ' 0 0';
	wait_until('the lock table to be read', sub { reads() eq $once }, pause => 0.2,
		diag => sub { 'read: ' . reads() });
	pass('each waiter of a server reads the lock table once after a new local wait');
}
my $later = count_requests()->{lists} - $first->{lists};
my $rate = $later / (time() - $began);
cmp_ok($rate, '<', 15,
	sprintf '%d waiters sent %.1f requests a second in the first %.0f s',
	$all, $rate, time() - $began);

# All waiters acquire their locks.
$_->drop for @local_sessions;
$holder->quit;
wait_until('all to get the lock', sub { !grep { alive($_) } values %bench }, pause => 0.2);
is_deeply([ map { slurp_file($_->basedir . '/pgbench.log') =~ m{actually processed: (\d+)/}}
	@node{ sort keys %count } ], [ @count{ sort keys %count } ],
	'all waiters acquire their lock in the end');
nothing_left($zkc, 'no node is left');
is_deeply([ $zkc->children($waits) ], [], '... and no wait report');
done_testing();
