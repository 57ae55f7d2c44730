# Behind a connection pooler. In transaction mode transaction-level locks work as usual,
# with a few ZooKeeper sessions for many clients; session-level locks leak to the client
# that gets the backend next. In session mode the pooler's DISCARD ALL releases them.

use ZkLock::PgBouncer;
use ZkLock::Test;

use constant CLIENTS => 20;
use constant ROUNDS => 10;

my ($zk, $zkc) = shared_zk_and_client();
my %nodes = map { $_ => shared_node($_, zk => $zk) } qw(one two);
my $direct = session($nodes{two});

sub pooler
{
	my ($pool_size, %config) = @_;
	return ZkLock::PgBouncer->start(
		databases => { map { $_ => { node => $nodes{$_}, pool_size => $pool_size } } keys %nodes },
		config => \%config);
}

sub zk_sessions { return scalar(() = ($zk->four_letter('cons') // '') =~ /sid=0x/g) }

# Returns the backend that runs a session's statements now.
sub backend { return scalar $_[0]->query_ok('SELECT pg_backend_pid()') }

# Transaction mode: many clients, few backends.
{
	my $pooler = pooler(2, pool_mode => 'transaction');
	my @clients = map { session($pooler->through($_ % 2 ? 'one' : 'two')) } 1 .. CLIENTS;
	$_->safe_psql('postgres', <<'SQL') for values %nodes;
CREATE TABLE referee (token bigint, since timestamptz, until timestamptz);
SQL
	$_->query_async(<<'SQL' x ROUNDS) for @clients;
BEGIN;
SELECT zk_xact_lock('hot') AS token \gset
INSERT INTO referee VALUES (:token, clock_timestamp());
UPDATE referee SET until = clock_timestamp() WHERE token = :token;
COMMIT;
SQL
	$_->wait_result for @clients;
	is(join('', map { $_->error } @clients), '', CLIENTS . ' clients of two servers share four backends');
	my @holds = sort { $a->[0] <=> $b->[0] }
	  map { [ split /\|/ ] }
	  map { split /\n/, $_->safe_psql('postgres', 'SELECT * FROM referee') } values %nodes;
	is(scalar(@holds), CLIENTS * ROUNDS, 'each client acquires its lock each time');
	is(scalar(grep { $holds[$_][1] lt $holds[ $_ - 1 ][2] } 1 .. $#holds),
		0, 'no two clients hold the lock at once, in token order');
	is(zk_sessions(), 4 + 1, 'there is a ZooKeeper session for each backend, not for each client');

	$clients[0]->query_ok("SELECT zk_xact_lock('alone')");
	works($direct, "SELECT zk_try_xact_lock('alone', '1 min')", 't',
		'without a transaction block a lock lasts for its statement');
	$clients[1]->query_ok("BEGIN; SELECT zk_xact_lock('left')");
	works($direct, "SELECT zk_try_xact_lock('left')", 'f', 'a client in a transaction holds a lock');
	$clients[1]->drop;
	works($direct, "SELECT zk_try_xact_lock('left', '1 min')", 't',
		'a client that disconnects in a transaction loses its lock at once');
	$_->quit for @clients;
	$pooler->stop;
	nothing_left($zkc, 'transaction mode with transaction-level locks leaves no node');
}

# Transaction mode: session-level locks belong to the backend, not to a client.
{
	my $pooler = pooler(1, pool_mode => 'transaction');
	my ($first, $second) = map { session($pooler->through('one')) } 1, 2;
	my $token = $first->query_ok("SELECT zk_lock('leaks')");
	works($second, "SELECT zk_lock_token('leaks')", $token,
		'in transaction mode the next client has a session-level lock of its predecessor');
	works($second, "SELECT zk_try_lock('leaks')", 't', 'the next client can acquire the lock again');
	$first->quit;
	$second->query_ok("SELECT zk_unlock('leaks')");
	works($direct, "SELECT zk_try_lock('leaks')", 'f', "the lock's owner does not release it by disconnecting");
	works($second, "SELECT zk_unlock('leaks')", 't', 'any client can release the lock');
	works($direct, "SELECT zk_try_xact_lock('leaks', '1 min')", 't', 'the leaked lock is free after the release');

	$second->query_ok("SELECT zk_lock('stuck')");
	$pooler->console('RECONNECT');
	works($direct, "SELECT zk_try_xact_lock('stuck', '1 min')", 't',
		"the administrator's RECONNECT releases a leaked lock");
	$second->query_ok("SELECT zk_lock('stays')");
	$second->quit;
	$pooler->stop;
	works($direct, "SELECT zk_try_xact_lock('stays', '1 min')", 't',
		'a leaked lock is free when the pooler closes the connection');
	nothing_left($zkc, 'leaked locks end with their backend');
}
{
	my $pooler = pooler(2, pool_mode => 'transaction');
	my ($first, $second) = map { session($pooler->through('one')) } 1, 2;
	$first->query_ok("SELECT zk_lock('strays')");
	my $its_backend = backend($first);
	$second->query_ok('BEGIN');
	is(backend($second), $its_backend, 'the backend that holds a lock serves another client');
	isnt(backend($first), $its_backend, "the lock's owner gets another backend");
	my ($released, $warning) = $first->query("SELECT zk_unlock('strays')");
	is($released, 'f', "the lock's owner cannot release it");
	like($warning, qr{WARNING:  }, 'the failed release causes a warning');
	works($direct, "SELECT zk_try_lock('strays')", 'f', 'the lock is still held');
	works($second, "SELECT zk_unlock('strays')", 't', 'the other client can release the lock');
	$_->quit for $first, $second;
	$pooler->stop;
}

# The pooler's reset query determines whether locks leak.
for my $case (
	[ 'session mode, DISCARD ALL by default', 1, pool_mode => 'session' ],
	[ 'session mode without a reset', 0, pool_mode => 'session', server_reset_query => '' ],
	[ 'session mode that releases locks only', 1, pool_mode => 'session',
		server_reset_query => 'SELECT zk_unlock_all()' ],
	[ 'session mode that releases PostgreSQL\'s locks only', 0, pool_mode => 'session',
		server_reset_query => 'SELECT pg_advisory_unlock_all()' ],
	[ 'transaction mode with a reset always', 1, pool_mode => 'transaction',
		server_reset_query_always => 1 ])
{
	my ($name, $is_released, @config) = @$case;
	my $pooler = pooler(1, @config);
	my $first = session($pooler->through('one'));
	my $its_backend = backend($first);
	$first->query_ok("SELECT zk_lock('reset')");
	if ($name =~ /^session/)
	{
		works($direct, "SELECT zk_try_lock('reset')", 'f', "$name: a client holds a lock");
		$first->quit;
	}
	my $second = session($pooler->through('one'));
	is(backend($second), $its_backend, "$name: the next client has the same backend");
	works($second, 'SELECT count(*) FROM zk_held_locks', $is_released ? 0 : 1,
		"$name: the next client has the lock only if there was no reset");
	my ($wait, $answer) = $is_released ? ('1 min', 't') : ('0', 'f');
	works($direct, "SELECT zk_try_xact_lock('reset', '$wait')", $answer,
		"$name: the lock is free for others only after a reset");
	$_->quit for $first, $second;
	$pooler->stop;
	nothing_left($zkc, "$name: no node is left after the pooler has stopped");
}

# Programs with the extension zklock_advisory: every backend has the search path of the
# database.
{
	$_->safe_psql('postgres', <<'SQL') for values %nodes;
CREATE EXTENSION zklock_advisory;
ALTER DATABASE postgres SET search_path = "$user", public, zklock_advisory, pg_catalog;
SQL
	my $other = session($nodes{two});
	my $pooler = pooler(1, pool_mode => 'transaction');
	my ($first, $second) = map { session($pooler->through('one')) } 1, 2;
	$first->query_ok('BEGIN; SELECT pg_advisory_xact_lock(1)');
	works($other, 'SELECT pg_try_advisory_xact_lock(1)', 'f', 'in transaction mode pg_advisory_xact_lock excludes other servers');
	$first->query_ok('COMMIT');
	works($other, 'SELECT pg_advisory_xact_lock(1)', '', 'pg_advisory_xact_lock ends with the transaction');

	$first->query_ok('SELECT pg_advisory_lock(2)');
	works($other, 'SELECT pg_try_advisory_xact_lock(2)', 'f', 'pg_advisory_lock excludes other servers');
	works($second, 'SELECT pg_try_advisory_lock(2)', 't', 'pg_advisory_lock does not exclude the next client, as without the extension');
	$second->query_ok('SET search_path = public');
	works($first, 'SHOW search_path', 'public', 'the next client also has the search path that a client sets');
	$_->quit for $first, $second, $other;
	$pooler->stop;
	nothing_left($zkc, 'the extension behind a pooler leaves no node');
}
