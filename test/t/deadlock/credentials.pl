# Servers with different credentials: missing permissions for reports and bells can hide a
# deadlock, but never cause a false one, and the refused requests are not repeated
# without end. lock_timeout and cancel end such a wait, as without detection.
#
# Promise: 7.2

use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start->with_client(timeout => 60);
my (%proxy, %node);
for my $name (qw(a b))
{
	my $file = credentials_file("server-$name:secret");
	$proxy{$name} = ZkLock::FaultProxy->start(target => $zk);
	$node{$name} = zklock_node($name, zk => $proxy{$name}, session_timeout => '5min',
		extra_conf => "zklock.auth_file = '$file'\nzklock.acl = 'creator'\n"
		  . "deadlock_timeout = '300ms'\n");
}

# Returns the number of requests of a server for reports and bells.
sub requests_for_waits
{
	my ($name, $root) = @_;
	return scalar grep {
		grep { m{^$root/(?:waiting|bells)} } @{ $_->{paths} }
	} $proxy{$name}->record;
}

# Returns sessions of both servers; each holds a lock that the other waits for. The
# znodes of the locks are open to everybody; $acl is that of the parents of
# reports and bells.
sub make_deadlock
{
	my ($root, $acl, $timeout) = @_;
	$zkc->create("$root/locks/$_", makepath => 1) for qw(x y);
	$zkc->create("$root/$_", acl => $acl) for $acl ? qw(waiting bells) : ();
	my ($s, $t) = map { session_with($node{$_}, root => $root) } qw(a b);
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
	ok(!$s->finished, "$name: the other wait has not failed");
	$t->query_ok('SELECT zk_unlock_all()');
	like($s->wait_result, qr/^\d+$/, "$name: the other wait succeeds after the release");
	$_->quit for $s, $t;
	nothing_left($zkc, "$name: no node is left", root => $root);
	wait_zk_empty($zkc, "$root/waiting");
	return;
}

# The server that waits first creates the parents, which only that server may use.
{
	my ($s, $t) = make_deadlock('/first', undef, '5s');
	second_wait_ends('no permission to report a wait', '/first', $s, $t, '55P03');
	cmp_ok(requests_for_waits('b', '/first'), '<=', 3, 'the refused report is not repeated');
}

# The parents are open to everybody, but a session may not ring another server's bell.
{
	my ($s, $t) = make_deadlock('/all', 'world', '5s');
	second_wait_ends('no permission to ring', '/all', $s, $t, '55P03');
	cmp_ok(requests_for_waits('b', '/all'), '<', 100, 'the refused rings are not repeated without end');
}

# No session may delete reports, not even its own: it gives up after some attempts.
{
	my ($s, $t) = make_deadlock('/add', 'add', '5s');
	second_wait_ends('no permission to delete', '/add', $s, $t, '55P03');
}
