# zk_revoke() asks every holder of a lock to release, on any server and in other
# programs, by Curator's message in the data of its node; and nobody else.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::Util qw(free_port);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node_1 = zklock_node('a', zk => $zk, session_timeout => '20s');
my $node_2 = zklock_node('b', zk => $zk, session_timeout => '20s');
my $first = session($node_1);
my $second = session($node_2);
my $asker = session($node_1);

# How often has each node of a lock been told, in the order of the queue?  The
# version grows with every change of the data, also by a holder that puts them back.
sub told
{
	my ($lock) = @_;
	return join ' ', map { $zkc->get($_)->{version} > 0 ? 1 : 0 } queue_of($zkc, $lock);
}

works($asker, "SELECT zk_revoke('none')", '0', 'of a lock that never was nobody is asked');
is_deeply([ $zkc->children('/') ], ['zookeeper'], 'and no znode is made');

# Sessions of both servers.
{
	$first->query_ok("SELECT zk_lock_shared('shared')");
	$second->query_ok("SELECT zk_lock_shared('shared')");
	my $waiter = foreign_node($zkc, '/zklock/locks/shared', 'WRIT');
	works($asker, "SELECT zk_revoke('shared')", '2', 'all sharers are asked');
	is(told('shared'), '1 1 0', 'and not who waits');
	works($asker, "SELECT zk_revoke('share')", '0', 'nobody else is');
	$zkc->delete($waiter);
	works($first, 'SELECT state FROM zk_held_locks', 'held', 'who is asked holds on');
	$_->query_ok('SELECT zk_unlock_all()') for $first, $second;
	wait_zk_empty($zkc, '/zklock/locks/shared');
	works($asker, "SELECT zk_revoke('shared')", '0', 'when all have released nobody is asked');

	# PostgreSQL lets only superusers cancel or end sessions of superusers.
	$node_1->safe_psql('postgres', 'CREATE ROLE signaller LOGIN IN ROLE pg_signal_backend; CREATE ROLE plain LOGIN');
	$node_2->safe_psql('postgres', 'CREATE ROLE plain LOGIN');
	my $signaller = session($node_1, user => 'signaller');
	my $plain = session($node_2, user => 'plain');
	$second->query_ok("SET zklock.on_revoke = 'terminate'");
	$second->query_ok("SELECT zk_lock_shared('super')");
	$plain->query_ok("SELECT zk_lock_shared('super')");
	fails_with($signaller, "SELECT zk_revoke('super')", '42501', "pg_signal_backend cannot ask a superuser's session",
		like => qr/DETAIL:  Number of other holders that received the request: 1\./);
	works($plain, "SELECT state FROM zk_held_locks", 'held', 'an ordinary session is asked');
	wait_until('the request', sub { $plain->query("SELECT zk_revoked('super')") eq 't' });
	works($second, "SELECT zk_revoked('super'), state FROM zk_held_locks", 'f|held', "the superuser's is not, on another server either");
	$second->query_ok('SELECT zk_unlock_all()');
	works($signaller, "SELECT zk_revoke('super')", '1', 'without it the same role may ask');
	$second->query_ok("RESET zklock.on_revoke");
	$_->quit for $signaller, $plain;

	$first->query_ok("SELECT zk_lock_shared('up')");
	$first->query_ok("SELECT zk_lock('up')");
	works($asker, "SELECT zk_revoke('up')", '1', 'who has upgraded is one holder');
	works($first, "SELECT zk_revoke('up')", '1', 'one may ask oneself');
	$first->query_ok('SELECT zk_unlock_all()');
	$second->query_ok(q(SELECT zk_lock('a b/ü')));
	works($asker, q(SELECT zk_revoke('a b/ü')), '1', 'any name');
	$second->query_ok("SELECT zk_unlock_all(), zk_lock(7), zk_lock(7, 8)");
	works($asker, "SELECT zk_revoke('7'), zk_revoke(7), zk_revoke(7, 8), zk_revoke(8, 7)", '0|1|1|0', 'integer keys');
	wait_until('the requests', sub { $second->query('SELECT zk_revoked(7) AND zk_revoked(7, 8)') eq 't' });
	works($second, "SELECT zk_revoked('7'), zk_revoked(8, 7)", 'f|f', 'the holder sees them by these keys alone');
	$second->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'what was asked for is released');
}

