# The functions of the extension zklock_advisory have the names of PostgreSQL's functions
# and give the same answers. Each scenario runs twice: with PostgreSQL's functions in two
# sessions of one server, then with the extension's functions in two sessions of different
# servers.
#
# Tags: edges

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my @nodes = map { shared_node($_, zk => $zk) } qw(one two);
$_->safe_psql('postgres', 'CREATE EXTENSION zklock_advisory; CREATE DATABASE other') for @nodes;
$_->safe_psql('other', 'CREATE EXTENSION zklock_advisory CASCADE') for @nodes;

my $drop_in = 'SET search_path = "$user", public, zklock_advisory, pg_catalog';

# Steps: a session and a statement. A statement that waits begins with "waits: ", and "="
# fetches its answer.
my %scenarios = (
	'transaction level' => [
		[ A => 'BEGIN' ],
		[ A => 'SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(2), pg_advisory_xact_lock(1, 1), pg_advisory_xact_lock_shared(2, 2)' ],
		[ B => 'SELECT pg_try_advisory_lock(1), pg_try_advisory_lock(2), pg_try_advisory_lock_shared(2), pg_try_advisory_lock(1, 1), pg_try_advisory_lock_shared(2, 2)' ],
		[ A => 'SELECT pg_advisory_unlock_all()' ],
		[ B => 'SELECT pg_try_advisory_xact_lock(1), pg_try_advisory_xact_lock_shared(1, 1)' ],
		[ A => 'SELECT pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock(1, 1), pg_advisory_unlock_shared(2, 2)' ],
		[ B => 'waits: SELECT pg_advisory_lock(1)' ],
		[ A => 'COMMIT' ],
		[ B => '=' ],
		[ B => 'SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock_all()' ] ],
	'both levels' => [
		[ A => 'BEGIN' ],
		[ A => 'SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(2)' ],
		[ A => 'SELECT pg_advisory_lock(1), pg_advisory_lock_shared(2)' ],
		[ A => 'ROLLBACK' ],
		[ B => 'SELECT pg_try_advisory_lock(1), pg_try_advisory_lock_shared(2), pg_try_advisory_lock(2)' ],
		[ A => 'SELECT pg_advisory_unlock(1), pg_advisory_unlock(1), pg_advisory_unlock_shared(2), pg_advisory_unlock_shared(2)' ],
		[ B => 'SELECT pg_advisory_lock(1)' ],
		[ A => 'SELECT pg_try_advisory_lock_shared(1)' ],
		[ B => 'SELECT pg_advisory_unlock_all()' ] ],
	'counts' => [
		[ A => 'SELECT pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(1), pg_try_advisory_lock_shared(1), pg_try_advisory_lock(1)' ],
		[ A => 'SELECT pg_advisory_unlock_shared(1), pg_advisory_unlock_shared(1), pg_advisory_unlock_shared(1)' ],
		[ A => 'SELECT pg_advisory_unlock(1), pg_advisory_unlock(1)' ],
		[ B => 'SELECT pg_try_advisory_lock(1)' ],
		[ B => 'waits: SELECT pg_advisory_lock(1)' ],
		[ A => 'SELECT pg_advisory_unlock(1), pg_advisory_unlock(1)' ],
		[ B => '=' ],
		[ B => 'SELECT pg_advisory_unlock_all()' ] ],
	'keys' => [
		[ A => 'SELECT pg_advisory_lock(1), pg_advisory_lock(0, 2)' ],
		[ B => 'SELECT pg_try_advisory_lock(0, 1), pg_try_advisory_lock(2), pg_try_advisory_lock(-1), pg_try_advisory_lock(2, 0)' ],
		[ B => 'SELECT pg_try_advisory_lock(9223372036854775807), pg_try_advisory_lock(-2147483648, 2147483647)' ],
		[ B => 'SELECT pg_try_advisory_lock(NULL), pg_try_advisory_lock(NULL, 1), pg_advisory_unlock(NULL)' ],
		[ B => q(SELECT pg_try_advisory_lock('1'), pg_try_advisory_lock(1::smallint)) ],
		[ B => 'SELECT pg_advisory_lock(1.5)' ],
		[ B => q(SELECT pg_advisory_lock('a')) ],
		[ B => 'SELECT pg_advisory_unlock_all()' ],
		[ A => 'SELECT pg_advisory_unlock_all()' ] ],
	'ends of a wait' => [
		[ A => 'SELECT pg_advisory_lock(1)' ],
		[ B => q(SET lock_timeout = '50ms') ],
		[ B => 'SELECT pg_advisory_lock(1)' ],
		[ B => 'RESET lock_timeout' ],
		[ B => q(SET LOCAL statement_timeout = '50ms'\; SELECT pg_advisory_xact_lock_shared(1)) ],
		[ A => 'DISCARD ALL' ],
		[ B => 'SELECT pg_advisory_lock(1), pg_advisory_unlock(1)' ] ],
	'savepoints' => [
		[ A => 'BEGIN; SAVEPOINT s' ],
		[ A => 'SELECT pg_advisory_xact_lock(1), pg_advisory_lock(2)' ],
		[ A => 'ROLLBACK TO s' ],
		[ B => 'SELECT pg_advisory_lock(1), pg_try_advisory_lock(2)' ],
		[ A => 'SELECT pg_try_advisory_lock(1)' ],
		[ A => 'COMMIT' ],
		[ A => 'SELECT pg_advisory_unlock_all()' ],
		[ B => 'SELECT pg_advisory_unlock_all()' ] ]);

# Runs a scenario. Returns a line for each answer: rows, SQLSTATE, number of warnings.
sub run_scenario
{
	my ($scenario, %sessions) = @_;
	my @answers;
	for (@$scenario)
	{
		my ($name, $sql) = @$_;
		my $s = $sessions{$name};
		if ($sql =~ s/^waits: //)
		{
			$s->query_async($sql);
			wait_blocked($s);
			next;
		}
		my $answer = $sql eq '=' ? $s->wait_result : $s->query($sql);
		my $state = $s->ok ? 'ok' : $s->sqlstate;
		push @answers, join "\t", $name, $sql, $answer, $state, scalar(() = $s->error =~ /WARNING:/g);
		$s->query_ok($drop_in) if $sql eq 'DISCARD ALL' && $sessions{drop_in};
	}
	return join "\n", @answers;
}

for my $name (sort keys %scenarios)
{
	my @own = map { session($nodes[0]) } 1, 2;
	my $expected = run_scenario($scenarios{$name}, A => $own[0], B => $own[1]);
	my @ours = map { session($_) } @nodes;
	$_->query_ok($drop_in) for @ours;
	is(run_scenario($scenarios{$name}, A => $ours[0], B => $ours[1], drop_in => 1), $expected,
		"the same answers on two servers as PostgreSQL's own on one: $name");
	$_->quit for @own, @ours;
}

# Databases with different names have separate keys, as in PostgreSQL.
my ($here, $there) = (session($nodes[0]), session($nodes[1], dbname => 'other'));
$_->query_ok($drop_in) for $here, $there;
$here->query_ok('SELECT pg_advisory_lock(1)');
works($there, 'SELECT pg_try_advisory_lock(1)', 't', 'a database with another name has separate keys');
works($here, 'SELECT name, mode FROM zk_held_locks', 'advisory:postgres:1|exclusive', 'zk_held_locks shows the database');
$_->quit for $here, $there;

nothing_left($zkc, 'no node is left');
