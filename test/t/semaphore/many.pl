# A session can have permits of 64 semaphores, any number of each. A call for one of another
# semaphore fails with 53400 and changes nothing, whatever other sessions have; and the permits of
# sessions that have ended in any way leave room for as many again.

use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $node = zklock_node('a', zk => $zk, extra_conf => <<'END');
max_connections = 4
superuser_reserved_connections = 0
max_worker_processes = 0
max_wal_senders = 0
autovacuum_max_workers = 1
END

# Acquires a permit of one semaphore after the other; returns how many before 53400.
sub fill
{
	my ($s) = @_;
	$s->query_ok('BEGIN');
	my $n = 0;
	while ($n < 1000)
	{
		$s->query_ok('SAVEPOINT p');
		$s->query("SELECT zk_acquire_permit('s" . ($n + 1) . "', 9)");
		last if !$s->ok;
		$n++;
	}
	is($s->sqlstate, '53400', 'a permit of one semaphore more is an error');
	like($s->error, qr/^HINT:  Release/m, 'the error of one semaphore more has a hint');
	$s->query_ok('ROLLBACK TO p');
	$s->query_ok('COMMIT');
	works($s, 'SELECT count(*) FROM zk_held_locks', $n, 'the permits before the error are held');
	return $n;
}

my $s = session($node);
my $room = fill($s);
is($room, 64, 'a session has permits of 64 semaphores');
works($s, "SELECT zk_try_acquire_permit('s1', 9), zk_try_acquire_permit('s64', 9)", 't|t', 'a session with permits of 64 semaphores can have more of each');
works($s, "SELECT zk_try_lock('a lock')", 't', 'a session with permits of 64 semaphores can have locks');
my $other = session($node);
works($other, "SELECT zk_try_acquire_permit('one more', 1)", 't', 'other sessions have permits of their own');
$s->query_ok("SELECT zk_release_permit('s1')");
fails_with($s, "SELECT zk_acquire_permit('one more', 2)", '53400', 'one of two permits leaves no room for another semaphore');
$s->query_ok("SELECT zk_release_permit('s1')");
works($s, "SELECT zk_try_acquire_permit('last', 1)", 't', 'the last permit leaves room for another semaphore');
$_->query_ok('SELECT zk_unlock_all()') for $s, $other;
is(fill($s), $room, 'there is as much room after all were released');

# Ends of the session that run no SQL.
my %ends = (
	'its client disconnects' => sub { $_[0]->quit },
	'it is terminated' => sub { $_[0]->terminate },
	'it is terminated in a transaction' => sub { $_[0]->query_ok('BEGIN'); $_[0]->terminate });
for my $end (sort keys %ends)
{
	$ends{$end}->($s);
	wait_until('the end of its session', sub { !grep { m{/leases/} } $zkc->tree('/zklock/semaphores') });
	$s = session($node);
	is(fill($s), $room, "there is as much room after a session with permits: $end");
}
$_->quit for $s, $other;
wait_until('the end of the sessions', sub { !grep { m{/leases/} } $zkc->tree('/zklock/semaphores') });
nothing_left($zkc, 'nothing is left');
