# The cost of each operation in requests to the ensemble, counted by a proxy. Not counted
# are pings, the keepalive read after 100 ms without an answer (of the root), and the
# hold watch of a lock that has been held for a second (a read of its own node), which a
# slow machine may send.

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = shared_node('a', zk => $proxy, session_timeout => '240s');
my $other = shared_node('b', zk => $zk, session_timeout => '60s');
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

# A session with a ZooKeeper session.
sub locker
{
	my ($where, %settings) = @_;
	my $s = session_with($where, %settings);
	$s->query_ok("SELECT zk_lock('warm'), zk_unlock('warm')");
	wait_zk_empty($zkc, '/zklock/locks/warm');
	return $s;
}
# Persistent znodes, so that nothing deletes them when they are empty.
$zkc->create("/zklock/locks/$_", makepath => 1) for qw(a b c again m n);
$zkc->create("/zklock/semaphores/p/$_", makepath => 1) for qw(leases locks);
$zkc->set('/zklock/semaphores/p', '1');

# Is this the delete of the empty znode of a lock, or the znodes of a semaphore, which a
# session sends some seconds after it has used what it created?
sub deletes_parents
{
	my ($request) = @_;
	return $request->{op} =~ /^(delete|multi)$/
	  && !grep { !m{^/zklock/(locks/[^/]+|semaphores/[^/]+(/leases|/locks)?)$} } @{ $request->{paths} };
}

# A multi that only checks the root.
sub is_proof
{
	my ($request) = @_;
	return $request->{op} eq 'multi' && "@{ $request->{paths} }" eq '/zklock';
}

# Returns the recorded requests without pings, keepalive reads, proofs and deletes of
# empty znodes.
sub requests
{
	return grep {
		$_->{op} ne 'ping'
		  && ($_->{op} ne 'getData' || $_->{paths}[0] ne '/zklock')
		  && !is_proof($_)
		  && !deletes_parents($_)
	} $proxy->record;
}

my $ends = 0;

