# Deadlocks in which the ensemble waiters of a cycle hold nothing, and only their local
# waiters are part of the cycle. An ensemble waiter then requeues behind its local waiter
# instead of failing, and exactly one session fails.
#
# Promise: 7.2

use PostgreSQL::Test::Utils qw(slurp_file);
use ZkLock::Deadlock qw(wait_until_reported);
use ZkLock::Test;
use ZkLock::Ways;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client(timeout => 60);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my %node = map {
	$_->[0] => zklock_node($_->[0], zk => $_->[1], session_timeout => '5min',
		extra_conf => "deadlock_timeout = '300ms'\nlog_min_messages = debug1\n")
} [ a => $proxy ], [ b => $zk ];
my $d = ZkLock::Deadlock->new(%node);

sub lock_sql { return "SELECT zk_xact_lock('$_[0]')" }

# Returns the number of requeues so far.
sub count_requeues
{
	return scalar map { /requeuing behind local waiters/g }
	  map { slurp_file($_->logfile) } values %node;
}

# Opens two sessions on each server. a2 holds x, b2 holds y.
sub open_four
{
	my %s = map { ("a$_" => $d->open('a'), "b$_" => $d->open('b')) } 1, 2;
	$d->hold($s{a2}, lock_sql('x'));
	$d->hold($s{b2}, lock_sql('y'));
	return %s;
}

# Assertions: one of the two holders fails; the others succeed.
sub one_holder_fails
{
	my ($name, %s) = @_;
	my $victim = $d->is_resolved($name,
		qr/deadlock detected while waiting for lock "[xy]"/);
	ok($victim == $s{a2} || $victim == $s{b2}, 'the victim holds a lock of the cycle');
	return;
}

my %wanted_lock = (a1 => 'y', a2 => 'y', b1 => 'x', b2 => 'x');
for my $order ([qw(a1 b1 a2 b2)], [qw(b1 a1 b2 a2)], [qw(a1 a2 b1 b2)],
	[qw(b1 b2 a1 a2)], [qw(b1 a1 a2 b2)])
{
	my %s = open_four();
	my $before = count_requeues();
	$d->wait_for($s{$_}, lock_sql($wanted_lock{$_})) for @$order;
	one_holder_fails("@$order", %s);
	cmp_ok(count_requeues(), '>', $before, 'an ensemble waiter has requeued');
}

# Two sessions without locks wait ahead of a2: one behind the other, or both shared.
for my $sql (lock_sql('y'), "SELECT zk_xact_lock_shared('y')")
{
	my %s = open_four();
	my $more = $d->open('a');
	$d->wait_for($s{a1}, $sql);
	$d->wait_for($more, $sql);
	$d->wait_for($s{b1}, lock_sql('x'));
	$d->wait_for($s{a2}, lock_sql('y'));
	$d->wait_for($s{b2}, lock_sql('x'));
	one_holder_fails("two waiters ahead of the holder: $sql", %s);
}

# Returns whether a session waits for the local lock behind the other session alone.
sub is_blocked_by
{
	my ($s, $other) = @_;
	return $s->node->safe_psql('postgres', 'SELECT pg_blocking_pids(' . $s->pid . ')')
	  eq '{' . $other->pid . '}';
}

# Makes a1 requeue behind a2, which is now the ensemble waiter and makes no cycle check.
# The fault hits the delete of a1's node.
sub requeue_a1
{
	my ($sql, %opt) = @_;
	my %s = open_four();
	my $before = count_requeues();
	$_->query_ok("SET deadlock_timeout = '1h'") for @s{qw(a2 b2)};
	$s{a1}->query_ok('COMMIT');
	$s{a1}->query_ok($opt{set}) if $opt{set};
	$d->wait_for($s{b1}, lock_sql('x'));
	$d->wait_for($s{b2}, lock_sql('x'));
	wait_until_reported($zkc, 1);
	$proxy->arm(fault => $opt{fault}, op => 'delete', path => '^/zklock/locks/y/')
	  if $opt{fault};
	$d->wait_for($s{a1}, $sql);
	$d->wait_for($s{a2}, lock_sql('y'));
	wait_until('a1 to requeue', sub { $s{a1}->finished || count_requeues() > $before });
	wait_until('a1 to wait behind a2',
		sub { $s{a1}->finished || is_blocked_by(@s{qw(a1 a2)}) });
	return %s;
}

# Three assertions: a2 has not failed and is cancelled; then all others succeed, except
# for $ended, whose wait has ended already.
sub cancel_of_a2_resolves
{
	my ($name, $s, $ended) = @_;
	my %ended = map { $_ => 1 } $s->{a2}, $ended // ();
	$s->{a2}->cancel;
	failed_with($s->{a2}, '57014', "$name: the next waiter has not failed", hint => 0);
	$d->release($s->{a2});
	$d->{waiting} = [ grep { !$ended{$_} } @{ $d->{waiting} } ];
	$d->all_succeed("$name: the others succeed", $zkc);
	nothing_left($zkc, "$name: no node is left");
	return;
}

# A requeued attempt waits no longer than its timeout.
{
	my %s = requeue_a1("SELECT zk_try_lock('y', '4s')");
	is($s{a1}->wait_result, 'f', 'a timed attempt ends at its timeout');
	cancel_of_a2_resolves('a timed attempt', \%s, $s{a1});
}
for my $way (ways(($d->nodes)[0], 'lock_timeout', 'statement_timeout', 'a cancel'))
{
	my %s = requeue_a1("SELECT zk_lock('y')", $way->{setting} ? (set => "SET $way->{setting} = '4s'") : ());
	$way->{event}->($s{a1}) if $way->{event};
	failed_with($s{a1}, $way->{sqlstate}, "$way->{name} ends the wait", hint => 0, like => $way->{message});
	cancel_of_a2_resolves($way->{name}, \%s, $s{a1});
}

# lock_timeout covers the whole wait: it does not restart with the requeue.
{
	my %s = requeue_a1("DO \$\$ BEGIN PERFORM zk_lock('y');"
		  . " EXCEPTION WHEN lock_not_available THEN"
		  . " RAISE '%', clock_timestamp() - statement_timestamp() < '17s'; END \$\$",
		set => "SET deadlock_timeout = '8s'; SET lock_timeout = '10s'");
	failed_with($s{a1}, 'P0001', 'lock_timeout does not restart with the requeue', hint => 0,
		like => qr/ERROR:  t$/m);
	cancel_of_a2_resolves('lock_timeout, once', \%s, $s{a1});
}

# The end of the process ends the requeued wait. Only a requeue makes this attempt wait behind a2.
{
	my %s = requeue_a1("SELECT zk_try_lock('y', '1h')");
	$s{a1}->terminate;
	failed_with($s{a1}, 'lost', 'termination ends the wait', hint => 0,
		like => qr/due to administrator command/);
	$d->{all} = [ grep { $_ != $s{a1} } @{ $d->{all} } ];
	cancel_of_a2_resolves('terminate', \%s, $s{a1});
}

# Faults during the delete of a1's node.
for my $fault ('lose_request', 'lose_answer', 'expire')
{
	my $hits = $proxy->hits;
	my %s = requeue_a1("SELECT zk_lock('y')", fault => $fault);
	wait_until('the fault', sub { $proxy->hits > $hits });
	cancel_of_a2_resolves($fault, \%s);
}

wait_zk_empty($zkc, '/zklock/waiting');
