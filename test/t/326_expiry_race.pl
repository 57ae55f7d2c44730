# Requests that race the end of their session are never answered by the client
# library. Sessions end again and again here while backends lock and unlock as
# fast as they can: every statement comes to an end, and soon.
#
# Alone: backends lock and unlock as fast as they can, and it says how long that takes.

use strict;
use warnings;

use List::Util qw(max);
use Test::More;
use Time::HiRes qw(time);
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

use constant EXPIRIES => 8;
use constant WORKERS => 6;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $way = ZkLock::Proxy->start(target => $zk);
my $node = zklock_node('a', proxy => $way, session_timeout => '1s');

# Each worker has requests in flight nearly all the time, and holds a lock of its own
# for half of it. A statement that loses a lock, or finds no session in time, fails,
# and the worker goes on with the next one.
my @statements = (
	"SELECT zk_lock('own' || pg_backend_pid()), count(*) FROM (SELECT zk_lock('race%d'), zk_unlock('race%1\$d') FROM generate_series(1, 20)) x",
	"SELECT zk_xact_lock(ARRAY['race%d', 'race%1\$db']), pg_sleep(0.001)",
	"SELECT zk_try_lock('race%d', interval '50 ms'), zk_unlock_all()",
	"SELECT zk_xact_lock_shared('race%d'), zk_xact_lock('race%1\$d')");
my %told = map { $_ => 0 } qw(00000 40001 40P01 08001 08006);
my %wrong;
my $longest = 0;
my @workers;

sub next_statement
{
	my ($s) = @_;
	my $n = $s->{n}++;
	$s->{began} = time();
	$s->query_async(sprintf $statements[ $n % @statements ], $n % 3);
	return;
}

# Notes what came to its end.
sub look_after
{
	my ($s) = @_;
	return if !defined $s->{waiting} || !$s->finished;
	$s->wait_result;
	$longest = max($longest, time() - $s->{began});
	if (exists $told{ $s->sqlstate }) { $told{ $s->sqlstate }++ }
	else { $wrong{ $s->sqlstate . ' ' . $s->error }++ }
	return 1;
}

# Keeps the workers at work until a condition holds, and counts what they end.
sub work_until
{
	my ($what, $condition, $ends) = @_;
	wait_until(
		$what,
		sub {
			for my $s (grep { look_after($_) } @workers)
			{
				$ends->{ $s->pid }++ if $s->ok;
				next_statement($s);
			}
			return $condition->();
		},
		pause => 0.002);
	return;
}

# The test's own among them.
sub sessions
{
	return scalar(my @ids = ($zk->four_letter('cons') // '') =~ /sid=0x/g);
}

@workers = map { session($node) } 1 .. WORKERS;
next_statement($_) for @workers;
for my $turn (1 .. EXPIRIES)
{
	my %ends;
	work_until(
		'every worker to be at work',
		sub { WORKERS == grep { ($ends{ $_->pid } // 0) >= 10 } @workers },
		\%ends);
	$way->freeze;
	work_until('all sessions to expire', sub { 1 == sessions() });
	$way->thaw;
}
wait_until('the last statements to end',
	sub { look_after($_) for @workers; !grep { defined $_->{waiting} } @workers });
is(join('', keys %wrong), '',
	'no error but those about lost locks and sessions');
cmp_ok($told{40001}, '>', 0, 'lost locks are reported');
cmp_ok($longest, '<', 15, 'no statement took longer than the timeouts allow');
note(join ', ', map { "$_: $told{$_}" } sort keys %told);
note(sprintf 'the longest took %.1f s', $longest);
$_->query_ok('SELECT zk_unlock_all()') for @workers;
$_->quit for @workers;
nothing_left($zkc, 'nothing is left');

$zkc->close;
$node->stop;
$way->stop;
$zk->stop;
done_testing();