# Returns the requests of the session since the record was cleared. A connection keeps
# the order of requests: when a request sent now is in the record, all earlier requests
# are. Waits until that request has been undone.
sub requests_until_now
{
	my ($s) = @_;
	my $lock = 'end' . ++$ends;
	my $at_end = sub { ($_[0]{paths}[0] // '') =~ m{/$lock\b} };
	my @all;
	$s->query_ok("SELECT zk_lock('$lock'), zk_unlock('$lock')");
	wait_until('the answers', sub {
		@all = requests();
		return grep { $_->{op} eq 'delete' && $at_end->($_) && defined $_->{answered} } @all;
	});
	my ($end) = grep { $at_end->($_) } @all;
	my @own = grep { $_->{connection} == $end->{connection} } @all;
	my @found;
	while (@own && $own[0] != $end) { push @found, shift @own }
	return @found;
}

# Waits until the session has no outstanding request, and clears the record.
sub start_record
{
	my ($s) = @_;
	requests_until_now($s);
	return $proxy->clear_record;
}

# One assertion: these statements send these requests.
sub costs
{
	my ($s, $sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	start_record($s);
	for (ref $sql ? @$sql : $sql)
	{
		$s->query($_);
		return fail("$name: $_: " . $s->error) if !$s->ok;
	}
	my @found = grep { !$_->{watch} } requests_until_now($s);
	is(join(' ', map { $_->{op} } @found), $expected, $name);
	return @found;
}

# One assertion: these requests are all sent although the first of them, or the nth of
# its kind, gets no answer.
sub are_pipelined
{
	my ($s, $sql, $expected, $name, $nth) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($op) = split / /, $expected;
	my $found = '';
	start_record($s)->arm(fault => 'hold_answer', op => $op, nth => $nth // 1);
	$s->query_async($sql);
	my $together = eval {
		wait_until("$expected without an answer", sub {
			$found = join ' ', map { $_->{op} } grep { $_->{op} ne 'getData' || !$_->{watch} } requests();
			return $found eq $expected;
		}, timeout => 20);
	};
	$proxy->disarm->release;
	$s->wait_result;
	return ok($together && $s->ok, $name) || diag("found: $found\n" . $s->error);
}

# Returns the watches of this lock, and the proofs, up to its release.
sub confirmation
{
	my ($lock) = @_;
	my @found;
	for my $request ($proxy->record)
	{
		my ($path) = @{ $request->{paths} };
		last if $request->{op} eq 'delete' && $path =~ m{/\Q$lock\E/};
		push @found, $request->{op} if is_proof($request) || ($request->{watch} && $path =~ m{/\Q$lock\E/});
	}
	return "@found";
}

my $s = locker($node);
my $rival = locker($other);

costs($s, "SELECT zk_lock('a')", 'create2 getChildren',
	'an uncontended lock costs one create and one getChildren');
are_pipelined($s, "SELECT zk_lock('b')", 'create2 getChildren', 'both requests are pipelined');
costs($s, "SELECT zk_unlock('b')", 'delete', 'a release costs a delete');
costs($s, ["SELECT zk_lock('a')", "SELECT zk_xact_lock('a')",
		"SELECT zk_lock_shared('a')", "SELECT zk_unlock_shared('a')",
		"SELECT zk_try_lock('a')", "SELECT zk_try_lock('a', '1s'), zk_unlock('a')",
		"SELECT zk_lock_many(ARRAY['a']), zk_unlock_many(ARRAY['a'])",
		"SELECT zk_lock_token('a')", "SELECT zk_revoked('a')",
		'SELECT count(*) FROM zk_held_locks', 'SELECT * FROM zk_session()'],
	'', 'acquiring a held lock again costs nothing');
costs($s, "SELECT zk_unlock('a')", '', 'releasing one of several holds costs nothing');

{
	my $local_session = locker($node);
	costs($local_session, ["SELECT zk_try_lock('a')", "SELECT zk_try_lock_shared('a')",
			"SELECT zk_try_lock('a', '1ms')", "SELECT zk_try_lock_many(ARRAY['a', 'b'])"],
		'', 'an attempt behind a holder on the same server costs nothing');
	$local_session->quit;
}
$s->query_ok("SELECT zk_unlock('a')");
start_record($s)->arm(fault => 'hold_request', op => 'delete');
works($s, "SELECT zk_unlock('a')", 't', 'a release does not wait');
wait_until('the delete', sub { grep { $_->{op} eq 'delete' } requests() });
$proxy->release;
is(join(' ', map { $_->{op} } requests_until_now($s)), 'delete', 'a release costs a delete');

# The read is for the token, the czxid that the nodes share. A single create returns its
# czxid. In a multi, the client library has no create that does, and does not return the
# zxid of the multi. getChildren could return the time of the parent's last change, but
# the delete of another session's node changes that, too.
costs($s, "SELECT zk_lock_many(ARRAY['a', 'b', 'c'])",
	'multi getChildren getChildren getChildren getData',
	'an array costs one multi, one getChildren for each name, and one read for the token');
costs($s, "SELECT zk_unlock_many(ARRAY['a', 'b', 'c'])", 'multi',
	'the release of an array costs one multi');
are_pipelined($s, "SELECT zk_lock_many(ARRAY['a', 'b', 'c'])",
	'multi getChildren getChildren getChildren', 'the requests before that read are pipelined');
costs($s, "SELECT zk_unlock_many(ARRAY['a', 'b', 'c'])", 'multi', 'the second release costs one multi, too');

# List elision: the server numbers nodes in the order of their creation. So a session
# whose new node has the next number after its last grant infers that no other node was
# created since. This needs some grants before, because the requests of this test for the
# record are in between.
sub acquire_often
{
	my ($s, $lock) = @_;
	my $many = $lock =~ /^ARRAY/ ? '_many' : '';
	$s->query_ok("SELECT count(zk_lock$many($lock)), count(zk_unlock$many($lock)) FROM generate_series(1, 12)");
	return;
}
acquire_often($s, "'again'");
costs($s, "SELECT zk_lock('again')", 'create2',
	'a lock that no other session has acquired in between costs one create');
costs($s, "SELECT zk_unlock('again')", 'delete', 'the release of that lock costs one delete');
$rival->query_ok("SELECT zk_lock('again'), zk_unlock('again')");
costs($s, ["SELECT zk_lock('again')", "SELECT zk_unlock('again')"],
	'create2 getChildren delete', 'a lock that another session has acquired costs a getChildren, too');
are_pipelined($s, "SELECT zk_lock('again')", 'create2 getChildren',
	'the next time both requests are pipelined');
$s->query_ok("SELECT zk_unlock('again')");
acquire_often($s, "ARRAY['m', 'n']");
costs($s, "SELECT zk_lock_many(ARRAY['m', 'n'])", 'multi getData',
	'an array that no other session has acquired in between costs one multi and one read');
costs($s, "SELECT zk_unlock_many(ARRAY['m', 'n'])", 'multi', 'the release of that array costs one multi');

$rival->query_ok("SELECT zk_lock('a')");
costs($s, "SELECT zk_try_lock('a')", 'create2 getChildren sync getChildren delete',
	'an attempt behind a holder on another server reads the queue again after a sync');
$rival->query_ok("SELECT zk_acquire_permit('p', 1)");
$s->query_ok("SELECT zk_try_acquire_permit('p', 1)");
costs($s, "SELECT zk_try_acquire_permit('p', 1)",
	'create2 getChildren getData create2 sync multi',
	'an attempt behind the holder of a permit on another server reads again after a sync');
$rival->query_ok("SELECT zk_release_permit('p')");
{
	start_record($s);
	$s->query_async("SELECT zk_lock('a')");
	wait_zk_children($zkc, '/zklock/locks/a', 2);
	wait_until('the watch',
		sub { grep { $_->{op} eq 'getData' && $_->{answered} } $proxy->record });
	$rival->query_ok("SELECT zk_unlock('a')");
	$s->wait_result;
	my @own = queue_of($zkc, 'a');
	is(join(' ', map { $_->{op} }
			grep { $_->{op} ne 'getData' || $_->{paths}[0] ne $own[0] }
			requests_until_now($s)),
		'create2 getChildren getData getChildren',
		'a wait costs a watch and a second getChildren');
	$s->query_ok("SELECT zk_unlock('a')");
}

my $work = "INSERT INTO t VALUES ('x')";
costs($s, ['BEGIN', "SELECT zk_xact_lock('a')", $work, 'COMMIT'],
	'create2 getChildren delete', 'a commit within the lease costs nothing');
costs($s, ["SELECT zk_lock_shared('a')", "SELECT zk_lock('a')"],
	'create2 getChildren create2 getChildren', 'an upgrade costs as much as a lock');
costs($s, "SELECT zk_unlock('a')", 'delete', 'releasing an upgrade costs one delete');
costs($s, ["SELECT zk_unlock_shared('a')", "SELECT zk_lock('a')",
		"SELECT zk_lock_shared('a')"],
	'delete create2 getChildren', 'a shared lock beside the exclusive one costs nothing');
costs($s, "SELECT zk_unlock('a')", 'multi', 'a downgrade costs one multi');
costs($s, "SELECT zk_unlock_shared('a')", 'delete', 'releasing a downgraded lock costs one delete');

# A permit: the queue, then its own node and the count, which sets a watch.
$s->query_ok("SELECT zk_acquire_permit('p', 1), zk_release_permit('p')");
wait_zk_empty($zkc, "/zklock/semaphores/p/$_") for qw(leases locks);
costs($s, "SELECT zk_acquire_permit('p', 1)",
	'create2 getChildren getData create2 delete',
	'an uncontended permit costs two creates, one delete, two reads and a count');
wait_zk_empty($zkc, '/zklock/semaphores/p/locks');
costs($s, "SELECT zk_release_permit('p')", 'delete', 'releasing a permit costs one delete');
are_pipelined($s, "SELECT zk_acquire_permit('p', 1)",
	'create2 getChildren getData', 'the requests for the queue are pipelined');
wait_zk_empty($zkc, '/zklock/semaphores/p/locks');
costs($s, "SELECT zk_release_permit('p')", 'delete', 'the second release of a permit costs one delete');
are_pipelined($s, "SELECT zk_acquire_permit('p', 1)",
	'create2 getChildren getData create2 getChildren',
	'the permit node and the count are pipelined', 2);
$s->quit;

# More than a third of the session timeout has passed: the sessions have sent proofs. Each has locks of its own.
{
	my @long = (
		{ check => 'lease', locks => [qw(a b)] },
		{ check => 'always', locks => [qw(c again)] },
		{ check => 'off', locks => [qw(m n)] });
	$_->{s} = locker($node, commit_check => $_->{check}, session_timeout => '30s') for @long;
	start_record($_->{s}) for @long;
	for my $long (@long)
	{
		$long->{s}->query_ok($_) for 'BEGIN', (map { "SELECT zk_xact_lock('$_')" } @{ $long->{locks} }), $work;
		$long->{s}->query_async('SELECT pg_sleep(10.5)');
	}
	$_->{s}->wait_result for @long;
	for my $long (@long)
	{
		$long->{s}->query_ok('COMMIT');
		is(join(' ', map { $_->{op} } grep { !$_->{watch} } requests_until_now($long->{s})),
			'create2 getChildren create2 getChildren multi',
			"a commit of a long transaction with commit_check = $long->{check}");
		$long->{s}->quit;
	}
}
for my $check ('lease', 'always', 'off')
{
	my $fresh = locker($node, commit_check => $check);
	costs($fresh, ['BEGIN', "SELECT zk_xact_lock('a')", $work, 'COMMIT'],
		'create2 getChildren delete', "a commit within the lease with commit_check = $check");
	like(confirmation('a'), qr/^getData multi\b/, "with commit_check = $check the lock is watched before the proof is sent")
	  if $check eq 'always';
	$fresh->quit;
}

# A fence asks only if a conflicting holder may have fenced since this one's node was created.
{
	my @all = map { locker($node) } 1, 2;
	for my $try (1, 2)
	{
		for my $holder (@all)
		{
			costs($holder, ['BEGIN', "SELECT zk_xact_lock('a')", "SELECT zk_fence('a'), zk_fence('a')", 'COMMIT'],
				'create2 getChildren delete', 'a transaction with a fence sends what it would without');
			is(confirmation('a'), '', 'and asks nothing, also if others have fenced before');
		}
	}
	$all[0]->query_ok("SELECT zk_lock('b')");
	costs($all[0], ["SELECT zk_fence('b')", "SELECT zk_fence('b')", "SELECT zk_unlock('b')"],
		'delete', 'the fences of a session that leads cost nothing');
	is(confirmation('b'), '', 'and no question');
	$_->query_ok("SELECT zk_lock_shared('c')") for @all;
	$all[0]->query_ok("SELECT zk_fence('c'), zk_unlock_shared('c')");
	start_record($all[1]);
	$all[1]->query_ok("SELECT zk_lock('c'), zk_fence('c'), zk_fence('c'), zk_unlock_all()");
	requests_until_now($all[1]);
	is(scalar(grep { is_proof($_) } $proxy->record), 1, 'an upgraded holder asks once if another sharer has fenced');
	$_->quit for @all;
}

# An idle session sends nothing but pings. It connects again if one is late.
{
	my $idle = locker($node, session_timeout => '3s');
	$proxy->clear_record;
	wait_until('pings', sub { 5 <= grep { $_->{op} eq 'ping' } $proxy->record });
	is(join(' ', grep { !/^(?:connect|closeSession)$/ } map { $_->{op} } requests()), '',
		'an idle session sends only pings');
	$idle->quit;
}
nothing_left($zkc, 'nothing is left');
