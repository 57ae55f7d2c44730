# What others add to the table of fences neither crashes a server, nor lowers a token, nor runs
# with more rights than before: indexes with expressions or conditions, constraints, triggers,
# foreign keys, policies, rules, hostile search paths.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $node = zklock_node('a', zk => $zk);
my $admin = session($node);
$admin->query_ok('CREATE ROLE plain LOGIN; CREATE ROLE hostile LOGIN; CREATE ROLE owner LOGIN');
my $s = session($node, user => 'plain');
my $token = $s->query_ok("SELECT zk_lock('a')");
works($s, q(SELECT zk_fence('a')), $token, 'a role without rights on the table fences');
fails_with($s, 'SELECT * FROM zklock_fences', '42501', '... and has no rights afterwards', hint => 0);
my $recorded = "SELECT token FROM zklock_fences WHERE lock = 'a'";

# Fences a new name, twice with the same token and once with a greater one, and removes it.
sub fences
{
	my ($name, $what) = @_;
	my $fenced = "SELECT zk_fence('$name') = zk_lock_token('$name')";
	for my $hold ('inserted', 'updated')
	{
		$s->query_ok("SELECT zk_lock('$name')");
		works($s, "$fenced AND zk_fence('$name') > 0", 't', "$what: a token is $hold");
		works($admin, "SELECT count(*) FROM zklock_fences WHERE lock = '$name'", '1', '... once');
		$s->query_ok("SELECT zk_unlock('$name')");
	}
	works($admin, "SELECT zk_fence_reset('$name')", '', '... and reset');
	works($admin, "SELECT count(*) FROM zklock_fences WHERE lock = '$name'", '0', '... which removes it');
	return;
}

# Indexes and constraints are maintained, also those whose expressions call functions.
my %added = (
	'an index with an expression' => ['CREATE INDEX added ON zklock_fences (lower(lock))', 'DROP INDEX added'],
	'an index with a condition' => ['CREATE INDEX added ON zklock_fences (token) WHERE token > 5', 'DROP INDEX added'],
	'an index with both' => [q{CREATE UNIQUE INDEX added ON zklock_fences ((lock || '!')) WHERE lock <> 'x'}, 'DROP INDEX added'],
	'an exclusion constraint' => ['ALTER TABLE zklock_fences ADD CONSTRAINT added EXCLUDE (lock WITH =)', 'ALTER TABLE zklock_fences DROP CONSTRAINT added'],
	'a CHECK constraint' => ['ALTER TABLE zklock_fences ADD CONSTRAINT added CHECK (length(lock) > 0)', 'ALTER TABLE zklock_fences DROP CONSTRAINT added'],
	'a column with a default' => ['ALTER TABLE zklock_fences ADD added text DEFAULT upper(\'x\')', 'ALTER TABLE zklock_fences DROP added']);
for my $what (sort keys %added)
{
	$admin->query_ok($added{$what}[0]);
	fences('Added', $what);
	$s->query_ok(q(SELECT zk_lock('Added')));
	$s->query_ok(q(SELECT zk_fence('Added')));
	works($admin, <<'SQL', 't', '... and the index has the row');
SET enable_seqscan = off;
SELECT count(*) = 1 FROM zklock_fences WHERE lower(lock) = 'added';
SQL
	$admin->query_ok(q(RESET enable_seqscan; SELECT zk_fence_reset('Added')));
	$s->query_ok(q(SELECT zk_unlock('Added')));
	$admin->query_ok($added{$what}[1]);
}
$admin->query_ok('ALTER TABLE zklock_fences ADD CONSTRAINT added CHECK (token < 0) NOT VALID');
$s->query_ok(q(SELECT zk_lock('checked')));
fails_with($s, q(SELECT zk_fence('checked')), '23514', 'a constraint that refuses the row refuses the fence', hint => 0);
$admin->query_ok('ALTER TABLE zklock_fences DROP CONSTRAINT added');

