# ZkLock::Referee - records which clients hold a lock, and whether they may hold it
# at the same time.
#
# Owns: one listening port and one child process, which is independent of any lock
# service. A holder sends "enter <name> <resource> <mode>" on a connection, and
# "leave <name> <resource> <mode>" before it releases the lock, and gets one line
# in answer to each. Modes: x excludes all others; s excludes all but s; a number n
# allows at most n holders. With "meeting", no holder is answered until that many hold a
# resource at once, so that this does not depend on the speed of the machine.
#
#   my $referee = ZkLock::Referee->start(meeting => 3);
#   $referee->port;
#   $referee->await_meeting;
#   my $report = $referee->report;
#       # { entries => { name => n }, most => { resource => n }, overlaps => [...] }

package ZkLock::Referee;

use strict;
use warnings;

use IO::Select;
use JSON::PP qw(decode_json encode_json);

use parent 'ZkLock::Child';

sub start
{
	my ($class, %opt) = @_;
	return $class->fork_server(sub { serve($opt{meeting} // 0, @_) });
}

sub port { return $_[0]{port} }

sub await_meeting
{
	my ($self) = @_;
	$self->write_line('meeting');
	$self->read_line('meeting');
	return;
}

sub report
{
	my ($self) = @_;
	$self->write_line('report');
	return decode_json($self->read_line('report'));
}

# The child. Ends when its parent has closed the pipe.
sub serve
{
	my ($meeting, $listener, $orders, $acks) = @_;
	my $select = IO::Select->new($listener, $orders);
	my $report = { entries => {}, most => {}, overlaps => [] };
	my %inside;    # resource => { name => mode }
	my @unanswered;

	while (1)
	{
		for my $ready ($select->can_read)
		{
			if ($ready == $orders)
			{
				sysread $orders, my $line, 1024 or return;
				if ($line =~ /^meeting/) { push @unanswered, $acks }
				else { print {$acks} encode_json($report), "\n" }
			}
			elsif ($ready == $listener)
			{
				my $client = $listener->accept or next;
				$select->add($client);
			}
			elsif (!sysread $ready, my $claim, 1024)
			{
				$select->remove($ready);
				close $ready;
			}
			else
			{
				record_claim($report, \%inside, split ' ', $claim);
				push @unanswered, $ready;
			}
		}
		next if !grep { $_ >= $meeting } 0, values %{ $report->{most} };
		syswrite $_, "ok\n" for splice @unanswered;
	}
}

sub record_claim
{
	my ($report, $all, $verb, $name, $resource, $mode) = @_;
	my $inside = $all->{$resource} //= {};
	return delete $inside->{$name} if $verb eq 'leave';
	my @others = map { "$_ $inside->{$_}" } sort keys %$inside;
	push @{ $report->{overlaps} }, "$name $mode entered $resource beside @others"
	  if !may_enter($mode, values %$inside);
	$inside->{$name} = $mode;
	$report->{entries}{$name}++;
	$report->{most}{$resource} = keys %$inside
	  if keys %$inside > ($report->{most}{$resource} // 0);
	return;
}

sub may_enter
{
	my ($mode, @others) = @_;
	return @others < $mode if $mode =~ /^\d+$/;
	return !@others if $mode eq 'x';
	return !grep { $_ ne 's' } @others;
}

1;
