# Nothing grows in the long run: over many locks, many connections, many
# sessions at once.
#
# ZKLOCK_TEST_PAIRS and ZKLOCK_TEST_RECONNECTS are how many. Those of
# ZKLOCK_TEST_PAIRS=100000 ZKLOCK_TEST_RECONNECTS=1000 take minutes; a piece lost
# at each shows with fewer as well.
#
# Alone: it works as fast as it can, and measures memory.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use ZkLock::Check;
use ZkLock::Choke;
use ZkLock::Cluster;
use ZkLock::Util qw(read_file spawn alive);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

use constant PAIRS => $ENV{ZKLOCK_TEST_PAIRS} || 20000;
use constant RECONNECTS => $ENV{ZKLOCK_TEST_RECONNECTS} || 200;
use constant SESSIONS => 500;

my $zk = ZkLock::ZkServer->start(
	tick_time => 500,
	config => { maxSessionTimeout => 60000 });
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 40);
my $way = ZkLock::Choke->start(target => $zk);
my $node = zklock_node('a',
	zk => $way,
	session_timeout => '3s',
	extra_conf => "max_connections = 520\n");

my @counted = qw(threads descriptors watches connections nodes);

# What a backend uses of the machine, and the ensemble of it.
sub used
{
	my ($s) = @_;
	my $proc = '/proc/' . $s->pid;
	my $status = read_file("$proc/status");
	my ($watches) = ($zk->four_letter('wchs') // '') =~ /Total watches:(\d+)/;
	my %used = (
		threads => scalar(my @t = glob "$proc/task/*"),
		descriptors => scalar(my @f = glob "$proc/fd/*"),
		watches => $watches,
		connections => scalar(my @c = connections()),
		nodes => $s->query_ok('SELECT locks FROM zk_session()'));
	$used{$_} = ($status =~ /^Vm$_:\s+(\d+) kB/m)[0] for qw(RSS Data);
	return \%used;
}

# The ZooKeeper sessions that are connected, the test's own among them.
sub connections
{
	return ($zk->four_letter('cons') // '') =~ /sid=(0x\w+)/g;
}

# Does the work in four quarters and looks after each. What is counted is not
# more afterwards than before; memory may grow until its arenas are warm, but in
# the second half by less than $bytes for each piece of work.
sub grows_not
{
	my ($s, $what, $n, $bytes, $work) = @_;
	my $before = used($s);
	my @used;
	for (1 .. 4)
	{
		$work->($n / 4);
		push @used, settled($s, $before);
		note(join ', ', "$what after " . @used * $n / 4,
			map { "$_ $used[-1]{$_}" } sort keys %{ $used[-1] });
	}
	for my $kind (@counted)
	{
		cmp_ok($used[3]{$kind}, '<=', $before->{$kind}, "$n $what: no more $kind");
	}
	for my $kind (qw(RSS Data))
	{
		cmp_ok($used[3]{$kind} - $used[1]{$kind}, '<', $bytes * $n / 2 / 1024,
			"$n $what: memory ($kind) does not grow");
	}
	return;
}

# What is used when the server has heard of everything.
sub settled
{
	my ($s, $before) = @_;
	my $used;
	eval {
		wait_until(
			'use to fall',
			sub {
				$used = used($s);
				!grep { $used->{$_} > $before->{$_} } @counted;
			},
			timeout => 20);
	};
	return $used;
}

# A backend that has opened what it opens once.
sub locker
{
	my ($connect_string) = @_;
	my $s = session($node);
	$s->query_ok("SET zklock.connect_string = '$connect_string'");
	$s->query_ok("SELECT zk_try_lock('warm' || i), zk_unlock('warm' || i) "
		  . 'FROM generate_series(1, 50) i');
	return $s;
}

# A forgotten piece of work would cost a hundred bytes or more.
{
	my $s = locker($zk->connect_string);
	my $began = time();
	grows_not($s, 'pairs of lock and unlock', PAIRS, 40,
		sub {
			my ($n) = @_;
			$s->query_ok(
				"DO \$\$ BEGIN FOR i IN 1..$n LOOP PERFORM zk_lock('pair'); PERFORM zk_unlock('pair'); END LOOP; END \$\$",
				timeout => 600);
		});
	note(sprintf '%.0f pairs a second', PAIRS / (time() - $began));
	$s->quit;
}

# Reconnections of a holder and of a waiter: four nodes are watched, those held
# and the report of a long wait by their own session.
{
	my $s = locker($way->connect_string);
	my $waiter = locker($way->connect_string);
	my @ids = map { zk_session_id($_) } $s, $waiter;
	$s->query_ok("SELECT zk_lock('held'), zk_lock_shared('shared')");
	foreign_node($zkc, '/zklock/locks/queue', 'WRIT');
	$waiter->query_async("SELECT zk_lock('queue')");
	wait_zk_children($zkc, '/zklock/locks/queue', 2);
	wait_until('four watches', sub { used($s)->{watches} == 4 });
	grows_not($s, 'reconnections', RECONNECTS, 4000,
		sub {
			my ($n) = @_;
			for (1 .. $n)
			{
				$way->open;
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
		'what was held is held after ' . RECONNECTS . ' reconnections');
	is(zk_session_id($s), $ids[0], 'in the same ZooKeeper session');
	$waiter->cancel;
	failed_with($waiter, '57014', 'the waiter has waited all the time', hint => 0);
	$_->quit for $s, $waiter;
	nothing_left($zkc, 'reconnections leave nothing behind');
}

# Many backends at once; a lock of the server keeps them until all are there.
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
		  . "-c zklock.connect_timeout=60s -c zklock.connect_string=@{[$zk->connect_string]}";
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
		SESSIONS, 'each with a node of its own');
	is(scalar(my @c = connections()), SESSIONS + 1,
		'and a ZooKeeper session of its own');
	is(scalar(grep { 4 != (my @t = glob "/proc/$_/task/*") } @pids),
		0, 'and three threads');
	my $kb = 0;
	$kb += (read_file("/proc/$_/status") =~ /^VmData:\s+(\d+)/m)[0]
	  for @pids;
	note(sprintf 'after %.1f s; %.1f MB of data in each backend',
		time() - $began, $kb / 1024 / SESSIONS);

	$began = time();
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
	ok(wait_until('pgbench to end', $gone), 'they all end');

	# Of one that has no time to send a closing message, at the end of its session.
	nothing_left($zkc, 'their nodes are gone', timeout => 120);
	ok(wait_until('sessions to end', sub { 1 == (my @left = connections()) }),
		'as are their ZooKeeper sessions');
	note(sprintf 'ended after %.1f s', time() - $began);
	$gate->quit;
}

$zkc->close;
$node->stop;
$way->stop;
$zk->stop;
done_testing();
