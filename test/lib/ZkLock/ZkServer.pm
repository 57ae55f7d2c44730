# ZkLock::ZkServer - one private ZooKeeper server.
#
# Owns: the server's Java command line, its configuration and data directory,
# and its process, by ZkLock::Child. Uses the packaged jars directly. A server dies
# with the program that started it.
#
#   my $zk = ZkLock::ZkServer->start(tick_time => 500);
#   my ($zk, $zkc) = ZkLock::ZkServer->start->with_client(timeout => 60);     # and a ZkLock::ZkClient
#   $zk->connect_string;            # 127.0.0.1:12345
#   $zk->kill9; $zk->restart;       # same port, same data
#   $zk->pause; $zk->resume;        # SIGSTOP, SIGCONT
#   $zk->four_letter('srvr');
#   $zk->stop;
#
# A session timeout can be ten minutes, whatever the tick is: tests that are not about a loss use
# 60 s, so that no starvation of this machine ends their sessions.
#
# Options of start(): tick_time (ms), config (hash of further configuration lines; undef:
# ZooKeeper's default), java (list of further java options), container_check_ms, dir (a
# directory to use instead of a temporary one), tls (a ZkLock::Tls: a second port serves TLS),
# secure_port (for TLS that config sets up). ZkLock::ZkEnsemble creates the members of an
# ensemble, and passes myid and peers.

package ZkLock::ZkServer;

use strict;
use warnings;

use Carp qw(croak);
use File::Temp ();
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);
use ZkLock::Util qw(free_port wait_until spawn alive log_tail write_file);
use ZkLock::ZkClient;

use parent 'ZkLock::Child';

sub start
{
	my ($class, %opt) = @_;
	my $self = $class->new(%opt);
	$self->launch;
	$self->wait_ready;
	return $self;
}

# Returns the server, and a client of it with these options.
sub with_client
{
	my ($self, %opt) = @_;
	return ($self, ZkLock::ZkClient->new($self->connect_string, %opt));
}

