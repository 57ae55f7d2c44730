# The client library never answers requests that are sent at the moment when their
# session ends. Here sessions expire repeatedly while backends lock and unlock as fast as
# they can. Every statement ends.
#
# Promise: 4.3

use ZkLock::Test;

use constant EXPIRIES => 8;
use constant WORKERS => 6;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::Proxy->start(target => $zk);
my $node = shared_node('a', proxy => $proxy, session_timeout => '1s');

# Each worker has outstanding requests nearly all the time, and holds a lock of its own
# for half of the time. A statement that loses a lock, or gets no session in time, fails,
# and the worker runs the next statement.
my @statements = (
	"SELECT zk_lock('own' || pg_backend_pid()), count(*) FROM (SELECT zk_lock('race%d'), zk_unlock('race%1\$d') FROM generate_series(1, 20)) x",
	"SELECT zk_xact_lock_many(ARRAY['race%d', 'race%1\$db']), pg_sleep(0.001)",
	"SELECT zk_try_lock('race%d', interval '50 ms'), zk_unlock_all()",
	"SELECT zk_xact_lock_shared('race%d'), zk_xact_lock('race%1\$d')");
my %results = map { $_ => 0 } qw(00000 40001 40P01 08001 08006);
my %wrong;
my @workers;

sub next_statement
{
	my ($s) = @_;
	my $n = $s->{n}++;
	$s->query_async(sprintf $statements[ $n % @statements ], $n % 3);
	return;
}

# Records the result of a statement that has ended.
sub record_result
{
	my ($s) = @_;
	return if !defined $s->{waiting} || !$s->finished;
	$s->wait_result;
	if (exists $results{ $s->sqlstate }) { $results{ $s->sqlstate }++ }
	else { $wrong{ $s->sqlstate . ' ' . $s->error }++ }
	return 1;
}

# Keeps the workers busy until a condition holds, and counts their successful statements.
sub work_until
{
	my ($what, $condition, $ends) = @_;
	wait_until(
		$what,
		sub {
			for my $s (grep { record_result($_) } @workers)
			{
				$ends->{ $s->pid }++ if $s->ok;
				next_statement($s);
			}
			return $condition->();
		},
		pause => 0.002);
	return;
}

# Returns the number of ZooKeeper sessions, including that of this test.
sub sessions
{
	return scalar(my @ids = ($zk->four_letter('cons') // '') =~ /sid=0x/g);
}

@workers = map { session($node) } 1 .. WORKERS;
next_statement($_) for @workers;
for my $round (1 .. EXPIRIES)
{
	my %ends;
	work_until(
		'ten statements of every worker',
		sub { WORKERS == grep { ($ends{ $_->pid } // 0) >= 10 } @workers },
		\%ends);
	$proxy->freeze;
	work_until('all sessions to expire', sub { 1 == sessions() });
	$proxy->thaw;
}
wait_until('the last statements to end',
	sub { record_result($_) for @workers; !grep { defined $_->{waiting} } @workers });
pass('every statement ends');
is(join('', keys %wrong), '',
	'all errors are about lost locks and sessions');
cmp_ok($results{40001}, '>', 0, 'lost locks are reported');
note(join ', ', map { "$_: $results{$_}" } sort keys %results);
$_->quit for @workers;
nothing_left($zkc, 'nothing is left');
