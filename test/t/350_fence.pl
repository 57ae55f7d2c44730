# Fencing: a holder was stopped while another session acquired its lock. If both call
# zk_fence(), the transaction of the first holder cannot commit, without any check at
# commit. Dump, restore and standbys keep the recorded tokens. All orders
# and isolation levels are in test/specs/fence.spec.
#
# Promise: 6.1

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(
	tick_time => 200,
	config => { maxSessionTimeout => 600000 });
my $proxy = ZkLock::Proxy->start(target => $zk);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node = zklock_node(
	'a',
	zk => $zk,
	init => [ allows_streaming => 1 ],
	extra_conf => 'zklock.commit_check = off');
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

# A holder that has written, and is stopped while its ZooKeeper session is closed. Its
# local lock is removed, because a second session of this server would wait for it.
sub paused_holder
{
	my ($lock, $fence, %opt) = @_;
	my $s = session($node);
	$s->reconnect('zklock.connect_string' => $opt{frozen}, 'zklock.session_timeout' => '10min')
	  if $opt{frozen};
	$s->query_ok("SELECT zk_lock('$lock')");
	$s->query_ok("BEGIN; INSERT INTO t VALUES ('$lock')");
	$s->query_ok("SELECT zk_fence('$lock')") if $fence;
	$s->query_ok('SELECT pg_advisory_unlock_all()');
	my $id = zk_session_id($s);
	$opt{frozen} ? $proxy->freeze : $s->pause;
	$zkc->end_session($id);
	wait_zk_empty($zkc, "/zklock/locks/$lock");
	return $s;
}

# With a frozen connection the holder does not notice that its session is closed, so only
# the fence refuses it.
for my $frozen ('', $proxy->connect_string)
{
	my $first = paused_holder('overtaken', 0, frozen => $frozen);
	my $later = session($node);
	works($later, "BEGIN; SELECT zk_xact_lock('overtaken') = zk_fence('overtaken')",
		't', 'a later holder fences while the earlier holder is stopped');
	$later->query_ok('COMMIT');
	$first->resume;
	fails_with($first, "SELECT zk_fence('overtaken')", '40001',
		'the fence of the earlier holder is refused', like => $frozen && qr/fenced off/);
	$first->query('COMMIT');
	is(rows_with($node, 'overtaken'), 0, 'the earlier holder cannot commit');
	$proxy->thaw if $frozen;
	$_->quit for $first, $later;
}
{
	my $first = paused_holder('waited for', 1);
	my $later = session($node);
	$later->query_ok("BEGIN; SELECT zk_xact_lock('waited for')");
	$later->query_async("SELECT zk_fence('waited for') > 0");
	wait_blocked($later);
	works(session($node), 'SELECT pg_blocking_pids(' . $later->pid . ')',
		'{' . $first->pid . '}',
		'a later holder waits for the transaction of an earlier one that fenced');
	$later->cancel;
	failed_with($later, '57014', 'the waiting fence can be cancelled', hint => 0);
	$later->query_ok('ROLLBACK');
	$later->query_ok("BEGIN; SELECT zk_xact_lock('waited for')");
	$later->query_async("SELECT zk_fence('waited for') > 0");
	wait_blocked($later);
	$first->terminate;
	$first->resume;
	is($later->wait_result, 't', 'the fence succeeds after the end of the earlier transaction');
	$later->query_ok('COMMIT');
	$later->quit;
}
for my $mode ('', '_shared')
{
	my $holder = session($node);
	my $admin = session($node);
	$holder->query_ok("BEGIN; SELECT zk_xact_lock$mode('reset'), zk_fence('reset')");
	for my $reset ("zk_fence_reset('reset')", 'zk_fence_reset()')
	{
		$admin->query_async("SELECT $reset");
		wait_blocked($admin);
		works($holder, 'SELECT pg_blocking_pids(' . $admin->pid . ')', '{' . $holder->pid . '}',
			"$reset waits for a transaction that has fenced with zk_xact_lock$mode");
		$admin->cancel;
		failed_with($admin, '57014', '... and can be cancelled', hint => 0);
	}
	$holder->query_ok('COMMIT');
	works($admin, 'SELECT zk_fence_reset()', '', '... and succeeds after the end of that transaction');
	$_->quit for $holder, $admin;
}
nothing_left($zkc, 'fencing leaves no node in the ensemble');

# A rebuilt ensemble starts with small tokens. Here a huge recorded token has the same
# effect.
$node->safe_psql('postgres', <<'SQL');
INSERT INTO zklock_fences VALUES ('rebuilt', 9223372036854775807, now(), 'x');
SQL
{
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('rebuilt')");
	fails_with($s, "SELECT zk_fence('rebuilt')", '40001',
		'after a rebuild of the ensemble fences are refused with a hint',
		like => qr/"rebuilt".*HINT:.*zk_fence_reset\('rebuilt'\)/s);
	$s->quit;
}

