# While an ensemble has no quorum no session expires in it. A session that gives
# up its locks by its own clock meanwhile is closed as soon as it can be
# reached again: nobody waits for another session timeout.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Util qw(read_file);
use ZkLock::ZkEnsemble;

my $ensemble = ZkLock::ZkEnsemble->start(tick_time => 500);
my $holders = zklock_node('holders', zk => $ensemble, session_timeout => '6s');
my $others = zklock_node('others', zk => $ensemble, session_timeout => '6s');

# Sessions that the ensemble has ended by itself.
sub expired
{
	return join "\n",
	  map { read_file($_->log_file) =~ /Expiring session (0x[0-9a-f]+)/g }
	  $ensemble->members;
}

my $holder = session($holders);
$holder->query_ok("SELECT zk_lock('left')");
my $id = zk_session_id($holder);
$holder->query_async('SELECT pg_sleep(120)');

my ($first, $second) = $ensemble->members;
$_->kill9 for $first, $second;
failed_with($holder, '40001', 'a holder gives up without a quorum',
	like => qr/left/);

$ensemble->restart;
my $other = session($others);
works($other, "SELECT zk_lock('left') > 0",
	't', 'the lock is free when there is a quorum again');
unlike(expired(), qr/\Q$id\E/,
	'... because its session was closed, not because it expired');
$other->query_ok('SELECT zk_unlock_all()');

# The one who lost it goes on in a new session, and leaves nothing either.
works($holder, "SELECT zk_lock('left') > 0", 't', 'its backend can lock again');
isnt(zk_session_id($holder), $id, '... in another session');
$_->quit for $holder, $other;

done_testing();
