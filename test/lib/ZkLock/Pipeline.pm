# ZkLock::Pipeline - a connection that uses the extended protocol as drivers do.
#
# Owns: one socket to a server. Sends several statements before one Sync, which psql
# cannot do in all supported versions.
#
#   my $p = ZkLock::Pipeline->new($node);
#   my @states = $p->run('BEGIN', 'INSERT INTO t VALUES (1)');  # SQLSTATEs, 00000: success;
#                                # after an error the server skips the others
#   $p->prepare('name', 'SELECT 1');
#   $p->describe('name');
#   @states = $p->run_in_portals('SELECT 1', 'SELECT 2');   # the same, and the portals stay open
#   $p->query('SELECT 1; SELECT 2');   # the simple protocol: the same
#   $p->start_query('COPY t FROM STDIN'); @states = $p->copy("1\n")->until_ready;
#   $p->start('VACUUM'); @states = $p->until_ready;     # the test may act in between
#   $p->open_portal('SELECT ...'); @states = $p->fetch_row;     # in a transaction block
#   @states = $p->call($oid, 'a')->until_ready;  # calls a function by the fast-path protocol
#   $p->notifications;                 # received since the last call
#   $p->status;                        # I: idle, T: in a block, E: in a failed one

package ZkLock::Pipeline;

use strict;
use warnings;

use Carp qw(croak);
use IO::Socket::UNIX;

sub new
{
	my ($class, $node, %parameters) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $socket = IO::Socket::UNIX->new($path) or croak "cannot connect to $path: $!";
	my $self = bless { socket => $socket, notifications => [] }, $class;
	my $user = getpwuid($>);
	my $startup = pack('N', 196608) . join("\0", 'user', $user, 'database', 'postgres', %parameters, '', '');
	print {$socket} pack('N', 4 + length $startup) . $startup;
	$socket->flush;
	$self->until_ready;
	return $self;
}

sub run { my ($self, @statements) = @_; return $self->start(@statements)->until_ready }

sub start
{
	my ($self, @statements) = @_;
	return $self->start_without_sync(@statements)->send_all(message('S', ''));
}

# The server answers with the next message that ends the pipeline.
sub start_without_sync
{
	my ($self, @statements) = @_;
	my $bytes = '';
	for my $statement (@statements)
	{
		$bytes .= in_portal('', $statement);
	}
	return $self->send_all($bytes . message('H', ''));
}

# Prepares a statement, and runs nothing.
sub prepare
{
	my ($self, $name, $statement) = @_;
	return $self->send_all(message('P', "$name\0$statement\0" . pack('n', 0)) . message('S', ''))->until_ready;
}

# Asks for the columns of a prepared statement, and runs nothing.
sub describe
{
	my ($self, $name) = @_;
	return $self->send_all(message('D', "S$name\0") . message('S', ''))->until_ready;
}

# Each statement runs in a portal of its own, which stays open to the end of the transaction.
sub run_in_portals
{
	my ($self, @statements) = @_;
	my $bytes = join '', map { in_portal("p$_", $statements[$_]) } 0 .. $#statements;
	return $self->send_all($bytes . message('S', ''))->until_ready;
}

sub in_portal
{
	my ($portal, $statement) = @_;
	return message('P', "\0$statement\0" . pack('n', 0)) . message('B', "$portal\0\0" . pack('nnn', 0, 0, 0))
	  . message('E', "$portal\0" . pack('N', 0));
}

# Opens a portal. fetch_row() fetches one row, as drivers with a fetch size do.
sub open_portal
{
	my ($self, $statement) = @_;
	return $self->send_all(message('P', "\0$statement\0" . pack('n', 0))
		  . message('B', "portal\0\0" . pack('nnn', 0, 0, 0))
		  . message('S', ''))->until_ready;
}

sub fetch_row
{
	my ($self) = @_;
	return $self->send_all(message('E', "portal\0" . pack('N', 1)) . message('S', ''))
	  ->until_ready;
}

sub query { my ($self, $sql) = @_; return $self->start_query($sql)->until_ready }

sub start_query { my ($self, $sql) = @_; return $self->send_all(message('Q', "$sql\0")) }

# Sends all data of a COPY FROM STDIN that start_query() started.
sub copy { my ($self, $rows) = @_; return $self->send_all(message('d', $rows) . message('c', '')) }

# Calls a function with arguments of type text.
sub call
{
	my ($self, $oid, @arguments) = @_;
	return $self->send_all(message('F', pack('N n n', $oid, 0, scalar @arguments)
			  . join('', map { pack('N/a*', $_) } @arguments) . pack('n', 0)));
}

# Returns the payloads of the notifications that were received since the last call.
sub notifications { my ($self) = @_; return splice @{ $self->{notifications} } }

sub status { return $_[0]{status} }

sub send_all
{
	my ($self, $bytes) = @_;
	print { $self->{socket} } $bytes;
	$self->{socket}->flush;
	return $self;
}

sub message { my ($type, $body) = @_; return $type . pack('N', 4 + length $body) . $body }

# Returns the SQLSTATEs of the statements, up to the server's "ready for query".
sub until_ready
{
	my ($self) = @_;
	my @states;
	while (1)
	{
		my ($type, $length) = unpack 'aN', $self->bytes(5);
		my $body = $self->bytes($length - 4);
		push @states, '00000' if $type =~ /[CsV]/;
		push @states, $body =~ /(?:^|\0)C(\w{5})\0/ ? $1 : '?' if $type eq 'E';
		push @{ $self->{notifications} }, (split /\0/, substr $body, 4)[1] if $type eq 'A';
		$self->{status} = $body if $type eq 'Z';
		return @states if $type eq 'Z';
	}
}

sub bytes
{
	my ($self, $n) = @_;
	my $bytes = '';
	while (length $bytes < $n)
	{
		read $self->{socket}, $bytes, $n - length $bytes, length $bytes
		  or croak 'the server closed the connection';
	}
	return $bytes;
}

1;
