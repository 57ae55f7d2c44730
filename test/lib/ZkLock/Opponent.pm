# ZkLock::Opponent - locks of other programs: Curator's in Java, kazoo's in Python.
#
# Owns: building and running the drivers in test/interop, and sending them orders. Each
# driver is one process with any number of sessions and threads.
#
#   my $java = ZkLock::Opponent->curator($zk->connect_string);
#   my $python = ZkLock::Opponent->kazoo($zk->connect_string);
#   my $lock = $java->lock(mutex => '/zklock/locks/x');
#
# A lock has its own thread and session by default. With beside => $other_lock it uses
# the same thread and session. Further options: timeout of the session in milliseconds,
# leases. Kinds: mutex, read, write, semaphore_mutex, semaphore and multi (paths separated by
# blanks) in Java; lock, read, write, lease (NonBlockingLease), curator_mutex and
# curator_write in Python. The Python driver also has exclusive, shared and permit: SQL locks of the server
# sql => $node, with node_names.
#
#   $lock->acquire($ms);         # 1 or 0; without a timeout it waits forever
#   $lock->acquire_async($ms); $lock->finished; $lock->wait_result;
#   $lock->release;
#   $lock->participants;         # Java: names of the nodes, in order
#   $lock->contenders;           # Python: data of the nodes
#   $lock->interrupt;            # Java: interrupts the waiting thread
#   $lock->revocable; $lock->revoke_requested($ms); $lock->revoke($path);    # Java
#   $lock->expire;               # the server ends the lock's session
#   $lock->close;                # the program ends the lock's session
#   $lock->failed;               # class and text of the last order's exception
#
# The test dies if an order raises an exception, unless try() sent it:
# $lock->try('acquire', 0) then returns undef.

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

# The manifests of these jars name all others, except the logger.
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

# Compiles once for all tests of a run, and again if a source has changed. A lock
# serializes test files that run in parallel.
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

# Sends an order to a thread of the driver, and returns the order's number.
sub order
{
	my ($self, $party, $verb, @arguments) = @_;
	my $id = ++$self->{last_id};
	$self->write_line(join "\t", $id, $party, $verb, @arguments);
	return $id;
}

# Returns the answer to an order: [status, results...]. With $timeout 0 returns undef if
# the answer has not come yet.
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
