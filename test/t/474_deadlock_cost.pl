# What detection costs: 200 waiters on three servers, for more than a minute. The
# ensemble's part is counted by proxies that read the requests: a wait that is
# shorter than deadlock_timeout nothing, a longer one a few requests once, and then
# one list now and then, less and less often. PostgreSQL's part is counted by
# zk_stat: the lock table is read when somebody has waited long in it who had not
# before, once by each who waits in the ensemble, and at no other time.
#
# What comes after the first minute is tested with a clock of its own, in
# test/unit/test_pace.c.

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
my $waits = '/zklock/waits';

# Seconds after the first look at which there is another one.
my @schedule = (0, 10, 30, 70, 150);

# With few pings; a proxy may think that an answer is late when the machine is
# busy, and the keepalive read that follows is no part of detection.
my $zk = ZkLock::ZkServer->start(tick_time => 500,
	config => { maxSessionTimeout => 60000 });
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 40);
my %proxy = map { $_ => ZkLock::FaultProxy->start(target => $zk) } sort keys %count;
my %node = map {
	$_ => zklock_node($_, zk => $proxy{$_} // $zk, preload => 1,
		session_timeout => '40s',
		extra_conf => "max_connections = 90\nzklock.connect_timeout = '60s'\n")
} sort(keys %count), 'd';

sub about_waits
{
	my ($server) = @_;
	return grep {
		grep { m{^$waits} } @{ $_->{paths} }
	} $proxy{$server}->record;
}

# What a server's sessions asked since the proxies forgot: how many requests of
# each kind all of them together, and how many lists the most eager one.
sub asked
{
	my (%kinds, @most);
	for my $server (sort keys %count)
	{
		my %lists;
		for my $request (about_waits($server))
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

# How often each server's lock table was read.
sub reads
{
	return join ' ', map {
		$node{$_}->safe_psql('postgres', 'SELECT lock_table_reads FROM zk_stat')
	} sort keys %count;
}

# A row, and somebody of this server who waits for it.
sub wait_for_row
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
		'a wait that ends before deadlock_timeout');
	is(scalar(about_waits('a')), 0, '... tells and asks nothing');
	$s->quit;
}
$_->clear_record for values %proxy;

# The waiters; their pgbench ends when they have all had the lock.
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
wait_until('all to tell', sub { $zkc->children($waits) == $all }, pause => 0.2,
	diag => sub { join "\n", map { log_tail($_->basedir . '/pgbench.log') } values %node });
wait_until('their looks', sub { asked()->{lists} >= $all }, pause => 0.5);
my $first = asked();
my $sum = sum(values %$first) - $first->{most};
note(join ', ', map { "$_ $first->{$_}" } sort keys %$first);

# create, watch, list; the first of all make the parent.
cmp_ok($sum, '<=', 4 * $all,
	"$sum requests told of $all long waits, and had them looked at");
is(reads(), '0 0 0', 'where nobody waits in it, the lock table is not read');

# Each looks again, when it is due and no earlier.
my @rows;
for my $look (1 .. 3)
{
	my $seen;
	wait_until("all to have looked again $look times", sub {
			$seen = asked();
			return $seen->{lists} >= $all * ($look + 1);
		}, pause => 1, timeout => 90);
	my $passed = time() - $began;
	my $due = grep { $_ <= $passed } @schedule;
	cmp_ok($seen->{most}, '<=', $due,
		sprintf '%d times in %.0f s nobody has looked more than %d times',
		$look, $passed, $due);
	is_deeply({ %$seen, lists => 0, most => 0 }, { %$first, lists => 0, most => 0 },
		'... and nothing else was asked');

	# In between somebody waits for a lock of one server.
	is(reads(), ($look - 1) * $count{a} . ' 0 0',
		'while the same sessions wait in it, the lock table is not read again');
	next if $look == 3;
	push @rows, wait_for_row($node{a}, $look);
	my $once = $look * $count{a} . ' 0 0';
	wait_until('the lock table to be read', sub { reads() eq $once }, pause => 0.2,
		diag => sub { 'read: ' . reads() });
	pass('one more: it is read once by each waiter of that server');
}
my $later = asked()->{lists} - $first->{lists};
my $rate = $later / (time() - $began);
cmp_ok($rate, '<', 15,
	sprintf '%d waiters sent %.1f requests a second in the first %.0f s',
	$all, $rate, time() - $began);

# What waits, goes on.
$_->drop for @rows;
$holder->quit;
wait_until('all to get the lock', sub { !grep { alive($_) } values %bench }, pause => 0.2);
is_deeply([ map { slurp_file($_->basedir . '/pgbench.log') =~ m{actually processed: (\d+)/}}
	@node{ sort keys %count } ], [ @count{ sort keys %count } ],
	'all have got the lock in the end');
nothing_left($zkc, 'nothing is left');
is_deeply([ $zkc->children($waits) ], [], '... and nothing told');
done_testing();
