# PostgreSQL's deadlock check may rearrange a queue of waiters instead of failing one
# (DeadLockCheck in src/backend/storage/lmgr/deadlock.c). Detection across servers follows
# the queue as it is then: nobody waits for a session that was behind it before, and a
# deadlock that leads through the new order is found.
#
# Promise: 7.2

use ZkLock::Deadlock qw(wait_reports wait_until_reported);
use ZkLock::Test;

my $zkc = ZkLock::ZkClient->new(shared_zk()->connect_string);
my %node = map { $_ => shared_node($_, set => { deadlock_timeout => '100ms' }) } qw(a b);
$node{a}->safe_psql('postgres', 'CREATE TABLE t1 (); CREATE TABLE t2 ()');
my $d = ZkLock::Deadlock->new(%node);

# Returns the processes that block the session, as PostgreSQL sees them.
sub blockers
{
	my ($s) = @_;
	return $s->node->safe_psql('postgres', 'SELECT pg_blocking_pids(' . $s->pid . ')');
}

# Makes x, which waits behind y for t1, overtake y. On server a, y waits for a, z and h; x
# waits for h, and for y only because y is ahead; z waits for x. So x, y and z would be in a
# deadlock if x stayed behind y. "front" is reported to wait for y and x before; z's check
# comes after "timeout".
sub rearrange
{
	my ($timeout, $front) = @_;
	my %s = map { $_ => $d->open('a') } qw(a h x y z);
	$s{b} = $d->open('b');
	$_->query_ok("SET deadlock_timeout = '1h'") for @s{qw(x y)};
	$s{z}->query_ok("SET deadlock_timeout = '$timeout'");
	$d->hold($_, 'LOCK t1 IN ACCESS SHARE MODE') for @s{qw(a z)};
	$d->hold($s{h}, 'LOCK t1 IN ROW EXCLUSIVE MODE');
	$d->hold($s{$_}, "SELECT zk_xact_lock('$_')") for $front, 'x', 'b';
	$d->hold($s{x}, 'LOCK t2');
	$d->wait_for($s{y}, 'LOCK t1');
	$d->wait_for($s{x}, 'LOCK t1 IN EXCLUSIVE MODE');
	$d->wait_for($s{$front}, "SELECT zk_xact_lock('b')");
	wait_until_reported($zkc, 1);
	wait_until('x to be reported as a waiter', sub { grep { /\@/ } $zkc->children('/zklock/waiting') });
	$d->wait_for($s{z}, 'LOCK t2 IN ACCESS SHARE MODE');
	wait_until('x to be ahead of y', sub { blockers($s{x}) eq '{' . $s{h}->pid . '}' });
	return \%s;
}

# a waits for b, and b for x, which waits for h alone. A deadlock of two other sessions, which
# begins later, shows that there was time to find a wrong one.
for my $timeout ('100ms', '3s')
{
	my $s = rearrange($timeout, 'a');
	$d->wait_for($s->{b}, "SELECT zk_xact_lock('x')");
	wait_until('its report, or a wrong deadlock',
		sub { wait_reports($zkc) == 2 || grep { $_->finished } @{$s}{qw(a b)} });
	my ($p, $q) = map { $d->open($_) } qw(a b);
	$d->hold($p, "SELECT zk_xact_lock('p')");
	$d->hold($q, "SELECT zk_xact_lock('q')");
	$d->wait_for($p, "SELECT zk_xact_lock('q')");
	$d->wait_for($q, "SELECT zk_xact_lock('p')");
	$d->one_fails("a session that has overtaken another one does not wait for it ($timeout)", qr/lock "[pq]"/);
	$d->release($s->{h});
	$d->all_succeed('all others succeed after the deadlock', $zkc);
}

# h waits for b. In a deadlock, b waits for x, which waits for h; or for w, which waits for x
# and y alone, because they are ahead.
for my $awaited ('x', 'w')
{
	my $s = rearrange('100ms', 'h');
	my $w = $d->open('a');
	$w->query_ok("SET deadlock_timeout = '1h'");
	$d->hold($w, "SELECT zk_xact_lock('w')");
	$d->wait_for($w, 'LOCK t1 IN ROW SHARE MODE');
	$d->wait_for($s->{b}, "SELECT zk_xact_lock('$awaited')");
	$d->one_fails("a deadlock through the new order is found: $awaited", qr/lock "[bxw]"/);
	$d->release($s->{a});
	$d->all_succeed('all others succeed after the deadlock through the new order', $zkc);
}

nothing_left($zkc, 'no node is left');