# Dump and restore, with the extension in two schemas.
my $archive = $node->basedir . '/dump';
for my $schema ('public', 'elsewhere')
{
	$node->safe_psql('postgres', <<"SQL") if $schema ne 'public';
CREATE SCHEMA $schema; ALTER EXTENSION zklock SET SCHEMA $schema
SQL
	$node->command_ok(
		[ 'pg_dump', '-Fc', '-f', $archive, $node->connstr('postgres') ],
		"pg_dump with the extension in $schema");
	$node->safe_psql('postgres', "CREATE DATABASE copy_$schema");
	$node->command_ok(
		[ 'pg_restore', '-e', '-d', $node->connstr("copy_$schema"), $archive ],
		"pg_restore with the extension in $schema");
	my $all = "SELECT * FROM $schema.zklock_fences ORDER BY lock";
	is($node->safe_psql("copy_$schema", $all),
		$node->safe_psql('postgres', $all), 'the restored database has the recorded tokens');
	my $s = session($node, dbname => "copy_$schema");
	$s->query_ok("SET search_path = $schema; SELECT zk_lock('rebuilt')");
	fails_with($s, "SELECT zk_fence('rebuilt')", '40001',
		'a smaller token is refused in the restored database');
	works($s, "SELECT zk_fence_reset('rebuilt')", '', 'the fence can be reset');
	works($s, "SELECT zk_fence('rebuilt') = zk_lock_token('rebuilt')", 't',
		'a smaller token is accepted after the reset');
	$s->quit;
	works(session($node), "SELECT count(*) FROM $schema.zklock_fences "
		. "WHERE lock = 'rebuilt' AND token = 9223372036854775807",
		'1', 'each database has fences of its own');
}
$node->safe_psql('postgres', 'ALTER EXTENSION zklock SET SCHEMA public');

# The owner of a database, without superuser privileges, dumps and restores it. A superuser
# has created the extension, so the owner cannot restore its comment.
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN');
for my $db ('owned', 'owned_copy')
{
	$node->safe_psql('postgres', "CREATE DATABASE $db OWNER owner");
	$node->safe_psql($db, 'CREATE EXTENSION zklock');
}
$node->safe_psql('owned', <<'SQL');
INSERT INTO zklock_fences VALUES ('a', 7, now(), 'x'), ('b', 7, now(), 'x'), ('c', 7, now(), 'x');
SQL
$node->command_ok(
	[ 'pg_dump', '-Fc', '-U', 'owner', '-f', $archive, $node->connstr('owned') ],
	'the owner of a database can dump it');
$node->safe_psql('owned_copy', <<'SQL');
INSERT INTO zklock_fences VALUES ('b', 6, now(), 'y'), ('c', 8, now(), 'y');
SQL
for my $time ('once', 'twice')
{
	$node->command_ok(
		[ 'pg_restore', '-e', '-U', 'owner', '--no-comments', '-d', $node->connstr('owned_copy'), $archive ],
		"the owner of a database can restore it $time");
	is($node->safe_psql('owned_copy', 'SELECT lock, token FROM zklock_fences ORDER BY lock'),
		"a|7\nb|7\nc|8", 'of two tokens the greater one is kept');
}

# A fence waits for the end of the transaction that has fenced before. The error names the lock.
{
	my ($first, $second) = map { session($node, dbname => 'owned') } 1 .. 2;
	$first->query_ok("SELECT zk_lock('awaited')");
	$first->query_ok("BEGIN; SELECT zk_fence('awaited'), zk_unlock('awaited')");
	$second->query_ok("SET lock_timeout = '100ms'; SELECT zk_lock('awaited')");
	fails_with($second, "SELECT zk_fence('awaited')", '55P03', 'lock_timeout ends the wait of a fence',
		hint => 0, like => qr/while trying to fence lock "awaited"/);
	$first->query_ok('ROLLBACK');
	$_->quit for $first, $second;
}

# Old rows are removed only if no session is left that could have a smaller token.
{
	my $vacuum = q(SELECT zk_fence_vacuum('0'));
	my $old = session($node, dbname => 'owned');
	my $s = session($node, dbname => 'owned');
	$s->query_ok("SELECT zk_lock('young')");
	$s->query_ok("SELECT zk_fence('young')");
	$s->quit;
	works($old, $vacuum, '3', 'rows older than every session of the database are removed');
	works($old, 'SELECT lock FROM zklock_fences', 'young', 'a row that is younger than a session stays');
	my $other = session($node);
	works(session($node, dbname => 'owned'), $vacuum, '0', 'the session of another role counts, too');
	$old->quit;
	wait_for_sql($node, q(SELECT count(*) FROM pg_stat_activity WHERE datname = 'owned'), '0');
	works(session($node, dbname => 'owned'), q(SELECT zk_fence_vacuum('1 hour')), '0',
		'a row that is younger than the given age stays');
	wait_for_sql($node, q(SELECT count(*) FROM pg_stat_activity WHERE datname = 'owned'), '0');
	works(session($node, dbname => 'owned'), $vacuum, '1',
		'the row is removed when those sessions have ended, whatever sessions other databases have');
	$other->quit;
}

# A hot standby has the recorded tokens, but can record tokens only after its promotion.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
{
	my $s = session($standby);
	$s->query_ok("SELECT zk_lock('new'), zk_lock_shared('shared'), zk_lock_shared('rebuilt')");
	fails_with($s, "SELECT zk_fence('new')", '25006',
		'a standby cannot record a token', hint => 0);
	works($s, "SELECT zk_fence('shared') > 0", 't', 'a sharer can check its token on a standby');
	fails_with($s, "SELECT zk_fence('rebuilt')", '40001',
		'a smaller token than the primary recorded is refused on a standby');
	$standby->promote;
	fails_with($s, "SELECT zk_fence('rebuilt')", '40001',
		'a promoted standby has the recorded tokens');
	works($s, "SELECT zk_fence('new') > 0", 't', 'a promoted standby can record a token');
	$s->quit;
}
nothing_left($zkc, 'nothing is left in the ensemble');

done_testing();
