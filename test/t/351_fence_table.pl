# What others add to the table of fences neither crashes a server nor lowers a token: indexes
# with expressions or conditions, triggers, triggers that a restored dump has changed.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $node = zklock_node('a', zk => $zk);
my $admin = session($node);
$admin->query_ok('CREATE ROLE plain LOGIN');
my $s = session($node, user => 'plain');
my $token = $s->query_ok("SELECT zk_lock('a')");
works($s, q(SELECT zk_fence('a')), $token, 'a role without rights on the table fences');
my $recorded = "SELECT token FROM zklock_fences WHERE lock = 'a'";

my @indexes = (
	[ 'expression', 'ON zklock_fences (lower(lock))' ],
	[ 'partial', 'ON zklock_fences (token) WHERE token > 5' ],
	[ 'both', q{ON zklock_fences ((token + 1)) WHERE lock <> 'x'} ]);
for (@indexes)
{
	my ($what, $definition) = @$_;
	$admin->query_ok("CREATE INDEX added $definition");
	$s->query_ok("SELECT zk_lock('$what')");
	fails_with($s, "SELECT zk_fence('$what')", '55000', "$what: a fence is refused", like => qr/HINT:.*Drop the index/);
	fails_with($admin, q(SELECT zk_fence_reset('a')), '55000', "$what: ... and a reset");
	$admin->query_ok('DROP INDEX added');
	works($s, "SELECT zk_fence('$what') = zk_lock_token('$what')", 't', "$what: without the index the fence is set");
}
$admin->query_ok('CREATE INDEX added ON zklock_fences (fenced_at, token)');
$s->query_ok(q(SELECT zk_lock('columns')));
works($s, q(SELECT zk_fence('columns') = zk_lock_token('columns')), 't', 'an index of columns is no obstacle');

# A trigger of a role with TRIGGER on the table fires after the extension's.
$admin->query_ok(<<'SQL');
CREATE ROLE hostile LOGIN;
GRANT CREATE ON SCHEMA public TO hostile;
GRANT ALL ON zklock_fences TO hostile;
SQL
my $hostile = session($node, user => 'hostile');
$hostile->query_ok(<<'SQL');
CREATE FUNCTION lower_token() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.token := 1; RETURN NEW; END $$;
CREATE TRIGGER zz BEFORE INSERT OR UPDATE ON zklock_fences FOR EACH ROW EXECUTE FUNCTION lower_token();
ALTER FUNCTION lower_token() OWNER TO hostile;
SQL
fails_with($hostile, 'UPDATE zklock_fences SET token = token + 1', '55000', 'a trigger that fires after ours lowers no token',
	like => qr/HINT:.*Drop the trigger/);
fails_with($hostile, q(INSERT INTO zklock_fences VALUES ('a', 9223372036854775807, now(), 'x')), '55000', '... also for an insert');
fails_with($s, q(SELECT zk_fence('a')), '55000', '... and stops fences');
works($admin, $recorded, $token, '... and the token is kept');
$admin->query_ok('DROP TRIGGER zz ON zklock_fences');
works($s, q(SELECT zk_fence('a')), $token, 'without the trigger the fence is set again');
$admin->query_ok(<<'SQL');
CREATE TABLE seen (lock text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (NEW.lock); RETURN NULL; END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON zklock_fences FOR EACH ROW EXECUTE FUNCTION note();
SQL
works($s, q(SELECT zk_fence('a')), $token, 'a trigger that only sees rows is no obstacle');
$admin->query_ok('DROP TRIGGER audit ON zklock_fences');

# A dump with --disable-triggers ends like this, after which apply workers could lower tokens.
$admin->query_ok('ALTER TABLE zklock_fences DISABLE TRIGGER ALL; ALTER TABLE zklock_fences ENABLE TRIGGER ALL');
fails_with($s, q(SELECT zk_fence('a')), '55000', 'triggers that do not fire in apply workers stop fences',
	like => qr/HINT:.*ENABLE ALWAYS TRIGGER/);
$admin->query_ok('ALTER TABLE zklock_fences ENABLE ALWAYS TRIGGER zklock_fences_keep, ENABLE ALWAYS TRIGGER zklock_fences_keep_all');
works($s, q(SELECT zk_fence('a')), $token, '... until the statement of the hint has run');

$admin->query_ok('ALTER TABLE zklock_fences ENABLE ROW LEVEL SECURITY; ALTER TABLE zklock_fences FORCE ROW LEVEL SECURITY');
works($s, q(SELECT zk_fence('a')), $token, 'row security hides no token from a fence');
fails_with($s, 'SELECT * FROM zklock_fences', '42501', 'the role has no right on the table', hint => 0);

$_->quit for $s, $admin, $hostile;
$node->stop;
$zk->stop;
done_testing();
