# ZkLock::Crowd - many clients that contend for one lock, watched by a referee.
#
# Owns: starting and ending the members, and the assertions that hold for every crowd.
#
#   my $crowd = ZkLock::Crowd->new(zkc => $zkc, duration => 3000, hold_time => 3);
#   my $report = $crowd->contend_safely('readers', 'x',
#       { lock => $java->lock(read => '/zklock/locks/x'), mode => 's' }, ...);
#   my $report = $crowd->contend('different lock recipes', 'x', ...);
#
# A member is a lock of ZkLock::Opponent, with the mode that it reports to
# ZkLock::Referee. The crowd closes the sessions of its members. Times are in
# milliseconds. Options of a member: timeout, after which it gives up an attempt and
# starts another; pause, after each release. A member without a timeout fails the test
# if it waits for a minute.
#
# With meeting => n, the members that share the lock start first, and the first n keep it
# until all n hold it at once.

package ZkLock::Crowd;

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Referee;

# A longer wait is a failure.
use constant TIMEOUT => 60000;

sub new { my ($class, %fields) = @_; return bless {%fields}, $class }

# Lets a crowd contend. Checks that every member acquired the lock, and returns the
# referee's report.
sub contend
{
	my ($self, $what, $resource, @members) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $referee = ZkLock::Referee->start(meeting => $self->{meeting});
	my %member = map { ("member$_" => $members[$_]) } 0 .. $#members;
	my $begin = sub {
		my ($name) = @_;
		my $member = $member{$name};
		$member->{lock}->crowd($member->{timeout} // TIMEOUT, $referee->port,
			$name, $resource, $member->{mode}, $self->{duration}, $self->{hold_time},
			$member->{pause} // 0);
	};
	$begin->($_) for grep { $member{$_}{mode} ne 'x' } sort keys %member;
	$referee->await_meeting if $self->{meeting};
	$begin->($_) for grep { $member{$_}{mode} eq 'x' } sort keys %member;
	my (%entries, @late);
	for my $name (sort keys %member)
	{
		my ($entries, $timeouts) = $member{$name}{lock}->wait_result;
		$entries{$name} = $entries if $entries;
		push @late, $name if $timeouts && !$member{$name}{timeout};
	}
	my $report = $referee->report;
	is_deeply($report->{entries}, \%entries, "$what: the referee saw every acquisition");
	ok(!@late && keys %entries == @members, "$what: every member acquired the lock")
	  or diag("late: @late; acquired: @{[ sort keys %entries ]}");
	my $total = 0;
	$total += $_ for values %entries;
	note("$what: $total acquisitions, at most $report->{most}{$resource} holders at once");
	$_->{lock}->close for @members;
	return $report;
}

sub contend_safely
{
	my ($self, $what, @rest) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $report = $self->contend($what, @rest);
	is_deeply($report->{overlaps}, [], "$what: no conflicting holders at once");
	nothing_left($self->{zkc}, "$what: no node is left");
	return $report;
}

1;
