# Promise 7.2: deadlocks that pass through permits of semaphores are found, in both
# layouts, exactly one participant fails, and what is none is left alone.

use strict;
use warnings;

use Sys::Hostname qw(hostname);
use Test::More;
use ZkLock::Check qw(failed_with nothing_left);
use ZkLock::Cluster;
use ZkLock::Deadlock qw(wait_reports wait_until_reported);
use ZkLock::Opponent;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my %node = map {
	my $node = zklock_node($_, zk => $zk,
		extra_conf => "deadlock_timeout = '300ms'\nlog_lock_waits = on\n");
	$node->safe_psql('postgres',
		'CREATE TABLE t AS SELECT g AS id, 0 AS v FROM generate_series(1, 9) g');
	($_ => $node)
} qw(a b c);
my $d = ZkLock::Deadlock->new(%node);

sub lock_row { return "UPDATE t SET v = v + 1 WHERE id = $_[0]" }

# Semaphores are kept while they are in use and some time after: each has a name of
# its own.
sub acquire { return "SELECT zk_xact_acquire('$_[0]', $_[1])" }

sub permit { return qr/waits for a permit of semaphore "$_[0]"; blocked by process/ }

for my $layout ('curator', 'kazoo')
{
	my $program = ZkLock::Opponent->$layout($zk->connect_string);
	my ($x, $y, $two) = map { "$_.$layout" } qw(x y two);
	my $open = sub {
		my $s = $d->open($_[0], begin => 0);
		$s->query_ok("SET zklock.node_names = '$layout'");
		$s->query_ok('BEGIN');
		return $s;
	};

	# The only permits of two.
	{
		my ($s, $t) = map { $open->($_) } qw(a b);
		$d->hold($s, acquire($x, 1));
		$d->hold($t, acquire($y, 1));
		$d->wait_for($s, acquire($y, 1));
		$d->wait_for($t, acquire($x, 1));
		my @server = map { $_->node->port } $s, $t;
		my $victim = $d->is_resolved("$layout: each other's only permit",
			qr/ERROR:  deadlock detected while waiting for semaphore "[xy]\.$layout"$/m,
			qr/Process ${\$s->pid} on server \S+:$server[0] waits for a permit of semaphore "$y"; blocked by process ${\$t->pid} on server \S+:$server[1]\./,
			qr/Process ${\$t->pid} on server \S+:$server[1] waits for a permit of semaphore "$x"; blocked by process ${\$s->pid} on server \S+:$server[0]\./);
		my $log = PostgreSQL::Test::Utils::slurp_file($victim->node->logfile);
		like($log, qr/Process ${\$victim->pid}: SELECT zk_xact_acquire\('[xy]\.$layout', 1\)/,
			"$layout: the server log has the statement");
		like($log, qr/process ${\$victim->pid} still waiting for a permit of semaphore "[xy]\.$layout" after/,
			"$layout: ... and the long wait");
	}

	# A lock, a permit, a row; the row last, and the permit last.
	for my $last ('row', 'permit')
	{
		my ($s, $t, $u) = map { $open->($_) } qw(a b b);
		$d->hold($s, acquire($x, 1));
		$d->hold($t, "SELECT zk_xact_lock('l')");
		$d->hold($u, lock_row(1));
		$d->wait_for($s, "SELECT zk_xact_lock('l')");
		my @waits = ([ $u, acquire($x, 1) ], [ $t, lock_row(1) ]);
		$d->wait_for(@$_) for $last eq 'row' ? @waits : reverse @waits;
		$d->is_resolved("$layout: a lock, a permit, a row; the $last last",
			permit($x), qr/waits for exclusive lock "l"/, qr/ShareLock on transaction/);
	}

	# Whose session has nothing but a permit, and waits for a row.
	{
		my ($s, $t) = map { $open->($_) } qw(a a);
		my $far = $open->('b');
		$d->hold($s, acquire($x, 1));
		$d->hold($t, lock_row(2));
		$d->hold($far, acquire($y, 1));
		$d->wait_for($s, lock_row(2));
		$d->wait_for($t, acquire($y, 1));
		$d->wait_for($far, acquire($x, 1));
		$d->is_resolved("$layout: two permits and a row", permit($x), permit($y));
	}

	# Of two permits one's holder can go on; then it waits, too.
	{
		my ($s, $t, $u) = map { $open->($_) } qw(a b c);
		$d->hold($_, acquire($two, 2)) for $s, $t;
		$d->hold($u, "SELECT zk_xact_lock('l')");
		$d->wait_for($u, acquire($two, 2));
		$d->wait_for($s, "SELECT zk_xact_lock('l')");
		wait_until_reported($zkc, qr/\.w\./, 2);
		ok(!$s->finished && !$u->finished, "$layout: one of two holders can go on");
		$d->wait_for($t, "SELECT zk_xact_lock('l')");
		$d->is_resolved("$layout: then it waits as well", permit($two));
	}

	# Second in the queue for permits.
	{
		my ($s, $t, $u) = map { $open->($_) } qw(a b c);
		$d->hold($s, acquire($x, 1));
		$d->hold($u, "SELECT zk_xact_lock('l')");
		$d->wait_for($t, acquire($x, 1));
		wait_for_sql($t->node, 'SELECT count(*) FROM zk_blocking(' . $t->pid . ')', '1');
		$d->wait_for($u, acquire($x, 1));
		my $seen = session($node{c});
		is($seen->query_ok("SELECT concat_ws(' ', server, pid, name, mode, granted) FROM zk_blocking("
				  . $u->pid . ')'),
			join("\n", map { hostname() . ':' . $_->[0]->node->port . ' ' . $_->[0]->pid . " $x permit $_->[1]" }
				  [ $s, 't' ], [ $t, 'f' ]),
			"$layout: zk_blocking() has the holder, and who is before it");
		$seen->quit;
		$d->wait_for($s, "SELECT zk_xact_lock('l')");
		$d->is_resolved("$layout: second in the queue for permits", permit($x));
	}

	# Of two permits another program has one.
	{
		my ($s, $t) = map { $open->($_) } qw(a b);
		my $theirs = $program->lock(semaphore => "/zklock/semaphores/$two", leases => 2);
		ok($theirs->acquire(10_000), "$layout: another program has a permit");
		$d->hold($s, acquire($two, 2));
		$d->hold($t, "SELECT zk_xact_lock('l')");
		$d->wait_for($t, acquire($two, 2));
		$d->wait_for($s, "SELECT zk_xact_lock('l')");
		wait_until_reported($zkc, qr/\.w\./, 2);
		ok(!$s->finished && !$t->finished, "$layout: nobody knows what that waits for");
		$theirs->release;
		$d->all_succeed("$layout: ... it releases, and all go on");
		$theirs->close;
	}
	is_deeply([ wait_reports($zkc) ], [], "$layout: no wait is published any more");
}

# Off: lock_timeout ends it.
{
	$_->append_conf('postgresql.conf', 'zklock.deadlock_detection = off'), $_->reload
	  for values %node;
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($s, acquire('x.off', 1));
	$d->hold($t, acquire('y.off', 1));
	$t->query_ok("SET lock_timeout = '3s'");
	$d->wait_for($s, acquire('y.off', 1));
	$d->wait_for($t, acquire('x.off', 1));
	failed_with($t, '55P03', 'off: a deadlock is ended by lock_timeout', hint => 0);
	$d->{waiting} = [$s];
	$d->all_succeed('... and the other goes on');
}

nothing_left($zkc, 'nothing is left');
done_testing();
