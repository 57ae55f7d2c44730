# Crowds of SQL sessions of two servers, Java and Python threads on one lock, and a
# referee that sees every entry and exit and knows nothing of locks.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::Opponent;
use ZkLock::Referee;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

# How long a crowd contends, how long a turn lasts, and the most that anybody has
# to wait: more counts as broken.
use constant DURATION => 2500;
use constant TURN => 3;
use constant PATIENCE => 60000;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);
my ($a, $b) = map { zklock_node($_, zk => $zk, session_timeout => '10s') } qw(a b);

sub path { return "/zklock/locks/$_[0]" }

# A member: a lock of somebody, and how it enters.
sub java { my ($kind, $lock, $mode) = @_; return [ $java->lock($kind => path($lock)), $mode ] }
sub python { my ($kind, $lock, $mode) = @_; return [ $python->lock($kind => path($lock)), $mode ] }

# One that waits for a moment only, and then begins anew; and one that rests after
# each turn. kazoo's readers wait for writers behind them, and those for them (see
# 434_kazoo_locks.pl): they need both.
sub impatient { my ($member) = @_; return [ @$member[0, 1], 200, 0 ] }
sub resting { my ($member) = @_; return [ @$member[0, 1], PATIENCE, 100 ] }

sub sql
{
	my ($server, $names, $lock, $mode) = @_;
	return [
		$python->lock(
			($mode eq 'x' ? 'exclusive' : 'shared') => $lock,
			sql => $server,
			node_names => $names),
		$mode ];
}

# Lets a crowd contend; returns what the referee has seen, and checks that
# everybody had a turn.
sub contend
{
	my ($what, $lock, @members) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $referee = ZkLock::Referee->start;
	for my $i (0 .. $#members)
	{
		my ($member, $mode, $patience, $rest) = @{ $members[$i] };
		$member->crowd($patience // PATIENCE, $referee->port, "member$i", $lock,
			$mode, DURATION, TURN, $rest // 0);
	}
	my %turns;
	for my $i (0 .. $#members)
	{
		my ($member, undef, $patience) = @{ $members[$i] };
		my ($turns, $missed) = $member->wait_result;
		$turns{"member$i"} = $turns if $turns;
		die "member$i of $what had to wait too long"
		  if $missed && ($patience // PATIENCE) == PATIENCE;
	}
	my $report = $referee->report;
	is_deeply($report->{turns}, \%turns, "$what: the referee saw every turn");
	is(scalar(keys %turns), scalar(@members),
		"$what: everybody had one");
	my $total = 0;
	$total += $_ for values %turns;
	note("$what: $total turns, at most $report->{most}{$lock} at once");
	$_->[0]->close for @members;
	return $report;
}

sub harmony
{
	my ($what, $lock, @members) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $report = contend($what, $lock, @members);
	is_deeply($report->{overlaps}, [], "$what: nobody met who must not");
	nothing_left($zkc, "$what: nothing is left");
	return $report;
}

my $report = harmony('mutexes', 'm',
	map({ java(mutex => 'm', 'x') } 1 .. 3),
	map({ python(curator_mutex => 'm', 'x') } 1 .. 3),
	map({ sql($_, 'curator_mutex', 'm', 'x') } $a, $a, $b, $b));
is($report->{most}{m}, 1, 'mutexes: there was one at a time');

$report = harmony('readers and writers of Curator', 'rw',
	map({ java(write => 'rw', 'x') } 1 .. 2),
	map({ java(read => 'rw', 's') } 1 .. 4),
	python(curator_write => 'rw', 'x'),
	map({ sql($_, 'curator', 'rw', 'x') } $a, $b),
	map({ sql($_, 'curator', 'rw', 's') } $a, $a, $b, $b));
cmp_ok($report->{most}{rw}, '>', 1, 'readers and writers of Curator: readers met');

$report = harmony("kazoo's locks", 'k',
	map({ python(lock => 'k', 'x') } 1 .. 3),
	map({ python(write => 'k', 'x') } 1 .. 2),
	map({ sql($_, 'kazoo', 'k', 'x') } $a, $a, $b, $b));
is($report->{most}{k}, 1, "kazoo's locks: there was one at a time");

$report = harmony("kazoo's readers and writers", 'krw',
	map({ resting(python(write => 'krw', 'x')) } 1 .. 2),
	map({ impatient(python(read => 'krw', 's')) } 1 .. 3),
	map({ resting(sql($_, 'kazoo', 'krw', 'x')) } $a, $b),
	map({ sql($_, 'kazoo', 'krw', 's') } $a, $a, $b, $b));
cmp_ok($report->{most}{krw}, '>', 1, "kazoo's readers and writers: readers met");

$report = harmony('SQL alone, in three languages', 'sql',
	map({ my $names = $_; map { sql($_, $names, 'sql', 'x') } $a, $b }
		  qw(curator curator_mutex kazoo)),
	map({ my $names = $_; map { sql($_, $names, 'sql', 's') } $a, $b }
		  qw(curator kazoo)));
cmp_ok($report->{most}{sql}, '>', 1, 'SQL alone, in three languages: readers met');

# The referee cries when somebody speaks the wrong language: kazoo does not know
# Curator's names.
$report = contend('the wrong language', 'wrong',
	map({ python(lock => 'wrong', 'x') } 1 .. 3),
	map({ sql($_, 'curator_mutex', 'wrong', 'x') } $a, $b));
cmp_ok(scalar(@{ $report->{overlaps} }), '>', 0,
	'the wrong language: the referee saw two at once');
like($report->{overlaps}[0], qr/^member\d x entered wrong beside member\d x/,
	'the wrong language: and says whom');

$zkc->close;
$_->stop for $java, $python, $a, $b, $zk;
done_testing();
