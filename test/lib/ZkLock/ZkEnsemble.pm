# ZkLock::ZkEnsemble - a private ZooKeeper ensemble.
#
# Owns: the quorum part of the configuration, and finding the leader. The members are
# ZkLock::ZkServer objects, which own their processes.
#
#   my $ensemble = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
#   $ensemble->connect_string;      # of all members
#   $ensemble->leader->kill9;
#   $ensemble->wait_ready(2);       # a quorum of two serves again
#
# With isolable => 1 one member, always a follower, can be isolated: packets from and
# to the other members are dropped, while its clients still reach it. With isolable =>
# 'leader' it is the leader:
#
#   my $follower = $ensemble->isolable;
#   my $isolate = $ensemble->isolation;    # finds the connections
#   $isolate->();                          # interrupts them immediately
#   $ensemble->heal;

package ZkLock::ZkEnsemble;

use strict;
use warnings;

use Carp qw(croak);
use ZkLock::Proxy;
use ZkLock::Util qw(free_port hold_still wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

# Options: those of ZkLock::ZkServer->start, size, isolable, and leader_port: a function
# of a member's id, another member's id, and the quorum port of the other; it returns
# the port on which the member connects to the other as its leader.
sub start
{
	my ($class, %opt) = @_;
	my $size = delete $opt{size} // 3;
	my $leader_port = delete $opt{leader_port} // sub { $_[2] };
	my $isolable = delete $opt{isolable};
	my $self = bless { proxies => [] }, $class;
	my %peers = map { $_ => [ free_port(), free_port() ] } 1 .. $size;
	my %remote = $isolable ? $self->remote_ports(%peers) : %peers;

	# The first member and the others connect to each other through proxies.
	# For elections the member with the higher id connects. If the other one does, it closes that connection and
	# connects to the address which the other one names, its own, past the proxy: an isolated member with a transaction
	# that the others lack would be elected again and again. So a first member that leads, to which the others
	# connect when they start, calls nobody.
	for my $id (1 .. $size)
	{
		my %seen = map {
			my $direct = $_ == $id || ($_ != 1 && $id != 1);
			my ($lead, $elect) = @{ $direct ? $peers{$_} : $remote{$_} };
			$lead = $leader_port->($id, $_, $lead) if $_ != $id;
			$elect = free_port() if $id == 1 && $_ != 1 && ($isolable // '') eq 'leader';
			("server.$_" => "127.0.0.1:$lead:$elect")
		} keys %peers;
		push @{ $self->{members} },
		  ZkLock::ZkServer->new(%opt, myid => $id, peers => \%seen);
	}
	return $self->start_led if ($isolable // '') eq 'leader';
	return $self->start_followed($isolable ? $self->isolable : ());
}

sub with_client { return ZkLock::ZkServer::with_client(@_) }

# Starts the members so that the isolable one, whose id is the lowest, leads: it has a
# transaction that the next member lacks.
sub start_led
{
	my ($self) = @_;
	my ($first, @others) = $self->members;
	my $last = pop @others;
	$_->launch for $first, $last;
	$self->wait_ready(2);
	my $zkc = ZkLock::ZkClient->new($first->connect_string);
	$zkc->create('/newer');
	$zkc->close;
	$last->stop;
	$_->launch for @others;
	$self->wait_ready(1 + @others);
	$last->launch;
	return $self->wait_ready;
}

# Starts the members, @followers after the others have elected a leader.
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

# Starts a proxy for each port of each member.
sub remote_ports
{
	my ($self, %peers) = @_;
	my %remote;
	for my $id (keys %peers)
	{
		my @proxies =
		  map { ZkLock::Proxy->start(target => "127.0.0.1:$_", patience => 10) }
		  @{ $peers{$id} };
		$remote{$id} = [ map { $_->port } @proxies ];
		push @{ $self->{proxies} }, @proxies;
	}
	return %remote;
}

sub isolable { return $_[0]{members}[0] }

# Returns a function that isolates the member. No connection between members may begin
# or end between the two calls.
sub isolation
{
	my ($self) = @_;
	my @processes = map { $_->processes } @{ $self->{proxies} };
	return sub { hold_still(@processes) };
}

sub heal { $_->thaw for @{ $_[0]{proxies} }; return }

# Waits until $count members (by default all) are ready and one of them leads.
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
		fatal => 1,
		diag => sub { $self->diagnostics });
	return $self;
}

# Returns port => leader or follower for each member that is ready.
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

# Returns all members, ordered by id.
sub members { return @{ $_[0]{members} } }

# Returns the members whose process runs, including paused members.
sub running { return grep { $_->is_running } $_[0]->members }

# Returns the leader, once it answers.
sub leader
{
	my ($self) = @_;
	return wait_until('a leader', sub { ($self->in_mode('leader'))[0] },
		fatal => 1,
		diag => sub { $self->diagnostics });
}

# Returns the followers, once all running members except the leader follow.
sub followers
{
	my ($self) = @_;
	my @followers;
	wait_until('the followers',
		sub { @followers = $self->in_mode('follower'); @followers == $self->running - 1 },
		fatal => 1,
		diag => sub { $self->diagnostics });
	return @followers;
}

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

# Starts the members that do not run, and waits for the whole ensemble.
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
