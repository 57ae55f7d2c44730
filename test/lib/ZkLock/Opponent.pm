# ZkLock::Opponent - locks of other programs: Curator's in Java, kazoo's in Python.
#
# Owns: building and running the drivers in test/interop, each one process with
# any number of sessions and threads, and sending them orders.
#
#   my $java = ZkLock::Opponent->curator($zk->connect_string);
#   my $python = ZkLock::Opponent->kazoo($zk->connect_string);
#   my $lock = $java->lock(mutex => '/zklock/locks/x');
#
# A lock has a thread and a session of its own, unless configured otherwise:
# beside => $other_lock: in the same thread and session; with => $other_lock: in
# the same session, by another thread. Further options: timeout of the session in
# milliseconds, namespace, leases. Kinds: mutex, read, write, semaphore_mutex,
# semaphore and multi (paths separated by blanks) in Java; lock, read, write,
# semaphore, lease (NonBlockingLease), curator_mutex, curator_read and curator_write in Python; there also
# exclusive, shared and permit of a server given as sql => $node, with node_names.
#
#   $lock->acquire($ms);         # 1 or 0; without a time it waits for ever
#   $lock->acquire_async($ms); $lock->finished; $lock->wait_result;
#   $lock->release; $lock->mine;
#   $lock->participants;         # Java: names of nodes, in their order
#   $lock->contenders; $lock->lease_holders;    # Python: what nodes contain
#   $lock->interrupt;            # Java: the thread that waits
#   $lock->cancel;               # Python
#   $lock->revocable; $lock->revoke_requested($ms); $lock->revoke($path);    # Java
#   $lock->expire;               # the server ends its session
#   $lock->close;                # the program ends its session
#   $lock->failed;               # class and text of what the last order raised
#
# Orders that raise an exception make the test die, unless they were sent with
# try(): $lock->try('acquire', 0) is undef then.

package ZkLock::Opponent;

use strict;
use warnings;

use Carp qw(croak);
use Cwd qw(abs_path);
use Fcntl qw(LOCK_EX);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use ZkLock::Opponent::Lock;

use parent 'ZkLock::Child';

my $root = abs_path(dirname(__FILE__) . '/../../..');
my $source = "$root/test/interop";
my $classes = "$root/build/interop";

# The packages' own class paths lead to the rest, except what logs.
sub class_path
{
	return join ':', map { "/usr/share/java/$_.jar" }
	  qw(curator-recipes curator-framework slf4j-simple);
}

sub curator
{
	my ($class, $connect_string) = @_;
	compile();
	return $class->begin('java', qw(-Xms32m -Xmx128m -Xshare:auto),
		qw(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData),
		'-Djava.net.preferIPv4Stack=true',
		'-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
		'-cp', "$classes:" . class_path(), 'CuratorDriver', $connect_string);
}

sub kazoo
{
	my ($class, $connect_string) = @_;
	return $class->begin($ENV{ZKLOCK_PYTHON} // '/usr/bin/python3',
		"$source/kazoo_driver.py", $connect_string);
}

sub begin
{
	my ($class, @command) = @_;
	my $self = $class->run_program(\@command, last_id => 0, answers => {});
	$self->receive(0);
	return $self;
}

# Compiles once for all tests of a run, and again when a source has changed. Test
# files that start side by side take turns.
sub compile
{
	my @sources = glob "$source/*.java";
	make_path($classes);
	open my $lock, '>', "$classes/lock" or croak "$classes/lock: $!";
	flock $lock, LOCK_EX or croak "$classes/lock: $!";
	my $done = (stat "$classes/done")[9] // 0;
	return if !grep { (stat)[9] >= $done } @sources;
	system('javac', '-nowarn', '-cp', class_path(), '-d', $classes, @sources) == 0
	  or croak 'the Java driver does not compile';
	open my $mark, '>', "$classes/done" or croak "$classes/done: $!";
	close $mark;
	close $lock;
	return;
}

sub lock
{
	my ($self, $kind, $path, %opt) = @_;
	return ZkLock::Opponent::Lock->new($self, $kind, $path, %opt);
}

# Sends an order to a party, and returns its number.
sub order
{
	my ($self, $party, $verb, @arguments) = @_;
	my $id = ++$self->{last_id};
	$self->write_line(join "\t", $id, $party, $verb, @arguments);
	return $id;
}

# The answer to an order: [status, results...]; undef if it is not there within
# the time, which matters only when it is 0.
sub receive
{
	my ($self, $id, $timeout) = @_;
	until ($self->{answers}{$id})
	{
		my $line = $self->read_line("order $id", $timeout) // return;
		my ($number, @answer) = split /\t/, $line;
		$self->{answers}{$number} = \@answer;
	}
	return $self->{answers}{$id};
}

sub new_number { return ++$_[0]{last_id} }

1;
