# An earlier holder cannot commit after the fence of a later holder, in every isolation level. Two
# sessions hold the name at once because their roots differ: these are two locks, but fences are
# recorded by name. s1 has the smaller token. fence.spec has what needs no two roots.
#
# A case is a list of steps. "~": the step waits for the other session. "+": the waiting
# step of that session has succeeded; "!": a step, or the waiting one, has failed with 40001, or with
# the given state. At the end the rows of the table are compared.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Shared;
use ZkLock::ZkClient;

my $zkc = ZkLock::ZkClient->new(shared_zk()->connect_string);
my $node = shared_node('a');
my $admin = session($node);
$admin->query_ok('CREATE TABLE fenced (v text)');
my %s = map { $_ => session($node)->reconnect('zklock.root' => "/root$_") } 1, 2;

my %sql = (
	lock => "SELECT zk_lock('fence') > 0",
	share => "SELECT zk_lock_shared('fence') > 0",
	lockb => "SELECT zk_lock('fence.b') > 0",
	rc => 'BEGIN ISOLATION LEVEL READ COMMITTED; SELECT count(*) FROM fenced',
	rr => 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM fenced',
	ser => 'BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM fenced',
	fence => "SELECT zk_fence('fence') = zk_lock_token('fence')",
	fenceb => "SELECT zk_fence('fence.b') = zk_lock_token('fence.b')",
	savepoint => 'SAVEPOINT one',
	back => 'ROLLBACK TO one',
	limit => "SET LOCAL lock_timeout = '100ms'",
	victim => "SET LOCAL deadlock_timeout = '10ms'",
	commit => 'COMMIT',
	rollback => 'ROLLBACK');

# "level" stands for each of the isolation levels; "snap" leaves out SERIALIZABLE, where the
# transactions conflict in themselves: each writes what the other one has read.
my @cases = (
	[ 'the later holder has fenced and committed', '',
		'lock1 level1 lock2 level2 fence2 commit2 write1 fence1! commit1' ],
	[ 'the later holder has fenced: the earlier one waits, and fails if the later one commits', '',
		'lock1 level1 lock2 level2 fence2 write1 fence1~ commit2 fence1! commit1' ],
	[ '... and succeeds if the later one does not', 'earlier',
		'lock1 level1 lock2 level2 fence2 write1 fence1~ rollback2 fence1+ commit1' ],
	[ 'the earlier holder has fenced: the later one waits for the end of its transaction', 'earlier',
		'lock1 level1 lock2 level2 write1 fence1 fence2~ commit1 fence2+ commit2' ],
	[ '... which may be a rollback', '',
		'lock1 level1 lock2 level2 write1 fence1 fence2~ rollback1 fence2+ commit2' ],
	[ '... or a rollback to a savepoint', '',
		'lock1 rc1 lock2 rc2 savepoint1 fence1 fence2~ back1 fence2+ commit2 fence1! commit1' ],
	[ '... also if the earlier holder has nothing to record, because its token is recorded', 'earlier',
		'lock1 fence1 snap1 fence1 write1 lock2 snap2 fence2~ commit1 fence2+ commit2' ],
	[ '... with a timeout', 'earlier',
		'lock1 rc1 lock2 rc2 write1 fence1 limit2 fence2!55P03 rollback2 commit1' ],
	[ 'a sharer has fenced, without a row to lock', 'earlier',
		'share1 snap1 lock2 snap2 write1 fence1 fence2~ commit1 fence2+ commit2' ],
	[ 'a later writer has fenced: the sharer waits, and fails', '',
		'share1 level1 lock2 level2 fence2 write1 fence1~ commit2 fence1! commit1' ],
	[ '... or fails at once', '',
		'share1 level1 lock2 level2 fence2 commit2 write1 fence1! commit1' ],
	[ 'sharers share the fence as well, in either order', 'earlier',
		'share1 level1 share2 level2 fence2 write1 fence1 commit1 commit2' ],
	[ 'a later sharer waits for an earlier writer', 'earlier',
		'lock1 level1 share2 level2 write1 fence1 fence2~ commit1 fence2+ commit2' ],
	[ 'two names in opposite orders: a deadlock', '',
		'lock1 lockb1 lock2 lockb2 level1 level2 victim2 fence1 fenceb2 fenceb1~ fence2!40P01 fenceb1+ commit1 rollback2' ]);

for my $case (@cases)
{
	my ($what, $rows, $steps) = @$case;
	my @levels = $steps =~ /level/ ? qw(rc rr ser) : $steps =~ /snap/ ? qw(rc rr) : '';
	run_case("$what $_", $rows, split ' ', $steps =~ s/level|snap/$_/gr) for @levels;
}

sub run_case
{
	my ($what, $rows, @steps) = @_;
	$admin->query_ok("TRUNCATE fenced; SELECT zk_fence_reset('fence'), zk_fence_reset('fence.b')");
	for (@steps)
	{
		my ($step, $n, $how, $state) = /^([a-z]+)(\d)([~+!]?)(\w*)$/ or die "step $_";
		my $sql = $step eq 'write' ? q(INSERT INTO fenced VALUES ('earlier')) : $sql{$step} // die "step $_";
		my $s = $s{$n};
		if ($how eq '~')
		{
			$s->query_async($sql);
			wait_blocked_locally($s);
			next;
		}
		$s->is_busy ? $s->wait_result : $s->query($sql);
		is($s->sqlstate, $how eq '!' ? $state || '40001' : '00000', "$what: $_") || diag($s->error);
	}
	is($admin->query('SELECT v FROM fenced'), $rows, "$what: the rows");
	for my $s (values %s) { $s->query('ROLLBACK'); $s->query_ok('SELECT zk_unlock_all()') }
	return;
}

$_->quit for $admin, values %s;
nothing_left($zkc, 'nothing is left', root => $_) for qw(/root1 /root2);

done_testing();
