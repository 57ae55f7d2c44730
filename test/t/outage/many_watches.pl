# A session with any number of watches can connect again. A server refuses a request that is
# longer than jute.maxbuffer, and all watches together are longer here.
#
# Promise: 4.4

use ZkLock::Test;

my $max = 40_000;
my $zk = ZkLock::ZkServer->start(tick_time => 500, java => ["-Djute.maxbuffer=$max"]);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $far = shared_node('far', zk => $zk);
my $node = shared_node('near', zk => $proxy);

# As many names as are longer than the limit.
my $n = 2 * $max / 200;
my $names = "SELECT rpad('$n ' || i || ' ', 200, 'x') AS name, i FROM generate_series(1, $n) AS i";

sub watches
{
	my ($count) = ($zk->four_letter('mntr') // '') =~ /^zk_watch_count\t(\d+)$/m;
	return $count // 0;
}

sub reconnect
{
	my ($s, $what) = @_;
	my $before = zk_session_id($s);
	$proxy->cut;
	works($s, "SELECT zk_try_lock('after', '30s'), zk_unlock('after')", 't|t', "a session with $what connects again");
	is(zk_session_id($s), $before, "a session with $what connects again as the same session");
	return;
}

# Waits that were given up.
my $holder = session($far);
$holder->query_ok("SELECT count(zk_lock_many(a)) FROM (SELECT array_agg(name) AS a FROM ($names) AS n GROUP BY i / 20) AS x");
my $held = watches();
my $s = session($node);
$s->query_ok("SELECT zk_lock('mine')");
wait_until('the watches of waits', sub {
		$s->query_ok("SELECT count(zk_try_lock(name, '20ms')) FROM ($names) AS n", timeout => 600);
		return watches() > $held + $n;
	}, timeout => 600);
reconnect($s, 'watches of waits that were given up');
works($s, "SELECT zk_unlock('mine')", 't', 'the session has its lock after it connects again');
$s->quit;
$holder->query_ok('SELECT zk_unlock_all()');
$holder->quit;

# Locks that are held. The check of a commit would be as long as the watches.
$s = session($node);
$s->query_ok('SET zklock.commit_check = off');
my $none = watches();
$s->query_ok("SELECT count(zk_lock_many(a)) FROM (SELECT array_agg(name) AS a FROM ($names) AS n GROUP BY i / 20) AS x");
wait_until('the watches of holds', sub { watches() >= $none + $n });
reconnect($s, 'watches of its locks');
wait_until('the watches of holds, again', sub { watches() >= $none + $n });
pass('all its locks are watched again');
works($s, "SELECT count(*) FROM ($names) AS n WHERE zk_unlock(name)", $n, 'the locks are held after the session connects again');
