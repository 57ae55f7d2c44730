# ZkLock::SlowServers - servers that answer late, or do not accept a connection.
#
# Owns: the processes and sockets of these servers.
#
#   my $slow = slow_server($zk->connect_string, 4);   # each connection answers 4 s late
#   my $full = full_server();                         # the kernel drops each new connection
#   $full->{connect_string};
#   end_server($slow);

package ZkLock::SlowServers;

use strict;
use warnings;

use Carp qw(croak);
use Exporter qw(import);
use IO::Socket::INET;
use ZkLock::Util qw(end_process free_port port_listens spawn wait_until);

our @EXPORT_OK = qw(slow_server full_server end_server);

# Passes everything on; the first bytes of the target wait in each connection.
my $FORWARDER = <<'PERL';
my ($port, $target, $seconds) = @ARGV;
my $listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port", Listen => 9) or die;
$SIG{CHLD} = 'IGNORE';
while (my $client = $listener->accept)
{
	next if fork;
	my $server = IO::Socket::INET->new($target) or die;
	my ($from, $to) = fork ? ($client, $server) : ($server, $client);
	sleep $seconds if $from == $server;
	my $bytes;
	syswrite $to, $bytes while sysread $from, $bytes, 65536;
	shutdown $to, 1;
	last;
}
PERL

sub slow_server
{
	my ($target, $seconds) = @_;
	my $port = free_port();
	my $pid = spawn([ 'perl', '-MIO::Socket::INET', '-e', $FORWARDER, $port, $target, $seconds ]);
	wait_until('the slow server', sub { port_listens($port) }, fatal => 1);
	return { connect_string => "127.0.0.1:$port", pid => $pid };
}

# A listener whose queue of connections is full.
sub full_server
{
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1)
	  or croak "cannot listen: $!";
	my @queued = map { connection_to($listener->sockport) } 1 .. 3;
	return {
		connect_string => '127.0.0.1:' . $listener->sockport,
		sockets => [ $listener, @queued ] };
}

# Starts to connect, and does not wait for an answer.
sub connection_to
{
	my ($port) = @_;
	return IO::Socket::INET->new(
		PeerAddr => '127.0.0.1',
		PeerPort => $port,
		Blocking => 0) // croak "cannot connect: $!";
}

sub end_server
{
	my ($server) = @_;
	end_process($server->{pid}, 'TERM') if $server->{pid};
	delete $server->{sockets};
	return;
}

1;
