# Servers with different credentials: missing permissions below <root>/waits can hide a
# deadlock, but never cause a false one, and the refused requests are not repeated
# without end. lock_timeout and cancel end such a wait, as without detection.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $dir = PostgreSQL::Test::Utils::tempdir();
my (%proxy, %node);
for my $name (qw(a b))
{
	append_to_file("$dir/$name", "digest server-$name:secret\n");
	chmod 0600, "$dir/$name";
	$proxy{$name} = ZkLock::FaultProxy->start(target => $zk);
	$node{$name} = zklock_node($name, zk => $proxy{$name}, session_timeout => '10s',
		extra_conf => "zklock.auth_file = '$dir/$name'\nzklock.acl = 'creator'\n"
		  . "deadlock_timeout = '300ms'\n");
}

# Returns the number of requests of a server below <root>/waits.
sub requests_for_waits
{
	my ($name, $root) = @_;
	return scalar grep {
		grep { m{^$root/waiting} } @{ $_->{paths} }
	} $proxy{$name}->record;
}

# Returns sessions of both servers; each holds a lock that the other waits for. The
# znodes of the locks are open to everybody; $acl is that of <root>/waits.
sub make_deadlock
{
	my ($root, $acl, $timeout) = @_;
	$zkc->create("$root/locks/$_", makepath => 1) for qw(x y);
	$zkc->create("$root/waiting", acl => $acl) if $acl;
	my ($s, $t) = map { session($node{$_}) } qw(a b);
	$_->query_ok("SET zklock.root = '$root'") for $s, $t;
	$t->query_ok("SET lock_timeout = '$timeout'");
	$s->query_ok("SELECT zk_lock('x')");
	$t->query_ok("SELECT zk_lock('y')");
	$s->query_async("SELECT zk_lock('y')");
	wait_until('the first wait report', sub { $zkc->children("$root/waiting") == 1 });
	$t->query_async("SELECT zk_lock('x')");
	return ($s, $t);
}

# Assertions: the second session's wait ends with $sqlstate; the first session still
# waits, and then succeeds.
sub second_wait_ends
{
	my ($name, $root, $s, $t, $sqlstate) = @_;
	$t->wait_result;
	is($t->sqlstate, $sqlstate, "$name: the wait ends with $sqlstate");
	ok(!$s->finished, '... and the other wait has not failed');
	$t->query_ok('SELECT zk_unlock_all()');
	like($s->wait_result, qr/^\d+$/, '... and succeeds after the release');
	$_->quit for $s, $t;
	nothing_left($zkc, '... no node is left', root => $root);
	wait_zk_empty($zkc, "$root/waiting");
	return;
}

# The server that waits first creates <root>/waits, which only that server may use.
{
	my ($s, $t) = make_deadlock('/first', undef, '5s');
	second_wait_ends('no permission to report a wait', '/first', $s, $t, '55P03');
	cmp_ok(requests_for_waits('b', '/first'), '<=', 2, '... and the refused report is not repeated');
}

# <root>/waits is open to everybody.
{
	my ($s, $t) = make_deadlock('/all', 'world', '60s');
	wait_until('one wait to fail', sub { $s->finished || $t->finished });
	my ($victim, $other) = $s->finished ? ($s, $t) : ($t, $s);
	$victim->wait_result;
	is($victim->sqlstate, '40P01', 'both servers may report and probe: the deadlock is detected');
	$victim->query_ok('SELECT zk_unlock_all()');
	like($other->wait_result, qr/^\d+$/, '... and the other session succeeds');
	wait_zk_empty($zkc, '/all/waits');
	$_->quit for $s, $t;
	nothing_left($zkc, '... no node is left', root => '/all');
}

# No session may delete reports, not even its own. A probe, which deletes a report, is
# abandoned after three seconds. A session tries to delete its own reports every few
# seconds.
{
	my ($s, $t) = make_deadlock('/add', 'add', '5min');
	wait_until('the second wait report', sub { $zkc->children('/add/waits') > 1 });
	wait_until('requests', sub { requests_for_waits('b', '/add') > 20 });
	my $before = 0;
	ok(wait_until('a second without a request', sub {
		my $so_far = $before;
		$before = requests_for_waits('b', '/add');
		return $before == $so_far;
	}, pause => 1), 'no permission to probe: the probes stop');
	ok(!$t->finished, '... and no wait fails');
	$t->cancel;
	second_wait_ends('no permission to probe', '/add', $s, $t, '57014');
}

$zkc->close;
done_testing();
