# Promise 7.2: deadlocks across servers are found, exactly one participant fails
# with 40P01, and the others go on.

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::Deadlock;
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;

my $zk = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my %node = map {
	my $node = zklock_node($_, zk => $zk,
		extra_conf => "deadlock_timeout = '300ms'\n");
	$node->safe_psql('postgres',
		'CREATE TABLE t AS SELECT g AS id, 0 AS v FROM generate_series(1, 9) g');
	($_ => $node)
} qw(a b c d);
my $d = ZkLock::Deadlock->new(%node);
my $waits = '/zklock/waits';

sub lock_row { return "UPDATE t SET v = v + 1 WHERE id = $_[0]" }


# Two servers, and the message.
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
		'the server log has the statement');
	unlike($victim->error, qr/SELECT zk_xact_lock/, '... the client has not');
}

# T1 of A holds a row and waits for x; T2 of B holds x and waits for a row that
# T3 of B holds; T3 waits for y, held by T4 of A; T4 waits for T1's row.
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
	$d->is_resolved('through rows of two servers, a row last',
		qr/ShareLock on transaction \d+/);
}

# The same with the ensemble last.
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
	$d->is_resolved('through rows of two servers, a cluster-wide lock last');
}

# Circles of three and four servers, in each mode.
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

# One of two sharers; the other one releases and changes nothing.
{
	my ($s, $t, $other) = map { $d->open($_) } qw(a b c);
	$d->hold($_, "SELECT zk_xact_lock_shared('x')") for $s, $other;
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	$other->query_ok('ROLLBACK');
	$d->wait_for($s, "SELECT zk_xact_lock_shared('y')");
	$d->is_resolved('a sharer', qr/waits for shared lock "y"/);
}

# An upgrade waits for another sharer, who waits for the upgrader.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($_, "SELECT zk_xact_lock_shared('x')") for $s, $t;
	$d->hold($s, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('x')");
	$d->wait_for($t, "SELECT zk_xact_lock('y')");
	$d->is_resolved('an upgrade', qr/waits for exclusive lock "x"/);
}

# Several names at once: the second is held elsewhere; and in a queue of its own.
{
	my ($s, $t, $u) = map { $d->open($_) } qw(a b c);
	$d->hold($s, "SELECT zk_xact_lock('z')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->hold($u, "SELECT zk_xact_lock('v')");
	$d->wait_for($s, "SELECT zk_xact_lock(ARRAY['x', 'y', 'v'])");
	$d->wait_for($t, "SELECT zk_xact_lock(ARRAY['u', 'z'])");
	$u->query_ok('ROLLBACK');
	$d->is_resolved('several names at once', qr/lock "y"/, qr/lock "z"/);

	($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($s, "SELECT zk_xact_lock('z')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock(ARRAY['x', 'y'])");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	$d->is_resolved('several names at once, one of them not yet held',
		qr/lock "x"/, qr/lock "y"/);
}

# Behind others of the same server, in PostgreSQL's queue for the same lock.
{
	my ($holder, $first, $second) = map { $d->open($_) } qw(b a a);
	$d->hold($holder, "SELECT zk_xact_lock('x')");
	$d->hold($second, "SELECT zk_xact_lock('y')");
	$d->wait_for($first, "SELECT zk_xact_lock('x')");
	$d->wait_for($second, "SELECT zk_xact_lock('x')");
	$d->wait_for($holder, "SELECT zk_xact_lock('y')");
	$d->is_resolved('second in the queue of a server', qr/on advisory lock/);
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

# Two at once, with nothing in common, are two.
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
	is_deeply(\@failed, [ ('00000 40P01') x 2 ], 'two deadlocks: one gives way in each');
	$d->close;
}

# Session-level locks of a session that idles are in nobody's way by themselves.
{
	my ($s, $t) = map { $d->open($_, begin => 0) } qw(a b);
	$d->hold($s, "SELECT zk_lock('x')");
	$d->hold($t, "SELECT zk_lock('y')");
	$d->wait_for($s, "SELECT zk_lock('y')");
	$d->wait_for($t, "SELECT zk_lock('x')");
	my $victim = $d->one_fails('session level');
	$d->all_succeed('... and what it held is released by its owner alone');
}

is_deeply([ $zkc->children($waits) ], [], 'no wait is published any more');
nothing_left($zkc, 'nothing is left');
done_testing();
