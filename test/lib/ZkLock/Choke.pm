# ZkLock::Choke - a TCP proxy that passes a limited number of the server's answers.
#
# Owns: one listening port and one child process that forwards bytes. Passes a given
# number of the server's answers on a connection, of which the handshake's is the
# first, and drops all later answers. The client's requests always pass.
#
#   my $choke = ZkLock::Choke->start(target => $zk);
#   $choke->connect_string;
#   $choke->once(2);       # the next connection gets two answers, later ones none
#   $choke->always(2);     # every new connection gets two answers
#   $choke->open;          # everything passes
#
# Each of these first drops the existing connections.
#
#   $choke->freeze; $choke->thaw;    # nothing passes in between, in either direction

package ZkLock::Choke;

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

use parent 'ZkLock::Child';

sub start
{
	my ($class, %opt) = @_;
	return $class->fork_proxy(\&serve, %opt);
}

sub once { return $_[0]->order("once $_[1]") }
sub always { return $_[0]->order("always $_[1]") }
sub open { return $_[0]->order('open 0') }

sub order
{
	my ($self, $line) = @_;
	$self->write_line($line);
	$self->read_line($line);
	return $self;
}

# The child. Ends when its parent has closed the pipe.
sub serve
{
	my ($listener, $target, $orders, $acks) = @_;
	my ($mode, $answers) = ('open', 0);
	my $select = IO::Select->new($listener, $orders);
	my %peer;    # socket => state of the other side
	my $drop = sub {
		my ($socket) = @_;
		my $other = delete $peer{$socket} or return;
		delete $peer{ $other->{socket} };
		for my $end ($socket, $other->{socket})
		{
			$select->remove($end);
			close $end;
		}
	};

	while (1)
	{
		for my $ready ($select->can_read)
		{
			if ($ready == $orders)
			{
				my $line;
				sysread($orders, $line, 1024) or return;
				($mode, $answers) = $line =~ /^(\w+) (\d+)/;
				$drop->($_) for grep { ref && $peer{$_} } $select->handles;
				print {$acks} "ok\n";
			}
			elsif ($ready == $listener)
			{
				my $client = $listener->accept or next;
				my $server = IO::Socket::INET->new(PeerAddr => $target)
				  or next;
				setsockopt($_, IPPROTO_TCP, TCP_NODELAY, 1) for $client, $server;
				my $left = $mode eq 'open' ? undef : $answers;
				$answers = 0 if $mode eq 'once';
				$peer{$client} = { socket => $server };
				$peer{$server} = {
					socket => $client,
					answers => 1,
					left => $left,
					buffer => ''
				};
				$select->add($client, $server);
			}
			elsif (my $to = $peer{$ready})
			{
				sysread($ready, my $data, 65536) or do { $drop->($ready); next };
				$data = passed_answers($to, $data) if $to->{answers};
				syswrite($to->{socket}, $data) if length $data;
			}
		}
	}
}

# Returns the bytes to forward. An answer is four bytes of length, and the body.
sub passed_answers
{
	my ($to, $data) = @_;
	return $data unless defined $to->{left};
	$to->{buffer} .= $data;
	my $out = '';
	while (length $to->{buffer} >= 4)
	{
		my $length = unpack 'N', $to->{buffer};
		last if length $to->{buffer} < 4 + $length;
		my $answer = substr $to->{buffer}, 0, 4 + $length, '';
		next if $to->{left} == 0;
		$to->{left}--;
		$out .= $answer;
	}
	return $out;
}

sub freeze { return $_[0]->pause }
sub thaw { return $_[0]->resume }

1;
