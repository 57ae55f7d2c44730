# ZkLock::ZkEnsemble - a private ZooKeeper ensemble.
#
# Owns: the quorum part of the configuration and the question who leads. The
# members are ZkLock::ZkServer objects, which own their processes.
#
#   my $ensemble = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
#   $ensemble->connect_string;      # of all members
#   $ensemble->leader->kill9;
#   $ensemble->wait_ready(2);       # a quorum of two serves again

package ZkLock::ZkEnsemble;

use strict;
use warnings;

use Carp qw(croak);
use ZkLock::Util qw(free_port wait_until);
use ZkLock::ZkServer;

# Options are those of ZkLock::ZkServer->start, and size.
sub start
{
	my ($class, %opt) = @_;
	my $size = delete $opt{size} // 3;
	my %peers;
	for my $id (1 .. $size)
	{
		$peers{"server.$id"} =
		  sprintf '127.0.0.1:%d:%d', free_port(), free_port();
	}
	my @members = map {
		ZkLock::ZkServer->new(%opt, myid => $_, peers => \%peers)
	} 1 .. $size;
	my $self = bless { members => \@members }, $class;
	$_->launch for @members;
	return $self->wait_ready;
}

# Returns when $count members (all of them by default) serve and one leads.
sub wait_ready
{
	my ($self, $count) = @_;
	$count //= @{ $self->{members} };
	wait_until(
		"$count members with a leader",
		sub {
			my %number = (leader => 0, follower => 0);
			$number{$_}++ for values %{ $self->modes };
			return $number{leader} == 1
			  && $number{leader} + $number{follower} >= $count;
		},
		diag => sub { $self->diagnostics });
	return $self;
}

# Port of each member that serves => leader or follower.
sub modes
{
	my ($self) = @_;
	my %modes;
	for my $member ($self->running)
	{
		my $mode = $member->four_letter('srvr', 0.5) // '';
		$modes{ $member->port } = $1 if $mode =~ /^Mode: (\w+)/m;
	}
	return \%modes;
}

# All members, in the order of their ids.
sub members { return @{ $_[0]{members} } }

# The members whose process runs, paused ones included.
sub running { return grep { $_->is_running } $_[0]->members }

sub leader
{
	my ($self) = @_;
	my ($leader) = $self->in_mode('leader');
	return $leader // croak "no leader\n" . $self->diagnostics;
}

sub followers { return $_[0]->in_mode('follower') }

sub in_mode
{
	my ($self, $mode) = @_;
	my $modes = $self->modes;
	return grep { ($modes->{ $_->port } // '') eq $mode } $self->members;
}

sub connect_string
{
	my ($self) = @_;
	return join ',', map { $_->connect_string } $self->members;
}

sub stop { $_->stop for $_[0]->members; return }
sub kill9 { $_->kill9 for $_[0]->members; return }
sub pause { $_->pause for $_[0]->running; return }
sub resume { $_->resume for $_[0]->running; return }

# Starts the members that do not run and waits for the whole ensemble.
sub restart
{
	my ($self) = @_;
	$_->launch for grep { !$_->pid } $self->members;
	return $self->wait_ready;
}

sub diagnostics
{
	my ($self) = @_;
	return join "\n", map { $_->log_tail_text(15) } $self->members;
}

1;
