# A program that can connect to the ensemble can end the session of another client, despite
# ACLs: a ZooKeeper server computes the password of a session from its id, which everybody
# can read. The holder's locks are free at once. The holder gets 40001, and
# zklock.commit_check = always refuses its commit. TLS with client certificates excludes
# such a program (security/tls.pl). It can also keep the session of a dead backend, and its locks, alive.

use ZkLock::Test;

my $zk = shared_zk();
my $file = credentials_file('kept:S3cr3tPassw0rd');
my %kept = ('zklock.root' => '/kept', 'zklock.auth_file' => $file, 'zklock.acl' => 'creator');
my $node = shared_node('a', set => \%kept);
my $stranger = ZkLock::ZkClient->new($zk->connect_string);
$node->safe_psql('postgres', 'CREATE TABLE done (who text)');

# Returns a session that holds lock "x" in a transaction, and its ZooKeeper session id.
sub holder
{
	my ($before) = @_;
	my $s = session($node);
	$s->query_ok($before) if $before;
	$s->query_ok("BEGIN; INSERT INTO done VALUES ('first'); SELECT zk_xact_lock('x')");
	return ($s, zk_session_id($s));
}

# Ends a ZooKeeper session until its node is gone: the holder may reconnect in between.
sub steal
{
	my ($id) = @_;
	return wait_until('the node to go', sub {
		$stranger->end_session($id);
		return !queue_of($stranger, 'x', '/kept');
	});
}

my ($s, $id) = holder("SET zklock.commit_check = 'always'");
my ($held) = queue_of($stranger, 'x', '/kept');
ok(!eval { $stranger->delete($held); 1 }, 'a stranger cannot delete the node of a holder');
is($stranger->get($held)->{ephemeralOwner}, $id, 'a stranger can read the id of the session of a holder');
steal($id);
pass('a stranger can end that session, which deletes the node');
my $next = session($node);
works($next, "SELECT zk_lock('elsewhere') > 0", 't', 'other sessions work');
commit_refused($s, 'commit_check = always refuses the commit of the former holder');
works($next, 'SELECT count(*) FROM done', '0', 'the transaction of the former holder is not committed');
works($s, "SELECT zk_lock('x') > 0, zk_unlock('x')", 't|t', 'the next transaction of the former holder works');
$s->quit;

# The next holder is on another server: only the ensemble can exclude it.
($s, $id) = holder();
my $other = shared_node('b', set => \%kept);
steal($id);
my $t = session($other);
works($t, "SELECT zk_try_lock('x')", 't', 'another server gets the lock at once');
wait_until('the error of the former holder', sub {
	$s->query('SELECT 1');
	return !$s->ok;
});
is($s->sqlstate, '40001', "the former holder's transaction fails");
$s->query_ok('ROLLBACK');
$t->quit;
$s->quit;

# On the same server the local lock excludes the next session.
($s, $id) = holder();
steal($id);
$t = session($node);
fails_with($t, "SET lock_timeout = '1ms'; SELECT zk_lock('x')", '55P03', "sessions of the holder's server wait for the end of its transaction",
	hint => 0);
$_->quit for $s, $t, $next;

# A backend that has died or, as here, is stopped for ever: the lock of a second one, without a
# stranger, shows how long a session lives. Twice, because resuming a session lets it live longer.
{
	my %short = ('zklock.session_timeout' => '6s');
	my ($stolen, @controls) = map { session($node)->reconnect(%short) } 1 .. 3;
	$stolen->query_ok("SELECT zk_lock('stolen')");
	my $stolen_id = zk_session_id($stolen);
	hold_still($stolen->pid);
	$stranger->hold_session($stolen_id);
	my $waiter = session($other);
	for my $control (@controls)
	{
		$control->query_ok("SELECT zk_lock('control')");
		hold_still($control->pid);
		$waiter->query_async("SELECT zk_lock('control')");
		like($waiter->wait_result, qr/^\d+$/, 'the session of a stopped backend expires');
		$waiter->query_ok("SELECT zk_unlock('control')");
		kill 'CONT', $control->pid;
		$control->query("SELECT zk_unlock_all()");
	}
	works($waiter, "SELECT zk_try_lock('stolen')", 'f', 'a session whose heartbeats a stranger sends does not');
	my $owner = ZkLock::ZkClient->new($zk->connect_string);
	$owner->add_auth('digest', 'kept:S3cr3tPassw0rd');
	$owner->delete($_) for queue_of($owner, 'stolen', '/kept');
	works($waiter, "SELECT zk_try_lock('stolen')", 't', 'the lock is free when its znode is deleted with the credentials');
	kill 'CONT', $stolen->pid;
	$_->quit for $waiter, $stolen, @controls;
}

nothing_left($stranger, 'no node is left', root => '/kept');