# Prepares a server without starting it.
sub new
{
	my ($class, %opt) = @_;
	my $tmp = $opt{dir} ? undef : File::Temp->newdir('zkXXXXXX', TMPDIR => 1);
	my $dir = $opt{dir} // $tmp->dirname;
	my $self = bless {
		tmp => $tmp,
		dir => $dir,
		log => "$dir/zookeeper.log",
		port => $opt{port} // free_port(),
		secure_port => $opt{secure_port} // ($opt{tls} && free_port()),
		myid => $opt{myid},
		java => [ @{ $opt{java} // [] } ],
	}, $class;
	push @{ $self->{java} },
	  "-Dznode.container.checkIntervalMs=$opt{container_check_ms}"
	  if $opt{container_check_ms};
	$self->write_config(%opt);
	return $self;
}

sub write_config
{
	my ($self, %opt) = @_;
	my $data = "$self->{dir}/data";
	my %config = (
		tickTime => $opt{tick_time} // 500,
		initLimit => 20,
		syncLimit => 10,
		dataDir => $data,
		clientPort => $self->{port},
		clientPortAddress => '127.0.0.1',
		maxClientCnxns => 0,
		maxSessionTimeout => 600000,
		'admin.enableServer' => 'false',
		'4lw.commands.whitelist' => '*',
		($opt{tls} ? $opt{tls}->server_config($self->{secure_port}) : ()),
		%{ $opt{peers} // {} },
		%{ $opt{config} // {} });

	-d $data or mkdir $data or croak "mkdir $data: $!";
	write_file("$self->{dir}/zoo.cfg",
		join '', map { "$_=$config{$_}\n" } grep { defined $config{$_} } sort keys %config);
	write_file("$data/myid", "$self->{myid}\n") if $self->{myid};
	return;
}

# The heap is small, and a quick start matters more than quick code. Test data
# need not survive a power failure, so no write waits for the disk.
sub command
{
	my ($self) = @_;
	my $jars = '/usr/share/java';
	my $class_path = $ENV{ZOOKEEPER_CLASSPATH}
	  // "$jars/zookeeper.jar:$jars/slf4j-simple.jar";
	# The manifest of zookeeper.jar names the other jars of Netty.
	$class_path .= ":$jars/netty-codec.jar" if $self->{secure_port};
	return [
		'java', qw(-Xms32m -Xmx128m -Xshare:auto -XX:+UseSerialGC),
		qw(-XX:TieredStopAtLevel=1 -XX:-UsePerfData),
		'-Dzookeeper.forceSync=no', '-Dzookeeper.preAllocSize=4096',
		'-Dzookeeper.jmx.log4j.disable=true',
		'-Dorg.slf4j.simpleLogger.showDateTime=true',
		'-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS',
		'-Djava.net.preferIPv4Stack=true',
		@{ $self->{java} },
		'-cp', $class_path,
		'org.apache.zookeeper.server.quorum.QuorumPeerMain',
		"$self->{dir}/zoo.cfg"
	];
}

# Starts the process, and does not wait until the server is ready.
sub launch
{
	my ($self) = @_;
	croak 'already running' if $self->{pid};
	$self->own(spawn($self->command, log => $self->{log}));
	return;
}

# Waits until the server is ready: standalone, or as leader or follower of a quorum.
sub wait_ready
{
	my ($self) = @_;
	wait_until(
		"ZooKeeper on port $self->{port}",
		sub {
			croak "ZooKeeper ended at once\n" . log_tail($self->{log})
			  unless alive($self->{pid});
			return $self->mode;
		},
		fatal => 1,
		diag => sub { log_tail($self->{log}) });
	return $self;
}

# Returns standalone, leader or follower, or undef if the server is not ready.
sub mode
{
	my ($self) = @_;
	my $answer = $self->four_letter('srvr') // '';
	return $answer =~ /^Mode: (\w+)/m ? $1 : undef;
}

# Sends a four-letter command of ZooKeeper. Returns undef if there is no answer.
sub four_letter
{
	my ($self, $command, $timeout) = @_;
	my $deadline = time() + ($timeout // 20);
	my $socket = IO::Socket::INET->new(
		PeerAddr => '127.0.0.1',
		PeerPort => $self->{port},
		Proto => 'tcp',
		Timeout => 1) or return undef;
	local $SIG{PIPE} = 'IGNORE';
	syswrite($socket, $command) or return undef;
	my $select = IO::Select->new($socket);
	my $answer = '';
	while ((my $left = $deadline - time()) > 0)
	{
		next unless $select->can_read($left);
		my $got = sysread($socket, $answer, 65536, length $answer);
		last unless $got;
	}
	return length $answer ? $answer : undef;
}

sub port { return $_[0]{port} }
sub secure_port { return $_[0]{secure_port} }
sub secure_connect_string { return "127.0.0.1:$_[0]{secure_port}" }
sub pid { return $_[0]{pid} }
sub log_file { return $_[0]{log} }
sub log_tail_text { return log_tail($_[0]{log}, $_[1]) }
sub is_running { return alive($_[0]{pid}) }

# Shuts the server down cleanly.
sub stop { return $_[0]->end('TERM') }

# Kills the server, as in a crash.
sub kill9 { return $_[0]->end('KILL') }

# Stops the server if it runs, and starts it on the same port with the same data.
sub restart
{
	my ($self) = @_;
	$self->stop;
	$self->launch;
	return $self->wait_ready;
}

# For shell scripts: runs a server in a directory, with further options of java,
# until SIGTERM or SIGINT. Writes the connect string to <dir>/connect_string when
# the server is ready.
sub run_until_signal
{
	my ($class, $dir, @java) = @_;
	my $stop = 0;
	local $SIG{TERM} = sub { $stop = 1 };
	local $SIG{INT} = sub { $stop = 1 };
	my $self = $class->start(dir => $dir, java => \@java);
	write_file("$dir/connect_string.new", $self->connect_string . "\n");
	rename "$dir/connect_string.new", "$dir/connect_string";
	until ($stop || !$self->is_running)
	{
		select(undef, undef, undef, 0.2);
	}
	$self->stop;
	return $stop ? 0 : 1;
}

1;
