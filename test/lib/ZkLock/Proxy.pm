# ZkLock::Proxy - a TCP proxy (socat) that can interrupt the connections to a server.
#
# Owns: one listening port and the socat processes behind it. Signals only
# processes of the groups it started.
#
#   my $proxy = ZkLock::Proxy->start(target => $zk);   # or 'host:port';
#                                 # address => '[::1]' and port => 1 listen there;
#                                 # patience => 10 waits so many seconds for a server that
#                                 # does not listen: without it the client sees its connection
#                                 # accepted and closed, and connects again at once
#   $proxy->connect_string;
#   $proxy->cut;                  # drop the connections, accept new ones
#   $proxy->cut(refuse => 1);     # drop them and refuse new ones
#   $proxy->refuse;               # keep the connections, refuse new ones
#   $proxy->accept;               # accept again
#   $proxy->retarget('host:port'); # new connections go to another server
#   $proxy->freeze; $proxy->thaw; # a silent network, in both directions

package ZkLock::Proxy;

use strict;
use warnings;

use Carp qw(croak);
use File::Temp ();
use ZkLock::Util
  qw(free_port wait_until spawn end_process alive hold_still log_tail
  port_listens read_file);

my %groups;    # process groups of this process, to end at exit

sub start
{
	my ($class, %opt) = @_;
	my $target = $opt{target} // croak 'target missing';
	$target = $target->connect_string if ref $target;
	my $tmp = File::Temp->newdir('proxyXXXXXX', TMPDIR => 1);
	my $self = bless {
		tmp => $tmp,
		log => $tmp->dirname . '/socat.log',
		port => $opt{port} // free_port(),
		address => $opt{address} // '127.0.0.1',
		target => $target,
		patience => $opt{patience} ? ',interval=0.05,retry=' . 20 * $opt{patience} : '',
		owner => $$,
	}, $class;
	return $self->accept;
}

sub connect_string { return "$_[0]{address}:$_[0]{port}" }
sub port { return $_[0]{port} }

# Accepts connections, also after refuse().
sub accept
{
	my ($self) = @_;
	return $self if $self->{listener};
	my $pid = spawn([
			'socat',
			($self->{address} =~ /:/ ? 'TCP6' : 'TCP4')
			  . "-LISTEN:$self->{port},bind=$self->{address},fork,reuseaddr,nodelay,backlog=64",
			"TCP4:$self->{target},nodelay$self->{patience}"
		],
		group => 1,
		log => $self->{log});
	$self->{listener} = $pid;
	$self->{groups}{$pid} = 1;
	$groups{$pid} = $$;
	wait_until(
		"proxy on port $self->{port}",
		sub {
			croak "socat ended\n" . log_tail($self->{log})
			  unless alive($pid);
			return port_listens($self->{port});
		},
		fatal => 1);
	return $self;
}

sub retarget
{
	my ($self, $target) = @_;
	$self->refuse;
	$self->{target} = $target;
	return $self->accept;
}

# Refuses new connections; the existing ones stay.
sub refuse
{
	my ($self) = @_;
	my $pid = delete $self->{listener} or return $self;
	end_process($pid, 'KILL');
	return $self;
}

# Drops the existing connections. The listener is stopped meanwhile: a connection
# between the search and the kill would survive.
sub cut
{
	my ($self, %opt) = @_;
	$self->refuse if $opt{refuse};
	my $listener = $self->{listener};
	hold_still($listener) if $listener;
	kill 'KILL', $self->connections;
	wait_until('connections to end', sub { !$self->connections }, fatal => 1);
	kill 'CONT', $listener if $listener && !$self->{frozen};
	return $self;
}

# Stops all reads and writes. Connections stay established, and the kernel still
# accepts new ones.
sub freeze
{
	my ($self) = @_;
	$self->{frozen} = 1;
	hold_still($self->{listener}) if $self->{listener};
	hold_still($self->processes);
	return $self;
}

sub thaw
{
	my ($self) = @_;
	$self->{frozen} = 0;
	kill 'CONT', $self->processes;
	return $self;
}

# Returns the ids of the socat processes that carry a connection.
sub connections
{
	my ($self) = @_;
	my $listener = $self->{listener} // 0;
	return grep { $_ != $listener } $self->processes;
}

sub processes { return group_members($_[0]{groups}) }

# Returns the ids of the live socat processes in these groups.
sub group_members
{
	my ($wanted) = @_;
	my @found;
	for my $path (glob '/proc/[0-9]*/stat')
	{
		my $stat = read_file($path);
		my ($pid, $name, $state, undef, $group) =
		  $stat =~ /^(\d+) \((.*)\) (\S) (\d+) (\d+)/ or next;
		next unless $wanted->{$group} && $state ne 'Z';
		next unless $name eq 'socat' || $pid == $group;
		push @found, $pid;
	}
	return @found;
}

sub stop
{
	my ($self) = @_;
	$self->cut(refuse => 1);
	delete @groups{ keys %{ $self->{groups} } };
	$self->{groups} = {};
	return;
}

sub DESTROY
{
	my ($self) = @_;
	return unless $self->{owner} == $$;
	local ($?, $@, $!);
	eval { $self->stop };
	return;
}

END
{
	local $?;
	my %mine = map { $_ => 1 } grep { $groups{$_} == $$ } keys %groups;
	kill 'KILL', group_members(\%mine) if %mine;
}

1;