# A function of an index looks up a name in the fixed search path, not in the caller's.
$admin->query_ok(<<'SQL');
CREATE SCHEMA trap AUTHORIZATION hostile; GRANT USAGE ON SCHEMA trap TO plain;
CREATE FUNCTION folded(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN lower($1); END';
SQL
my $hostile = session($node, user => 'hostile');
$hostile->query_ok(<<'SQL');
CREATE FUNCTION trap.lower(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap as %', current_user; END $$;
CREATE FUNCTION trap.less(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'trap as %', current_user; END $$;
CREATE OPERATOR trap.<> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.less);
CREATE DOMAIN trap.text AS pg_catalog.text CHECK (trap.lower(value) = value);
SQL
$admin->query_ok('CREATE INDEX added ON zklock_fences (folded(lock))');
$s->query_ok('SET search_path = trap, public, pg_catalog');
fails_with($s, q(SELECT folded('x')), 'P0001', 'the trap works', hint => 0);
fences('trapped', 'a hostile search path');
works($s, 'SHOW search_path', 'trap, public, pg_catalog', '... which the session still has');
$s->query_ok('RESET search_path');
$admin->query_ok('DROP INDEX added');

# A trigger of a role with TRIGGER would run as the table's owner, or lower a token.
$admin->query_ok('GRANT ALL ON zklock_fences TO hostile; GRANT EXECUTE ON FUNCTION zklock_fences_keep() TO hostile; GRANT CREATE ON SCHEMA public TO hostile; CREATE TABLE ran_as (who text); GRANT INSERT ON ran_as TO PUBLIC');
$hostile->query_ok(<<'SQL');
CREATE FUNCTION lower_token() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.ran_as VALUES (current_user); NEW.token := 1; RETURN NEW; END $$;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.ran_as VALUES (current_user); RETURN NULL; END $$;
CREATE FUNCTION noted() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.ran_as VALUES (current_user); RETURN true; END $$;
SQL
$s->query_ok(q(SELECT zk_lock('b')));
for ('TRIGGER zz BEFORE INSERT OR UPDATE ON zklock_fences FOR EACH ROW EXECUTE FUNCTION lower_token()',
	'TRIGGER zz AFTER INSERT OR UPDATE ON zklock_fences FOR EACH ROW EXECUTE FUNCTION note()',
	'TRIGGER zz BEFORE INSERT OR UPDATE ON zklock_fences EXECUTE FUNCTION note()',
	'TRIGGER zz AFTER INSERT OR UPDATE ON zklock_fences EXECUTE FUNCTION note()',
	'CONSTRAINT TRIGGER zz AFTER INSERT OR UPDATE ON zklock_fences DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()',
	'TRIGGER zz BEFORE INSERT OR UPDATE ON zklock_fences FOR EACH ROW WHEN (noted()) EXECUTE FUNCTION zklock_fences_keep()',
	'TRIGGER zz BEFORE INSERT OR UPDATE ON zklock_fences FOR EACH STATEMENT EXECUTE FUNCTION zklock_fences_keep()',
	'CONSTRAINT TRIGGER zz AFTER INSERT OR UPDATE ON zklock_fences DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION zklock_fences_keep()')
{
	my ($what) = /(.*) ON/;
	$hostile->query_ok("CREATE $_");
	for my $name ('a', 'b')
	{
		fails_with($s, "SELECT zk_fence('$name')", '55000', "$what stops a fence",
			like => qr/"zz".*HINT:.*Drop the trigger.*Revoke TRIGGER/s);
	}
	fails_with($admin, q(SELECT zk_fence_reset('a')), '55000', '... and a reset');
	fails_with($hostile, 'UPDATE zklock_fences SET token = token + 1', '55000', '... and lowers no token');
	fails_with($hostile, q(INSERT INTO zklock_fences VALUES ('a', 9223372036854775807, now(), 'x')), '55000', '... also for an insert');
	$admin->query_ok('DROP TRIGGER zz ON zklock_fences');
	works($s, q(SELECT zk_fence('a')), $token, '... until it is dropped');
}
works($admin, q(SELECT count(*) FROM ran_as WHERE who <> 'hostile'), '0', 'no trigger ran as another role');
works($admin, $recorded, $token, '... and the token is kept');

# Replacing the extension's own triggers also stops fences, until they are as they were.
my $keep = 'CREATE OR REPLACE TRIGGER zklock_fences_keep BEFORE INSERT OR UPDATE OR DELETE ON zklock_fences FOR EACH ROW EXECUTE FUNCTION zklock_fences_keep()';
my $keep_all = 'CREATE OR REPLACE TRIGGER zklock_fences_keep_all BEFORE TRUNCATE ON zklock_fences FOR EACH STATEMENT EXECUTE FUNCTION zklock_fences_keep()';
my $always = 'ALTER TABLE zklock_fences ENABLE ALWAYS TRIGGER zklock_fences_keep, ENABLE ALWAYS TRIGGER zklock_fences_keep_all';
for ($keep =~ s/ROW/ROW WHEN (noted())/r, $keep_all =~ s/STATEMENT/STATEMENT WHEN (noted())/r, $keep =~ s/ OR DELETE//r, $keep =~ s/UPDATE/UPDATE OF token/r, $keep_all =~ s/zklock_fences_keep\(/note(/r)
{
	my ($name, $what) = /TRIGGER (\w+) (.*)/;
	$hostile->query_ok($_);
	$admin->query_ok($always);
	fails_with($s, q(SELECT zk_fence('a')), '55000', "replaced by: $what", like => qr/trigger "$name" that the extension did not define.*HINT:/s);
	fails_with($admin, q(SELECT zk_fence_reset('a')), '55000', '... nor a reset');
	$admin->query_ok("DROP TRIGGER $name ON zklock_fences");
	fails_with($s, q(SELECT zk_fence('a')), '55000', 'a missing trigger stops fences', like => qr/are missing.*HINT:.*CREATE OR REPLACE TRIGGER.*ENABLE ALWAYS/s);
	$admin->query_ok("$keep; $keep_all; $always");
	works($s, q(SELECT zk_fence('a')), $token, '... until the statements of the hint have run');
}
works($admin, q(SELECT count(*) FROM ran_as WHERE who <> 'hostile'), '0', 'no condition of a trigger ran as another role');
$hostile->query_ok('CREATE TABLE referencing (lock text REFERENCES zklock_fences ON DELETE CASCADE)');
fails_with($s, q(SELECT zk_fence('b')), '55000', 'a foreign key of a role with REFERENCES stops a fence',
	like => qr/HINT:.*foreign key/);
$admin->query_ok('DROP TABLE referencing');
works($s, q(SELECT zk_fence('b') = zk_lock_token('b')), 't', '... until it is dropped');

# A rule cannot hide that a token was not recorded.
$admin->query_ok('CREATE RULE nothing AS ON INSERT TO zklock_fences DO INSTEAD NOTHING');
$s->query_ok(q(SELECT zk_lock('ruled')));
fails_with($s, q(SELECT zk_fence('ruled')), '55000', 'a rule stops a fence');
$admin->query_ok('DROP RULE nothing ON zklock_fences');

# An owner who is not a superuser: fences of a superuser run the owner's code as the owner, and
# the owner's policies hide no token from them.
$admin->query_ok(<<'SQL');
ALTER TABLE zklock_fences OWNER TO owner; GRANT CREATE ON SCHEMA public TO owner;
SQL
my $owner = session($node, user => 'owner');
$owner->query_ok(<<'SQL');
CREATE FUNCTION fail(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'policy'; END $$;
CREATE POLICY hidden ON zklock_fences USING (fail(lock)) WITH CHECK (fail(lock));
ALTER TABLE zklock_fences ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SQL
fails_with($owner, 'SELECT * FROM zklock_fences', 'P0001', 'the policy works', hint => 0);
works($s, q(SELECT zk_fence('a')), $token, 'row security hides no token from a fence');
fences('policy', 'row security');
works($s, q(SET row_security = off; SELECT zk_fence('a') = zk_fence('a')), 't', '... also with row_security = off');
$owner->query_ok('ALTER TABLE zklock_fences DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY');
$owner->query_ok(<<'SQL');
CREATE TABLE attempts (who text, command text, state text);
CREATE FUNCTION attempt() RETURNS void LANGUAGE plpgsql AS $$
DECLARE c text;
BEGIN
	FOREACH c IN ARRAY ARRAY['RESET ROLE', 'RESET SESSION AUTHORIZATION', 'CREATE TEMP TABLE t (i int)', 'SELECT public.zk_lock(''of others'')',
		'INSERT INTO public.deferred VALUES (1)'] LOOP
		BEGIN
			EXECUTE c;
			INSERT INTO public.attempts VALUES (current_user, c, 'done');
		EXCEPTION WHEN OTHERS THEN
			INSERT INTO public.attempts VALUES (current_user, c, SQLSTATE);
		END;
	END LOOP;
END $$;
CREATE TABLE deferred (i int);
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.attempts VALUES (current_user, 'late', ''); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late();
CREATE FUNCTION looks_immutable(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM public.attempt(); RETURN $1; END $$;
CREATE INDEX added ON zklock_fences (looks_immutable(lock));
TRUNCATE attempts;
SQL
$admin->query_ok(q(SELECT zk_lock('superuser')));
works($admin, q(SELECT zk_fence('superuser') = zk_lock_token('superuser')), 't', q(a superuser's fence runs code of the table's owner));
works($admin, 'SELECT DISTINCT who FROM attempts', 'owner', '... as the owner');
works($admin, q(SELECT string_agg(DISTINCT state, ' ') FROM attempts), '42501', '... which can become no other role, and lock nothing');
works($admin, 'SELECT current_user = session_user', 't', '... and the superuser is still the superuser');
$owner->query_ok('DROP INDEX added');
$owner->query_ok(<<'SQL');
CREATE OR REPLACE FUNCTION looks_immutable(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.zk_fence('superuser'); RETURN $1; END $$;
CREATE INDEX added ON zklock_fences (looks_immutable(lock)) WHERE lock = 'recursive';
SQL
$admin->query_ok(q(SELECT zk_lock('recursive')));
fails_with($admin, q(SELECT zk_fence('recursive')), 'XX000', 'a function of an index cannot fence', hint => 0);
$owner->query_ok('DROP INDEX added');
works($admin, q(SELECT zk_fence('recursive') > 0), 't', '... and the session goes on');

# Code in C reads the columns by their types, which the owner can change.
$owner->query_ok(q(DROP POLICY hidden ON zklock_fences; SELECT zk_lock('owned')));
for my $change ('ALTER lock TYPE integer USING hashtext(lock)', 'ALTER lock TYPE name', 'ALTER token TYPE numeric', 'ALTER token TYPE text',
	'ALTER fenced_at TYPE text', 'DROP token', 'DROP fenced_by')
{
	for my $use (q(SELECT zk_fence('owned')), q(SELECT zk_fence_reset()), 'UPDATE zklock_fences SET lock = lock', 'DELETE FROM zklock_fences')
	{
		my $as = $use =~ /reset/ ? $admin : $owner;
		$as->query_ok("BEGIN; ALTER TABLE zklock_fences $change");
		fails_with($as, $use, '55000', "$change: $use fails", like => qr/HINT:.*lock text, token bigint/);
		$as->query_ok('ROLLBACK');
	}
}
works($owner, q(SELECT zk_fence('owned') = zk_lock_token('owned')), 't', '... and the server goes on');
$_->quit for $owner, $hostile;
$admin->query_ok('ALTER TABLE zklock_fences OWNER TO ' . $admin->query('SELECT quote_ident(session_user)'));

# A server that checks assertions can read its caches again at each moment, as a busy server does.
$admin->query_ok(q(SELECT zk_lock('invalidated')));
$admin->query('SET debug_discard_caches = 1');
is($admin->query('SHOW debug_discard_caches') eq '1', $admin->query('SHOW debug_assertions') eq 'on', 'the caches are discarded if that is possible');
works($admin, q(SELECT zk_fence('invalidated') = zk_lock_token('invalidated')), 't', 'a fence while the caches are read again');
$admin->query('SET debug_discard_caches = 0');

# A role got its name in a database of another encoding.
{
	$admin->query_ok(q(CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'));
	my $latin = session($node, dbname => 'latin');
	$latin->query_ok(q(SET client_encoding = 'LATIN1'; DO $$ BEGIN EXECUTE format('CREATE ROLE %I LOGIN', chr(252)); END $$));
	my $named = session($node, user => "\xfc");
	$named->query_ok(q(SELECT zk_lock('umlaut')));
	$named->query_ok(q(SELECT zk_fence('umlaut')));
	works($admin, q(SELECT convert_to(fenced_by, 'LATIN1') <> '' FROM zklock_fences WHERE lock = 'umlaut'), 't',
		'the name of a role from a database of another encoding is recorded as valid text');
	$_->quit for $named, $latin;
}

# The session's plans do not outlive the name of the schema.
$admin->query_ok(<<'SQL');
CREATE SCHEMA moved; ALTER EXTENSION zklock SET SCHEMA moved; GRANT USAGE ON SCHEMA moved TO PUBLIC;
SQL
works($s, q(SELECT moved.zk_fence('a')), $token, 'a fence in another schema');
$admin->query_ok(<<'SQL');
ALTER SCHEMA moved RENAME TO renamed; CREATE SCHEMA moved; CREATE TABLE moved.zklock_fences (LIKE renamed.zklock_fences INCLUDING ALL);
SQL
$s->query_ok(q(SELECT renamed.zk_lock('later')));
works($s, q(SELECT renamed.zk_fence('later') = renamed.zk_lock_token('later')), 't', 'a fence in a schema with a new name');
works($admin, q(SELECT (SELECT count(*) FROM moved.zklock_fences), (SELECT count(*) FROM renamed.zklock_fences WHERE lock = 'later')),
	'0|1', q(... is recorded in the extension's table));

done_testing();
