# Whatever call of a lock's life fails, in allocating memory or at a cancel, the session works on or ends
# cleanly, and nothing is left: no znode, no local lock, no transaction-level lock.
#
# Each round lets another call fail: the first one of its kind in the scenario, then the second
# one, until no further one is there. test/shim/faults.c says which calls those are.
#
# Promises: 4.2, 10.3
# Nightly: hundreds of rounds, each with sessions of its own, take minutes.

use PostgreSQL::Test::Utils;
use ZkLock::Test;

# The first one opens the session in the ensemble, too; to the others it is there before.
my $opens = 'the first lock of a session';
my %scenarios = (
	$opens => [ q{SELECT zk_lock('a')}, q{SELECT zk_unlock('a')} ],
	'transaction' => [ 'BEGIN', q{SELECT zk_xact_lock('a')}, 'COMMIT' ],
	'session' => [ q{SELECT zk_lock('a')}, q{SELECT zk_unlock('a')} ],
	'savepoint' => [ 'BEGIN', 'SAVEPOINT s', q{SELECT zk_xact_lock('a')}, 'ROLLBACK TO s',
		q{SELECT zk_xact_lock_shared('a')}, 'COMMIT' ],
	'several' => [ q{SELECT zk_lock_many(ARRAY['a', 'b', 'c'])}, q{SELECT zk_unlock_many(ARRAY['a', 'b', 'c'])} ],
	'permit' => [ q{SELECT zk_acquire_permit('p', 2)}, q{SELECT zk_release_permit('p')} ],
	'fence' => [ 'BEGIN', q{SELECT zk_xact_lock('a'), zk_fence('a')}, 'COMMIT' ],
	'upgrade' => [ q{SELECT zk_lock_shared('a')}, q{SELECT zk_lock('a')},
		q{SELECT zk_unlock_shared('a'), zk_unlock('a')} ],
	'check at commit' => [ 'SET zklock.commit_check = always', 'BEGIN', q{SELECT zk_xact_lock('a')}, 'COMMIT' ],
	'caught' => [ q{DO $$ BEGIN
		BEGIN PERFORM zk_xact_lock('a'); RAISE 'x'; EXCEPTION WHEN OTHERS OR query_canceled THEN NULL; END;
		PERFORM zk_xact_lock('b'); END $$} ],
	'views' => [ q{SELECT zk_lock('a')}, 'SELECT count(*) FROM zk_locks', 'SELECT count(*) FROM zk_held_locks',
		'SELECT state FROM zk_session()', 'SELECT zk_unlock_all()' ],
	'discarded' => [ q{SELECT zk_lock('a'), zk_xact_lock('b')}, 'DISCARD ALL' ],
	'attempt at a lock of the same server' => [ q{SELECT zk_try_lock('here', '50ms')} ],
	'attempt at a lock of another server' => [ q{SELECT zk_try_lock('there', '50ms')} ]);

# What a statement may fail with. A malloc that fails may cost the session in the ensemble.
my %allowed = (
	palloc => qr/^53200$/,
	malloc => qr/^(?:53200|53000|40001|08006)$/,
	cancel => qr/^57014$/,
	terminate => qr/^lost$/);

my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my $node = shared_node('a', zk => $zk);
my $other = shared_node('b', zk => $zk);
my $library = shim_library($node, 'faults');
$node->safe_psql('postgres', "CREATE FUNCTION fail_at(text, int) RETURNS void LANGUAGE c AS '$library'");
my $fault = $node->data_dir . '/fault';
my ($here, $there, $witness) = (session($node), session($other), session($node));
$here->query_ok(q{SELECT zk_lock('here')});
$there->query_ok(q{SELECT zk_lock('there')});
$witness->query_ok('SELECT count(*) FROM zk_locks');

# Runs the scenario until a statement fails, lets the session go on, and returns what is wrong; nothing
# if no call failed, because the scenario has fewer of them.
sub round
{
	my ($kind, $scenario, $n) = @_;
	my ($s, @wrong, $failed) = (session($node));
	my $pid = $s->pid;
	$s->query_ok(q{SELECT zk_lock('a'), zk_unlock('a')}) if $scenario ne $opens;
	$s->query_ok("SELECT fail_at('$kind', $n)");
	for my $sql (@{ $scenarios{$scenario} })
	{
		$s->query($sql);
		$failed = $s->ok ? next : "$sql: " . $s->sqlstate . ' ' . $s->error;
		push @wrong, $failed if $s->sqlstate !~ $allowed{$kind};
		last;
	}
	$s->query('ROLLBACK') if $failed && $s->alive;
	$s->query("SELECT fail_at('$kind', 0)") if $s->alive;
	return $failed && "$kind $n: no call failed:\n$failed" if !-e $fault;
	my $place = slurp_file($fault) =~ s/\n//r;
	unlink $fault;
	if ($s->alive)
	{
		push @wrong, 'a lock of the transaction stays'
		  if $s->query(q{SELECT count(*) FROM zk_held_locks WHERE level = 'transaction'}) ne '0';
		$s->query_ok('SELECT zk_unlock_all()');
		push @wrong, 'a lock stays' if $s->query('SELECT count(*) FROM zk_held_locks') ne '0';
		push @wrong, 'the session does not work: ' . $s->error
		  if !eval { $s->query_ok(q{SELECT zk_lock('a'), zk_unlock('a')}); 1 };
	}
	my $left;
	push @wrong, "left: $left"
	  if !eval {
		wait_until('nothing to be left',
			sub {
				$left = $witness->query_ok(<<"SQL");
SELECT concat_ws(' ', kind, name, mode, granted) FROM zk_locks WHERE pid = $pid
UNION ALL SELECT concat_ws(' ', locktype, objid, mode, granted) FROM pg_locks WHERE pid = $pid AND locktype = 'advisory'
SQL
				$left eq '';
			}, timeout => 20);
	  };
	$s->quit;
	return join "\n", "$kind $n at $place:", @wrong;
}
for my $kind (sort keys %allowed)
{
	my $total = 0;
	for my $name (sort keys %scenarios)
	{
		my ($n, @wrong) = (0);
		while (my $result = round($kind, $name, ++$n))
		{
			push @wrong, $result if $result =~ /\n/;
			last if @wrong > 3;
		}
		ok(!@wrong, "$name: each $kind may fail") or diag(join "\n", @wrong);
		note(--$n, " calls: $kind, $name");
		$total += $n;
	}
	cmp_ok($total, '>', 30, "calls that fail were found: $kind");
}

$_->query_ok('SELECT zk_unlock_all()') for $here, $there;
nothing_left($zkc, 'nothing is left in the ensemble');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, 'no backend has crashed');
