# A backend that was stopped for longer than a heartbeat may be late connects again before it trusts
# an answer: the ensemble may be about to end its session, and executes its writes until then. The
# backend is stopped while it waits for a lock, which becomes free meanwhile, and while it connects.
#
# What would follow if it trusted the answer, two holders, is in the model: CLIENT_STOPS with NO_CUT
# in test/model/run.
#
# Promises: 1.1, 5.2

use Time::HiRes qw(time);
use ZkLock::Test;

# The last heartbeat was a third of the timeout ago or less. It is late after 5/12 of the timeout,
# and the session can end after two thirds of it, counted from the moment at which the process stops.
use constant TIMEOUT => 20;
use constant STOPPED => TIMEOUT * 5.5 / 12;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::Proxy->start(target => $zk);
my $inside = shared_node('inside', zk => $proxy, session_timeout => TIMEOUT . 's');
my $outside = shared_node('outside');

# Returns the connections of the ZooKeeper server that have a session, with its id.
sub connections { return ($zk->four_letter('cons') // '') =~ /^ *\/(\S+?)\[.*\bsid=(0x\w+)/mg }

# Returns the connection of a session.
sub connection_of
{
	my ($id) = @_;
	my %id_of = connections();
	return (grep { $id_of{$_} eq $id } keys %id_of)[0] // 'none';
}

# Returns whether a client has sent the proxy something that it has not read.
sub has_unread
{
	my $port = sprintf '%04X', $proxy->port;
	return read_file('/proc/net/tcp') =~ /^ *\d+: \w+:$port \w+:\w+ 01 \w+:(?!00000000)/m;
}

# A holder elsewhere, a waiter, and a session that has not connected yet.
my ($holder, $waiter, $new) = (session($outside), map { session($inside) } 1 .. 2);
$holder->query_ok("SELECT zk_lock('x')");
$waiter->query_ok("SELECT zk_lock('warm'), zk_unlock('warm')");
my $id = zk_session_id($waiter);
$waiter->query_ok('BEGIN');
$waiter->query_async("SELECT zk_xact_lock('x') > 0");
wait_zk_children($zkc, '/zklock/locks/x', 2);

$waiter->pause;
my $stopped = time();
my $connection = connection_of($id);
$holder->query_ok('SELECT zk_unlock_all()');

# The server creates the session while the backend, which has requested it, is stopped.
my %before = connections();
$proxy->freeze;
$new->query_ok('BEGIN');
$new->query_async("SELECT zk_xact_lock('y') > 0");
wait_until('the connection request', \&has_unread);
$new->pause;
my $requested = time();
$proxy->thaw;
my $first;
wait_until('the session',
	sub { my %now = connections(); return ($first) = grep { !$before{$_} } keys %now });

wait_until('its heartbeat to be late', sub { time() > $stopped + STOPPED });
$waiter->resume;
is($waiter->wait_result, 't', 'a backend that was stopped in its wait is granted the lock');
is(zk_session_id($waiter), $id, 'the backend that was stopped in its wait still has its session');
isnt(connection_of($id), $connection, 'a backend that was stopped in its wait has connected again when it is granted the lock');
works($waiter, 'COMMIT', '', 'the backend that was stopped in its wait commits');

wait_until('its heartbeat to be late', sub { time() > $requested + STOPPED });
$new->resume;
is($new->wait_result, 't', 'a backend that was stopped while it connected is granted a lock');
isnt(connection_of(zk_session_id($new)), $first,
	'a backend that was stopped while it connected has connected again when it is granted a lock');
works($new, 'COMMIT', '', 'the backend that was stopped while it connected commits');
