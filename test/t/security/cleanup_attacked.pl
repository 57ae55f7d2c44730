# A program with write access to the ensemble changes semaphores that a session is about to
# delete. The session deletes no znode with children, leaves each semaphore whose delete is
# refused to the server, and continues with the others.
#
# Tags: edges

use ZkLock::Test;

# The server itself removes no container nodes.
my ($zk, $zkc) = ZkLock::ZkServer->start(container_check_ms => 3600000)->with_client;
my $node = shared_node('a', zk => $zk);
my $s = session($node);
my $semaphores = '/zklock/semaphores';

sub use_once
{
	my ($name) = @_;
	return $s->query_ok("SELECT zk_acquire_permit('$name', 3), zk_release_permit('$name')");
}

# Uses a semaphore and waits until it is deleted; semaphores used earlier are tried before.
sub wait_deleted_after_use
{
	my ($name) = @_;
	use_once($name);
	return wait_until("$name to be deleted", sub { !$zkc->exists("$semaphores/$name") });
}

use_once($_) for qw(busy_top busy_locks busy_leases no_locks no_parts no_right own);
$zkc->create("$semaphores/busy_top/theirs");
$zkc->create("$semaphores/busy_locks/locks/theirs", data => 'x');
$zkc->create("$semaphores/busy_leases/leases/theirs", data => 'x');
$zkc->delete("$semaphores/no_locks/locks");
$zkc->delete("$semaphores/no_parts/$_") for qw(locks leases);
$zkc->set_acl("$semaphores/no_right", 'read');
$zkc->delete("$semaphores/own", recursive => 1);
$zkc->create("$semaphores/own/kept", data => 'theirs', makepath => 1);
$s->query_ok("SELECT zk_lock('mine')");
wait_deleted_after_use($_) for qw(first second third fourth);

my @left = sort $zkc->children($semaphores);
is("@left", 'busy_leases busy_locks busy_top no_locks no_parts no_right own', 'semaphores with other children or read-only ACLs, or without their parts, stay');
is($zkc->get("$semaphores/own/kept")->{data}, 'theirs', 'znodes of other programs stay');
ok($zkc->exists("$semaphores/$_"), "the znode of another program stays: $_") for qw(busy_top/theirs busy_top/locks busy_locks/locks/theirs busy_leases/leases/theirs);
$zkc->delete("$semaphores/$_") for qw(busy_top/theirs busy_locks/locks/theirs busy_leases/leases/theirs);
my %cversion = map { $_ => $zkc->get("$semaphores/$_")->{cversion} } qw(busy_top busy_locks busy_leases);
wait_deleted_after_use('fifth');
is_deeply({ map { $_ => $zkc->get("$semaphores/$_")->{cversion} } keys %cversion }, \%cversion, 'a semaphore is not tried again after a refusal');
works($s, "SELECT zk_try_acquire_permit('busy_top', 3), zk_unlock('mine'), zk_unlock_all()", 't|t|', 'the session and its locks still work');
$s->quit;
nothing_left($zkc, 'no node is left');
