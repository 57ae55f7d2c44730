# Tests of the test library itself. Needs ZooKeeper and kazoo, but neither
# PostgreSQL nor the extension.

use strict;
use warnings;

use Test::More;
use ZkLock::Proxy;
use ZkLock::Util qw(wait_until port_listens);
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;
use ZkLock::ZkServer;

sub dies_like
{
	my ($code, $pattern, $name) = @_;
	my $lived = eval { $code->(); 1 };
	return like($lived ? 'lived' : $@, $pattern, $name);
}

# One server.
my $zk = ZkLock::ZkServer->start(
	tick_time => 200,
	container_check_ms => 100,
	config => { maxSessionTimeout => 600000 });
is($zk->mode, 'standalone', 'a single server serves');
like($zk->four_letter('ruok'), qr/^imok/, 'a server answers four-letter commands');

# The tree.
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
is($zkc->state, 'CONNECTED', 'a client connects');
is($zkc->create('/a/b', data => "x\xff\0y", makepath => 1),
	'/a/b', 'a node with its parents is created');
is($zkc->get('/a/b')->{data}, "x\xff\0y", 'data are stored as bytes');
my $made = $zkc->create('/a/s-', ephemeral => 1, sequence => 1);
like($made, qr{^/a/s-\d{10}$}, 'an ephemeral sequential node is created');
is_deeply([ map { "/a/$_" } $zkc->children('/a') ],
	[ '/a/b', $made ], 'children are listed');
is_deeply([ $zkc->children('/none') ], [], 'an absent node has no children');
is_deeply([ $zkc->tree('/a') ], [ '/a/b', $made ], 'the tree is listed');
my $stat = $zkc->get($made);
is($stat->{ephemeralOwner}, $zkc->session_id,
	'an ephemeral node names its session');
cmp_ok($stat->{czxid}, '>', $zkc->get('/a/b')->{czxid},
	'a node created later has a greater czxid');
is($zkc->exists('/a/b')->{ephemeralOwner}, '0x0',
	'a persistent node has no owner');
$zkc->set('/a/b', 'new', version => 0);
is($zkc->get('/a/b')->{data}, 'new', 'data are set');
dies_like(sub { $zkc->set('/a/b', 'again', version => 0) },
	qr/^BadVersionError/, 'an error contains the name of the exception');

# A container is removed after its last child.
$zkc->create('/c', container => 1);
ok($zkc->exists('/c'), 'a container is created');
$zkc->create('/c/child');
$zkc->delete('/c/child');
ok(wait_until('the container to be removed', sub { !$zkc->exists('/c') }),
	'an emptied container is removed');

# Access control.
$zkc->create('/private', acl => { digest => 'me:secret' });
dies_like(sub { $zkc->get('/private') },
	qr/^NoAuthError/, 'a node with a digest ACL is closed to others');
$zkc->add_auth('digest', 'me:secret');
is($zkc->get('/private')->{data}, '', 'a client with the credentials can read it');
$zkc->set_acl('/private', 'world');
is_deeply([ $zkc->get_acls('/private') ], [ [ 31, 'world', 'anyone' ] ],
	'an ACL is set');

# Sessions are closed, or expire.
my $second = ZkLock::ZkClient->new($zk->connect_string, timeout => 600);
$second->create('/kept', ephemeral => 1);
my $dropped = $second->session_id;
$second->drop;
ok($zkc->exists('/kept'), 'the node of a dropped session stays');
$zkc->end_session($dropped);
ok(wait_until('the end of the session', sub { !$zkc->exists('/kept') }),
	'... until the session ends');
$second = ZkLock::ZkClient->new($zk->connect_string);
$second->create('/closed', ephemeral => 1);
$second->pause;
{
	local $ZkLock::Util::TIMEOUT = 0.2;
	dies_like(sub { $second->state },
		qr/no answer to state/, 'a paused client does not answer');
}
$second->resume;
ok($second->exists('/closed'), 'a resumed client answers the last request');
$second->close;
ok(!$zkc->exists('/closed'), 'the nodes of a closed session are removed');

# Between a client and the server.
my $proxy = ZkLock::Proxy->start(target => $zk);
my $behind = ZkLock::ZkClient->new($proxy->connect_string, timeout => 3);
is(scalar($proxy->connections), 1, 'a proxy carries a connection');
my $session = $behind->session_id;
$proxy->cut(refuse => 1);
ok(wait_until('loss', sub { $behind->state eq 'SUSPENDED' }),
	'a cut connection is lost');
ok(!port_listens($proxy->port), 'a refusing proxy does not listen');
$proxy->accept;
ok(wait_until('return', sub { $behind->state eq 'CONNECTED' }),
	'an accepting proxy lets the client return');
is($behind->session_id, $session, 'the client has kept its session');
$proxy->freeze;
ok( wait_until('silence', sub { $behind->state eq 'SUSPENDED' }),
	'a client of a frozen proxy loses its connection');
$proxy->thaw;
ok(wait_until('return', sub { $behind->state eq 'CONNECTED' }),
	'a thawed proxy lets the client return');
$proxy->refuse;
is($behind->state, 'CONNECTED', 'a refusing proxy keeps existing connections');
$behind->close;
$proxy->stop;

# A server that crashes, and a server that is silent.
$zk->kill9;
ok(!$zk->is_running, 'a killed server does not run');
$zk->restart;
ok(wait_until('return', sub { $zkc->state eq 'CONNECTED' }),
	'a restarted server listens on the same port');
is($zkc->get('/a/b')->{data}, 'new', 'a restarted server has its data');
$zk->pause;
is($zk->four_letter('ruok', 0.2), undef, 'a paused server is silent');
$zk->resume;
ok(wait_until('answer', sub { ($zk->four_letter('ruok') // '') eq 'imok' }),
	'a resumed server answers');
$zkc->close;
$zk->stop;

# Three servers.
my $ensemble = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
is(scalar($ensemble->followers), 2, 'an ensemble of three has two followers');
my $leader = $ensemble->leader;
$zkc = ZkLock::ZkClient->new($ensemble->connect_string);
$zkc->create('/survives');
$leader->kill9;
$ensemble->wait_ready(2);
isnt($ensemble->leader->port, $leader->port, 'the others elect a new leader');
ok(wait_until('return',
		sub { eval { $zkc->exists('/survives') } }),
	'a node survives the death of the leader');
$ensemble->restart;
is(scalar($ensemble->running), 3, 'all three servers run again');

done_testing();
