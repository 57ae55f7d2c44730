# ZkLock::Util - basic functions for every module of the test library.
#
# Owns: choosing free TCP ports, waiting for a condition with a deadline,
# starting child processes that die with the test and ending exactly those,
# reading the tail of a log, finding the processes of a PostgreSQL server and its files.
#
# Never sleeps to synchronise: wait_until() polls a condition, and fails at the line of the test
# when the deadline passes.

package ZkLock::Util;

use strict;
use warnings;

use Carp qw(croak);
use Exporter qw(import);
use File::Basename qw(basename dirname);
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX qw(WNOHANG);
use Socket qw(SOCK_STREAM);
use Time::HiRes qw(time);

our @EXPORT_OK =
  qw(free_port wait_until spawn end_process alive hold_still log_tail
  port_listens read_file write_file node_members starved succeeds
  pg_config postmaster_pid child_processes);

# Carp names the line of the test, not one of a module of this library.
$Carp::Internal{"ZkLock::$_"}++ for map { basename($_, '.pm') } glob dirname(__FILE__) . '/*.pm';

# The default timeout of every wait in the library.
our $TIMEOUT = $ENV{PG_TEST_TIMEOUT_DEFAULT} || 60;

# The longest wait of a file after one that has failed.
use constant AFTER_FAILURE => 5;

my $process = $$;
my $has_failed;

# Ports below the range that the kernel assigns to outgoing connections: a server
# can be stopped and started again on its port.
use constant PORT_MIN => 10200;
use constant PORT_MAX => 32767;

# Reservations of this process; an abstract socket vanishes with its owner.
my %reserved;

# Returns a free TCP port of 127.0.0.1, and reserves it against other users of this
# module on the machine while this process lives.
sub free_port
{
	for (1 .. 1000)
	{
		my $port = PORT_MIN + int(rand(PORT_MAX - PORT_MIN));
		next if $reserved{$port};
		my $mark = IO::Socket::UNIX->new(
			Type => SOCK_STREAM,
			Local => "\0zklock-test-port-$port",
			Listen => 1) or next;
		my $probe = IO::Socket::INET->new(
			LocalAddr => '127.0.0.1',
			LocalPort => $port,
			Proto => 'tcp',
			ReuseAddr => 1,
			Listen => 1) or next;
		close $probe;
		$reserved{$port} = $mark;
		return $port;
	}
	croak 'no free port found';
}

# Calls $condition until it returns true and returns that value. After $opt{timeout} seconds, a wait
# of a test is a failed assertion with $what and the text of $opt{diag}->(), and returns nothing: the
# rest of the file runs, in which every wait is short. A wait without which nothing else makes sense
# is $opt{fatal} and dies then. So does one in an eval, whose author wants to know, and in a program
# that is no test.
sub wait_until
{
	my ($what, $condition, %opt) = @_;
	my $timeout = $opt{timeout} // $TIMEOUT;
	$timeout = AFTER_FAILURE if $has_failed && $timeout > AFTER_FAILURE;
	my $deadline = time() + $timeout;
	my $pause = $opt{pause} // 0.02;

	while (1)
	{
		my $value = $condition->();
		return $value if $value;
		last if time() > $deadline;
		select(undef, undef, undef, $pause);
	}
	my $diag = $opt{diag} ? "\n" . $opt{diag}->() : '';
	croak "timed out after $timeout s waiting for $what$diag"
	  if $opt{fatal} || $^S || $$ != $process || !$INC{'Test/More.pm'};
	$has_failed = 1;
	local $Test::Builder::Level = 2;
	$Test::Builder::Level++ while (caller($Test::Builder::Level - 2))[0] =~ /^ZkLock::/;
	Test::More::fail("waited for $what" =~ s/\s+/ /gr);
	Test::More::diag("timed out after $timeout s$diag");
	return;
}

# Runs a program, and returns whether it succeeds.
sub succeeds
{
	my (@command) = @_;
	waitpid spawn(\@command), 0;
	return $? == 0;
}

