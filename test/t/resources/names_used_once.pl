# The znodes of names that are used once are deleted: the session that has created the
# znode of a lock or of a semaphore deletes it when it is empty, also at its end.

use ZkLock::Test;

# The server itself removes no container during this test.
my ($zk, $zkc) = ZkLock::ZkServer->start(container_check_ms => 3600000)->with_client;
my $node = shared_node('a', zk => $zk);
my $other = shared_node('b', zk => $zk);
my $s = session($node);
my $t = session($other);

# Returns the number of children created and deleted so far.
sub changes { return $zkc->get("/zklock/$_[0]")->{cversion} }

sub names { return join ' ', sort $zkc->children('/zklock/locks') }

$s->query_ok("SELECT zk_lock('order:' || i), zk_unlock('order:' || i) FROM generate_series(1, 300) AS i");
$s->query_ok("SELECT zk_lock('kept')");
wait_until('the empty znodes to be deleted', sub { names() eq 'kept' });
is(changes('locks'), 2 * 300 + 1, 'each of 300 empty znodes is deleted once, that of the held lock stays');

$s->query_ok("SELECT zk_lock('shared'), zk_unlock('shared')");
works($t, "SELECT zk_lock('shared') > 0", 't', 'another server acquires a lock of the first server');
$s->query_ok("SELECT zk_lock('later'), zk_unlock('later')");
wait_until('the empty znode to be deleted', sub { names() eq 'kept shared' });
works($t, "SELECT zk_lock_token('shared') = zk_lock('shared')", 't', 'the other server still holds the lock');
$t->query_ok('SELECT zk_unlock_all()');
wait_until('the znode to be empty', sub { !$zkc->children('/zklock/locks/shared') });
$zkc->delete('/zklock/locks/shared');

# Semaphores, with three znodes each.
sub semaphores { return join ' ', sort $zkc->children('/zklock/semaphores') }

$s->query_ok("SELECT zk_acquire_permit('job:' || i, 3), zk_release_permit('job:' || i) FROM generate_series(1, 100) AS i");
$s->query_ok("SELECT zk_acquire_permit('pool', 3)");
wait_until('the empty znodes to be deleted', sub { semaphores() eq 'pool' });
is(changes('semaphores'), 2 * 100 + 1, 
	'each of 100 unused semaphores is deleted once, the used one stays');
works($t, "SELECT zk_try_acquire_permit('pool', 3)", 't', 'another server acquires a permit of the used semaphore');
$s->query_ok("SELECT zk_release_permit('pool')");
$s->query_ok("SELECT zk_acquire_permit('later', 1), zk_release_permit('later')");
wait_until('the empty znode to be deleted', sub { semaphores() eq 'pool' });
works($t, "SELECT zk_try_acquire_permit('pool', 3)", 't', 'the other server can acquire another permit');
$t->query_ok('SELECT zk_unlock_all()');
wait_until('its permits to go', sub { !$zkc->children('/zklock/semaphores/pool/leases') });
$zkc->delete('/zklock/semaphores/pool', recursive => 1);
works($t, "SELECT zk_try_acquire_permit('pool', 5)", 't', 'a deleted semaphore can be used with another capacity');
$t->query_ok('SELECT zk_unlock_all()');

$s->query_ok("SELECT zk_lock('last'), zk_unlock('last'), zk_unlock('kept')");
$s->query_ok("SELECT zk_acquire_permit('last', 1), zk_release_permit('last')");
$_->quit for $s, $t;
wait_until('the end of the sessions', sub { names() eq '' && semaphores() eq '' });
pass('the end of a session leaves no empty znode');
