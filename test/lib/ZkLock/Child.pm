# ZkLock::Child - a child process that belongs to an object of the test library.
#
# Owns: starting the child with pipes for lines in both directions, and ending exactly
# that child, with its object or with the test. A base class; the subclasses define
# the lines.
#
#   $class->fork_server($serve, %fields)
#       the child runs $serve->($listener, $orders, $acks): it listens on a port
#       of 127.0.0.1 ($self->{port}), reads lines from $orders, prints lines to
#       $acks, and ends when $orders does
#   $class->fork_proxy(\&serve, %opt)
#       the same for a proxy of $opt{target}, a connect string or an object that
#       has one: $serve->($listener, $target, $orders, $acks)
#   $class->run_program(\@command, %fields)
#       the child is a program that reads standard input and prints lines
#
#   $self->write_line($text); $self->read_line($what);
#   $self->pause; $self->resume; $self->stop;

package ZkLock::Child;

use strict;
use warnings;

use Carp qw(croak);
use File::Temp ();
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use IPC::Open3 qw(open3);
use POSIX ();
use Time::HiRes qw(time);
use ZkLock::Util qw(end_process free_port hold_still log_tail);

my %running;    # children to end at exit: pid => pid of the process that started it

sub fork_server
{
	my ($class, $serve, %fields) = @_;
	my $self = bless { %fields, port => free_port() }, $class;
	my $listener = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		LocalPort => $self->{port},
		Proto => 'tcp',
		ReuseAddr => 1,
		Listen => 64) or croak "port $self->{port}: $!";
	pipe my $orders, $self->{to} or croak "pipe: $!";
	pipe $self->{from}, my $acks or croak "pipe: $!";
	$acks->autoflush(1);

	my $pid = fork() // croak "fork: $!";
	if (!$pid)
	{
		close $self->{to};
		close $self->{from};
		local $SIG{PIPE} = 'IGNORE';
		eval { $serve->($listener, $orders, $acks); 1 }
		  or print STDERR "$class: $@";
		POSIX::_exit(0);
	}
	close $_ for $listener, $orders, $acks;
	return $self->own($pid);
}

sub fork_proxy
{
	my ($class, $serve, %opt) = @_;
	my $target = $opt{target} // croak 'target missing';
	$target = $target->connect_string if ref $target;
	return $class->fork_server(
		sub {
			my ($listener, $orders, $acks) = @_;
			$serve->($listener, $target, $orders, $acks);
		});
}

# The kernel kills the program when this process dies without cleaning up.
sub run_program
{
	my ($class, $command, %fields) = @_;
	my $errors = File::Temp->new(TEMPLATE => 'childXXXXXX', TMPDIR => 1);
	my $self = bless { %fields, errors => $errors }, $class;
	my $err = '>&' . fileno($errors);
	my $pid = open3($self->{to}, $self->{from}, $err,
		'setpriv', '--pdeathsig', 'KILL', @$command);
	return $self->own($pid);
}

sub own
{
	my ($self, $pid) = @_;
	$self->{pid} = $pid;
	$self->{owner} = $$;
	$self->{buffer} = '';
	$running{$pid} = $$;
	return $self;
}

sub connect_string { return "127.0.0.1:$_[0]{port}" }

sub write_line
{
	my ($self, $text) = @_;
	local $SIG{PIPE} = 'IGNORE';
	$text .= "\n";
	my $n = syswrite($self->{to}, $text) // 0;
	croak "cannot write to a " . ref($self) . ": $!\n" . $self->errors
	  if $n != length $text;
	return;
}

# Returns the child's next line, without its newline. With $timeout 0 returns undef if
# there is no line yet; otherwise dies when the timeout passes.
sub read_line
{
	my ($self, $what, $timeout) = @_;
	my $deadline = time() + ($timeout // $ZkLock::Util::TIMEOUT);
	my $select = IO::Select->new($self->{from});
	while (index($self->{buffer}, "\n") < 0)
	{
		my $left = $deadline - time();
		if (!$select->can_read($left > 0 ? $left : 0))
		{
			return if defined $timeout && $timeout == 0;
			croak ref($self) . ": no answer to $what\n" . $self->errors
			  if $left <= 0;
			next;
		}
		sysread($self->{from}, $self->{buffer}, 65536, length $self->{buffer})
		  or croak ref($self) . " ended during $what\n" . $self->errors;
	}
	(my $line, $self->{buffer}) = split /\n/, $self->{buffer}, 2;
	return $line;
}

# Returns the program's standard error, for messages.
sub errors { return $_[0]{errors} ? log_tail($_[0]{errors}->filename) : '' }

sub pause { return hold_still($_[0]{pid}) }
sub resume { kill 'CONT', $_[0]{pid}; return }

sub end
{
	my ($self, $signal) = @_;
	my $pid = delete $self->{pid} or return;
	end_process($pid, $signal);
	delete $running{$pid};
	return;
}

sub stop { return $_[0]->end('KILL') }

sub DESTROY
{
	my ($self) = @_;
	return unless ($self->{owner} // 0) == $$;
	local ($?, $@, $!);
	$self->end('KILL');
	return;
}

# Objects that are still referenced at exit are destroyed too late.
END
{
	local $?;
	end_process($_, 'KILL') for grep { $running{$_} == $$ } keys %running;
}

1;
