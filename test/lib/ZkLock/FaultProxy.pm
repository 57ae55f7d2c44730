# ZkLock::FaultProxy - a TCP proxy that injects faults into chosen operations.
#
# Owns: one listening port and one child process that forwards whole frames, records
# them, and injects the armed faults. ZkLock::Frames decodes the frames.
#
#   my $proxy = ZkLock::FaultProxy->start(target => $zk);
#   $proxy->connect_string;
#   $proxy->arm(fault => 'lose_answer', op => 'create2', path => 'stock');
#   $proxy->hits;             # how many requests were hit since the start
#   $proxy->record;           # the requests, oldest first; see below
#   $proxy->clear_record;     # empties the record
#   $proxy->release;          # forwards the frames that are held, in order
#   $proxy->up;               # accept again after a fault with down => 1
#   $proxy->disarm;           # removes all faults
#   $proxy->cut(%rule);       # cuts all connections, and arms the rule, if given, for the next
#   $proxy->limit_answers(2); # cuts all connections; from then on the clients get two answers,
#                             # of which the first one is that to a handshake
#   $proxy->packets;          # { packets, requests }: received on the latest
#                             # connection; packets as TCP counts them
#
# Faults:
#   lose_request     the connection is cut before the server gets the request
#   lose_answer      the connection is cut after the server has executed the request
#   cut_after        the connection is cut when the answer has passed
#   swallow_request, swallow_answer   this frame is dropped; the connection stays
#   silence          from this request on, all frames of both directions are dropped
#   hold_request, hold_answer         this frame, and later frames in its direction,
#                    are held until release()
#   expire           the connection is cut before the server gets the request, and the
#                    proxy closes the session at the server in the client's name
#   forge_answer     "bytes", in hex, replace the answer, or follow it with after => 1;
#                    XXXXXXXX stands for the number of the request
# op is a name or a list of names, path a regular expression. nth => 2 skips the first
# match. A fault hits one request; with every => 1 all from then on. With down => 1 the
# proxy refuses all connections after a cut until up(): a test can wait for the
# session's expiry.
#
# A record is { connection, op, paths, xid, watch, sent, answered, error, fault }.
# sent and answered are positions in the sequence of all frames that the proxy has read:
# two requests are pipelined if both were sent before either was answered.

package ZkLock::FaultProxy;

use strict;
use warnings;

use Carp qw(croak);
use IO::Select;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP);
use JSON::PP qw(decode_json encode_json);
use ZkLock::Frames qw(request answer end_of_session);

use parent 'ZkLock::Child';

my %faults = map { $_ => 1 }
  qw(lose_request lose_answer cut_after swallow_request swallow_answer
  silence hold_request hold_answer expire forge_answer);

# The offset of the number of received data segments in Linux's struct tcp_info.
use constant { TCP_INFO => 11, DATA_SEGMENTS_IN => 152 };

sub start
{
	my ($class, %opt) = @_;
	return $class->fork_proxy(\&serve, %opt);
}

