# Between the exchange of the library and ALTER EXTENSION ... UPDATE the objects are those of the
# earlier script: every view, and every function that both versions have, works with this
# library, and nothing reads or writes past the columns of the other script. A function that this
# library does not have is a plain error. The update works in a session that holds locks.
# Promise: 12.3

use PostgreSQL::Test::Utils;
use ZkLock::Installation;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $installation = ZkLock::Installation->new(PostgreSQL::Test::Utils::tempdir());
my $node = zklock_node('a', zk => $zk, extension => 0, install_path => $installation->path);
my $names_back = $installation->make_installable('zklock--0.9.sql');
$node->safe_psql('postgres', "CREATE EXTENSION zklock VERSION '0.9';\n$names_back");
$node->safe_psql('postgres', "CREATE EXTENSION zklock_advisory VERSION '0.9'");

# What works before the update as after it.
sub check_session
{
	my ($s, $when) = @_;
	works($s, "SELECT zk_lock('x') > 0, zk_lock_shared('y') > 0, zk_try_lock('z'), zk_lock_token('x') > 0, zk_revoked('x')",
		't|t|t|t|f', "$when: locks");
	works($s, "BEGIN; SELECT zk_xact_lock('t') > 0, zk_try_xact_lock_shared('u', '1s'); COMMIT", 't|t', "$when: locks of a transaction");
	works($s, "SELECT pid = pg_backend_pid(), name FROM zk_locks_of('x')", 't|x', "$when: zk_locks_of");
	works($s, 'SELECT string_agg(name, $$ $$ ORDER BY name) FROM zk_locks', 'x y z', "$when: zk_locks");
	works($s, 'SELECT string_agg(name || mode || state, $$ $$ ORDER BY name) FROM zk_held_locks',
		'xexclusiveheld ysharedheld zexclusiveheld', "$when: zk_held_locks");
	works($s, 'SELECT state, locks, session_timeout FROM zk_session()', 'connected|3|00:01:00', "$when: zk_session");
	works($s, 'SELECT acquisitions >= 5, wait_time >= 0, revocations, stats_reset BETWEEN pg_postmaster_start_time() - interval $$1 min$$ AND now() FROM zk_stat',
		't|t|0|t', "$when: zk_stat");
	works($s, 'SELECT count(*) FROM zk_blocking(pg_backend_pid())', '0', "$when: zk_blocking");
	works($s, 'SELECT zklock_advisory.pg_try_advisory_lock(7), zklock_advisory.pg_advisory_unlock(7)', 't|t', "$when: zklock_advisory");
	works($s, "CALL zk_lock_wait('w', '1s')", '', "$when: zk_lock_wait");
	works($s, "SELECT zk_unlock('w'), zk_unlock_shared('y'), zk_unlock('z'), zk_revoke('none')", 't|t|t|0', "$when: releases");
	works($s, 'SELECT zk_stat_reset()', '', "$when: zk_stat_reset");
	return;
}

my ($s, $other) = map { session($node) } 1, 2;
check_session($s, 'the script of 0.9');
works($s, 'SELECT (SELECT scope || count FROM zk_held_locks), (SELECT since <= now() FROM zk_locks), zklock_server() = server FROM zk_locks',
	'session1|t|t', 'the script of 0.9: columns and functions that were renamed');
works($s, 'SELECT round_trips IS NULL, lock_table_reads IS NULL, stats_reset IS NULL FROM zk_stat', 't|t|f',
	'the script of 0.9: counters that are gone are NULL');
fails_with($s, $_, '42883', "the script of 0.9: $_", hint => 0)
  for q(SELECT zk_lock_all('{a,b}')), q(SELECT zk_acquire('s', 1)), q(SELECT zk_unlock_all('{a}'::text[])), q(SELECT zk_release('s'));

# Views of versions that have fewer or more columns.
my $columns = $s->query_ok(q(SELECT string_agg(format('OUT %I %s', attname, atttypid::regtype), ', ' ORDER BY attnum)
	FROM pg_attribute WHERE attrelid = 'zk_locks'::regclass AND attnum > 0));
for my $case ([ 'few', 'OUT kind text, OUT name text' ], [ 'many', "$columns, OUT news integer" ])
{
	$s->query_ok("CREATE FUNCTION $case->[0]() RETURNS SETOF record AS '\$libdir/zklock', 'zklock_locks' LANGUAGE C" =~ s/\(\)/($case->[1])/r);
}
works($s, 'SELECT * FROM few()', 'lock|x', 'a script with fewer columns gets these');
fails_with($s, 'SELECT * FROM many()', '55000', 'a script with more columns is a clear error');
for my $case ([ 'held_few', 'OUT kind text, OUT name text' ], [ 'held_many', 'OUT a text, OUT b text, OUT c text, OUT d text, OUT e bigint, OUT f bigint, OUT g timestamptz, OUT h text, OUT i text' ])
{
	$s->query_ok("CREATE FUNCTION $case->[0]($case->[1]) RETURNS SETOF record AS '\$libdir/zklock', 'zklock_held_locks' LANGUAGE C");
}
works($s, 'SELECT * FROM held_few()', 'lock|x', 'the same for zk_held_locks');
fails_with($s, 'SELECT * FROM held_many()', '55000', 'more columns of zk_held_locks are a clear error');

# The update, while one session holds a lock and another one waits for it.
$other->query_async("SELECT zk_lock('x') > 0");
wait_blocked($other);
works($s, 'ALTER EXTENSION zklock UPDATE; ALTER EXTENSION zklock_advisory UPDATE', '', 'the update in a session that holds a lock');
works($s, "SELECT level, hold_count, token = zk_lock_token('x') FROM zk_held_locks", 'session|1|t', 'the lock is held');
works($s, "SELECT zk_unlock('x')", 't', 'and released');
is($other->wait_result, 't', 'the waiter gets it');
$other->query_ok('SELECT zk_unlock_all()');
check_session($s, 'the script of this version');
works($s, "SELECT zk_lock_many('{a,b}') IS NOT NULL, zk_try_acquire_permit('s', 1), zk_release_permit('s')", 't|t|t',
	'functions with new names work in the same session');
$_->quit for $s, $other;
nothing_left($zkc, 'no node is left');
