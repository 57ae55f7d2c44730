# zk_revoke() requests the release of a lock from all of its holders, on any server and in
# other programs, by Curator's message in the data of their nodes, and from no other client.

use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200)->with_client;
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node_1 = zklock_node('a', zk => $zk);
my $node_2 = zklock_node('b', zk => $zk);
my $first = session($node_1);
my $second = session($node_2);
my $revoker = session($node_1);

# Returns for each node of a lock, in queue order, whether it has received a request. The
# version grows with every change of the data, also when the holder restores them.
sub requests
{
	my ($lock) = @_;
	return join ' ', map { $zkc->get($_)->{version} > 0 ? 1 : 0 } queue_of($zkc, $lock);
}

works($revoker, "SELECT zk_revoke('none')", '0', 'a lock without a znode has no holder to request from');
is_deeply([ $zkc->children('/') ], ['zookeeper'], 'the request creates no znode');

# Sessions of both servers.
{
	$first->query_ok("SELECT zk_lock_shared('shared')");
	$second->query_ok("SELECT zk_lock_shared('shared')");
	my $waiter = foreign_node($zkc, '/zklock/locks/shared', 'WRIT');
	works($revoker, "SELECT zk_revoke('shared')", '2', 'all sharers get the request');
	is(requests('shared'), '1 1 0', 'a waiter does not get the request');
	works($revoker, "SELECT zk_revoke('share')", '0', 'a lock with a similar name gets no request');
	$zkc->delete($waiter);
	works($first, 'SELECT state FROM zk_held_locks', 'held', 'a holder keeps its lock after the request');
	$_->query_ok('SELECT zk_unlock_all()') for $first, $second;
	wait_zk_empty($zkc, '/zklock/locks/shared');
	works($revoker, "SELECT zk_revoke('shared')", '0', 'no request is sent after all have released');

	# PostgreSQL lets only superusers cancel or end sessions of superusers, also after SET ROLE.
	$node_1->safe_psql('postgres', 'CREATE ROLE signaller LOGIN IN ROLE pg_signal_backend; CREATE ROLE plain LOGIN');
	$node_2->safe_psql('postgres', 'CREATE ROLE plain LOGIN');
	my $signaller = session($node_1, user => 'signaller');
	my $plain = session($node_2, user => 'plain');
	$second->query_ok("SET ROLE plain; SELECT zk_lock_shared('super'); RESET ROLE");
	$plain->query_ok("SELECT zk_lock_shared('super')");
	fails_with($signaller, "SELECT zk_revoke('super')", '42501', "pg_signal_backend does not allow requests to a superuser's session",
		like => qr/DETAIL:  Number of other holders that received the request: 1\./);
	works($plain, "SELECT state FROM zk_held_locks", 'held', 'an ordinary session gets the request and keeps its lock');
	wait_until('the request', sub { $plain->query("SELECT zk_revoked('super')") eq 't' });
	works($second, "SELECT zk_revoked('super'), state FROM zk_held_locks", 'f|held', "the superuser's session on another server gets no request");
	$second->query_ok('SELECT zk_unlock_all()');
	wait_zk_children($zkc, '/zklock/locks/super', 1);
	works($signaller, "SELECT zk_revoke('super')", '1', "the role may request after the superuser's release");
	$_->quit for $signaller, $plain;

	$first->query_ok("SELECT zk_lock_shared('up')");
	$first->query_ok("SELECT zk_lock('up')");
	works($revoker, "SELECT zk_revoke('up')", '1', 'an upgraded holder counts once');
	works($first, "SELECT zk_revoke('up')", '1', 'a session may request its own release');
	$first->query_ok('SELECT zk_unlock_all()');
	$second->query_ok(q(SELECT zk_lock('a b/ü')));
	works($revoker, q(SELECT zk_revoke('a b/ü')), '1', 'the request works for any name');
	$second->query_ok("SELECT zk_unlock_all(), zk_lock('7'), zk_lock('7,8')");
	works($revoker, "SELECT zk_revoke('#7'), zk_revoke('7'), zk_revoke('7,8'), zk_revoke('8,7')", '0|1|1|0', 'the request works for names of digits');
	wait_until('the requests', sub { $second->query("SELECT zk_revoked('7') AND zk_revoked('7,8')") eq 't' });
	works($second, "SELECT zk_revoked('#7'), zk_revoked('8,7')", 'f|f', 'zk_revoked() reports the requests for these names only');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'no node is left');
}

# Other programs: the message is exact, and a watch fires.
{
	my $guid = '0a1b2c3d-1111-2222-3333-444455556666';
	my $curator = "/zklock/locks/other/_c_$guid-lock-0000000000";
	my $waiter = "/zklock/locks/other/_c_1$guid-lock-0000000001";
	$zkc->create($_, ephemeral => 1, makepath => 1, data => 'mine') for $curator, $waiter;
	works($revoker, "SELECT zk_revoke('other')", '1', "Curator's holder gets the request");
	is($zkc->get($curator)->{data}, '__REVOKE__', "the request is Curator's message");
	is($zkc->get($waiter)->{data}, 'mine', "Curator's waiter gets no request");
	is($revoker->query("SELECT string_agg(concat_ws(' ', granted, client, application_name), ', ' ORDER BY znode) FROM zk_locks"),
		't curator, f other mine', 'zk_locks does not show the message as a client name');
	$zkc->delete('/zklock/locks/other', recursive => 1);
}

