# The statement of a holder that is not proven in time ends although the I/O thread cannot
# notice it: the timer of the backend does. It also keeps the times of a second session of
# this backend, whose timeout is shorter.
#
# Promise: 5.11

use POSIX qw(uname);
use ZkLock::Test;

# ptrace(2) stops one thread alone; it goes on when the tracer ends. Its number depends on the processor.
use constant { SEIZE => 0x4206, INTERRUPT => 0x4207 };
my %ptrace = (x86_64 => 101, aarch64 => 117);
my $ptrace = $ptrace{ (uname())[4] } // plan skip_all => 'the number of the system call ptrace is not known';

# Holds a thread; returns the process that does, which must be killed, or undef.
sub hold_thread
{
	my ($tid) = @_;
	pipe(my $reader, my $writer) or die "pipe: $!";
	my $pid = fork() // die "fork: $!";
	if (!$pid)
	{
		my $held = syscall($ptrace, SEIZE, $tid, 0, 0) == 0 && syscall($ptrace, INTERRUPT, $tid, 0, 0) == 0;
		syswrite $writer, $held ? 'y' : 'n';
		sleep;
	}
	sysread $reader, my $held, 1;
	return $pid if $held eq 'y';
	kill 'KILL', $pid;
	waitpid $pid, 0;
	return;
}

sub io_threads
{
	my ($s) = @_;
	return grep { $_ != $s->pid } map { m{(\d+)$} } glob('/proc/' . $s->pid . '/task/*');
}

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk, session_timeout => '5s');

for my $case ('first', 'second')
{
	my $s = session($node);
	if ($case eq 'second')
	{
		$s->query_ok("SELECT zk_lock('$case'), zk_unlock('$case')");
		$zkc->end_session(zk_session_id($s));
	}
	$s->query_ok("SELECT zk_lock('$case')");
	my @threads;
	wait_until('one I/O thread', sub { (@threads = io_threads($s)) == 1 });
	my $holder = hold_thread($threads[0]);
  SKIP:
	{
		skip 'threads cannot be held here', 2 if !$holder;
		$s->query_async('SELECT pg_sleep(300)');
		my $ended = eval { wait_until('the end of the statement', sub { $s->finished }, timeout => 30); 1 };
		kill 'KILL', $holder;
		waitpid $holder, 0;
		ok($ended, "the $case session of a backend: the loss ends the statement in time") || $s->cancel;
		$s->wait_result;
		is($s->sqlstate, '40001', "the $case session of a backend: the statement ends with the error of the loss") || diag($s->error);
	}
	$s->quit;
}
