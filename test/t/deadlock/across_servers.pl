# Deadlocks across servers are detected. Exactly one participant fails
# with 40P01, and the others succeed.
#
# Promise: 7.2
# Tags: user, edges

use ZkLock::Deadlock qw(lock_row);
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500)->with_client(timeout => 60);
my $d = ZkLock::Deadlock->start([qw(a b c d)], zk => $zk, extra_conf => "deadlock_timeout = '300ms'\n");
my $waits = '/zklock/waiting';

# Two servers; the text of the error.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	my @server = map { $_->node->port } $s, $t;
	my $victim = $d->is_resolved('two servers',
		qr/ERROR:  deadlock detected while waiting for lock "[xy]"$/m,
		qr/Process ${\$s->pid} on server \S+:$server[0] waits for exclusive lock "y"; blocked by process ${\$t->pid} on server \S+:$server[1]\./,
		qr/Process ${\$t->pid} on server \S+:$server[1] waits for exclusive lock "x"; blocked by process ${\$s->pid} on server \S+:$server[0]\./);
	my $other = $victim == $s ? $t : $s;
	like(PostgreSQL::Test::Utils::slurp_file($victim->node->logfile),
		qr/Process ${\$victim->pid}: SELECT zk_xact_lock\('[xy]'\)/,
		'the server log contains the statement');
	unlike($victim->error, qr/SELECT zk_xact_lock/, 'the error sent to the client does not contain the statement');
}

# T1 of A holds a row and waits for x. T2 of B holds x and waits for a row that T3 of B
# holds. T3 waits for y, which T4 of A holds. T4 waits for T1's row.
{
	my ($t1, $t2, $t3, $t4) = map { $d->open($_) } qw(a b b a);
	$d->hold($t1, lock_row(1));
	$d->hold($t2, "SELECT zk_xact_lock('x')");
	$d->hold($t3, lock_row(2));
	$d->hold($t4, "SELECT zk_xact_lock('y')");
	$d->wait_for($t1, "SELECT zk_xact_lock('x')");
	$d->wait_for($t3, "SELECT zk_xact_lock('y')");
	$d->wait_for($t2, lock_row(2));
	$d->wait_for($t4, lock_row(1));
	$d->is_resolved('rows of two servers, the wait for a row last',
		qr/ShareLock on transaction \d+/);
}

# The same cycle; a wait for an ensemble lock closes it.
{
	my ($t1, $t2, $t3, $t4) = map { $d->open($_) } qw(a b b a);
	$d->hold($t1, lock_row(1));
	$d->hold($t2, "SELECT zk_xact_lock('x')");
	$d->hold($t3, lock_row(2));
	$d->hold($t4, "SELECT zk_xact_lock('y')");
	$d->wait_for($t2, lock_row(2));
	$d->wait_for($t4, lock_row(1));
	$d->wait_for($t3, "SELECT zk_xact_lock('y')");
	$d->wait_for($t1, "SELECT zk_xact_lock('x')");
	$d->is_resolved('rows of two servers, the wait for an ensemble lock last');
}