# Arguments.
fails_with($revoker, 'SELECT zk_revoke(NULL)', '22004', 'NULL is not a name');
fails_with($revoker, q(SELECT zk_revoke('')), '22023', 'the empty string is not a name');

# Missing permissions in the ensemble.
{
	my $file = credentials_file('me:secret');
	my $closed = session_with($node_2, auth_file => $file, acl => 'creator');
	$second->query_ok("SELECT zk_lock_shared('closed')");
	$closed->query_ok("SELECT zk_lock_shared('closed')");
	works($revoker, "SELECT count(*) FROM zk_locks WHERE name = 'closed' AND pid IS NOT NULL", '2',
		'a holder with zklock.acl = creator is visible to all');
	fails_with($revoker, "SELECT zk_revoke('closed')", '42501', 'a request to it without its credentials fails',
		like => qr/^.*DETAIL:  Holders that received the request: 1; .*: 1\.$/m);
	is(requests('closed'), '1 0', 'the other holders get the request');
	$revoker->reconnect('zklock.auth_file' => $file);
	works($revoker, "SELECT zk_revoke('closed')", '2', 'the request succeeds with the credentials');
	$revoker->reconnect('zklock.auth_file' => undef);
	$closed->quit;
	$second->query_ok('SELECT zk_unlock_all()');
	wait_zk_empty($zkc, '/zklock/locks/closed');
}

# Outages.
{
	my $s = session_with($node_1, connect_string => '127.0.0.1:' . free_port(), ensemble_timeout => '300ms');
	fails_with($s, "SELECT zk_revoke('x')", '08001', 'an unreachable ensemble is an error',
		like => qr/could not ask the holders of lock "x"/);
	$s->reconnect('zklock.connect_string' => $proxy->connect_string, 'zklock.ensemble_timeout' => undef);
	$s->query_ok("SELECT zk_revoke('x'); SET zklock.ensemble_timeout = '300ms'");
	$second->query_ok("SELECT zk_lock('x')");
	my ($held) = queue_of($zkc, 'x');
	$proxy->arm(fault => 'lose_request', op => 'setData', down => 1);
	fails_with($s, "SELECT zk_revoke('x')", '08006', 'a connection that is not restored is an error');
	$proxy->disarm->up;
	is($zkc->get($held)->{version}, 0, 'no holder has received the request');
	$s->query_ok("SET zklock.ensemble_timeout = '30s'");
	works($s, "SELECT zk_revoke('x')", '1', 'the request succeeds when the connection is restored');

	$second->query_ok("SELECT zk_unlock('x'), zk_lock('y')");
	($held) = queue_of($zkc, 'y');
	$proxy->arm(fault => 'lose_answer', op => 'setData');
	works($s, "SELECT zk_revoke('y')", '1', 'the request succeeds despite a lost answer');
	is($proxy->hits, 2, 'the answer was lost');
	ok($zkc->get($held)->{version} > 0, 'the holder has received the request');
	$proxy->disarm;
	for my $op (qw(sync getChildren getData setData))
	{
		my $before = $proxy->hits;
		$proxy->arm(fault => 'lose_request', op => $op, path => '/y|^/zklock$');
		works($s, "SELECT zk_revoke('y')", '1', "the request succeeds despite a lost $op");
		is($proxy->hits, $before + 1, "$op was lost");
		$proxy->disarm;
	}

	# A holder that does not write its data back: each request is one version.
	$second->query_ok("SELECT zk_unlock_all()");
	my $foreign = foreign_node($zkc, '/zklock/locks/z', 'WRIT');
	$proxy->arm(fault => 'lose_answer', op => 'setData');
	works($s, "SELECT zk_revoke('z')", '1', 'a holder is counted although the answer was lost');
	is($zkc->get($foreign)->{version}, 1, 'a holder whose answer was lost gets no second request');
	$proxy->disarm;
	my $plain = session($node_1, user => 'signaller');
	works($plain, "SELECT zk_revoke('z')", '1', 'a holder whose release is requested already is counted');
	is($zkc->get($foreign)->{version}, 1, 'a holder gets no second request from an ordinary role');
	works($s, "SELECT zk_revoke('z')", '1', 'a superuser may repeat the request');
	is($zkc->get($foreign)->{version}, 2, 'the repeated request of a superuser is sent');
	$plain->quit;

	$zkc->set($foreign, 'restored');
	$proxy->arm(fault => 'lose_answer', op => 'setData');
	$s->query_ok('SET ROLE signaller');
	works($s, "SELECT zk_revoke('z')", '1', 'a holder is counted once although the answer to an ordinary role was lost');
	$s->query_ok('RESET ROLE');
	$proxy->disarm;

	# The data change between the read and the write.
	$proxy->arm(fault => 'hold_request', op => 'setData', path => '/z/');
	my $before = $proxy->hits;
	$s->query_async("SELECT zk_revoke('z')");
	wait_until('the request', sub { $proxy->hits > $before });
	$zkc->set($foreign, 'changed');
	$proxy->disarm->release;
	is($s->wait_result, '1', 'a holder that has changed its data meanwhile is counted');
	is($zkc->get($foreign)->{data}, '__REVOKE__', 'a holder that has changed its data meanwhile gets the request');
	$zkc->delete($foreign);
	$s->quit;
}

$_->quit for $first, $second, $revoker;
nothing_left($zkc, 'no node is left');
