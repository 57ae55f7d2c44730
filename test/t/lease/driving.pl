# The ZooKeeper session of a backend stays alive, and its locks held, whatever the backend
# does.
#
# Promise: 5.11

use File::Temp ();
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time sleep);
use ZkLock::Test;

# The session timeout, and the duration of a statement, in seconds.
use constant TIMEOUT => 12;
use constant BUSY => 15;

my $zk = shared_zk();
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = shared_node('a', zk => $proxy, session_timeout => TIMEOUT * 1000 . 'ms');
my $other = shared_node('b', session_timeout => '60s');
$node->safe_psql('postgres', 'CREATE TABLE t (i int); INSERT INTO t VALUES (1)');

# A function that does not check for interrupts.
my $tmp = File::Temp->newdir('busyXXXXXX', TMPDIR => 1);
chmod 0755, "$tmp";
write_file("$tmp/busy.c", <<'C');
#include "postgres.h"
#include "fmgr.h"
#include "portability/instr_time.h"
PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(busy);
Datum
busy(PG_FUNCTION_ARGS)
{
	instr_time	began;
	instr_time	now;

	INSTR_TIME_SET_CURRENT(began);
	do
	{
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, began);
	} while (INSTR_TIME_GET_DOUBLE(now) < PG_GETARG_INT32(0));
	PG_RETURN_VOID();
}
C
system_or_bail($ENV{CC} // 'cc', '-I' . pg_config('includedir-server'), qw(-O1 -fPIC -shared -o), "$tmp/busy.so", "$tmp/busy.c");
$node->safe_psql('postgres', "CREATE FUNCTION busy(int) RETURNS void LANGUAGE c AS '$tmp/busy.so'");

# A session with a lock; {zk} is its ZooKeeper session.
sub holder
{
	my ($name) = @_;
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('$name')");
	$s->{zk} = zk_session_id($s);
	return $s;
}

sub still_holds
{
	my ($s, $what) = @_;
	is($s->query('SELECT count(*) FROM zk_held_locks'), '1', "$what keeps its lock");
	is(zk_session_id($s), $s->{zk}, "$what keeps its session");
	$s->quit;
	return;
}

# Long statements.
{
	my $locker = session($node);
	$locker->query_ok('BEGIN; UPDATE t SET i = i');
	my %statements = (
		'a backend that computes' => 'SELECT count(busy(1)) FROM generate_series(1, ' . BUSY . ')',
		'a backend that sleeps' => 'SELECT pg_sleep(' . BUSY . ')',
		'a backend that does not check for interrupts' => 'SELECT busy(' . BUSY . ')',
		'a backend that waits for a row' => 'UPDATE t SET i = i');
	my %holders = map { $_ => holder($_) } sort keys %statements;
	my $idle = holder('idle');
	$holders{$_}->query_async($statements{$_}) for sort keys %statements;
	sleep(BUSY);
	$locker->query_ok('ROLLBACK');
	$holders{$_}->wait_result for sort keys %statements;
	still_holds($holders{$_}, $_) for sort keys %statements;
	still_holds($idle, 'an idle backend');
	$locker->quit;
}

# A latch that is set permanently.
{
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('flood')");
	my $waiter = holder('other');
	my $pid = $waiter->pid;
	my $flood = fork() // die "fork: $!";
	if (!$flood)
	{
		my $until = time() + 60;
		while (time() < $until && getppid() > 1) { kill 'USR1', $pid for 1 .. 100; }
		require POSIX;
		POSIX::_exit(0);
	}
	$waiter->query_async("SELECT zk_lock('flood') > 0");
	wait_blocked($waiter);
	sleep(BUSY);
	$holder->query_ok("SELECT zk_unlock('flood')");
	is($waiter->wait_result, 't', 'a backend that is signalled permanently is granted its lock');
	is(zk_session_id($waiter), $waiter->{zk}, 'a backend that is signalled permanently keeps its session');
	$holder->query_ok("SELECT zk_lock('flood2')");
	$waiter->query_async("SELECT zk_lock('flood2')");
	wait_blocked($waiter);
	$waiter->cancel;
	$waiter->wait_result;
	is($waiter->sqlstate, '57014', 'a backend that is signalled permanently can be cancelled');
	kill 'KILL', $flood;
	waitpid $flood, 0;
	$_->quit for $holder, $waiter;
}

# A permanent stream of messages: each change of the holder's node wakes the waiter.
{
	my $zkc = ZkLock::ZkClient->new($zk->connect_string);
	my $holder = session($other);
	$holder->query_ok("SELECT zk_lock('stream')");
	my ($node_of_holder) = $zkc->children('/zklock/locks/stream');
	my $waiter = holder('listener');
	$waiter->query_async("SELECT zk_lock('stream')");
	wait_blocked($waiter);
	my $until = time() + BUSY;
	my $n = 0;
	my $change = sub { $zkc->set("/zklock/locks/stream/$node_of_holder", 'change ' . ++$n) };
	$change->() while time() < $until;
	$waiter->cancel;
	$until = time() + 30;
	$change->() while !$waiter->finished && time() < $until;
	ok($waiter->finished, 'a backend that receives messages permanently ends its wait after a cancel');
	failed_with($waiter, '57014', 'the cancelled wait has the error of a cancel', hint => 0);
	is(zk_session_id($waiter), $waiter->{zk}, 'a backend that receives messages permanently keeps its session');
	note("$n changes");
	$_->quit for $holder, $waiter;
	$zkc->close;
}
