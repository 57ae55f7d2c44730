# A holder that is asked to release it does what zklock.on_revoke says: while its
# session idles, runs a statement, or waits; once for each time it is asked.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $way = ZkLock::Proxy->start(target => $zk);
my $here = zklock_node('here', zk => $zk, preload => 1, init => [ allows_streaming => 1 ]);
my $there = zklock_node('there', zk => $zk);
my $behind = zklock_node('behind', proxy => $way, session_timeout => '10s');
$here->safe_psql('postgres', 'CREATE TABLE t (n int)');
my $gate = session($here);
my $admin = session($here);

# As Curator's Revoker does it.
sub ask_back
{
	$zkc->set($_, '__REVOKE__') for map { queue_of($zkc, $_) } @_;
	return;
}

# A holder that has noticed gives its node its own data back, or has ended.
sub wait_noticed
{
	for my $node (map { queue_of($zkc, $_) } @_)
	{
		wait_until("the revocation of $node to be noticed",
			sub { (eval { $zkc->get($node)->{data} } // '') ne '__REVOKE__' });
	}
	return;
}

sub request_for
{
	my ($lock) = @_;
	return qr/release of lock "\Q$lock\E" was requested/;
}

sub said
{
	my ($s, $pattern, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($s->ok && $s->error =~ /NOTICE:.*$pattern.*^HINT:/ms, $name)
	  || diag($s->error);
}

sub silent
{
	my ($s, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($s->ok && $s->error eq '', $name) || diag($s->error);
}

# Sessions that hold a lock "<setting>.<state>", in all the states there are. For
# each state: the level of the lock, and what it does meanwhile.
my %states = (
	idle => [ 'SELECT zk_lock', '' ],
	'idle in transaction' => [ 'BEGIN; SELECT zk_xact_lock', '' ],
	running => [ 'SELECT zk_lock', 'SELECT pg_advisory_lock_shared(7)' ],
	'running in transaction' =>
	  [ 'BEGIN; SELECT zk_xact_lock', 'SELECT pg_advisory_lock_shared(7)' ],
	busy => [ 'SELECT zk_lock', 'DO $$ BEGIN WHILE NOT pg_try_advisory_lock_shared(7) LOOP '
		  . 'PERFORM pg_sleep(0.01); END LOOP; END $$' ],
	'waiting here' => [ 'SELECT zk_lock', "SELECT zk_lock('near') > 0, zk_unlock('near')" ],
	'waiting in transaction' =>
	  [ 'BEGIN; SELECT zk_xact_lock', "SELECT zk_xact_lock('far 1') > 0" ],
	'waiting there' => [ 'SELECT zk_lock', "SELECT zk_lock('far 2') > 0, zk_unlock('far 2')" ],
	'waiting in CALL' => [ 'SELECT zk_lock', "CALL zk_lock_wait('far 3')" ],
);

my $near = session($here);
my $far = session($there);

sub shut
{
	$gate->query_ok('SELECT pg_advisory_lock(7)');
	$near->query_ok("SELECT zk_lock('near')");
	$far->query_ok("SELECT zk_lock('far 1'), zk_lock('far 2'), zk_lock('far 3')");
	return;
}

sub open_up
{
	$gate->query_ok('SELECT pg_advisory_unlock(7)');
	$near->query_ok("SELECT zk_unlock('near')");
	$far->query_ok('SELECT zk_unlock_all()');
	return;
}

# Requests the release of all of them, and waits until they have noticed.
sub holders_asked
{
	my ($setting) = @_;
	my %holders;
	shut();
	for my $state (sort keys %states)
	{
		my ($lock, $meanwhile) = @{ $states{$state} };
		my $s = $holders{$state} = session($here);
		$s->query_ok("SET zklock.on_revoke = $setting");
		$s->query_ok("$lock('$setting $state')");
		next unless $meanwhile;
		$s->query_async($meanwhile);
	}
	for my $state (grep { $states{$_}[1] } sort keys %states)
	{
		wait_for_sql($here, "SELECT state = 'active' FROM pg_stat_activity "
			  . 'WHERE pid = ' . $holders{$state}->pid, 't');
		wait_blocked($holders{$state}) unless $state eq 'busy';
	}
	my @names = map { "$setting $_" =~ s/ /%20/gr } sort keys %states;
	ask_back(@names);
	wait_noticed(@names);
	return \%holders;
}

sub is_asked
{
	my ($s, $lock) = @_;
	return $s->query("SELECT zk_revoked('$lock')");
}

# notice: whenever our code is passed
{
	my $holders = holders_asked('notice');
	for my $state ('busy', 'waiting there', 'waiting in CALL', 'waiting in transaction')
	{
		my $s = $holders->{$state};
		wait_until("the notice of $state", sub { $s->so_far =~ /was requested/ });
		ok(!$s->finished, "notice, $state: told at once");
	}
	open_up();
	for my $state (sort keys %$holders)
	{
		my $s = $holders->{$state};
		$states{$state}[1] ? $s->wait_result : $s->query('SELECT 1');
		said($s, request_for("notice $state"), "notice, $state: told, with what to do");
		is(() = $s->error =~ /was requested/g, 1, '... once') or diag($s->error);
		is(is_asked($s, "notice $state"), 't', '... and zk_revoked() says so');
		silent($s, '... without another word');
		$s->quit;
	}
}

# ignore
{
	my $holders = holders_asked('ignore');
	open_up();
	for my $state (sort keys %$holders)
	{
		my $s = $holders->{$state};
		$states{$state}[1] ? $s->wait_result : $s->query('SELECT 1');
		silent($s, "ignore, $state: nothing happens");
		is(is_asked($s, "ignore $state"), 't', '... but zk_revoked() tells');
		$s->quit;
	}
}

# cancel: what runs, and a transaction that idles
{
	my $holders = holders_asked('cancel');
	for my $state (sort keys %$holders)
	{
		my $s = $holders->{$state};
		my $in_transaction = $state =~ /transaction/;
		if ($state eq 'idle')
		{
			works($s, 'SELECT 1', '1', 'cancel, idle: there is nothing to cancel');
			said($s, request_for('cancel idle'), '... but it gets the notice');
		}
		else
		{
			$s->query_async('SELECT 1') unless $states{$state}[1];
			failed_with($s, '57014', "cancel, $state: cancelled, with the reason",
				like => request_for("cancel $state"));
		}
		$s->query_ok('ROLLBACK') if $in_transaction;
		works($s, 'SELECT name FROM zk_held_locks',
			$in_transaction ? '' : "cancel $state",
			$in_transaction ? '... which releases' : '... which does not release');
		silent($s, '... and nothing more is said');
		works($s, 'SELECT pg_sleep(0)', '', '... or cancelled');
		is(is_asked($s, "cancel $state"), $in_transaction ? 'f' : 't', '... and zk_revoked() knows');
		$s->quit;
	}
	open_up();
}

# terminate: always
{
	my $holders = holders_asked('terminate');
	wait_for_sql($here, 'SELECT count(*) FROM pg_stat_activity WHERE pid IN ('
		  . join(',', map { $_->pid } values %$holders) . ')', '0');
	pass('terminate: all backends end');
	for my $state (sort keys %$holders)
	{
		my $s = $holders->{$state};
		eval { $states{$state}[1] ? $s->wait_result : $s->query('SELECT 1') };
		like($s->error, qr/terminating connection because release of lock "terminate $state" was requested/,
			"terminate, $state: the client hears why");
		$s->drop;
	}
	wait_zk_empty($zkc, "/zklock/locks/terminate%20idle");
	pass('and the locks are free');
	open_up();
}

# How often.
{
	my $s = session($here);
	my $other = session($there);
	is(is_asked($s, 'again'), 'f', 'no request to a session that does not hold the lock');
	$s->query_ok("SELECT zk_lock('again'), zk_lock('left alone')");
	is(is_asked($s, 'again'), 'f', 'nor what nobody has asked for');
	for my $time ('once', 'twice')
	{
		ask_back('again');
		wait_noticed('again');
		$s->query('SELECT 1');
		said($s, request_for('again'), "asked $time, told $time");
		$s->query('SELECT 1');
		silent($s, '... and not more often');
	}
	is(is_asked($s, 'left alone'), 'f', 'another lock is not meant');
	$s->query_ok("SELECT zk_unlock('again')");
	is(is_asked($s, 'again'), 'f', 'a session that released gets no request any more');
	$s->query_ok("SELECT zk_lock('again')");
	is(is_asked($s, 'again'), 'f', 'nor one that acquires it again');
	ask_back('again');
	wait_noticed('again');
	$s->query('SELECT 1');
	said($s, request_for('again'), 'until there is a new request');
	fails_with($s, 'SELECT zk_revoked(NULL)', '22004', 'no name');
	fails_with($s, "SELECT zk_revoked('')", '22023', 'an empty name');
	$_->quit for $s, $other;
}

# Before the node is watched, after a lost connection, and meanwhile.
{
	my $s = session($behind);
	$s->query_ok("SELECT zk_lock('early')");
	ask_back('early');
	wait_noticed('early');
	$s->query('SELECT 1');
	said($s, request_for('early'), 'what comes right after the grant is noticed');
	$way->cut(refuse => 1);
	ask_back('early');
	$way->accept;
	wait_noticed('early');
	$s->query('SELECT 1');
	said($s, request_for('early'), 'and what comes during an outage');
	$s->quit;
}

# Everybody who shares it, on any server.
{
	my @sharers = map { session($_) } $here, $here, $there;
	$_->query_ok("SELECT zk_lock_shared('shared')") for @sharers;
	ask_back('shared');
	wait_noticed('shared');
	for my $s (@sharers)
	{
		$s->query('SELECT 1');
		said($s, request_for('shared'), 'each sharer gets the notice');
		$s->quit;
	}
}

# What is released meanwhile.
{
	my $s = session($here);
	$s->query_ok("SET zklock.on_revoke = 'cancel'");
	for my $end ('COMMIT', 'ROLLBACK')
	{
		$s->query_ok('BEGIN');
		$s->query_ok("SELECT zk_xact_lock('released')");
		ask_back('let%20go');
		wait_noticed('let%20go');
		works($s, $end, '', "$end releases, uncancelled");
		works($s, 'SELECT pg_sleep(0)', '', '... and what comes then is not cancelled');
		silent($s, '... or told anything');
	}
	$s->query_ok("SELECT zk_lock('released')");
	ask_back('let%20go');
	wait_noticed('let%20go');
	works($s, "SELECT zk_unlock('released')", 't', 'nor is zk_unlock() cancelled');
	works($s, 'SELECT pg_sleep(0)', '', '... or what comes after it');
	silent($s, '... or told');

	# A cancel that comes while nothing can be interrupted, until the lock is gone.
	$s->query_ok("SELECT zk_lock('released')");
	ask_back('let%20go');
	wait_noticed('let%20go');
	$s->query_async(<<'SQL');
DO $$
DECLARE
	long text := repeat(repeat('x', 1000), 200000);
	released boolean;
BEGIN
	PERFORM set_config('application_name', 'busy', false);
	released := md5(long) <> '' AND zk_unlock('released');
	PERFORM pg_sleep(0);
END $$
SQL
	wait_for_sql($here, "SELECT application_name = 'busy' FROM pg_stat_activity WHERE pid = " . $s->pid, 't');
	eval { ask_back('let%20go') };
	$s->wait_result;
	my $error = $s->error;
	ok($s->query('SELECT count(*) FROM zk_held_locks') == 1 || $error !~ /ERROR/,
		'a cancel on its way is dropped with the lock') or diag($error);
	$s->quit;
}

# Who catches the cancel sees the reason, and is not cancelled again for it.
{
	my $s = session($here);
	$s->query_ok("SET zklock.on_revoke = 'cancel'; SELECT zk_lock('caught')");
	$s->query_async(<<'SQL');
DO $$
BEGIN
	PERFORM pg_sleep(600);
EXCEPTION WHEN query_canceled THEN
	PERFORM pg_sleep(0.01);
	PERFORM zk_unlock('caught');
	RAISE NOTICE 'caught: %', SQLERRM;
END $$
SQL
	wait_asleep($s);
	ask_back('caught');
	$s->wait_result;
	like($s->error, qr/caught: .*release of lock "caught" was requested/, 'a handler sees why it was cancelled');
	ok($s->ok, 'and goes on, uncancelled') or diag($s->error);
	works($s, 'SELECT count(*) FROM zk_held_locks', '0', 'letting go');
	$s->quit;
}

# While a statement is planned no hook of ours is around it.
{
	my $s = session($here);
	$s->query_ok("SET zklock.on_revoke = 'cancel'; SELECT zk_lock('planned')");
	my $locker = session($here);
	$locker->query_ok('BEGIN; LOCK TABLE t');
	$s->query_async('SELECT * FROM t');
	wait_blocked($s);
	ask_back('planned');
	failed_with($s, '57014', 'a cancel before the statement runs tells why',
		like => request_for('planned'));
	$locker->query_ok('COMMIT');
	$_->quit for $s, $locker;
}

# Exactly those bytes.
{
	my $s = session($here);
	$s->query_ok("SET zklock.on_revoke = 'terminate'; SELECT zk_lock('other data')");
	my $id = zk_session_id($s);
	my ($path) = queue_of($zkc, 'other%20data');
	wait_until('the watch',
		sub { ($zk->four_letter('wchp') // '') =~ /^\Q$path\E$/m });
	for my $data ('', '__REVOKE', '__REVOKE__ ', '__REVOKE_x', "__REVOKE__\0", '__revoke__')
	{
		my $seen = requests_of($zk, $id);
		$zkc->set($path, $data);
		wait_until('the holder to look', sub { requests_of($zk, $id) > $seen });
	}
	is(is_asked($s, 'other data'), 'f', 'other data ask for nothing');
	$s->quit;
}

# A commit that waits for its standby is not cut short.
{
	my %s = map { $_ => session($here) } qw(cancel terminate);
	for my $setting (sort keys %s)
	{
		my $s = $s{$setting};
		$s->query_ok("SET zklock.on_revoke = '$setting'; SELECT zk_lock('commit $setting')");
	}
	$admin->query_ok("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
	$admin->query_ok('SELECT pg_reload_conf()');
	for my $setting (sort keys %s)
	{
		my $s = $s{$setting};
		wait_until('the setting', sub { $s->query('SHOW synchronous_standby_names') eq 'nobody' });
		$s->query_async("INSERT INTO t VALUES (1)");
		wait_for_sql($here, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = " . $s->pid, 't');
	}
	ask_back('commit%20cancel', 'commit%20terminate');
	wait_noticed('commit%20cancel', 'commit%20terminate');
	works($admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", '2',
		'a commit is left alone while it waits for its standby');
	$admin->query_ok('ALTER SYSTEM RESET synchronous_standby_names');
	$admin->query_ok('SELECT pg_reload_conf()');
	$s{cancel}->wait_result;
	silent($s{cancel}, 'and succeeds');
	$s{cancel}->query('SELECT 1');
	said($s{cancel}, request_for('commit cancel'), 'its session gets the notice then');
	wait_for_sql($here, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s{terminate}->pid, '0');
	unlike($s{terminate}->so_far, qr/WARNING/, 'or ends after it');
	$s{cancel}->quit;
	$s{terminate}->drop;
}

# What was counted: nine states in three settings and more, see above.
works($admin, 'SELECT revocations > 27 FROM zk_stat', 't', 'zk_stat counts them');

$_->quit for $gate, $near, $far, $admin;
nothing_left($zkc, 'nothing is left');
unlike(server_log($_), qr/PANIC|terminated by signal/, 'no backend has crashed')
	for $here, $there, $behind;
$_->stop for $here, $there, $behind;
$zkc->close;
$way->stop;
$zk->stop;
done_testing();
