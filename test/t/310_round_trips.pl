# What an operation costs: requests sent to the ensemble, counted by a proxy that
# reads them. Pings do not count, nor does the keepalive read after 100 ms without
# an answer (of the root), nor the watch over a lock that has been held for a
# second (a read of its own node), which a slow machine may show.
#
# Alone: a slow machine asks more, and this counts what is asked.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(
	tick_time => 200,
	config => { maxSessionTimeout => 300000 });
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 60);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = zklock_node('a', zk => $proxy, session_timeout => '240s');
my $other = zklock_node('b', zk => $zk, session_timeout => '60s');
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

# With a ZooKeeper session; the znodes of these locks are made.
sub locker
{
	my ($where, %settings) = @_;
	my $s = session($where);
	$s->query_ok("SET zklock.$_ = '$settings{$_}'") for keys %settings;
	$s->query_ok("SELECT zk_lock('warm'), zk_unlock('warm')");
	wait_zk_empty($zkc, '/zklock/locks/warm');
	return $s;
}
$zkc->create("/zklock/locks/$_", makepath => 1) for qw(a b c);

# The empty znodes of locks, which a session deletes some seconds after their last use.
sub deletes_parents
{
	my ($request) = @_;
	return $request->{op} eq 'multi' && !grep { !m{^/zklock/locks/[^/]+$} } @{ $request->{paths} };
}

# Without what may come in between: pings, keepalive reads, deletes of empty znodes.
sub requests
{
	return grep {
		$_->{op} ne 'ping'
		  && ($_->{op} ne 'getData' || $_->{paths}[0] ne '/zklock')
		  && !deletes_parents($_)
	} $proxy->record;
}

my $ends = 0;

