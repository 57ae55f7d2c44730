# PostgreSQL's own regression test of advisory locks passes with the functions of
# zklock_advisory. The files are those of PostgreSQL's source: scripts/test extracts them
# from Debian's source package; ZKLOCK_PG_SOURCE names the directory.
#
# The test reads pg_locks. A view of that name in the search path shows the locks of the
# session as PostgreSQL's view does. The texts of warnings are not compared.
#
# Promise: 1.2
# Tags: edges

use PostgreSQL::Test::Utils;
use ZkLock::Test;

use constant PG_LOCKS => <<'SQL';
CREATE VIEW public.pg_locks AS
SELECT DISTINCT 'advisory' AS locktype, d.oid AS database,
	CASE WHEN key[2] IS NULL THEN 0 ELSE key[1]::bigint END AS classid,
	coalesce(key[2], key[1])::bigint AS objid,
	CASE WHEN key[2] IS NULL THEN 1 ELSE 2 END AS objsubid,
	CASE l.mode WHEN 'exclusive' THEN 'ExclusiveLock' WHEN 'shared' THEN 'ShareLock' END AS mode,
	l.state = 'held' AS granted
FROM zk_held_locks AS l, pg_database AS d,
	regexp_match(l.name, '^advisory:.*:(\d+)(?:,(\d+))?$') AS key
WHERE d.datname = current_database()
SQL

my $regress = ($ENV{ZKLOCK_PG_SOURCE} // '') . '/src/test/regress';
my $sql = "$regress/sql/advisory_lock.sql";
plan skip_all => "PostgreSQL's source is not there: ZKLOCK_PG_SOURCE is " . ($ENV{ZKLOCK_PG_SOURCE} // 'not set')
  unless -e $sql;

my ($zk, $zkc) = shared_zk_and_client();
my $node = shared_node('a', zk => $zk, session_timeout => '10s');
$node->safe_psql('postgres', 'CREATE EXTENSION zklock_advisory; ' . PG_LOCKS);

sub without_wording { return $_[0] =~ s/^WARNING:  \K.*/.../mgr }

# Runs the test as pg_regress does; returns its output.
sub output_with
{
	my ($search_path) = @_;
	my $out = PostgreSQL::Test::Utils::tempdir() . '/advisory_lock.out';
	local $ENV{PGOPTIONS} = "-c search_path=$search_path";
	my @psql = ($node->installed_command('psql'), '-Xaq', '-v', 'VERBOSITY=terse', '-d', $node->connstr('postgres'));
	IPC::Run::run(\@psql, '<', $sql, '>', $out, '2>&1') or die "psql failed: $?";
	return without_wording(read_file($out));
}

my $expected = without_wording(read_file("$regress/expected/advisory_lock.out"));
like($expected, qr/^ advisory \|.*^WARNING:/ms, 'the expected output has locks and warnings');
is(output_with('pg_catalog'), $expected, 'PostgreSQL\'s functions give the expected output');
isnt(output_with('public,pg_catalog'), $expected, 'PostgreSQL\'s functions fail the test with the view of zklock\'s locks');
is(output_with('zklock_advisory,public,pg_catalog'), $expected, 'the functions of zklock_advisory give the expected output');
nothing_left($zkc, 'no node is left');
