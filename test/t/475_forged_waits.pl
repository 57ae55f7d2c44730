# Forged wait reports: neither 3,000 nor 30,000 of them delay a cancel; a deadlock that
# exists only in reports ends no wait; and the log never shows the statement of another
# process.
#
# Alone: the test measures time.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use Time::HiRes qw(time);
use ZkLock::Check qw(failed_with);
use ZkLock::Cluster;
use ZkLock::Deadlock qw(wait_until_reported);
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 40);
my %node = map {
	$_ => zklock_node($_, zk => $zk, extra_conf => "deadlock_timeout = '300ms'\n")
} qw(a b);
my $d = ZkLock::Deadlock->new(%node);
my $waits = '/zklock/waiting';

sub session_of
{
	my ($s) = @_;
	my $id = $s->query('SELECT session_id FROM zk_session()');
	return $id =~ s/^0x//r;
}

# Two sharers upgrade: DETAIL names both.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($_, "SELECT zk_xact_lock_shared('x')") for $s, $t;
	$d->wait_for($s, "SELECT zk_xact_lock('x')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	my @at = map { 'process ' . $_->pid . ' on server \S+:' . $_->node->port } $s, $t;
	$d->is_resolved('two upgrades',
		qr/ERROR:  deadlock detected while upgrading lock "x"$/m,
		qr/$at[0] waits for exclusive lock "x"; blocked by $at[1]\./i,
		qr/$at[1] waits for exclusive lock "x"; blocked by $at[0]\./i);
}

# A holder, a waiter, and forged reports about both.
my $holder = session($node{b});
$holder->query_ok("SELECT zk_lock('y')");
my $bystander = session($node{a});
$bystander->query_ok('SELECT 42 AS secret_statement');
my $victim = session($node{a});
$victim->query_ok("SELECT zk_lock('mine')");
my ($me, $other) = map { session_of($_) } $victim, $holder;
$victim->query_async("SELECT zk_lock('y')");
wait_until_reported($zkc, 1);
my ($report) = grep { /^$me\./ } $zkc->children($waits);
my ($instance) = $zkc->get("$waits/$report")->{data} =~ /^([0-9a-f]+)\t/;
for (1 .. 20)
{
	$zkc->create("$waits/$other.1.$_.w.$me..", ephemeral => 1, sequence => 1,
		data => "$instance\t" . $bystander->pid . "\tb\nx\t1\t0\texclusive lock \"mine\"");
	# The deleted report makes the waiter check again. The waiter may replace it first: a
	# recursive delete succeeds if the node is gone.
	$zkc->delete("$waits/$_", recursive => 1) for grep { /^$me\./ } $zkc->children($waits);
	wait_until_reported($zkc, 1);
}
ok(!$victim->finished, 'a forged report ends no wait');
$zkc->delete("$waits/$_") for grep { !/^$me\./ } $zkc->children($waits);
$victim->cancel;
failed_with($victim, '57014', 'the wait can be cancelled', hint => 0);

# A program that holds a lock itself, and reports falsely that it waits for the waiter, has
# the waiter fail. It names another process of the waiter's server, whose statement the
# server does not log.
{
	my $id = $zkc->session_id =~ s/^0x//r;
	my $guid = sprintf('%016x', hex $id) =~ s/^(.{8})(.{4})(.{4})$/$1-$2-$3-0000-000000000001/r;
	my $node = $zkc->create("/zklock/locks/theirs/_c_$guid-__WRIT__", ephemeral => 1, sequence => 1, makepath => 1);
	my $log = -s $node{a}->logfile;
	my $report = sub {
		return if grep { /^$id\./ } $zkc->children($waits);
		$zkc->create("$waits/$id.1.1.w.$me..", ephemeral => 1, sequence => 1,
			data => "$instance\t" . $bystander->pid . "\tb\nx\t1\t0\texclusive lock \"mine\"");
	};
	$report->();
	$victim->query_async("SELECT zk_lock('theirs')");
	wait_until('the deadlock', sub { $report->(); $victim->finished });
	failed_with($victim, '40P01', 'a forged report of a holder ends a wait', like => qr/Process ${\$bystander->pid} on server b/, hint => 0);
	my $text = slurp_file($node{a}->logfile, $log);
	like($text, qr/Process ${\$victim->pid}: .*zk_lock\('theirs'\)/, 'the log shows the statement of the waiter');
	unlike($text, qr/secret_statement/, '... and not the statement of the other process');
	$zkc->delete($_) for $node, map { "$waits/$_" } $zkc->children($waits);
}

# According to the forged reports the holder waits for other sessions, which wait for
# each other and for the waiter: one deadlock of all of them.
sub forge
{
	my ($from, $to) = @_;
	$zkc->create("$waits/$other.1.1.w." . sprintf('%x', 0x100000 + $from) . '..',
		ephemeral => 1, sequence => 1);
	for my $i ($from .. $to)
	{
		my $session = sprintf '%x', 0x100000 + $i;
		my $blockers = join ',', map { sprintf '%x', 0x100000 + ($i * 7 + $_) % $to } 1 .. 4;
		$zkc->create("$waits/$session.1.1.w.$blockers,$me..", ephemeral => 1, sequence => 1);
	}
	return;
}
my $made = 0;
for my $n (3000, 30000)
{
	forge($made + 1, $n);
	$made = $n;
	$victim->query_async("SELECT zk_lock('y')");
	wait_until_reported($zkc, 1);
	wait_for_log($node{a}, qr/deadlocks across servers may remain undetected during this wait/)
	  if $n > 10000;
	my $began = time();
	$victim->cancel;
	failed_with($victim, '57014', "a cancel succeeds among $n forged reports", hint => 0);
	my $took = time() - $began;
	cmp_ok($took, '<', 1, sprintf '... within a second: %.2f s', $took);
}
$_->quit for $holder, $victim, $bystander;
$zkc->close;
done_testing();
