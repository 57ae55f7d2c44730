# Rare failures of the system cost no lock: the answer to an old lookup of a name does not
# replace that of a newer one; a connection without an answer is ended also if epoll has
# refused it.

use strict;
use warnings;

use ZkLock::PrivateNetwork;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Shim;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200, config => { maxSessionTimeout => 60000 });
my $shim = ZkLock::Shim->build;
local @ENV{ $shim->names } = $shim->values;
my $node = zklock_node('a', zk => $zk, session_timeout => '18s');
my @proxies = map { ZkLock::Proxy->start(target => $zk) } 1 .. 2;

# Returns the proxy that the session uses, and the other one.
sub by_use
{
	my ($s) = @_;
	my $server = $s->query_ok('SELECT server FROM zk_session()');
	return sort { ($b->connect_string eq $server) <=> ($a->connect_string eq $server) } @proxies;
}

sub threads { return scalar(() = glob '/proc/' . $_[0]->pid . '/task/*') }

{
	$shim->break('epoll');
	my $s = session($node);
	$s->reconnect('zklock.connect_string' => join(',', map { $_->connect_string } @proxies));
	works($s, "SELECT zk_lock('epoll') > 0", 't', 'a session locks although epoll has no room');
	my $id = zk_session_id($s);
	my ($used, $other) = by_use($s);
	$used->freeze;
	works($s, "SELECT zk_lock('more') > 0", 't', 'a silent server is left in time');
	works($s, 'SELECT server FROM zk_session()', $other->connect_string, '... for another one');
	is(zk_session_id($s), $id, '... in the same session');
	$used->thaw;
	$s->quit;
	$shim->heal('epoll');
}

{
	my $port = $proxies[0]->port;
	my $moved = ZkLock::Proxy->start(target => $zk, address => '127.0.0.2', port => $port);
	$shim->break('late');
	name_host('moved.example');
	my $s = session($node);
	$s->reconnect('zklock.connect_string' => "moved.example:$port");
	works($s, "SELECT zk_lock('moved') > 0", 't', 'a session connects while a lookup has no answer');
	name_host_at('127.0.0.2', 'moved.example');
	$proxies[0]->cut(refuse => 1);
	works($s, "SELECT zk_lock('moved 2') > 0", 't', 'a session reconnects to a new address');
	works($s, 'SELECT server FROM zk_session()', "127.0.0.2:$port", '... which is shown');
	my $id = zk_session_id($s);
	forget_hosts();
	my $threads = threads($s);
	$shim->heal('late');
	wait_until('the old lookup to end', sub { threads($s) < $threads });
	$moved->cut;
	works($s, "SELECT zk_lock('moved 3') > 0", 't', 'the late answer to an old lookup does not replace the new address');
	is(zk_session_id($s), $id, '... and no session is lost');
	$s->quit;
	$moved->stop;
}

$node->stop;
$_->stop for @proxies;
$zk->stop;
done_testing();
