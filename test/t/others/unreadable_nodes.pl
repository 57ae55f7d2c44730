# A node in a queue that others may not read: its ACL denies READ to them, as the nodes of
# Curator with a creator's ACL do. It is a contender all the same. An attempt needs no data of
# it and returns false; a wait would have to watch it, and fails at once with 42501. Alone and
# for several names, nothing of the call stays in any queue.
#
# Promises: 1.1, 4.2, 9.1, 10.1, 11.3

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my ($here, $there) = map { shared_node($_) } qw(here there);
my $owner = session($there);
my $keeper = session_with($there, keep_time => '10min');
my $s = session($here);

# Others may do everything but read.
sub hide { $zkc->set_acl($_[0], [ [ 30, 'world', 'anyone' ] ]); return }

# What is in the queue of lock x, and how the lock becomes free again.
my %scene = (
	"a holder's node" => sub {
		$owner->query_ok("SELECT zk_lock('x')");
		return sub { $owner->query_ok("SELECT zk_unlock('x')") };
	},
	"a sharer's node" => sub {
		$owner->query_ok("SELECT zk_lock_shared('x')");
		return sub { $owner->query_ok("SELECT zk_unlock_shared('x')") };
	},
	"the node of a holder that may keep it" => sub {
		$keeper->query_ok("SELECT zk_lock('x')");
		wait_watched($zk, 'x');
		return sub { $keeper->query_ok("SELECT zk_unlock('x'), zk_unlock_all()") };
	},
	'a kept node' => sub {
		$keeper->query_ok("SELECT zk_xact_lock('x')");
		wait_watched($zk, 'x');
		return sub { $keeper->query_ok('SELECT zk_unlock_all()') };
	},
	"a waiter's node" => sub {
		$owner->query_ok("SELECT zk_lock('x')");
		my $foreign = foreign_node($zkc, '/zklock/locks/x', 'WRIT');
		return sub { $zkc->delete($foreign); $owner->query_ok("SELECT zk_unlock('x')") };
	},
	"another program's node" => sub {
		my $foreign = foreign_node($zkc, '/zklock/locks/x', 'WRIT');
		return sub { $zkc->delete($foreign) };
	});

my %attempt = (
	'an attempt' => "SELECT zk_try_lock('x')",
	'an attempt for several names' => "SELECT zk_try_lock_many(ARRAY['w', 'x', 'y'])",
	'an attempt at transaction level for several names' => "SELECT zk_try_xact_lock_many(ARRAY['w', 'x', 'y'])");
my %wait = (
	'a timed attempt' => "SELECT zk_try_lock('x', '10min')",
	'a wait' => "SELECT zk_lock('x')",
	'a timed attempt for several names' => "SELECT zk_try_lock_many(ARRAY['w', 'x', 'y'], '10min')",
	'a wait for several names' => "SELECT zk_lock_many(ARRAY['w', 'x', 'y'])");

for my $scene (sort keys %scene)
{
	my $end = $scene{$scene}->();
	my @queue = queue_of($zkc, 'x');

	hide($queue[-1]);
	works($s, $attempt{$_}, 'f', "$scene: $_ returns false") for sort keys %attempt;
	fails_with($s, $wait{$_}, '42501', "$scene: $_ fails", like => qr/could not lock "x": .*refused access/)
	  for sort keys %wait;
	works($s, "SELECT zk_try_lock_many(ARRAY['w', 'y']), zk_unlock_many(ARRAY['w', 'y'])", 't|{t,t}', "$scene: the other names are free");
	wait_zk_children($zkc, '/zklock/locks/x', scalar @queue);
	is_deeply([ queue_of($zkc, 'x') ], \@queue, "$scene: the calls leave no node in the queue");
	$end->();
	works($s, "SELECT zk_try_lock('x', '1min'), zk_unlock('x')", 't|t', "$scene: then the lock is free");
}
nothing_left($zkc, 'no contender is left');