# The system clock is set back during a local wait: its beginning, which PostgreSQL has by that
# clock, is in the future. The debugger writes it from a process that may stop: it has no locks.
{
	my ($s, $local, $t) = map { $d->open($_) } qw(a a b);
	$d->hold($s, lock_row(1));
	$d->hold($local, "SELECT zk_xact_lock('x')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($local, lock_row(1));
	my $writer = session($s->node);
	$writer->query_ok("LOAD 'zklock'");
	my $commands = PostgreSQL::Test::Utils::tempdir() . '/commands';
	PostgreSQL::Test::Utils::append_to_file($commands, <<~GDB);
		set debuginfod enabled off
		set \$proc = ((PROC_HDR *) ProcGlobal)->allProcs
		while \$proc->pid != ${\$local->pid}
		set \$proc = \$proc + 1
		end
		print \$proc->waitStart.value += 7200000000LL
		GDB
	my $output = qx(gdb -nx -q -batch -x '$commands' -p ${\$writer->pid} 2>&1);
	like($output, qr/^\$1 = [1-9]/m, 'the beginning of the wait is in the future');
	$writer->quit;
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	$d->is_resolved('after the clock was set back', qr/ShareLock on transaction \d+/);
}

# Cycles of three and four servers, in each mode.
for my $servers ([qw(a b c)], [qw(a b c d)])
{
	for my $mode ('', '_shared')
	{
		my @s = map { $d->open($_) } @$servers;
		$d->hold($s[$_], "SELECT zk_xact_lock('x$_')") for 0 .. $#s;
		$d->wait_for($s[$_],
			"SELECT zk_xact_lock$mode('x" . (($_ + 1) % @s) . "')")
		  for 0 .. $#s;
		$d->is_resolved(@s . " servers$mode",
			map { qr/Process ${\$_->pid} on server/ } @s);
	}
}

# A cycle through one of two sharers. The release of the other sharer does not break it.
{
	my ($s, $t, $other) = map { $d->open($_) } qw(a b c);
	$d->hold($_, "SELECT zk_xact_lock_shared('x')") for $s, $other;
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	$other->query_ok('ROLLBACK');
	$d->wait_for($s, "SELECT zk_xact_lock_shared('y')");
	$d->is_resolved('one of two sharers', qr/waits for shared lock "y"/);
}

# An upgrade waits for another sharer, which waits for the upgrading session.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($_, "SELECT zk_xact_lock_shared('x')") for $s, $t;
	$d->hold($s, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('x')");
	$d->wait_for($t, "SELECT zk_xact_lock('y')");
	$d->is_resolved('an upgrade', qr/waits for exclusive lock "x"/);
}

# Several names in one call: the second is held by another server, and several queues
# are part of the cycle.
{
	my ($s, $t, $u) = map { $d->open($_) } qw(a b c);
	$d->hold($s, "SELECT zk_xact_lock('z')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->hold($u, "SELECT zk_xact_lock('v')");
	$d->wait_for($s, "SELECT zk_xact_lock_many(ARRAY['x', 'y', 'v'])");
	$d->wait_for($t, "SELECT zk_xact_lock_many(ARRAY['u', 'z'])");
	$u->query_ok('ROLLBACK');
	$d->is_resolved('several names in one call', qr/lock "y"/, qr/lock "z"/);

	($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($s, "SELECT zk_xact_lock('z')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock_many(ARRAY['first', 'y'])");
	wait_zk_children($zkc, '/zklock/locks/first', 1);
	$d->wait_for($t, "SELECT zk_xact_lock('first')");
	$d->is_resolved('several names in one call, the lock in the cycle not granted yet',
		qr/lock "first"/, qr/lock "y"/);
}

# The session waits for the local lock, behind other waiters of its server.
{
	my ($holder, $first, $second) = map { $d->open($_) } qw(b a a);
	$d->hold($holder, "SELECT zk_xact_lock('x')");
	$d->hold($second, "SELECT zk_xact_lock('y')");
	$d->wait_for($first, "SELECT zk_xact_lock('x')");
	$d->wait_for($second, "SELECT zk_xact_lock('x')");
	$d->wait_for($holder, "SELECT zk_xact_lock('y')");
	$d->is_resolved('a waiter for the local lock', qr/on advisory lock/);
}

# Table locks, and CREATE INDEX CONCURRENTLY.
{
	my ($s, $t, $reader) = map { $d->open($_) } qw(a b b);
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($reader, 'SELECT count(*) FROM t');
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	$d->wait_for($reader, "SELECT zk_xact_lock('x')");
	$d->wait_for($t, 'LOCK TABLE t');
	$d->is_resolved('a table lock', qr/AccessExclusiveLock on relation \d+/);

	my ($index, $writer, $far) =
	  ($d->open('a', begin => 0), $d->open('a'), $d->open('b'));
	$d->hold($index, "SELECT zk_lock('x')");
	$d->hold($writer, lock_row(3));
	$d->hold($far, "SELECT zk_xact_lock('y')");
	$d->wait_for($writer, "SELECT zk_xact_lock('y')");
	$d->wait_for($far, "SELECT zk_xact_lock('x')");
	$d->wait_for($index, 'CREATE INDEX CONCURRENTLY ON t (v)');
	$d->is_resolved('CREATE INDEX CONCURRENTLY',
		qr/ShareLock on (?:virtual transaction|relation)/);
}

# Two independent deadlocks at once.
{
	my @s = map { $d->open($_) } qw(a b c d);
	$d->hold($s[$_], "SELECT zk_xact_lock('x$_')") for 0 .. 3;
	$d->wait_for($s[$_], "SELECT zk_xact_lock('x" . ($_ ^ 1) . "')") for 0 .. 3;
	my @failed;
	for my $pair ([ @s[ 0, 1 ] ], [ @s[ 2, 3 ] ])
	{
		$_->wait_result for @$pair;
		push @failed, join ' ', sort map { $_->sqlstate } @$pair;
	}
	is_deeply(\@failed, [ ('00000 40P01') x 2 ], 'two deadlocks: one session of each fails');
	$d->close;
}

# Session-level locks: the victim keeps its locks, and only its own release unblocks the
# other session.
{
	my ($s, $t) = map { $d->open($_, begin => 0) } qw(a b);
	$d->hold($s, "SELECT zk_lock('x')");
	$d->hold($t, "SELECT zk_lock('y')");
	$d->wait_for($s, "SELECT zk_lock('y')");
	$d->wait_for($t, "SELECT zk_lock('x')");
	my $victim = $d->one_fails('session-level locks: one fails');
	$d->all_succeed('the other session succeeds once the victim releases its lock', $zkc);
}

wait_zk_empty($zkc, $waits);
nothing_left($zkc, 'no node is left');
