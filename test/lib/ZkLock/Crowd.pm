# ZkLock::Crowd - many who contend for some time, and a referee.
#
# Owns: letting them begin and end, and what can be said of any crowd.
#
#   my $crowd = ZkLock::Crowd->new(zkc => $zkc, duration => 3000, turn => 3);
#   my $report = $crowd->contend_safely('readers', 'x',
#       { lock => $java->lock(read => '/zklock/locks/x'), mode => 's' }, ...);
#   my $report = $crowd->contend('the wrong language', 'x', ...);
#
# Members are locks of ZkLock::Opponent, of whose sessions the crowd disposes, with
# the mode in which ZkLock::Referee knows them. Times are in milliseconds; further
# ones of a member: patience, the longest that it waits before it starts again; rest,
# after each turn. Who has no patience of its own must never have to wait long.

package ZkLock::Crowd;

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Referee;

# More than that counts as broken.
use constant PATIENCE => 60000;

sub new { my ($class, %fields) = @_; return bless {%fields}, $class }

# Lets a crowd contend; checks that everybody had a turn, and returns what the
# referee has seen.
sub contend
{
	my ($self, $what, $resource, @members) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $referee = ZkLock::Referee->start;
	my %member = map { ("member$_" => $members[$_]) } 0 .. $#members;
	for my $who (sort keys %member)
	{
		my $member = $member{$who};
		$member->{lock}->crowd($member->{patience} // PATIENCE, $referee->port,
			$who, $resource, $member->{mode}, $self->{duration}, $self->{turn},
			$member->{rest} // 0);
	}
	my (%turns, @late);
	for my $who (sort keys %member)
	{
		my ($turns, $missed) = $member{$who}{lock}->wait_result;
		$turns{$who} = $turns if $turns;
		push @late, $who if $missed && !$member{$who}{patience};
	}
	my $report = $referee->report;
	is_deeply($report->{turns}, \%turns, "$what: the referee saw every turn");
	ok(!@late && keys %turns == @members, "$what: everybody had one")
	  or diag("late: @late; had one: @{[ sort keys %turns ]}");
	my $total = 0;
	$total += $_ for values %turns;
	note("$what: $total turns, at most $report->{most}{$resource} at once");
	$_->{lock}->close for @members;
	return $report;
}

sub contend_safely
{
	my ($self, $what, @rest) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $report = $self->contend($what, @rest);
	is_deeply($report->{overlaps}, [], "$what: nobody met who must not");
	nothing_left($self->{zkc}, "$what: nothing is left");
	return $report;
}

1;
