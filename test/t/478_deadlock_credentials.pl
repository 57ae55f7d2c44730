# Servers with credentials of their own: what one may not read, make or remove of
# another's below <root>/waits can hide a deadlock; it makes none up, and nobody
# asks for it again and again. lock_timeout and cancel end such a wait, as they do
# without detection.

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

# What a server's sessions asked for below the root's waits.
sub asked
{
	my ($name, $root) = @_;
	return scalar grep {
		grep { m{^$root/waits} } @{ $_->{paths} }
	} $proxy{$name}->record;
}

# Sessions of both servers, each with a lock of the root that the other one waits
# for. Both may lock: those znodes are everybody's; the waits' are as is said.
sub meet
{
	my ($root, $acl, $timeout) = @_;
	$zkc->create("$root/locks/$_", makepath => 1) for qw(x y);
	$zkc->create("$root/waits", acl => $acl) if $acl;
	my ($s, $t) = map { session($node{$_}) } qw(a b);
	$_->query_ok("SET zklock.root = '$root'") for $s, $t;
	$t->query_ok("SET lock_timeout = '$timeout'");
	$s->query_ok("SELECT zk_lock('x')");
	$t->query_ok("SELECT zk_lock('y')");
	$s->query_async("SELECT zk_lock('y')");
	wait_until('the first wait to be told', sub { $zkc->children("$root/waits") == 1 });
	$t->query_async("SELECT zk_lock('x')");
	return ($s, $t);
}

# The second one's wait has ended so, and nobody else's; the first one goes on.
sub ended
{
	my ($name, $root, $s, $t, $sqlstate) = @_;
	$t->wait_result;
	is($t->sqlstate, $sqlstate, "$name: the wait ends by nothing but $sqlstate");
	ok(!$s->finished, '... and the other one has not given way');
	$t->query_ok('SELECT zk_unlock_all()');
	like($s->wait_result, qr/^\d+$/, '... but goes on');
	$_->quit for $s, $t;
	nothing_left($zkc, '... nothing is left', root => $root);
	wait_zk_empty($zkc, "$root/waits");
	return;
}

# The server that waits first makes the znode, and it is that server's alone.
{
	my ($s, $t) = meet('/first', undef, '5s');
	ended('one may not tell', '/first', $s, $t, '55P03');
	cmp_ok(asked('b', '/first'), '<=', 2, '... and is refused once');
}

# Everybody's.
{
	my ($s, $t) = meet('/all', 'world', '60s');
	wait_until('one to give way', sub { $s->finished || $t->finished });
	my ($victim, $other) = $s->finished ? ($s, $t) : ($t, $s);
	$victim->wait_result;
	is($victim->sqlstate, '40P01', 'both may tell and ask: the deadlock is found');
	$victim->query_ok('SELECT zk_unlock_all()');
	like($other->wait_result, qr/^\d+$/, '... the other one goes on');
	$_->quit for $s, $t;
	nothing_left($zkc, '... nothing is left', root => '/all');
}

# Nobody may remove what is there, not even his own. Who tries to ask by that gives
# it up after three seconds; what is his own he tries to remove every few seconds.
{
	my ($s, $t) = meet('/add', 'add', '5min');
	wait_until('the second wait to be told', sub { $zkc->children('/add/waits') > 1 });
	wait_until('questions', sub { asked('b', '/add') > 20 });
	my $before = 0;
	ok(wait_until('a second without a question', sub {
		my $so_far = $before;
		$before = asked('b', '/add');
		return $before == $so_far;
	}, pause => 1), 'nobody may ask: it is not tried for ever');
	ok(!$t->finished, '... and nobody gives way');
	$t->cancel;
	ended('nobody may ask', '/add', $s, $t, '57014');
}

$zkc->close;
done_testing();
