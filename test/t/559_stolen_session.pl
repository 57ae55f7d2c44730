# A program that can open a connection to the ensemble can end the session of another
# client, with or without ACLs: a ZooKeeper server computes the password of a session from
# its number, which everybody can read. The holder's locks are free at once. The holder gets
# 40001, and zklock.commit_check = always refuses its commit. TLS with certificates of
# clients keeps such a program out (550_tls.pl).

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $file = PostgreSQL::Test::Utils::tempdir() . '/secret';
append_to_file($file, "digest kept:S3cr3tPassw0rd\n");
chmod 0600, $file or die "$file: $!";
my $node = zklock_node('a', zk => $zk, session_timeout => '10s', extra_conf => <<"CONF");
zklock.root = '/kept'
zklock.auth_file = '$file'
zklock.acl = creator
CONF
my $stranger = ZkLock::ZkClient->new($zk->connect_string);
$node->safe_psql('postgres', 'CREATE TABLE done (who text)');

# A session that holds lock "x" in a transaction, and what ZooKeeper calls it.
sub holder
{
	my ($before) = @_;
	my $s = session($node);
	$s->query_ok($before) if $before;
	$s->query_ok("BEGIN; INSERT INTO done VALUES ('first'); SELECT zk_xact_lock('x')");
	return ($s, zk_session_id($s));
}

# Ends a session; its node is gone then. The holder reconnects, and may take it back before.
sub steal
{
	my ($id) = @_;
	return wait_until('the node to go', sub {
		$stranger->end_session($id);
		return !queue_of($stranger, 'x', '/kept');
	});
}

my ($s, $id) = holder("SET zklock.commit_check = 'always'");
my ($held) = queue_of($stranger, 'x', '/kept');
ok(!eval { $stranger->delete($held); 1 }, 'a stranger cannot delete the node of a holder');
is($stranger->get($held)->{ephemeralOwner}, $id, '... but read whose session it belongs to');
steal($id);
pass('... and end that session, with which the node goes');
my $next = session($node);
works($next, "SELECT zk_lock('elsewhere') > 0", 't', 'other sessions go on');
commit_refused($s, 'commit_check = always refuses the commit of the former holder');
works($next, 'SELECT count(*) FROM done', '0', '... and nothing of it is committed');
works($s, "SELECT zk_lock('x') > 0, zk_unlock('x')", 't|t', '... whose next transaction works');
$s->quit;

# The next holder is on another server, so nothing but the ensemble keeps it out.
($s, $id) = holder();
my $other = zklock_node('b', zk => $zk, session_timeout => '10s', extra_conf => <<"CONF");
zklock.root = '/kept'
zklock.auth_file = '$file'
zklock.acl = creator
CONF
steal($id);
my $t = session($other);
works($t, "SELECT zk_try_lock('x')", 't', 'another server gets the lock at once');
wait_until('the former holder to notice', sub {
	$s->query('SELECT 1');
	return !$s->ok;
});
is($s->sqlstate, '40001', 'the former holder notices, and its transaction fails');
$s->query_ok('ROLLBACK');
$t->quit;
$s->quit;

# On one server PostgreSQL's own lock keeps the next one out.
($s, $id) = holder();
steal($id);
$t = session($node);
fails_with($t, "SET lock_timeout = '1ms'; SELECT zk_lock('x')", '55P03', 'sessions of its own server wait for the end of its transaction',
	hint => 0);
$_->quit for $s, $t, $next;

nothing_left($stranger, 'nothing is left', root => '/kept');
$stranger->close;
$_->stop for $node, $other;
done_testing();