# Other programs: the message is exact, and a watch fires.
{
	my $guid = '0a1b2c3d-1111-2222-3333-444455556666';
	my $curator = "/zklock/locks/other/_c_$guid-lock-0000000000";
	my $waiter = "/zklock/locks/other/_c_1$guid-lock-0000000001";
	$zkc->create($_, ephemeral => 1, makepath => 1, data => 'mine') for $curator, $waiter;
	works($asker, "SELECT zk_revoke('other')", '1', "Curator's holder is asked");
	is($zkc->get($curator)->{data}, '__REVOKE__', 'in its own words');
	is($zkc->get($waiter)->{data}, 'mine', 'its waiter is not');
	is($asker->query("SELECT string_agg(concat_ws(' ', granted, client, application_name), ', ' ORDER BY znode) FROM zk_locks"),
		't curator, f other mine', 'the message is nobody that zk_locks shows');
	$zkc->delete('/zklock/locks/other', recursive => 1);
}

# Arguments, and who may.
fails_with($asker, 'SELECT zk_revoke(NULL)', '22004', 'NULL is no name');
fails_with($asker, q(SELECT zk_revoke('')), '22023', 'nor is nothing');
fails_with($asker, 'SELECT zk_revoke(1, NULL)', '22004', 'nor NULL a key');
$node_1->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
{
	my $s = session($node_1, user => 'ordinary');
	fails_with($s, "SELECT zk_revoke($_)", '42501', "zk_revoke($_) is not for everybody", hint => 0)
	  for "'x'", '1', '1, 2';
	$node_1->safe_psql('postgres', 'GRANT pg_signal_backend TO ordinary');
	works($s, "SELECT zk_revoke('x'), zk_revoke(1), zk_revoke(1, 2)", '0|0|0', 'except for pg_signal_backend');
	$s->quit;
}

# What the ensemble does not allow.
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/auth';
	PostgreSQL::Test::Utils::append_to_file($file, "digest me:secret\n");
	chmod 0600, $file;
	my $closed = session($node_2);
	$closed->query_ok("SET zklock.auth_file = '$file'");
	$closed->query_ok("SET zklock.acl = 'creator'");
	$second->query_ok("SELECT zk_lock_shared('closed')");
	$closed->query_ok("SELECT zk_lock_shared('closed')");
	works($asker, "SELECT count(*) FROM zk_locks WHERE name = 'closed' AND pid IS NOT NULL", '2',
		'a holder with zklock.acl = creator is seen by all');
	fails_with($asker, "SELECT zk_revoke('closed')", '42501', 'but can be asked only by its like',
		like => qr/^.*DETAIL:  Holders that were asked: 1; .*: 1\.$/m);
	is(told('closed'), '1 0', 'others are asked all the same');
	$asker->query_ok("SET zklock.auth_file = '$file'");
	works($asker, "SELECT zk_revoke('closed')", '2', 'with the credentials it is asked');
	$asker->query_ok('RESET zklock.auth_file');
	$closed->quit;
	$second->query_ok('SELECT zk_unlock_all()');
	wait_zk_empty($zkc, '/zklock/locks/closed');
}

# Outages.
{
	my $s = session($node_1);
	$s->query_ok("SET zklock.connect_timeout = '300ms'");
	$s->query_ok("SET zklock.connect_string = '127.0.0.1:" . free_port() . q('));
	fails_with($s, "SELECT zk_revoke('x')", '08001', 'an ensemble that is away is an error',
		like => qr/could not ask the holders of lock "x"/);
	$s->query_ok("SET zklock.connect_string = '" . $proxy->connect_string . q('));
	$s->query_ok("SELECT zk_revoke('x')");
	$second->query_ok("SELECT zk_lock('x')");
	my ($held) = queue_of($zkc, 'x');
	$proxy->arm(fault => 'lose_request', op => 'setData', down => 1);
	fails_with($s, "SELECT zk_revoke('x')", '08006', 'so is a connection that does not come back');
	$proxy->disarm->up;
	is($zkc->get($held)->{version}, 0, 'nobody was asked');
	$s->query_ok("SET zklock.connect_timeout = '30s'");
	works($s, "SELECT zk_revoke('x')", '1', 'and it is back');

	$second->query_ok("SELECT zk_unlock('x'), zk_lock('y')");
	($held) = queue_of($zkc, 'y');
	$proxy->arm(fault => 'lose_answer', op => 'setData');
	works($s, "SELECT zk_revoke('y')", '1', 'a lost answer is found out');
	is($proxy->hits, 2, 'it was lost');
	ok($zkc->get($held)->{version} > 0, 'the holder was asked');
	$proxy->disarm;
	for my $op (qw(sync getChildren getData setData))
	{
		my $before = $proxy->hits;
		$proxy->arm(fault => 'lose_request', op => $op, path => '/y|^/zklock$');
		works($s, "SELECT zk_revoke('y')", '1', "so is a lost $op");
		is($proxy->hits, $before + 1, 'it was lost');
		$proxy->disarm;
	}
	$s->quit;
}

$_->quit for $first, $second, $asker;
nothing_left($zkc, 'nothing is left');
done_testing();
