# Deadlocks at random: sessions of three servers wait for each other's locks and
# rows, in random order, each for one other session. One session of each cycle of two to
# six fails; all others succeed. SEED in the environment repeats a run, and
# ZKLOCK_TEST_CYCLES=1000 makes it longer. The median of the times from the last
# member's wait to the error is less than deadlock_timeout and two seconds, for cycles of two and for
# longer ones, without the times for which the members and this test waited for a processor.
#
# Promise: 7.2

use List::Util qw(shuffle sum);
use Time::HiRes qw(time);
use ZkLock::Test;

use constant { CYCLES => $ENV{ZKLOCK_TEST_CYCLES} // 15, SESSIONS => 6, DEADLOCK_TIMEOUT => 0.2 };

my $show = $ENV{ZKLOCK_TEST_CYCLES} ? \&diag : \&note;
my $seed = $ENV{SEED} // int(rand(1 << 30));
srand($seed);
note("SEED=$seed");

my ($zk, $zkc) = ZkLock::ZkEnsemble->start(size => 3, tick_time => 2000)->with_client(timeout => 60);
my @nodes = map {
	my $node = zklock_node($_, zk => $zk, session_timeout => '5min',
		extra_conf => "deadlock_timeout = '" . DEADLOCK_TIMEOUT . "s'\n");
	$node->safe_psql('postgres',
		'CREATE TABLE t AS SELECT g AS id FROM generate_series(0, 9) g');
	$node
} qw(a b c);
my @s = map { session($nodes[ $_ % 3 ]) } 0 .. SESSIONS - 1;
$_->query_ok("SELECT zk_lock('warm'), zk_unlock('warm')") for @s;

# Returns session => blocker: a permutation, in which some sessions do not wait.
sub random_waits
{
	my @to = shuffle(0 .. SESSIONS - 1);
	return { map { $_ => $to[$_] }
		  grep { $to[$_] != $_ && rand() < 0.85 } 0 .. SESSIONS - 1 };
}

# The oracle. Returns session => the members of its cycle.
sub cycles_in
{
	my ($waits) = @_;
	my %cycle;
	for my $start (0 .. SESSIONS - 1)
	{
		my ($at, @path) = ($start);
		do { push @path, $at; $at = $waits->{$at} }
		  while defined $at && $at != $start && @path <= SESSIONS;
		$cycle{$start} = join ' ', sort @path
		  if defined $at && $at == $start;
	}
	return \%cycle;
}

# Returns the time, less the times for which this test and the members of a cycle waited for a processor.
sub time_of
{
	my ($key) = @_;
	return time() - sum(map { starved($_) } $$, map { $s[$_]->pid } split ' ', $key);
}

# Shows how many cycles had each number of members, and how long they took.
sub show_times
{
	my ($times) = @_;
	for my $n (sort keys %$times)
	{
		my @sorted = sort { $a <=> $b } @{ $times->{$n} };
		$show->(sprintf '%d sessions: %d cycles, median %.2f s, 99 %% within %.2f s, longest %.2f s',
			$n, scalar @sorted, $sorted[ $#sorted / 2 ], $sorted[ $#sorted * 0.99 ], $sorted[-1]);
	}
}

my @wrong;
my %times;    # by number of members
my %has_row;    # cycles with a row lock among the edges
my %members = (two => [2], 'three and more' => [ 3 .. SESSIONS ]);
my ($cycles, $rounds) = (0, 0);

# Returns the times of the cycles of this kind, in order.
sub times_of
{
	my @times = sort { $a <=> $b } map { @{ $times{$_} // [] } } @{ $members{ $_[0] } };
	return @times;
}

while ($cycles < CYCLES || ($rounds < 10 * CYCLES && grep { times_of($_) < 3 } keys %members))
{
	$rounds++;
	my $waits = random_waits();
	my $cycle = cycles_in($waits);
	my %expected = map { $_ => 1 } values %$cycle;
	$cycles += keys %expected;
	for my $i (0 .. SESSIONS - 1)
	{
		$s[$i]->query_ok("BEGIN; SELECT zk_xact_lock('x$i')");
		$s[$i]->query_ok("SELECT id FROM t WHERE id = $i FOR UPDATE");
	}
	my (%waiting, %failed, %closed);
	for my $i (shuffle keys %$waits)
	{
		my $other = $waits->{$i};
		my $is_row = $i % 3 == $other % 3 && rand() < 0.6;
		$s[$i]->query_async($is_row
			? "SELECT id FROM t WHERE id = $other FOR UPDATE"
			: "SELECT zk_xact_lock('x$other')");
		$waiting{$i} = 1;
		next if !$cycle->{$i};
		$closed{ $cycle->{$i} } = time_of($cycle->{$i});
		$has_row{"$rounds: $cycle->{$i}"} = 1 if $is_row;
	}

	# Sessions that do not wait keep their locks until the cycles are broken.
	my $end = sub {
		my ($i) = @_;
		$s[$i]->wait_result;
		delete $waiting{$i};
		my $key = $cycle->{$i} // "none: session $i";
		push @{ $failed{$key} }, $s[$i]->sqlstate if !$s[$i]->ok;
		push @{ $times{ my @members = split ' ', $key } }, time_of($key) - $closed{$key}
		  if !$s[$i]->ok && $cycle->{$i};
		$s[$i]->query_ok('ROLLBACK');
	};
	my $end_finished = sub { $end->($_) for grep { $s[$_]->finished } keys %waiting };
	wait_until('the cycles to break',
		sub { $end_finished->(); keys %failed >= keys %expected });
	for my $i (grep { !exists $waits->{$_} } 0 .. SESSIONS - 1)
	{
		$s[$i]->query_ok('ROLLBACK');
	}
	wait_until('all to succeed', sub { $end_finished->(); !%waiting });
	my $got = join '; ', map { "$_: @{ $failed{$_} }" } sort keys %failed;
	my $want = join '; ', map { "$_: 40P01" } sort keys %expected;
	push @wrong, "round $rounds: $got instead of $want" if $got ne $want;
}
is_deeply(\@wrong, [], "$cycles cycles in $rounds rounds: exactly one session of each fails");
show_times(\%times);
for my $kind (sort keys %members)
{
	my @sorted = times_of($kind);
	cmp_ok($sorted[ $#sorted / 2 ] // 'inf', '<', DEADLOCK_TIMEOUT + 2,
		"half of the cycles of $kind sessions are found within deadlock_timeout and two seconds");
}
$show->(keys(%has_row) . ' cycles with a row lock among the edges');
wait_zk_empty($zkc, '/zklock/waiting');
nothing_left($zkc, 'no node is left');
