# zk_blocking() shows the holders and waiters, of any server or program, that block a
# waiting backend of this server, which its ZooKeeper session identifies.
#
# Tags: edges

use Sys::Hostname qw(hostname);
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my %node = map { $_ => zklock_node($_, zk => $zk) } qw(a b c);
my %dba = map { $_ => session($node{$_}) } qw(a b c);
my ($on_a, $on_b, $on_c) = map { session($node{$_}) } qw(a b c);

# Returns a line for each row of zk_blocking(), by default on the waiter's server.
sub blocking
{
	my ($session, $server) = @_;
	return $dba{ $server // $session->node->name }->query_ok(
		"SELECT concat_ws(' ', server, pid, name, mode, granted) FROM zk_blocking("
		  . $session->pid . ')');
}

# Returns an expected line.
sub line
{
	my ($session, @rest) = @_;
	return join ' ', hostname() . ':' . $session->node->port, $session->pid, @rest;
}

sub path { return "/zklock/locks/$_[0]" }

$on_a->query_ok("SELECT zk_lock('x')");
is(blocking($on_a), '', 'a session that does not wait has no blocker');
$on_b->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, path('x'), 2);
$on_c->query_async("SELECT zk_lock_shared('x')");
wait_zk_children($zkc, path('x'), 3);
is(blocking($on_b), line($on_a, qw(x exclusive t)), 'a holder on another server blocks');
is(blocking($on_c), join("\n", line($on_a, qw(x exclusive t)), line($on_b, qw(x exclusive f))),
	'an earlier waiter blocks');
is(blocking($on_b, 'a'), '', 'a process id refers to this server only');
$on_a->query_ok("SELECT zk_unlock('x')");
$on_b->wait_result;
is(blocking($on_c), line($on_b, qw(x exclusive t)), 'a waiter that was granted the lock is shown as holder');
$on_b->query_ok("SELECT zk_unlock('x')");
$on_c->wait_result;

# Another server can have the same name: containers, copies of a virtual machine. A backend there with
# the same process id waits for a lock.
{
	$on_a->query_ok("SELECT zk_lock('namesake')");
	$on_b->query_ok("SELECT zk_lock('own')");
	my ($own) = queue_of($zkc, 'own');
	my $guid = sprintf '%016x', hex $zkc->session_id;
	$guid =~ s/^(.{8})(.{4})(.{4})$/$1-$2-$3/;
	my $namesake = $zkc->create(path('namesake') . "/_c_$guid-0000-000000000001-__WRIT__",
		data => $zkc->get($own)->{data}, ephemeral => 1, sequence => 1);
	works($dba{a}, "SELECT server, pid, granted, client FROM zk_locks_of('namesake') WHERE NOT granted",
		join('|', hostname() . ':' . $on_b->node->port, $on_b->pid, 'f', 'zklock'),
		'a waiter of a server of the same name, with the same process id');
	is(blocking($on_b), '', 'a waiter of a server of the same name is not taken for the backend of this server');
	$zkc->delete($namesake);
	$_->query_ok('SELECT zk_unlock_all()') for $on_a, $on_b;
}

# Sharers block a writer, not each other.
$on_a->query_ok("SELECT zk_lock_shared('x')");
is(blocking($on_c), '', 'a sharer does not block a sharer');
$on_b->query_async("SELECT zk_lock('x')");
wait_zk_children($zkc, path('x'), 3);
is(blocking($on_b), join("\n", sort(line($on_a, qw(x shared t)), line($on_c, qw(x shared t)))),
	'a writer waits for all sharers');

# Several names, a holder of another program, and an upgrade: a session's own lock does
# not block it.
my $foreign = foreign_node($zkc, path('f'), 'WRIT');
$on_c->query_async("SELECT zk_lock_many(ARRAY['f', 'x'])");
wait_zk_children($zkc, path('f'), 2);

# An upgrade is queued once its node has moved up to the number of the other writer.
wait_until(
	'both writers have one number',
	sub
	{
		my %numbers = map { /WRIT\D*(\d+)$/ ? ($1 => 1) : () } $zkc->children(path('x'));
		return keys %numbers == 1;
	});
my $answer = blocking($on_c);
like($answer, qr/^(?:\S+ )?f exclusive t$/m, 'a holder of another program is shown without a process id');
like($answer, qr/^\Q${\line($on_a, qw(x shared t))}\E$/m, 'the other sharer is shown for the other name');
unlike($answer, qr/\b${\$on_c->pid} x/, 'the session itself is not shown');
$zkc->delete($foreign);
$on_a->query_ok("SELECT zk_unlock_shared('x')");
$on_c->wait_result;
$on_c->query_ok('SELECT zk_unlock_all()');
$on_b->wait_result;
ok($on_b->ok && $on_c->ok, 'all waiters acquire their locks');
$on_b->query_ok('SELECT zk_unlock_all()');

# A name that begins like the lock's name is a different lock.
$on_a->query_ok("SELECT zk_lock('#42')");
$on_b->query_ok("SELECT zk_lock('42')");
$on_c->query_async("SELECT zk_lock('42')");
wait_zk_children($zkc, path('42'), 2);
is(blocking($on_c), line($on_b, '42', qw(exclusive t)), 'the holder of a different lock with the same digits does not block');
$_->query_ok('SELECT zk_unlock_all()') for $on_a, $on_b;
$on_c->wait_result;
$on_c->query_ok('SELECT zk_unlock_all()');
is(scalar $dba{a}->query('SELECT count(*) FROM zk_blocking(pid => NULL)'), '0', 'NULL has no blockers');
nothing_left($zkc, 'no node is left');