# Starts a program with its output in $opt{log}; returns its pid. The kernel
# kills it when this process dies without cleaning up, unless it $opt{outlives} this
# process. With $opt{group} it leads a process group of its own.
sub spawn
{
	my ($command, %opt) = @_;
	my $pid = fork() // croak "fork: $!";
	if ($pid)
	{
		POSIX::setpgid($pid, $pid) if $opt{group};
		return $pid;
	}

	# The child: never run the parent's END blocks and destructors.
	eval {
		POSIX::setpgid(0, 0) if $opt{group};
		open(STDIN, '<', '/dev/null') or die "stdin: $!";
		open(STDOUT, '>>', $opt{log} // '/dev/null') or die "log: $!";
		open(STDERR, '>&', \*STDOUT) or die "stderr: $!";
		unshift @$command, 'setpriv', '--pdeathsig', 'KILL' unless $opt{outlives};
		exec(@$command)
		  or die "exec $command->[0]: $!";
	};
	print STDERR $@;
	POSIX::_exit(127);
}

# Returns whether a child started by spawn() still runs; reaps it if it has ended.
sub alive
{
	my ($pid) = @_;
	return 0 unless $pid;
	local $?;
	return waitpid($pid, WNOHANG) == 0;
}

# Ends a child started by spawn(): sends the signal, and SIGKILL if the child has not
# ended after the timeout. Returns when the child has ended.
sub end_process
{
	my ($pid, $signal, $timeout) = @_;
	return unless alive($pid);
	local $?;
	kill 'CONT', $pid;
	kill $signal, $pid;
	my $gone = eval {
		wait_until("process $pid to end", sub { !alive($pid) },
			timeout => $timeout // 10);
	};
	return if $gone;
	kill 'KILL', $pid;
	waitpid $pid, 0;
	return;
}

# Stops processes with SIGSTOP. Returns when all their threads have stopped, which
# takes a moment after the signal; meanwhile another part of a test may let one go on.
sub hold_still
{
	my @pids = @_;
	wait_until(
		"processes @pids to stop",
		sub {
			kill 'STOP', @pids;
			for my $stat (map { glob "/proc/$_/task/*/stat" } @pids)
			{
				return 0 unless read_file($stat) =~ /^(?:.*\) [TtZX] |$)/;
			}
			return 1;
		},
		pause => 0.001,
		fatal => 1);
	return;
}

# Returns whether a process listens on this TCP port of 127.0.0.1. Does not connect:
# a server behind a proxy would see the connection.
sub port_listens
{
	my ($port) = @_;
	my $wanted = sprintf ':%04X', $port;
	for my $table ('/proc/net/tcp', '/proc/net/tcp6')
	{
		open my $fh, '<', $table or next;
		while (my $line = <$fh>)
		{
			my (undef, $local, undef, $state) = split ' ', $line;
			return 1 if $state eq '0A' && $local =~ /\Q$wanted\E$/;
		}
	}
	return 0;
}

sub read_file
{
	my ($path) = @_;
	open my $fh, '<', $path or return '';
	local $/;
	return scalar(<$fh>) // '';
}

sub write_file
{
	my ($path, $text) = @_;
	open my $fh, '>', $path or croak "$path: $!";
	print $fh $text;
	close $fh or croak "$path: $!";
	return;
}

# Returns what pg_config prints for this option: 'bindir', for one.
sub pg_config
{
	my ($what) = @_;
	my $program = $ENV{PG_CONFIG} // 'pg_config';
	chomp(my $value = `$program --$what`);
	return $value || croak "$program --$what failed";
}

# Returns the process of the PostgreSQL server with this data directory.
sub postmaster_pid { return (read_file("$_[0]/postmaster.pid") =~ /^(\d+)/)[0] }

sub child_processes
{
	my ($pid) = @_;
	return map { m{/proc/(\d+)/} } grep { read_file($_) =~ /^PPid:\s*$pid$/m } glob '/proc/[0-9]*/status';
}

# Returns how long a process, its first thread, has waited for a processor, in seconds.
sub starved
{
	my ($pid) = @_;
	my ($ns) = read_file("/proc/$pid/schedstat") =~ /^\d+ (\d+)/;
	return ($ns // 0) / 1e9;
}

# Returns the members of the data of a node that zklock has made, as bytes.
sub node_members
{
	my %members = $_[0] =~ /(\w+)=(\S*)/g;
	s/%([0-9A-F]{2})/chr hex $1/ge for values %members;
	return \%members;
}

# Returns the last lines of a file, for messages.
sub log_tail
{
	my ($path, $lines) = @_;
	$lines //= 30;
	my @all = split /\n/, read_file($path);
	splice @all, 0, @all - $lines if @all > $lines;
	return join("\n", "--- end of $path ---", @all, '---');
}

1;
