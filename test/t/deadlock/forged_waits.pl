# Forged wait reports: among 1,500 of them a wait can be cancelled; a deadlock that exists only in
# reports ends no wait; and the log never shows the statement of another process.
#
# Promises: 7.2, 4.3

use PostgreSQL::Test::Utils qw(slurp_file);
use ZkLock::Deadlock qw(wait_until_reported);
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start->with_client(timeout => 300);
my %node = map {
	$_ => zklock_node($_, zk => $zk, session_timeout => '5min', extra_conf => "deadlock_timeout = '300ms'\n")
} qw(a b);
my $d = ZkLock::Deadlock->new(%node);
my $waits = '/zklock/waiting';

sub session_of
{
	my ($s) = @_;
	my $id = $s->query('SELECT session_id FROM zk_session()');
	return $id =~ s/^0x//r;
}

# Two sharers upgrade: DETAIL names the other one.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($_, "SELECT zk_xact_lock_shared('x')") for $s, $t;
	$d->wait_for($s, "SELECT zk_xact_lock('x')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	my $at = join '|', map { 'pid=' . $_->pid . ' server=\S+:' . $_->node->port . ' ' } $s, $t;
	$d->is_resolved('two upgrades',
		qr/ERROR:  deadlock detected while upgrading lock "x"$/m,
		qr/DETAIL:  The other session.*(?:$at)/);
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

# Returns the data of a report: the waiter's server, another process, and a node that waits.
# Its version of the bell is higher than any ring.
sub forged_report
{
	my ($name, $child) = @_;
	return sprintf "2 0 77 %d %d b\nl 0 0 0 0 %s/%s", $bystander->pid, 2**31 - 1, $name, $child;
}

# Rings the waiter's bell, and waits for its answer.
sub ring
{
	my $version = $zkc->exists("$waits/$me")->{version};
	$zkc->set("/zklock/bells/$me", '');
	wait_until('the answer', sub { $zkc->exists("$waits/$me")->{version} > $version }, pause => 0.05);
	return;
}

my ($node) = grep { /^_c_\Q${\guid_of($me)}/ } $zkc->children('/zklock/locks/mine');
my $forged = forged_report('mine', $node);
for my $data ($forged, '2 ', ' ' x 1000, "x\n" x 10_000, "2 0 0 0 0 b\nl 0 0 0 0 ../../zookeeper/config")
{
	$zkc->create("$waits/$other", ephemeral => 1, data => $data);
	$zkc->create("$waits/$other\@$me", ephemeral => 1);
	$zkc->create("/zklock/bells/$other", ephemeral => 1);
	ring() for 1 .. 5;
	ok(!$victim->finished, 'a forged report in the name of the holder ends no wait');
	$zkc->delete($_) for "$waits/$other", "$waits/$other\@$me", "/zklock/bells/$other";
}

# If the own report is removed, it is published again.
$zkc->delete("$waits/$me");
eval { $zkc->set("/zklock/bells/$me", '') };    # fails while the waiter, which has noticed, replaces it
wait_until_reported($zkc, 1);
$victim->cancel;
failed_with($victim, '57014', 'the wait can be cancelled', hint => 0);

# Returns the first three parts of the GUID that zklock puts into the names of nodes.
sub guid_of
{
	my ($id) = @_;
	no warnings 'portable';
	return sprintf('%016x', hex $id) =~ s/^(.{8})(.{4})(.{4})$/$1-$2-$3/r;
}

# A program that holds a lock itself, waits for the waiter in a queue, and says so, has the
# waiter fail: that is a deadlock. It names another process of the waiter's server, whose
# statement the server does not log. The waiter's report is the newer one.
{
	my $id = $zkc->session_id =~ s/^0x//r;
	my $guid = guid_of($id) . '-0000-000000000001';
	my $theirs = $zkc->create("/zklock/locks/theirs/_c_$guid-__WRIT__", ephemeral => 1, sequence => 1, makepath => 1);
	my $log = -s $node{a}->logfile;
	$zkc->create("/zklock/bells/$id", ephemeral => 1);
	$zkc->create("$waits/$id", ephemeral => 1, data => forged_report('mine', 'none'));
	$victim->query_async("SELECT zk_lock('theirs')");
	wait_until_reported($zkc, 2);
	ring() for 1 .. 5;
	ok(!$victim->finished, 'a report that no queue confirms ends no wait');
	my $behind = $zkc->create("/zklock/locks/mine/_c_$guid-__WRIT__", ephemeral => 1, sequence => 1);
	$zkc->set("$waits/$id", forged_report('mine', $behind =~ s{.*/}{}r));
	$zkc->set("/zklock/bells/$me", '');
	wait_until('the deadlock', sub { $victim->finished });
	failed_with($victim, '40P01', 'a deadlock that the queues show ends a wait', like => qr/Process ${\$bystander->pid} on server b/, hint => 0);
	my $text = slurp_file($node{a}->logfile, $log);
	like($text, qr/Process ${\$victim->pid}: .*zk_lock\('theirs'\)/, 'the log shows the statement of the waiter');
	unlike($text, qr/secret_statement/, 'the log does not show the statement of the other process');
	$zkc->delete($_) for $theirs, $behind, "$waits/$id", "/zklock/bells/$id";
}

# Very many reports of sessions that block the waiter.
for my $i (1 .. 1500)
{
	my $session = sprintf '%x', 0x100000 + $i;
	$zkc->create('/zklock/locks/many/_c_' . guid_of($session) . '-0000-000000000001-__WRIT__',
		ephemeral => 1, sequence => 1, makepath => 1);
	$zkc->create("$waits/$session", ephemeral => 1, data => "forged");
}
$victim->query_async("SELECT zk_lock('many')");
wait_for_log($node{a}, qr/deadlocks across servers may remain undetected during this wait/);
$victim->cancel;
failed_with($victim, '57014', 'a cancel succeeds among 1,500 forged reports', hint => 0);
