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
		qr/^ERROR:  deadlock detected while waiting for lock "[xy]"$/m,
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

is_deeply([ $zkc->children('/zklock/waits') ], [], 'no wait is told any more');
nothing_left($zkc, 'nothing is left');
done_testing();
