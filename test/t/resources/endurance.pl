# The use of resources does not grow over many locks and many reconnections, and many
# sessions can hold locks at once.
# ZKLOCK_TEST_PAIRS and ZKLOCK_TEST_RECONNECTS set the numbers. With
# ZKLOCK_TEST_PAIRS=100000 ZKLOCK_TEST_RECONNECTS=1000 the test takes minutes. A leak in
# each piece of work shows with fewer as well.
# Alone: the test runs as fast as it can, and measures memory.
# Nightly: it is an endurance test.
#
# Promise: 4.2

use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use ZkLock::Test;

use constant PAIRS => $ENV{ZKLOCK_TEST_PAIRS} || 20000;
use constant RECONNECTS => $ENV{ZKLOCK_TEST_RECONNECTS} || 200;
use constant SESSIONS => 500;

my ($zk, $zkc) = ZkLock::ZkServer->start(
	tick_time => 500,
	config => { maxSessionTimeout => 60000 })->with_client(timeout => 40);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = zklock_node('a',
	zk => $proxy,
	session_timeout => '3s',
	extra_conf => "max_connections = 520\n");

my @counted = qw(threads descriptors watches connections nodes);

# Returns the resources that a session uses, on the machine and in the ensemble.
sub usage_of
{
	my ($s) = @_;
	my $proc = '/proc/' . $s->pid;
	my $status = read_file("$proc/status");
	my ($watches) = ($zk->four_letter('wchs') // '') =~ /Total watches:(\d+)/;
	my %usage = (
		threads => scalar(my @t = glob "$proc/task/*"),
		descriptors => scalar(my @f = glob "$proc/fd/*"),
		watches => $watches,
		connections => scalar(my @c = connections()),
		nodes => $s->query_ok('SELECT locks FROM zk_session()'));
	$usage{$_} = ($status =~ /^Vm$_:\s+(\d+) kB/m)[0] for qw(RSS Data);
	return \%usage;
}

# Returns the connected ZooKeeper sessions, including that of this test.
sub connections
{
	return ($zk->four_letter('cons') // '') =~ /sid=(0x\w+)/g;
}

# Does the work in four quarters and reads the usage after each. The counted resources
# are no more afterwards than before. Memory may grow until its arenas are warm, but in
# the second half by less than $bytes for each piece of work.
sub usage_does_not_grow
{
	my ($s, $what, $n, $bytes, $work) = @_;
	my $before = usage_of($s);
	my @usage;
	for (1 .. 4)
	{
		$work->($n / 4);
		push @usage, settled_usage($s, $before);
		note(join ', ', "$what after " . @usage * $n / 4,
			map { "$_ $usage[-1]{$_}" } sort keys %{ $usage[-1] });
	}
	for my $kind (@counted)
	{
		cmp_ok($usage[3]{$kind}, '<=', $before->{$kind}, "$n $what: no more $kind");
	}
	for my $kind (qw(RSS Data))
	{
		cmp_ok($usage[3]{$kind} - $usage[1]{$kind}, '<', $bytes * $n / 2 / 1024,
			"$n $what: memory ($kind) does not grow");
	}
	return;
}

# Returns the usage after the server has processed all requests.
sub settled_usage
{
	my ($s, $before) = @_;
	my $usage;
	eval {
		wait_until(
			'use to fall',
			sub {
				$usage = usage_of($s);
				!grep { $usage->{$_} > $before->{$_} } @counted;
			},
			timeout => 20);
	};
	return $usage;
}

# A session that has already opened what it opens once.
sub locker
{
	my ($connect_string) = @_;
	my $s = session_with($node, connect_string => $connect_string);
	$s->query_ok("SELECT zk_try_lock('warm' || i), zk_unlock('warm' || i) "
		  . 'FROM generate_series(1, 50) i');
	return $s;
}

# A leaked piece of work would cost a hundred bytes or more.
{
	my $s = locker($zk->connect_string);
	my $began = time();
	usage_does_not_grow($s, 'pairs of lock and unlock', PAIRS, 40,
		sub {
			my ($n) = @_;
			$s->query_ok(
				"DO \$\$ BEGIN FOR i IN 1..$n LOOP PERFORM zk_lock('pair'); PERFORM zk_unlock('pair'); END LOOP; END \$\$",
				timeout => 600);
		});
	note(sprintf '%.0f pairs a second', PAIRS / (time() - $began));
	$s->quit;
}

# Reconnections of a holder and of a waiter. Five nodes are watched, among them the held
# nodes and the report of a long wait of a session that holds a lock, each by its own session.
{
	my $s = locker($proxy->connect_string);
	my $waiter = locker($proxy->connect_string);
	my @ids = map { zk_session_id($_) } $s, $waiter;
	$s->query_ok("SELECT zk_lock('held'), zk_lock_shared('shared')");
	foreign_node($zkc, '/zklock/locks/queue', 'WRIT');
	$waiter->query_ok("SELECT zk_lock_shared('shared')");
	$waiter->query_async("SELECT zk_lock('queue')");
	wait_zk_children($zkc, '/zklock/locks/queue', 2);
	wait_until('five watches', sub { usage_of($s)->{watches} == 5 });
	usage_does_not_grow($s, 'reconnections', RECONNECTS, 4000,
		sub {
			my ($n) = @_;
			for (1 .. $n)
			{
				$proxy->cut;
				wait_until(
					'both connections',
					sub {
						my %connected = map { $_ => 1 } connections();
						return $connected{ $ids[0] } && $connected{ $ids[1] };
					});
			}
			wait_state($s, 'connected');
		});
	works($s, 'SELECT count(*) FROM zk_held_locks', '2',
		'the locks are held after ' . RECONNECTS . ' reconnections');
	is(zk_session_id($s), $ids[0], 'the holder has kept its ZooKeeper session');
	$waiter->cancel;
	failed_with($waiter, '57014', 'the waiter still waits and can be cancelled', hint => 0);
	$_->quit for $s, $waiter;
	nothing_left($zkc, 'reconnections leave no node');
}

# Many backends at once, which wait for a native lock until all of them hold a lock.
{
	my $gate = session($node);
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	my $script = $node->basedir . '/own_lock.sql';
	append_to_file($script,
		"SELECT zk_lock('own-' || pg_backend_pid()), pg_advisory_lock_shared(1);\n");
	my $began = time();
	my $bench = do
	{
		local $ENV{PGOPTIONS} = '-c zklock.session_timeout=60s '
		  . "-c zklock.ensemble_timeout=60s -c zklock.connect_string=@{[$zk->connect_string]}";
		spawn(
			[
				$node->installed_command('pgbench'),
				'-n', '-t', '1', '-c', SESSIONS, '-f', $script,
				'-d', $node->connstr('postgres')
			],
			log => $node->basedir . '/pgbench.log');
	};
	my $gone = sub { !alive($bench) };
	ok( wait_until(
			SESSIONS . ' backends with a lock',
			sub {
				return SESSIONS == $node->safe_psql('postgres',
					"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
					  . 'AND objid = 1 AND objsubid = 1 AND classid = 0 AND NOT granted');
			},
			pause => 0.2,
			diag => sub { read_file($node->basedir . '/pgbench.log') }),
		SESSIONS . ' backends hold a lock each at the same time');
	my @pids = split /\n/, $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench'");
	is(scalar(map { $zkc->children("/zklock/locks/$_") }
		  grep { /^own-/ } $zkc->children('/zklock/locks')),
		SESSIONS, 'each backend has a node of its own');
	is(scalar(my @c = connections()), SESSIONS + 1,
		'each backend has a ZooKeeper session of its own');
	is(scalar(grep { 2 != (my @t = glob "/proc/$_/task/*") } @pids),
		0, 'each backend has two threads');
	my $kb = 0;
	$kb += (read_file("/proc/$_/status") =~ /^VmData:\s+(\d+)/m)[0]
	  for @pids;
	note(sprintf 'after %.1f s; %.1f MB of data in each backend',
		time() - $began, $kb / 1024 / SESSIONS);

	$began = time();
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
	ok(wait_until('pgbench to end', $gone), 'all backends end');

	# A backend may end without time for a closing message; then its node stays until its
	# session expires.
	nothing_left($zkc, 'the nodes of all backends are removed', timeout => 120);
	ok(wait_until('sessions to end', sub { 1 == (my @left = connections()) }),
		'the ZooKeeper sessions of all backends end');
	note(sprintf 'ended after %.1f s', time() - $began);
	$gate->quit;
}