# What the session sent since the record was emptied. A connection keeps the
# order, so that when a request made now is in the record, all earlier ones are,
# waited for or not. Returns when that one is undone, too.
sub requests_until_now
{
	my ($s) = @_;
	my $lock = 'end' . ++$ends;
	my $at_end = sub { ($_[0]{paths}[0] // '') =~ m{/$lock\b} };
	my @all;
	$s->query_ok("SELECT zk_lock('$lock'), zk_unlock('$lock')");
	wait_until('the answers', sub {
		@all = requests();
		return grep { $_->{op} eq 'delete' && $at_end->($_) && defined $_->{answered} } @all;
	});
	my ($end) = grep { $at_end->($_) } @all;
	my @own = grep { $_->{connection} == $end->{connection} } @all;
	my @found;
	while (@own && $own[0] != $end) { push @found, shift @own }
	return @found;
}

# Nothing of the session's is on its way any more, and the record is empty.
sub from_now_on
{
	my ($s) = @_;
	requests_until_now($s);
	return $proxy->clear_record;
}

# One assertion: these statements send these requests.
sub costs
{
	my ($s, $sql, $expected, $name, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	from_now_on($s);
	for (ref $sql ? @$sql : $sql)
	{
		$s->query($_);
		return fail("$name: $_: " . $s->error) if !$s->ok;
		$opt{between}->() if $opt{between};
	}
	my @found = grep { !$_->{watch} } requests_until_now($s);
	is(join(' ', map { $_->{op} } @found), $expected, $name);
	return @found;
}

# One assertion: these requests are all sent although the first of them, or the
# nth of its kind, and what follows it gets no answer.
sub in_one_flight
{
	my ($s, $sql, $expected, $name, $nth) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($op) = split / /, $expected;
	my $seen = '';
	from_now_on($s)->arm(fault => 'hold_answer', op => $op, nth => $nth // 1);
	$s->query_async($sql);
	my $together = eval {
		wait_until("$expected without an answer", sub {
			$seen = join ' ', map { $_->{op} } requests();
			return $seen eq $expected;
		}, timeout => 20);
	};
	$proxy->disarm->release;
	$s->wait_result;
	return ok($together && $s->ok, $name) || diag("seen: $seen\n" . $s->error);
}

my $s = locker($node);
my $rival = locker($other);

costs($s, "SELECT zk_lock('a')", 'create2 getChildren',
	'an uncontended lock costs a create and a list');
in_one_flight($s, "SELECT zk_lock('b')", 'create2 getChildren', 'pipelined');
costs($s, "SELECT zk_unlock('b')", 'delete', 'a release costs a delete');
costs($s, ["SELECT zk_lock('a')", "SELECT zk_xact_lock('a')",
		"SELECT zk_lock_shared('a')", "SELECT zk_unlock_shared('a')",
		"SELECT zk_try_lock('a')", "SELECT zk_try_lock('a', '1s'), zk_unlock('a')",
		"SELECT zk_lock(ARRAY['a']), zk_unlock(ARRAY['a'])",
		"SELECT zk_lock_token('a')", "SELECT zk_revoked('a')",
		'SELECT count(*) FROM zk_held_locks', 'SELECT * FROM zk_session()'],
	'', 'taking again what is held costs nothing');
costs($s, "SELECT zk_unlock('a')", '', 'nor does a release of one of several');

{
	my $neighbour = locker($node);
	costs($neighbour, ["SELECT zk_try_lock('a')", "SELECT zk_try_lock_shared('a')",
			"SELECT zk_try_lock('a', '1ms')", "SELECT zk_try_lock(ARRAY['a', 'b'])"],
		'', 'a try against a holder on the same server costs nothing');
	$neighbour->quit;
}
$s->query_ok("SELECT zk_unlock('a')");
from_now_on($s)->arm(fault => 'hold_request', op => 'delete');
works($s, "SELECT zk_unlock('a')", 't', 'a release does not wait');
wait_until('the delete', sub { grep { $_->{op} eq 'delete' } requests() });
$proxy->release;
is(join(' ', map { $_->{op} } requests_until_now($s)), 'delete', 'it costs a delete');

# The read is for the token, the czxid that the nodes share. A create of its own
# tells it; the client library has no create in a multi that does, and keeps the
# number of the multi's transaction to itself. The lists could tell when their
# parents changed last, but another's node that goes meanwhile changes them, too.
costs($s, "SELECT zk_lock(ARRAY['a', 'b', 'c'])",
	'multi getChildren getChildren getChildren getData',
	'an array costs one multi, a list for each name, and a read for the token');
costs($s, "SELECT zk_unlock(ARRAY['a', 'b', 'c'])", 'multi',
	'its release is one multi');
in_one_flight($s, "SELECT zk_lock(ARRAY['a', 'b', 'c'])",
	'multi getChildren getChildren getChildren', 'all but that pipelined');
costs($s, "SELECT zk_unlock(ARRAY['a', 'b', 'c'])", 'multi', 'the second time, too');

# The server numbers nodes as they are made, so that a session knows by the number
# that nobody came since its last one. It has to have counted some before, as it
# compares with the ids of transactions: those for the record are in between.
sub often
{
	my ($s, $lock) = @_;
	$s->query_ok("SELECT count(zk_lock($lock)), count(zk_unlock($lock)) FROM generate_series(1, 12)");
	return;
}
often($s, "'again'");
costs($s, "SELECT zk_lock('again')", 'create2', 'a lock that nobody else had in between costs a create');
costs($s, "SELECT zk_unlock('again')", 'delete', 'and a delete');
$rival->query_ok("SELECT zk_lock('again'), zk_unlock('again')");
costs($s, ["SELECT zk_lock('again')", "SELECT zk_unlock('again')"],
	'create2 getChildren delete', 'one that somebody had is listed as well');
in_one_flight($s, "SELECT zk_lock('again')", 'create2 getChildren',
	'pipelined the next time');
$s->query_ok("SELECT zk_unlock('again')");
often($s, "ARRAY['m', 'n']");
costs($s, "SELECT zk_lock(ARRAY['m', 'n'])", 'multi getData',
	'an array that nobody else had in between costs one multi and a read');
costs($s, "SELECT zk_unlock(ARRAY['m', 'n'])", 'multi', 'and a multi');

$rival->query_ok("SELECT zk_lock('a')");
costs($s, "SELECT zk_try_lock('a')", 'create2 getChildren sync getChildren delete',
	'a try against a holder on another server looks a second time, behind a sync');
$rival->query_ok("SELECT zk_acquire('p', 1)");
$s->query_ok("SELECT zk_try_acquire('p', 1)");
costs($s, "SELECT zk_try_acquire('p', 1)",
	'create2 getChildren getChildren getData create2 sync multi',
	'a try for a permit that another server has, too');
$rival->query_ok("SELECT zk_release('p')");
{
	from_now_on($s);
	$s->query_async("SELECT zk_lock('a')");
	wait_zk_children($zkc, '/zklock/locks/a', 2);
	wait_until('the watch',
		sub { grep { $_->{op} eq 'getData' && $_->{answered} } $proxy->record });
	$rival->query_ok("SELECT zk_unlock('a')");
	$s->wait_result;
	my @own = queue_of($zkc, 'a');
	is(join(' ', map { $_->{op} }
			grep { $_->{op} ne 'getData' || $_->{paths}[0] ne $own[0] }
			requests_until_now($s)),
		'create2 getChildren getData getChildren',
		'a wait costs a watch and a second list');
	$s->query_ok("SELECT zk_unlock('a')");
}

my $work = "INSERT INTO t VALUES ('x')";
costs($s, ['BEGIN', "SELECT zk_xact_lock('a')", $work, 'COMMIT'],
	'create2 getChildren delete', 'a commit within the lease costs nothing');
costs($s, ["SELECT zk_lock_shared('a')", "SELECT zk_lock('a')"],
	'create2 getChildren create2 getChildren', 'an upgrade costs as much as a lock');
costs($s, "SELECT zk_unlock('a')", 'delete', 'giving it up again a delete');
costs($s, ["SELECT zk_unlock_shared('a')", "SELECT zk_lock('a')",
		"SELECT zk_lock_shared('a')"],
	'delete create2 getChildren', 'sharing what is held exclusively costs nothing');
costs($s, "SELECT zk_unlock('a')", 'multi', 'a downgrade costs one multi');
costs($s, "SELECT zk_unlock_shared('a')", 'delete', 'and is released as any lock');

# A permit: the queue, then its own node and the count, which sets a watch.
$s->query_ok("SELECT zk_acquire('p', 1), zk_release('p')");
wait_zk_empty($zkc, "/zklock/semaphores/p/$_") for qw(leases locks);
costs($s, "SELECT zk_acquire('p', 1)",
	'create2 getChildren getChildren getData create2 delete',
	'an uncontended permit costs two nodes and what must be known');
wait_zk_empty($zkc, '/zklock/semaphores/p/locks');
costs($s, "SELECT zk_release('p')", 'delete', 'and is released as any lock');
in_one_flight($s, "SELECT zk_acquire('p', 1)",
	'create2 getChildren getChildren getData', 'the queue pipelined');
wait_zk_empty($zkc, '/zklock/semaphores/p/locks');
costs($s, "SELECT zk_release('p')", 'delete', 'released once more');
in_one_flight($s, "SELECT zk_acquire('p', 1)",
	'create2 getChildren getChildren getData create2 getChildren',
	'its own node and the count in the next', 2);
$s->quit;

# A lease that is over: a third of the session timeout has passed.
for ([ 'lease', 'multi ' ], [ 'always', 'multi ' ], [ 'off', '' ])
{
	my ($check, $asked) = @$_;
	my $short = locker($node, commit_check => $check, session_timeout => '4500ms');
	costs($short,
		['BEGIN', "SELECT zk_xact_lock('a')", "SELECT zk_xact_lock('b')", $work,
			'SAVEPOINT waited', 'COMMIT'],
		"create2 getChildren create2 getChildren ${asked}multi",
		"a commit after the lease with commit_check = $check",
		between => sub {
			wait_until('the lease to end',
				sub {
					$short->query_ok('SELECT lease_remaining FROM zk_session()')
					  eq '00:00:00';
				});
		});
	$short->quit;
	my $fresh = locker($node, commit_check => $check);
	$asked = '' if $check eq 'lease';
	costs($fresh, ['BEGIN', "SELECT zk_xact_lock('a')", $work, 'COMMIT'],
		"create2 getChildren ${asked}delete",
		"a commit within the lease with commit_check = $check");
	$fresh->quit;
}

# An idle session: its connection is the one that pings.
{
	my $idle = locker($node, session_timeout => '3s');
	my $mine = (grep { $_->{op} eq 'delete' } $proxy->record)[-1]{connection};
	my @mine;
	$proxy->clear_record;
	wait_until('pings', sub {
		@mine = grep { $_->{connection} == $mine && !deletes_parents($_) } $proxy->record;
		return @mine >= 5;
	});
	is(join(' ', grep { $_ ne 'ping' } map { $_->{op} } @mine), '',
		'an idle session sends pings alone');
	$idle->quit;
}
nothing_left($zkc, 'nothing is left');

$rival->quit;
$_->stop for $node, $other;
$proxy->stop;
$zkc->close;
$zk->stop;
done_testing();
