# A holder gets a NOTICE of a release request, whether its session is idle, runs a statement or
# waits, and once for each request. A request cancels nothing, and zk_revoked() returns true.
#
# Tags: edges

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::Proxy->start(target => $zk);
my $here = shared_node('here', zk => $zk);
my $there = shared_node('there', zk => $zk);
my $behind = zklock_node('behind', proxy => $proxy);
$here->safe_psql('postgres', 'CREATE TABLE t (n int)');
my $gate = session($here);
my $admin = session($here);

# Requests the release of locks as Curator's Revoker does.
sub request_release
{
	$zkc->set($_, '__REVOKE__') for map { queue_of($zkc, $_) } @_;
	return;
}

# Waits until the holders have received the request: they restore the data of their nodes,
# or end.
sub wait_received
{
	for my $node (map { queue_of($zkc, $_) } @_)
	{
		wait_until("the holder to receive the request at $node",
			sub { (eval { $zkc->get($node)->{data} } // '') ne '__REVOKE__' });
	}
	return;
}

sub request_for
{
	my ($lock) = @_;
	return qr/release of lock "\Q$lock\E" was requested/;
}

sub has_notice
{
	my ($s, $pattern, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($s->ok && $s->error =~ /NOTICE:.*$pattern.*^HINT:/ms, $name)
	  || diag($s->error);
}

sub no_message
{
	my ($s, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($s->ok && $s->error eq '', $name) || diag($s->error);
}

# The states of sessions that hold a lock "notice <state>". For each state: how the
# session acquires the lock, and the statement that it runs meanwhile.
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

sub close_gate
{
	$gate->query_ok('SELECT pg_advisory_lock(7)');
	$near->query_ok("SELECT zk_lock('near')");
	$far->query_ok("SELECT zk_lock('far 1'), zk_lock('far 2'), zk_lock('far 3')");
	return;
}

sub open_gate
{
	$gate->query_ok('SELECT pg_advisory_unlock(7)');
	$near->query_ok("SELECT zk_unlock('near')");
	$far->query_ok('SELECT zk_unlock_all()');
	return;
}

# Opens a holder in each state, requests the release of all locks, and returns the holders
# when they have received the requests.
sub revoked_holders
{
	my %holders;
	close_gate();
	for my $state (sort keys %states)
	{
		my ($lock, $meanwhile) = @{ $states{$state} };
		my $s = $holders{$state} = session($here);
		$s->query_ok("$lock('notice $state')");
		next unless $meanwhile;
		$s->query_async($meanwhile);
	}
	for my $state (grep { $states{$_}[1] } sort keys %states)
	{
		wait_for_sql($here, "SELECT state = 'active' FROM pg_stat_activity "
			  . 'WHERE pid = ' . $holders{$state}->pid, 't');
		wait_blocked($holders{$state}) unless $state eq 'busy';
	}
	my @names = map { "notice $_" =~ s/ /%20/gr } sort keys %states;
	request_release(@names);
	wait_received(@names);
	return \%holders;
}

sub is_revoked
{
	my ($s, $lock) = @_;
	return $s->query("SELECT zk_revoked('$lock')");
}

# Reported at the next check.
{
	my $holders = revoked_holders();
	for my $state ('busy', 'waiting there', 'waiting in CALL', 'waiting in transaction')
	{
		my $s = $holders->{$state};
		wait_until("the notice of $state", sub { $s->so_far =~ /was requested/ });
		ok(!$s->finished, "notice, $state: the notice comes at once");
	}
	open_gate();
	for my $state (sort keys %$holders)
	{
		my $s = $holders->{$state};
		$states{$state}[1] ? $s->wait_result : $s->query('SELECT 1');
		has_notice($s, request_for("notice $state"), "notice, $state: the notice has a hint");
		is(() = $s->error =~ /was requested/g, 1, "notice, $state: the notice comes once") or diag($s->error);
		is(is_revoked($s, "notice $state"), 't', "notice, $state: zk_revoked() returns true");
		no_message($s, "notice, $state: there is no other message");
		$s->quit;
	}
}

# Each request is reported once.
{
	my $s = session($here);
	my $other = session($there);
	is(is_revoked($s, 'again'), 'f', 'zk_revoked() is false without the lock');
	$s->query_ok("SELECT zk_lock('again'), zk_lock('left alone')");
	is(is_revoked($s, 'again'), 'f', 'zk_revoked() is false without a request');
	for my $time ('first', 'second')
	{
		request_release('again');
		wait_received('again');
		$s->query('SELECT 1');
		has_notice($s, request_for('again'), "the $time request is reported");
		$s->query('SELECT 1');
		no_message($s, "the $time request is reported once");
	}
	is(is_revoked($s, 'left alone'), 'f', 'zk_revoked() is false for another lock');
	$s->query_ok("SELECT zk_unlock('again')");
	is(is_revoked($s, 'again'), 'f', 'zk_revoked() is false after the release');
	$s->query_ok("SELECT zk_lock('again')");
	is(is_revoked($s, 'again'), 'f', 'zk_revoked() is false after a new acquisition');
	request_release('again');
	wait_received('again');
	$s->query('SELECT 1');
	has_notice($s, request_for('again'), 'a new request after a new acquisition is reported');
	fails_with($s, 'SELECT zk_revoked(NULL)', '22004', 'NULL is not a name');
	fails_with($s, "SELECT zk_revoked('')", '22023', 'the empty string is not a name');
	$_->quit for $s, $other;
}

# Requests before the node is watched, and during an outage.
{
	my $s = session($behind);
	$s->query_ok("SELECT zk_lock('early')");
	request_release('early');
	wait_received('early');
	$s->query('SELECT 1');
	has_notice($s, request_for('early'), 'a request directly after the grant is reported');
	$proxy->cut(refuse => 1);
	request_release('early');
	$proxy->accept;
	wait_received('early');
	$s->query('SELECT 1');
	has_notice($s, request_for('early'), 'a request during an outage is reported');
	$s->quit;
}

# All sharers, on any server.
{
	my @sharers = map { session($_) } $here, $here, $there;
	$_->query_ok("SELECT zk_lock_shared('shared')") for @sharers;
	request_release('shared');
	wait_received('shared');
	for my $s (@sharers)
	{
		$s->query('SELECT 1');
		has_notice($s, request_for('shared'), 'each sharer gets the notice');
		$s->quit;
	}
}

# Locks that are released after the request.
{
	my $s = session($here);
	for my $end ('COMMIT', 'ROLLBACK')
	{
		$s->query_ok('BEGIN');
		$s->query_ok("SELECT zk_xact_lock('released')");
		request_release('released');
		wait_received('released');
		works($s, $end, '', "$end releases the lock");
		works($s, 'SELECT pg_sleep(0)', '', 'the statement after it gets no error');
		no_message($s, 'nor a message');
	}
	$s->query_ok("SELECT zk_lock('released')");
	request_release('released');
	wait_received('released');
	works($s, "SELECT zk_unlock('released')", 't', 'zk_unlock() releases it');
	works($s, 'SELECT pg_sleep(0)', '', 'the statement after zk_unlock() gets no error');
	no_message($s, 'nor a message');
	$s->quit;
}

# Only the exact bytes are a request.
{
	my $s = session($here);
	$s->query_ok("SELECT zk_lock('other data')");
	my $id = zk_session_id($s);
	my ($path) = queue_of($zkc, 'other%20data');
	wait_until('the watch',
		sub { ($zk->four_letter('wchp') // '') =~ /^\Q$path\E$/m });
	for my $data ('', '__REVOKE', '__REVOKE__ ', '__REVOKE_x', "__REVOKE__\0", '__revoke__')
	{
		my $seen = requests_of($zk, $id);
		$zkc->set($path, $data);
		wait_until('the holder to read its node', sub { requests_of($zk, $id) > $seen });
	}
	is(is_revoked($s, 'other data'), 'f', 'other data are not a request');
	$s->quit;
}

# A commit that waits for its standby is not interrupted.
{
	my $s = session($here);
	$s->query_ok("SELECT zk_lock('commit')");
	require_standby($here);
	$s->query_async("INSERT INTO t VALUES (1)");
	wait_for_standby($s);
	request_release('commit');
	wait_received('commit');
	works($admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", '1',
		'a commit that waits for its standby is not interrupted');
	$admin->query_ok('ALTER SYSTEM RESET synchronous_standby_names');
	$admin->query_ok('SELECT pg_reload_conf()');
	$s->wait_result;
	no_message($s, 'the commit succeeds');
	$s->query('SELECT 1');
	has_notice($s, request_for('commit'), 'the session gets the notice after the commit');
	$s->quit;
}

# Nine states, and more requests above.
works($admin, 'SELECT revocations > 9 FROM zk_stat', 't', 'zk_stat counts the requests');

$_->quit for $gate, $near, $far, $admin;
nothing_left($zkc, 'no node is left');
