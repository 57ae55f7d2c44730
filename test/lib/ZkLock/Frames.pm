# ZkLock::Frames - decodes the frames of ZooKeeper's protocol.
#
# Owns: the numbers and layouts of requests and answers. Pure functions; a
# frame comes with its four bytes of length.

package ZkLock::Frames;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT_OK = qw(request answer end_of_session);

my %names = (
	1 => 'create', 2 => 'delete', 3 => 'exists', 4 => 'getData',
	5 => 'setData', 6 => 'getACL', 7 => 'setACL', 8 => 'getChildren',
	9 => 'sync', 11 => 'ping', 12 => 'getChildren2', 13 => 'check',
	14 => 'multi', 15 => 'create2', 19 => 'createContainer',
	21 => 'createTTL', 100 => 'auth',
	101 => 'setWatches', 105 => 'setWatches2', -11 => 'closeSession');
my %without_path =
  map { $_ => 1 } qw(ping auth setWatches setWatches2 closeSession);

# Returns { op, paths, xid, watch } of a client's frame. The handshake has no header.
sub request
{
	my ($frame, $is_first) = @_;
	return { op => 'connect', paths => [], xid => 'connect' } if $is_first;
	my ($xid, $type) = unpack 'x4 l> l>', $frame;
	my $op = $names{$type} // "type$type";
	my @paths =
	    $without_path{$op} ? ()
	  : $op =~ /^multi/ ? multi_paths(substr $frame, 12)
	  : unpack('x12 N/a', $frame);
	my $watch = $op =~ /^(?:exists|getData|getChildren2?)$/
	  && unpack 'C', substr $frame, -1;
	return { op => $op, paths => \@paths, xid => $xid, watch => $watch ? 1 : 0 };
}

# Returns the paths of the operations of a multi.
sub multi_paths
{
	my ($body) = @_;
	my @paths;
	while (length $body >= 9)
	{
		my ($type, $done) = unpack 'l> C', substr $body, 0, 9, '';
		last if $done;
		my $op = $names{$type} // last;
		push @paths, take_bytes(\$body);
		take_bytes(\$body) if $op =~ /^create|^setData/;
		if ($op =~ /^create/)
		{
			for (1 .. unpack 'N', substr $body, 0, 4, '')
			{
				substr $body, 0, 4, '';
				take_bytes(\$body) for 1 .. 2;
			}
		}
		my $rest = $op eq 'createTTL' ? 12 : $op =~ /^get/ ? 1 : 4;
		substr $body, 0, $rest, '';
	}
	return @paths;
}

# Removes and returns a string or buffer; the length -1 means none.
sub take_bytes
{
	my ($body) = @_;
	my $length = unpack 'l>', substr $$body, 0, 4, '';
	return $length > 0 ? substr($$body, 0, $length, '') : '';
}

# Returns { xid, error } of a server's frame. A failed multi has 0 in its header, and its
# error in the first result that is neither 0 nor "not tried" (-2).
sub answer
{
	my ($frame, $is_first) = @_;
	return { xid => 'connect', error => 0 } if $is_first;
	my ($xid, $error) = unpack 'x4 l> x8 l>', $frame;
	my $results = substr $frame, 20;
	while (!$error && length $results >= 13)
	{
		my ($type, $done, undef, $code) =
		  unpack 'l> C l> l>', substr $results, 0, 13, '';
		last if $type != -1 || $done;
		$error = $code if $code != -2;
	}
	return { xid => $xid, error => $error };
}

# Returns the frames that take over and close a session, built from the server's answer
# to the session's handshake.
sub end_of_session
{
	my ($welcome) = @_;
	my ($timeout, $id, $password) = unpack 'x8 N a8 N/a*', $welcome;
	my $handshake = pack 'N q> N a8 N/a* C', 0, 0, $timeout, $id, $password, 0;
	return join '', map { pack 'N/a*', $_ } $handshake, pack 'l> l>', 1, -11;
}

1;
