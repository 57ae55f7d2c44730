# A role creates functions in the schema of the extension. A superuser who hardens the
# installation or creates zklock_advisory calls none of them, and the role cannot read the
# password of the ensemble.
#
# Tags: edges

use PostgreSQL::Test::Utils;
use ZkLock::Document;
use ZkLock::Test;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $file = credentials_file('kept:S3cr3tPassw0rd', 'hidden_file');
my $node = zklock_node('a', zk => $zk, extra_conf => <<"CONF");
zklock.auth_file = '$file'
zklock.acl = creator
zklock.client_log_level = debug
log_min_messages = debug5
CONF
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE ordinary LOGIN;
CREATE ROLE app LOGIN;
CREATE ROLE locker;
GRANT CREATE ON SCHEMA public TO ordinary;
SQL
my $s = session($node, user => 'ordinary');

# Functions that match a call at least as well as those of pg_catalog or of the extension.
$s->query_ok(<<'SQL');
CREATE FUNCTION public.seize() RETURNS void LANGUAGE plpgsql AS
	$$ BEGIN IF current_setting('is_superuser') = 'on' THEN ALTER ROLE ordinary SUPERUSER; END IF; END $$;
CREATE FUNCTION public.has_function_privilege(text, oid, text) RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.seize(); RETURN pg_catalog.has_function_privilege($1, $2, $3); END $$;
CREATE FUNCTION public.equal(oid, regclass) RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.seize(); RETURN $1 = $2::oid; END $$;
CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.equal);
CREATE FUNCTION public.format(text, regprocedure) RETURNS text LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.seize(); RETURN pg_catalog.format($1, $2); END $$;
CREATE FUNCTION public.format(text, name, bigint) RETURNS text LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.seize(); RETURN 'trapped'; END $$;
CREATE FUNCTION public.zk_lock(varchar) RETURNS bigint LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.seize(); RETURN 666; END $$;
CREATE FUNCTION public.zk_try_lock(varchar, interval) RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.seize(); RETURN true; END $$;
SQL

# Returns whether one of them has run as a superuser, and removes the attribute again.
sub was_seized
{
	my $is_super = $node->safe_psql('postgres', "SELECT rolsuper FROM pg_roles WHERE rolname = 'ordinary'");
	$node->safe_psql('postgres', 'ALTER ROLE ordinary NOSUPERUSER');
	return $is_super;
}

$node->safe_psql('postgres', 'SELECT 1::oid = 1::regclass');
is(was_seized(), 't', 'the traps work: a superuser calls one unintentionally');
$node->safe_psql('postgres', 'CREATE EXTENSION zklock_advisory');
is(was_seized(), 'f', 'CREATE EXTENSION zklock_advisory calls no trap');
my $t = session($node);
$t->query_ok('SET search_path = zklock_advisory, public, pg_catalog');
works($t, 'SELECT pg_advisory_lock(1), pg_try_advisory_lock(2), pg_try_advisory_xact_lock(1, 2), pg_advisory_unlock_all()',
	'|t|t|', 'a superuser can use the functions of zklock_advisory');
is(was_seized(), 'f', 'the functions of zklock_advisory call no trap');
$t->quit;

# The search path of the manual: a schema of other roles precedes pg_catalog.
my ($path) = slurp_file('doc/zklock_advisory.md') =~ /^ALTER ROLE app (SET search_path = .*);$/m;
$s->query_ok("CREATE FUNCTION public.lower(text) RETURNS text LANGUAGE sql AS 'SELECT ''called by ''::text || current_user'");
$t = session($node, user => 'app');
$t->query_ok($path);
works($t, "SELECT lower('A')", 'called by app', 'a role that creates objects ahead of pg_catalog can replace functions of PostgreSQL');
$t->quit;

$node->safe_psql('postgres', block_of('doc/security.md', 'hardening'));
is(was_seized(), 'f', 'the statement that revokes EXECUTE calls no trap');
fails_with($s, "SELECT zk_lock('1')", '42501', 'the statement revokes EXECUTE', hint => 0);
$node->safe_psql('postgres', 'GRANT locker, pg_monitor TO ordinary');

# The password is in the memory of a backend with a session, and nowhere else.
sub has_in_memory
{
	my ($pid, $text) = @_;
	no warnings 'portable';
	open my $memory, '<:raw', "/proc/$pid/mem" or die "/proc/$pid/mem: $!";
	for (split /\n/, slurp_file("/proc/$pid/maps"))
	{
		my ($start, $end) = /^([0-9a-f]+)-([0-9a-f]+) rw.* 0 (?:\s*|\s*\[heap\])$/ ? (hex $1, hex $2) : next;
		sysseek $memory, $start, 0 or next;
		sysread $memory, my $bytes, $end - $start;
		return 1 if $bytes =~ /\Q$text\E/;
	}
	return 0;
}

works($s, "SELECT zk_lock('1') > 0", 't', 'an ordinary role locks with the password');
my $idle = session($node, user => 'ordinary');
unlike(slurp_file("/proc/" . $s->pid . "/$_"), qr/S3cr3t|hidden_file/, "neither the password nor its file name is in /proc/<pid>/$_")
  for qw(environ cmdline maps);
works($s, "SELECT count(*) FROM pg_stat_activity AS a WHERE a::text ~ ('S3' || 'cr3t|hidden' || '_file')", '0', 'the password and its file name are not in pg_stat_activity');
ok(has_in_memory($s->pid, 'S3cr3tPassw0rd'), 'the memory of the backend contains it');
ok(!has_in_memory($_, 'S3cr3tPassw0rd'), 'the memory of the postmaster or of a backend without a session does not contain the password')
  for $idle->pid, postmaster_pid($node->data_dir);
$node->safe_psql('postgres', "ALTER DATABASE postgres SET zklock.auth_file = '$file'");
works($s, "SELECT count(*) FROM pg_db_role_setting WHERE setconfig::text ~ 'hidden_file'", '1',
	'the name of the file is in a catalog that every role reads, if a database has the setting');

# Hostile names, as an ordinary role.
for my $name ("'../..'", "'/'", "E'\\u202e'", "'%00'", "E'a\\nb'", "'a''b'", "E'\\\\x00'", "repeat('%', 512)")
{
	works($s, "SELECT count(*) FROM zk_locks_of($name)", '0', "zk_locks_of($name) reads no other znodes");
}
works($s, "SELECT count(*) FROM zk_blocking($_)", '0', "zk_blocking($_) returns no rows") for 'NULL', -1, 0, 2147483647;

unlike(slurp_file($node->logfile), qr/S3cr3t/, 'the password is not in the server log, which logs everything');
