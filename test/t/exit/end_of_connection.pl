# The end of a connection: the ZooKeeper session is closed, so waiters proceed at
# once. For crashes see exit/crash_release.pl and operations/failover.pl.
#
# Promise: 3.3
# Tags: user, edges

use ZkLock::Test;

# The long session timeout is longer than any wait of this test, so no session with it
# expires here.
use constant LONG => '290s';
use constant SHORT => '4s';

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client(timeout => 120);
my ($here, $there) =
  map { zklock_node($_, zk => $zk, session_timeout => LONG) } qw(here there);
my $t = session($there);
my $lock = '/zklock/locks/x';

is($t->query("SELECT zk_lock('y'); SELECT session_timeout FROM zk_session()")
	  =~ s/^\d+\n//r,
	'00:04:50', 'the session timeout is longer than this test');
$t->query_ok("SELECT zk_unlock('y')");

# The sessions of the ensemble. A dump can leave out a session that a request is moving to a
# later expiry time, but not twice in a row.
sub zk_sessions
{
	my %sessions;
	for (1, 2)
	{
		my ($list) = ($zk->four_letter('dump') // '') =~ /SessionTracker dump:(.*?)ephemeral nodes dump/s
		  or die "no answer to dump\n";
		$sessions{ lc $_ } = 1 for $list =~ /(0x[0-9a-f]+)/gi;
	}
	return keys %sessions;
}

# Ways to end a connection that is idle or runs a statement.
my %ends = (
	'the client is killed' => sub { $_[0]->drop },
	'the backend is terminated' => sub { $_[0]->terminate },
	'a fast shutdown' => sub { $here->stop('fast') });
my %idle_ends = (
	%ends,
	'the client disconnects' => sub { $_[0]->quit },
	'a smart shutdown' => sub {
		kill 'TERM', postmaster_pid($here->data_dir);
		$_[0]->quit;
		wait_until('the end of the server',
			sub { !-e $here->data_dir . '/postmaster.pid' });
		$here->stop('smart', fail_ok => 1);
	});

# A session with this ZooKeeper session timeout.
sub new_session
{
	my ($timeout) = @_;
	my $session = session_with($here, session_timeout => $timeout);
	$session->query_ok("SET client_connection_check_interval = '50ms'");
	return $session;
}

sub ensure_running
{
	$here->start unless -e $here->data_dir . '/postmaster.pid';
	return;
}

# Idle, with a session but without a lock.
for my $end (sort keys %idle_ends)
{
	my $s = new_session(LONG);
	$s->query_ok("SELECT zk_lock('x'); SELECT zk_unlock('x')");
	my $id = $s->query('SELECT session_id FROM zk_session()');
	ok((grep { $_ eq $id } zk_sessions()),
		"idle, $end: the backend has a ZooKeeper session");
	$idle_ends{$end}->($s);
	ok( wait_until(
			"the end of session $id",
			sub {
				!grep { $_ eq $id } zk_sessions();
			}),
		"idle, $end: the ZooKeeper session is closed");
	ensure_running();
}

# A holder, at either level, while another server waits.
my %held = (
	'holding' => "SELECT zk_lock('x'), zk_lock_shared('y')",
	'holding in a transaction' =>
	  "BEGIN; SELECT zk_xact_lock('x'), zk_xact_lock_shared('y')",
	'holding in a failed transaction' =>
	  "BEGIN; SELECT zk_xact_lock('y'), zk_lock('x'); SELECT 1/0");
for my $state (sort keys %held)
{
	for my $end (sort keys %idle_ends)
	{
		my $s = new_session(LONG);
		$s->query($held{$state});
		$t->query_async("SELECT zk_lock('x')");
		wait_zk_children($zkc, $lock, 2);
		$idle_ends{$end}->($s);
		like($t->wait_result, qr/^\d+$/,
			"$state, $end: the waiter on another server is granted the lock");
		$t->query_ok("SELECT zk_unlock('x')");
		nothing_left($zkc, "$state, $end: no node is left");
		ensure_running();
	}
}

# The session ends while releases are pending: its closing message is sent after them.
for my $round (1 .. 5)
{
	local $ENV{PGOPTIONS} = '-c zklock.session_timeout=290s';
	my $id = $here->safe_psql('postgres', <<"SQL");
CREATE TEMP TABLE n AS SELECT array_agg('many' || i) AS names FROM generate_series(1, 200) i;
SELECT count(zk_lock_many(names)) FROM n \\gset
SELECT session_id FROM zk_session();
SELECT count(zk_unlock_many(names)) FROM n \\gset
SQL
	ok( wait_until(
			"the end of session $id",
			sub {
				!grep { $_ eq $id } zk_sessions();
			}),
		"end after many releases, round $round: the session is closed");
}
nothing_left($zkc, 'end after many releases: no node is left');

my $s = new_session(LONG);
$s->query_ok(
	"BEGIN; SELECT zk_lock('x'); SET idle_in_transaction_session_timeout = 100");
$t->query_async("SELECT zk_lock('x')");
like($t->wait_result, qr/^\d+$/,
	'idle_in_transaction_session_timeout releases the lock');
$t->query_ok("SELECT zk_unlock('x')");
$s = new_session(LONG);
$s->query_ok("SELECT zk_lock('x'); SET idle_session_timeout = 100");
$t->query_async("SELECT zk_lock('x')");
like($t->wait_result, qr/^\d+$/, 'idle_session_timeout releases the lock');
$t->query_ok("SELECT zk_unlock('x')");
nothing_left($zkc, 'timeouts of sessions: no node is left');

# During a statement.
for my $end (sort keys %ends)
{
	$s = new_session(LONG);
	$s->query_async("SELECT zk_xact_lock('x'), pg_sleep(1000)");
	wait_zk_children($zkc, $lock, 1);
	$ends{$end}->($s);
	$t->query_async("SELECT zk_lock('x')");
	like($t->wait_result, qr/^\d+$/,
		"in a statement, $end: its lock is free");
	$t->query_ok("SELECT zk_unlock('x')");
	nothing_left($zkc, "in a statement, $end: no node is left");
	ensure_running();
}

# A waiter: in the ensemble, between a holder and a waiter of another server; and for
# a holder on the same server.
for my $end (sort keys %ends)
{
	my $holder = foreign_node($zkc, $lock, 'WRIT');
	$s = new_session(LONG);
	$s->query_async("SELECT zk_lock('x')");
	wait_zk_children($zkc, $lock, 2);
	$t->query_async("SELECT zk_lock('x')");
	wait_zk_children($zkc, $lock, 3);
	$ends{$end}->($s);
	ok(wait_zk_children($zkc, $lock, 2),
		"waiting, $end: the waiter leaves the queue");
	ok(!$t->finished, "waiting, $end: the holder keeps the lock");
	$zkc->delete($holder);
	like($t->wait_result, qr/^\d+$/,
		"waiting, $end: the next waiter is granted the lock after the holder");
	$t->query_ok("SELECT zk_unlock('x')");
	nothing_left($zkc, "waiting, $end: no node is left");
	ensure_running();
}
for my $end (grep { !/shutdown/ } sort keys %ends)
{
	my $holder = session($here);
	$holder->query_ok("SELECT zk_lock('x')");
	$s = new_session(LONG);
	$s->query_ok("SELECT zk_lock('y')");
	$s->query_async("SELECT zk_lock('x')");
	wait_blocked($s);
	$ends{$end}->($s);
	$t->query_async("SELECT zk_lock('y')");
	like($t->wait_result, qr/^\d+$/,
		"waiting on the same server, $end: the lock of the waiter is free");
	is($t->query("SELECT zk_try_lock('x')"), 'f',
		"waiting on the same server, $end: the holder keeps its lock");
	$t->query_ok("SELECT zk_unlock('y')");
	$holder->quit;
	nothing_left($zkc, "waiting on the same server, $end: no node is left");
}

# Many at once.
my @many = map { new_session(LONG) } 1 .. 12;
$many[$_]->query_ok("SELECT zk_lock('m$_'), zk_lock_shared('m')") for 0 .. 5;
my $other = foreign_node($zkc, '/zklock/locks/m', 'WRIT');
$many[$_]->query_async("SELECT zk_lock('m')") for 6 .. 11;
wait_blocked($many[$_]) for 6 .. 11;
$here->stop('fast');
ok(wait_zk_children($zkc, '/zklock/locks/m', 1),
	'a fast shutdown ends the waits of all backends');
$zkc->delete($other);
nothing_left($zkc, 'fast shutdown with many backends: no node is left');
$here->start;


# Without the ensemble.
{
	my @sessions = map { new_session(SHORT) } 1 .. 3;
	$sessions[0]->query_ok("SELECT zk_lock('x')");
	$sessions[1]->query_ok("BEGIN; SELECT zk_xact_lock('y')");
	$sessions[2]->query_ok("SELECT zk_lock('z'); SELECT zk_unlock('z')");
	$zk->pause;
	$_->quit for @sessions;
	ok($here->stop('smart', fail_ok => 1), 'a smart shutdown does not wait for a silent ensemble');
	$zk->resume;
	nothing_left($zkc, 'a smart shutdown with a silent ensemble: no node is left');
	$here->start;
}

$s = new_session(SHORT);
$s->query_ok("SELECT zk_lock('x')");
$zk->kill9;
$s->quit;
wait_for_sql($here,
	'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid, '0');
pass('a connection ends while the ensemble is unreachable');
$zk->restart;
nothing_left($zkc,
	'the end of a connection without an ensemble: no node is left');