sub arm
{
	my ($self, %rule) = @_;
	croak 'no such fault' unless $faults{ $rule{fault} // '' };
	$rule{op} = [ $rule{op} ] if defined $rule{op} && !ref $rule{op};
	$self->order(arm => \%rule);
	return $self;
}

sub cut { my ($self, %rule) = @_; $self->order(cut => %rule ? \%rule : ()); return $self }

sub limit_answers
{
	my ($self, $n) = @_;
	return $self->disarm->cut(fault => 'swallow_answer', nth => $n + 1, every => 1);
}

sub disarm { $_[0]->order('disarm'); return $_[0] }
sub release { $_[0]->order('release'); return $_[0] }
sub up { $_[0]->order('up'); return $_[0] }
sub clear_record { $_[0]->order('clear_record'); return $_[0] }
sub hits { return $_[0]->order('hits') }
sub packets { return $_[0]->order('packets') }
sub record { return @{ $_[0]->order('record') } }

sub order
{
	my ($self, @order) = @_;
	$self->write_line(encode_json(\@order));
	return decode_json($self->read_line($order[0]))->[0];
}

# The child. Ends when its parent has closed the pipe.
sub serve
{
	my ($listener, $target, $orders, $acks) = @_;
	my $state = {
		target => $target,
		select => IO::Select->new($listener, $orders),
		ends => {},
		rules => [],
		record => [],
		hits => 0,
		frames => 0,
		releases => 0,
		connections => 0
	};

	while (1)
	{
		for my $ready ($state->{select}->can_read)
		{
			if ($ready == $orders)
			{
				# One order at a time: each is answered before the next.
				my $line = '';
				do { sysread($orders, $line, 65536, length $line) or return }
				  until $line =~ /\n\z/;
				my $result = obey($state, @{ decode_json($line) });
				print {$acks} encode_json([$result]), "\n";
			}
			elsif ($ready == $listener)
			{
				connected($state, $listener);
			}
			elsif (my $end = $state->{ends}{$ready})
			{
				readable($state, $end);
			}
		}
	}
}

sub obey
{
	my ($state, $verb, $rule) = @_;
	return $state->{hits} if $verb eq 'hits';
	return $state->{record} if $verb eq 'record';
	return count_packets($state) if $verb eq 'packets';
	$state->{rules} = [] if $verb eq 'disarm';
	$state->{record} = [] if $verb eq 'clear_record';
	$state->{down} = 0 if $verb eq 'up';
	cut_connection($state, $_) for $verb eq 'cut' ? map { $_->{connection} } values %{ $state->{ends} } : ();
	push @{ $state->{rules} }, { seen => 0, nth => 1, %$rule } if $rule;
	if ($verb eq 'release')
	{
		$state->{releases}++;
		for my $end (grep { $_->{held} } values %{ $state->{ends} })
		{
			pass($end, @{ delete $end->{held} });
		}
	}
	return 1;
}

# Data that was received but not read counts as packets.
sub count_packets
{
	my ($state) = @_;
	my ($end) = grep { $_->{from_client} && $_->{connection}{number} == $state->{connections} }
	  values %{ $state->{ends} };
	my $info = getsockopt $end->{socket}, IPPROTO_TCP, TCP_INFO;
	return { packets => unpack('x' . DATA_SEGMENTS_IN . ' L', $info), requests => $end->{frames} };
}

sub connected
{
	my ($state, $listener) = @_;
	my $client = $listener->accept or return;
	my $server = $state->{down} ? undef
	  : IO::Socket::INET->new(PeerAddr => $state->{target});
	return close $client unless $server;
	my $connection = { number => ++$state->{connections}, open => {} };
	my $from = { from_client => 1, socket => $client };
	my $to = { socket => $server };
	@$_{qw(connection buffer frames)} = ($connection, '', 0) for $from, $to;
	$connection->{ends} = [ $from, $to ];
	$from->{other} = $server;
	$to->{other} = $client;
	$state->{ends}{ $_->{socket} } = $_ for $from, $to;
	$state->{select}->add($client, $server);
	return;
}

sub cut_connection
{
	my ($state, $connection, $down) = @_;
	$state->{down} = 1 if $down;
	$connection->{cut} = 1;
	for my $end (@{ delete $connection->{ends} // [] })
	{
		delete $state->{ends}{ $end->{socket} };
		$state->{select}->remove($end->{socket});
		close $end->{socket};
		delete $end->{other};
	}
	return;
}

# Closes a session at the server: with the session's password any client can move the
# session to another connection. Returns when the server has closed it.
sub expire
{
	my ($state, $connection, $down) = @_;
	cut_connection($state, $connection, $down);
	my $welcome = $connection->{welcome} or return;
	my $server = IO::Socket::INET->new(PeerAddr => $state->{target}) or return;
	syswrite $server, end_of_session($welcome);
	1 while sysread $server, my $data, 65536;
	close $server;
	return;
}

# A frame is four bytes of length, and the body.
sub readable
{
	my ($state, $end) = @_;
	sysread($end->{socket}, $end->{buffer}, 65536, length $end->{buffer})
	  or return cut_connection($state, $end->{connection});
	while (!$end->{connection}{cut} && length $end->{buffer} >= 4)
	{
		my $length = unpack 'N', $end->{buffer};
		last if length $end->{buffer} < 4 + $length;
		my $frame = substr $end->{buffer}, 0, 4 + $length, '';
		$state->{frames}++;
		$end->{frames}++;
		$end->{from_client}
		  ? on_request($state, $end, $frame)
		  : on_answer($state, $end, $frame);
	}
	return;
}

sub pass
{
	my ($end, @frames) = @_;
	return if $end->{connection}{silent};
	return push @{ $end->{held} }, @frames if $end->{held};
	for my $frame (@frames)
	{
		my $done = 0;
		while ($done < length $frame)
		{
			my $n = syswrite($end->{other}, $frame, length($frame) - $done,
				$done) or return;
			$done += $n;
		}
	}
	return;
}

sub on_request
{
	my ($state, $end, $frame) = @_;
	my $connection = $end->{connection};
	my $request = request($frame, !$connection->{greeted}++);
	# No rule hits what is dropped: for example the late close of a session whose connection is silent.
	my $rule = $connection->{silent} ? undef : match($state, $request);
	my $fault = $rule ? $rule->{fault} : '';
	my $entry = {
		%$request,
		connection => $connection->{number},
		sent => $state->{frames},
		fault => $fault
	};
	push @{ $state->{record} }, $entry;
	$connection->{open}{ $request->{xid} } =
	  [ $entry, $rule, $state->{releases} ];

	return cut_connection($state, $connection, $rule->{down}) if $fault eq 'lose_request';
	return expire($state, $connection, $rule->{down}) if $fault eq 'expire';
	return if $fault eq 'swallow_request';
	$connection->{silent} = 1 if $fault eq 'silence';
	$end->{held} //= [] if $fault eq 'hold_request';
	return pass($end, $frame);
}

sub on_answer
{
	my ($state, $end, $frame) = @_;
	my $connection = $end->{connection};
	my $answer = answer($frame, !$connection->{welcome});
	$connection->{welcome} //= $frame;
	my $open = delete $connection->{open}{ $answer->{xid} };
	return pass($end, $frame) unless $open;    # a watch has fired
	my ($entry, $rule, $releases) = @$open;
	my $fault = $entry->{fault};
	@$entry{qw(answered error)} = ($state->{frames}, $answer->{error});

	return cut_connection($state, $connection, $rule->{down}) if $fault eq 'lose_answer';
	return if $fault eq 'swallow_answer';
	if ($fault eq 'forge_answer')
	{
		my $xid = sprintf '%08x', $answer->{xid} & 0xffffffff;
		my $bytes = pack 'H*', $rule->{bytes} =~ s/XXXXXXXX/$xid/r;
		return pass($end, ($rule->{after} ? $frame : ()), $bytes);
	}

	# Not held if release() was called before the answer came.
	$end->{held} //= []
	  if $fault eq 'hold_answer' && $releases == $state->{releases};
	pass($end, $frame);
	cut_connection($state, $connection, $rule->{down}) if $fault eq 'cut_after';
	return;
}

# Returns the first rule that matches the request; without every => 1 the rule is spent.
sub match
{
	my ($state, $request) = @_;
	for my $rule (@{ $state->{rules} })
	{
		next if $rule->{spent};
		next if $rule->{op} && !grep { $_ eq $request->{op} } @{ $rule->{op} };
		next if defined $rule->{path}
		  && !grep { /$rule->{path}/ } @{ $request->{paths} };
		next if ++$rule->{seen} < $rule->{nth};
		$rule->{spent} = !$rule->{every};
		$state->{hits}++;
		return $rule;
	}
	return;
}

1;
