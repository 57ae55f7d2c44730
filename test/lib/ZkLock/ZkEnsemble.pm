# ZkLock::ZkEnsemble - a private ZooKeeper ensemble.
#
# Owns: the quorum part of the configuration and the question who leads. The
# members are ZkLock::ZkServer objects, which own their processes.
#
#   my $ensemble = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
#   $ensemble->connect_string;      # of all members
#   $ensemble->leader->kill9;
#   $ensemble->wait_ready(2);       # a quorum of two serves again
#
# With isolable => 1 one member, always a follower, can be cut off from the
# others, packets vanish, while its clients still reach it:
#
#   my $follower = $ensemble->isolable;
#   my $isolate = $ensemble->isolation;    # looks for the connections
#   $isolate->();                          # breaks them, within a moment
#   $ensemble->heal;

package ZkLock::ZkEnsemble;

use strict;
use warnings;

use Carp qw(croak);
use ZkLock::Proxy;
use ZkLock::Util qw(free_port hold_still wait_until);
use ZkLock::ZkServer;

# Options are those of ZkLock::ZkServer->start, size, isolable, and way: a function
# that is given a member's id, another's, and the port where the other leads; it
# returns the port by which the one shall reach the other as its leader.
sub start
{
	my ($class, %opt) = @_;
	my $size = delete $opt{size} // 3;
	my $leader_port = delete $opt{leader_port} // sub { $_[2] };
	my $isolable = delete $opt{isolable};
	my $self = bless { proxies => [] }, $class;
	my %peers = map { $_ => [ free_port(), free_port() ] } 1 .. $size;
	my %remote = $isolable ? $self->remote_ports(%peers) : %peers;

	# The first one reaches the others as the others reach it: by proxy.
	for my $id (1 .. $size)
	{
		my %seen = map {
			my $direct = $_ == $id || ($_ != 1 && $id != 1);
			my ($lead, $elect) = @{ $direct ? $peers{$_} : $remote{$_} };
			$lead = $leader_port->($id, $_, $lead) if $_ != $id;
			("server.$_" => "127.0.0.1:$lead:$elect")
		} keys %peers;
		push @{ $self->{members} },
		  ZkLock::ZkServer->new(%opt, myid => $id, peers => \%seen);
	}
	return $self->start_followed($isolable ? $self->isolable : ());
}

# Starts the members; those given when the others have a leader already.
sub start_followed
{
	my ($self, @followers) = @_;
	my %later = map { $_ => 1 } @followers;
	my @first = grep { !$later{$_} } $self->members;
	$_->launch for @first;
	$self->wait_ready(scalar @first) if @followers;
	$_->launch for @followers;
	return $self->wait_ready;
}

# A proxy for each port of each member.
sub remote_ports
{
	my ($self, %peers) = @_;
	my %remote;
	for my $id (keys %peers)
	{
		my @proxies =
		  map { ZkLock::Proxy->start(target => "127.0.0.1:$_") } @{ $peers{$id} };
		$remote{$id} = [ map { $_->port } @proxies ];
		push @{ $self->{proxies} }, @proxies;
	}
	return %remote;
}

sub isolable { return $_[0]{members}[0] }

# A function that isolates; to be called while nobody connects or leaves.
sub isolation
{
	my ($self) = @_;
	my @processes = map { $_->processes } @{ $self->{proxies} };
	return sub { hold_still(@processes) };
}

sub heal { $_->thaw for @{ $_[0]{proxies} }; return }

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
