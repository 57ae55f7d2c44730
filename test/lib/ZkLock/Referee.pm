# ZkLock::Referee - sees who is inside, and whether they may be there together.
#
# Owns: one listening port and one child process, which knows nothing of locks.
# A program that has a lock says "enter <who> <resource> <mode>" on a connection, and
# "leave <who> <resource> <mode>" before it gives the lock back, and gets a line
# in answer to each. Modes: x is alone; s is with others that have s; a number is
# with so many at most.
#
#   my $referee = ZkLock::Referee->start;
#   $referee->port;
#   my $report = $referee->report;
#       # { turns => { who => n }, most => { resource => n }, overlaps => [...] }

package ZkLock::Referee;

use strict;
use warnings;

use IO::Select;
use JSON::PP qw(decode_json encode_json);

use parent 'ZkLock::Child';

sub start { my ($class) = @_; return $class->fork_server(\&serve) }

sub port { return $_[0]{port} }

sub report
{
	my ($self) = @_;
	$self->write_line('report');
	return decode_json($self->read_line('report'));
}

# The child. Ends when its parent has closed the pipe.
sub serve
{
	my ($listener, $orders, $acks) = @_;
	my $select = IO::Select->new($listener, $orders);
	my $report = { turns => {}, most => {}, overlaps => [] };
	my %inside;    # resource => { who => mode }

	while (1)
	{
		for my $ready ($select->can_read)
		{
			if ($ready == $orders)
			{
				sysread $orders, my $line, 1024 or return;
				print {$acks} encode_json($report), "\n";
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
				heard($report, \%inside, split ' ', $claim);
				syswrite $ready, "ok\n";
			}
		}
	}
}

sub heard
{
	my ($report, $all, $verb, $who, $resource, $mode) = @_;
	my $inside = $all->{$resource} //= {};
	return delete $inside->{$who} if $verb eq 'leave';
	my @others = map { "$_ $inside->{$_}" } sort keys %$inside;
	push @{ $report->{overlaps} }, "$who $mode entered $resource beside @others"
	  if !may_enter($mode, values %$inside);
	$inside->{$who} = $mode;
	$report->{turns}{$who}++;
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
