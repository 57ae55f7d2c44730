# A loss that arrives while a call checks for lost locks is never forgotten: after the check has
# asked and found all locks held, and before it ends. The rest of the statement is cancelled, and
# a commit is refused, also after a statement that releases the lock, which itself gets no error.
#
# Promises: 5.3, 5.9

use File::Temp ();
use IO::Handle;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk);
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

sub read_text
{
	my ($file) = @_;
	open my $in, '<', $file or die "$file: $!";
	local $/;
	return <$in>;
}

# Sends commands to the debugger, and waits for what it prints from then on.
sub debug
{
	my ($gdb, $expected, @commands) = @_;
	my $before = -s $gdb->{out};
	print { $gdb->{in} } map { "$_\n" } @commands;
	return wait_until("gdb: $commands[-1]",
		sub { substr(read_text($gdb->{out}), $before) =~ $expected });
}

# Attaches a debugger, which stops each thread alone: the I/O thread runs while the backend's own
# thread is stopped. That stops behind the next question: a call looks
# for its lock; a commit has asked whether all locks are held.
sub stop_at_question
{
	my ($s, $is_commit) = @_;
	my $out = File::Temp->new;
	my $pid = open my $in, '|-', "exec gdb -nx -q >$out 2>&1" or die "gdb: $!";
	$in->autoflush(1);
	my $gdb = { in => $in, out => $out, pid => $pid };
	debug($gdb, qr/^Thread 2 .* stopped/m,
		'set debuginfod enabled off', 'set pagination off', 'set non-stop on',
		'handle all nostop noprint pass', 'attach ' . $s->pid);
	debug($gdb, qr/Continuing/, 'break ' . ($is_commit ? 'zkl_session_is_intact' : 'zklock_hold_find'), 'continue -a &');
	return $gdb;
}

# The loss is noticed when the signal that requests a cancel is pending.
sub lose_after_answer
{
	my ($gdb, $s, $lock, $is_commit) = @_;
	wait_until('the question', sub { read_text($gdb->{out}) =~ /hit Breakpoint/ });
	debug($gdb, $is_commit ? qr/^Value returned is .* true$/m : qr/Switching to thread/, 'thread 1', 'delete', $is_commit ? 'finish' : ());
	$zkc->delete($_) for queue_of($zkc, $lock);
	wait_until('the loss', sub { read_text('/proc/' . $s->pid . '/status') =~ /^SigPnd:\s*0*[1-9a-f]/m });
	print { $gdb->{in} } "detach\nquit\n";
	close $gdb->{in};
	return;
}

sub lose_during
{
	my ($s, $lock, $statement) = @_;
	wait_watched($zk, $lock);
	my $is_commit = $statement eq 'COMMIT';
	my $gdb = stop_at_question($s, $is_commit);
	my $ok = eval {
		$s->query_async($statement);
		lose_after_answer($gdb, $s, $lock, $is_commit);
		1;
	};
	return if $ok;
	my $error = $@;
	kill 'KILL', $gdb->{pid};
	die $error . read_text($gdb->{out});
}

my %rest = (
	'the rest of the statement' => "SELECT zk_try_lock('x'), pg_sleep(600)",
	'the rest of a function' => q{DO $$ BEGIN PERFORM zk_try_lock('x'); PERFORM pg_sleep(600); END $$});
for my $rest (sort keys %rest)
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('x')");
	lose_during($s, 'x', $rest{$rest});
	my $ended = eval { wait_until('the end of the statement', sub { $s->finished }); 1 };
	$s->cancel if !$ended;
	failed_with($s, '40001', "a loss that is noticed after the question cancels $rest", like => qr/"x"/);
	works($s, 'SELECT count(*) FROM zk_held_locks', '0', "a loss that cancels $rest is reported once");
	$s->quit;
}

{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('x')");
	$s->query_ok("BEGIN; INSERT INTO t VALUES ('lost')");
	lose_during($s, 'x', 'COMMIT');
	failed_with($s, '40001', 'a loss that is noticed after the question refuses a commit', like => qr/"x"/);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'the refused commit has no effect');
	$s->quit;
}

{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('x')");
	$s->query_ok("BEGIN; INSERT INTO t VALUES ('lost')");
	lose_during($s, 'x', "SELECT zk_unlock('x'), pg_sleep(0.01)");
	$s->wait_result;
	ok($s->ok, 'a statement that releases the lock is not cancelled') or diag($s->error);
	works($s, 'SELECT pg_sleep(0.01)', '', 'the statement after the release is not cancelled');
	fails_with($s, 'COMMIT', '40001', 'the commit after the release is refused', like => qr/"x"/);
	$s->quit;
}

nothing_left($zkc, 'nothing is left');
