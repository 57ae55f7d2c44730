# Promise 7.2 where all who wait in the ensemble only keep places there, for others
# of their servers who close the circle: who keeps one lets the next in line up
# instead of failing for nothing, and exactly one fails.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use ZkLock::Check qw(failed_with nothing_left);
use ZkLock::Cluster;
use ZkLock::Deadlock qw(wait_until_reported);
use ZkLock::FaultProxy;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my %node = map {
	$_->[0] => zklock_node($_->[0], zk => $_->[1], session_timeout => '4s',
		extra_conf => "deadlock_timeout = '300ms'\nlog_min_messages = debug1\n")
} [ a => $proxy ], [ b => $zk ];
my $d = ZkLock::Deadlock->new(%node);

sub take { return "SELECT zk_xact_lock('$_[0]')" }

# How many waiters have requeued so far.
sub steps
{
	return scalar map { /requeuing behind local waiters/g }
	  map { slurp_file($_->logfile) } values %node;
}

# Two of each server; of those who will stand behind, a's has x and b's has y.
sub four
{
	my %s = map { ("a$_" => $d->open('a'), "b$_" => $d->open('b')) } 1, 2;
	$d->hold($s{a2}, take('x'));
	$d->hold($s{b2}, take('y'));
	return %s;
}

# One of those who hold something fails; the others go on.
sub is_ended_by_a_holder
{
	my ($name, %s) = @_;
	my $victim = $d->is_resolved($name,
		qr/deadlock detected while waiting for lock "[xy]"/);
	ok($victim == $s{a2} || $victim == $s{b2}, '... it holds what is waited for');
	return;
}

my %wish = (a1 => 'y', a2 => 'y', b1 => 'x', b2 => 'x');
for my $order ([qw(a1 b1 a2 b2)], [qw(b1 a1 b2 a2)], [qw(a1 a2 b1 b2)],
	[qw(b1 b2 a1 a2)], [qw(b1 a1 a2 b2)])
{
	my %s = four();
	my $before = steps();
	$d->wait_for($s{$_}, take($wish{$_})) for @$order;
	is_ended_by_a_holder("@$order", %s);
	cmp_ok(steps(), '>', $before, '... and one has requeued');
}

# Two who keep places: one behind the other, and side by side.
for my $sql (take('y'), "SELECT zk_xact_lock_shared('y')")
{
	my %s = four();
	my $more = $d->open('a');
	$d->wait_for($s{a1}, $sql);
	$d->wait_for($more, $sql);
	$d->wait_for($s{b1}, take('x'));
	$d->wait_for($s{a2}, take('y'));
	$d->wait_for($s{b2}, take('x'));
	is_ended_by_a_holder("two in front: $sql", %s);
}

# Does it wait for the local lock behind the other, and nobody else?
sub stands_behind
{
	my ($s, $other) = @_;
	return $s->node->safe_psql('postgres', 'SELECT pg_blocking_pids(' . $s->pid . ')')
	  eq '{' . $other->pid . '}';
}

# a1 has stepped back in this call, and stands behind a2, which has its place and
# looks for no deadlock.  The fault meets the removal of a1's node.
sub requeued
{
	my ($sql, %opt) = @_;
	my %s = four();
	my $before = steps();
	$_->query_ok("SET deadlock_timeout = '1h'") for @s{qw(a2 b2)};
	$s{a1}->query_ok('COMMIT');
	$s{a1}->query_ok($opt{set}) if $opt{set};
	$d->wait_for($s{b1}, take('x'));
	$d->wait_for($s{b2}, take('x'));
	wait_until_reported($zkc, qr/\.p[0-9a-f]+\.\d+$/, 1);
	$proxy->arm(fault => $opt{fault}, op => 'delete', path => '^/zklock/locks/y/')
	  if $opt{fault};
	$d->wait_for($s{a1}, $sql);
	$d->wait_for($s{a2}, take('y'));
	wait_until('one to requeue', sub { steps() > $before });
	wait_until('it to stand behind the next one',
		sub { $s{a1}->finished || stands_behind(@s{qw(a1 a2)}) });
	return %s;
}

# Three assertions: a2, which has not failed so far, ends it; then all others go on,
# but who is "over" already.
sub is_ended
{
	my ($name, $s, $over) = @_;
	my %over = map { $_ => 1 } $s->{a2}, $over // ();
	$s->{a2}->cancel;
	failed_with($s->{a2}, '57014', "$name: the next one had not failed", hint => 0);
	$d->release($s->{a2});
	$d->{waiting} = [ grep { !$over{$_} } @{ $d->{waiting} } ];
	$d->all_succeed('... the others go on');
	nothing_left($zkc, '... nothing is left');
	return;
}

# It waits no longer than its timeout.
{
	my %s = requeued("SELECT zk_try_lock('y', '4s')");
	is($s{a1}->wait_result, 'f', 'a try gives up when its limit has passed');
	is_ended('a try', \%s, $s{a1});
}
for my $case ([ 'lock_timeout', 'lock timeout', '55P03' ],
	[ 'statement_timeout', 'statement timeout', '57014' ])
{
	my ($name, $text, $sqlstate) = @$case;
	my %s = requeued("SELECT zk_lock('y')", set => "SET $name = '4s'");
	failed_with($s{a1}, $sqlstate, "$name ends its wait", hint => 0,
		like => qr/canceling statement due to $text/);
	is_ended($name, \%s, $s{a1});
}

# The whole of lock_timeout passes once, not once before and once after.
{
	my %s = requeued("DO \$\$ BEGIN PERFORM zk_lock('y');"
		  . " EXCEPTION WHEN lock_not_available THEN"
		  . " RAISE '%', clock_timestamp() - statement_timestamp() < '17s'; END \$\$",
		set => "SET deadlock_timeout = '8s'; SET lock_timeout = '10s'");
	failed_with($s{a1}, 'P0001', 'lock_timeout does not restart', hint => 0,
		like => qr/ERROR:  t$/m);
	is_ended('lock_timeout, once', \%s, $s{a1});
}

# It can be ended there, by the user and with the process.
{
	my %s = requeued("SELECT zk_lock('y')");
	$s{a1}->cancel;
	failed_with($s{a1}, '57014', 'a cancel ends its wait', hint => 0);
	is_ended('cancel', \%s, $s{a1});

	%s = requeued("SELECT zk_lock('y')");
	$s{a1}->terminate;
	failed_with($s{a1}, 'lost', 'so does the end of its process', hint => 0,
		like => qr/due to administrator command/);
	$d->{all} = [ grep { $_ != $s{a1} } @{ $d->{all} } ];
	is_ended('terminate', \%s, $s{a1});
}

# What happens to its node that is on its way out.
for my $fault ('lose_request', 'lose_answer', 'expire')
{
	my $hits = $proxy->hits;
	my %s = requeued("SELECT zk_lock('y')", fault => $fault);
	wait_until('the fault', sub { $proxy->hits > $hits });
	is_ended($fault, \%s);
}

is_deeply([ $zkc->children('/zklock/waits') ], [], 'no wait is published any more');
$zkc->close;
done_testing();
