# Locks of a pair of servers that Patroni manages, on the ensemble that Patroni uses: a
# switchover, a crash of the primary, and an outage of the ensemble with and without
# pause. Run by hand or by scripts/test --all.

use JSON::PP ();
use ZkLock::Patroni;
use ZkLock::Test;

# Patroni asks for a session timeout of 20 s, its ttl, and gets 10 s.
my $zk = ZkLock::ZkServer->start(tick_time => 500, config => { maxSessionTimeout => undef });
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 30);
my %settings = (
	shared_preload_libraries => 'zklock',
	'zklock.connect_string' => $zk->connect_string,
	'zklock.session_timeout' => '4s',
	'zklock.ensemble_timeout' => '2s');
my %member = (one => ZkLock::Patroni->start('one', zk => $zk, settings => \%settings));
$member{one}->wait_role('primary');
$member{two} = ZkLock::Patroni->start('two', zk => $zk);
$member{two}->wait_role('replica');
$member{one}->safe_psql('postgres', 'CREATE EXTENSION zklock; CREATE TABLE t (v text)');
wait_for_sql($member{two}, "SELECT count(*) FROM pg_class WHERE relname = 't'", '1');

sub expired { return ($zk->four_letter('mntr') // '') =~ /^zk_stale_sessions_expired\t(\d+)/m ? $1 : -1 }

# A writer on the primary that holds a lock; a waiter on the standby.
sub holder_and_waiter
{
	my ($primary, $standby, $name) = @_;
	my ($holder, $waiter) = map { session($_) } $primary, $standby;
	$holder->query_ok("BEGIN; SELECT zk_xact_lock('$name'); INSERT INTO t VALUES ('$name')");
	$waiter->query_async("SELECT zk_lock('$name') > 0");
	wait_zk_children($zkc, "/zklock/locks/$name", 2);
	return ($holder, $waiter);
}

sub proceeds
{
	my ($new, $waiter, $name) = @_;
	is($waiter->wait_result, 't', "$name: the waiter gets the lock");
	$new->wait_role('primary');
	works($waiter, "SELECT count(*) FROM t WHERE v = '$name'", '0', "$name: the old holder's transaction is not committed");
	works($waiter, "INSERT INTO t VALUES ('after $name')", '', "$name: the waiter writes on the new primary");
	works($waiter, "SELECT zk_unlock('$name')", 't', "$name: the waiter releases the lock afterwards");
	$waiter->quit;
	return;
}

# Switchover: the old primary is shut down, and its locks are released at once.
{
	my ($holder, $waiter) = holder_and_waiter(@member{qw(one two)}, 'switchover');
	my $before = expired();
	my $answer = $member{one}->request(POST => 'switchover', { leader => 'one', candidate => 'two' });
	like($answer, qr/Successfully switched over/, 'the switchover succeeds');
	is(($holder->query('SELECT 1'))[0], '', 'switchover: the connections of the old primary are closed');
	proceeds($member{two}, $waiter, 'switchover');
	is(expired(), $before, 'switchover: no ZooKeeper session had to expire');
	$member{one}->wait_role('replica');
}

# The primary and its Patroni are killed.
{
	my ($holder, $waiter) = holder_and_waiter(@member{qw(two one)}, 'crash');
	my $before = expired();
	$member{two}->kill9;
	proceeds($member{one}, $waiter, 'crash');
	cmp_ok(expired(), '>', $before, 'crash: the ZooKeeper sessions have expired');
	$member{two}->launch;
	$member{two}->wait_role('replica');
}

# Pause: an outage of the ensemble does not change the primary.
{
	my $s = session($member{one});
	$s->query_ok("SELECT zk_lock('outage')");
	$member{one}->request(PATCH => 'config', { pause => JSON::PP::true });
	$member{one}->wait_logged(qr/PAUSE/);
	$zk->stop;
	$member{one}->wait_logged(qr/PAUSE: DCS is not accessible/);
	my $t = session($member{one});
	works($t, 'SELECT pg_is_in_recovery()', 'f', 'pause: the primary stays a primary without the ensemble');
	fails_with($t, "SELECT zk_try_lock('other')", '08001', 'pause: locks cannot be acquired');
	works($t, "INSERT INTO t VALUES ('paused')", '', 'pause: statements without locks succeed');
	ok(wait_until('the loss', sub { $s->query('SELECT 1'); $s->sqlstate eq '40001' }),
		'pause: the lock held before is lost');
	works($s, "INSERT INTO t VALUES ('after the loss')", '', 'pause: the session can be used afterwards');
	$_->quit for $s, $t;
	$zk->restart;
	$member{one}->wait_logged(qr/PAUSE: no action/);
	$member{one}->request(PATCH => 'config', { pause => undef });
	$member{one}->wait_logged(qr/no action.*the leader with the lock/);
}

# Without pause Patroni demotes the primary.
{
	my $s = session($member{one});
	$s->query_ok("SELECT zk_lock('outage')");
	$zk->stop;
	$member{one}->wait_role('replica');
	is(($s->query('SELECT 1'))[0], '', 'outage: the connections of the primary are closed');
	$zk->restart;
	ok(wait_until('a primary',
			sub { grep { (($_->psql('postgres', 'SELECT pg_is_in_recovery()'))[1] // '') eq 'f' } values %member }),
		'outage: a primary exists again after the outage');
}

$_->stop for values %member;
