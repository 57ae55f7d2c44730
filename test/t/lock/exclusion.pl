# Exclusion, order, upgrade and downgrade among three PostgreSQL servers on one
# ensemble of three.
#
# Promises: 1.1, 1.3, 1.4, 2.1, 2.2
# Tags: user

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500)->with_client;
my %server = map { $_ => zklock_node($_, zk => $zk) } qw(a b c);
$server{a}->safe_psql('postgres', 'CREATE DATABASE other');
$server{a}->safe_psql('other', 'CREATE EXTENSION zklock');

my ($on_a, $on_b, $on_c) = map { session($server{$_}) } qw(a b c);
my $other = session($server{a}, dbname => 'other');

# A call of a lock function by a session; for an array, of the function for several names.
sub call
{
	my ($session, $function, $arguments) = @_;
	$function =~ s/lock/lock_many/ if $arguments =~ /^ARRAY/;
	return $session->query("SELECT $function($arguments)");
}

# Checks that no other session holds the lock: acquires it, and releases it.
sub is_free
{
	my ($session, $key, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(call($session, 'zk_try_lock', "$key, interval '1 min'"), 't', $name);
	return call($session, 'zk_unlock', $key);
}

# The path of the lock with this encoded name.
sub path { return "/zklock/locks/$_[0]" }


# The modes, for one name and several, and both levels.
my %keys = (
	'a name' => "'x'",
	'an array of names' => "ARRAY['p', 'q', 'p']");
for my $form (sort keys %keys)
{
	my $key = $keys{$form};

	like(call($on_a, 'zk_lock', $key), qr/^\{?\d+(,\d+)*\}?$/,
		"$form: the exclusive lock is granted with a token");
	is(call($on_b, 'zk_try_lock', $key), 'f',
		"$form: another server cannot acquire it");
	is(call($on_c, 'zk_try_lock_shared', $key), 'f',
		"$form: another server cannot acquire it in shared mode");
	is(call($other, 'zk_try_xact_lock', $key), 'f',
		"$form: another database of the same server cannot acquire it");
	is(call($other, 'zk_try_xact_lock_shared', $key), 'f',
		"$form: another database of the same server cannot acquire it in shared mode");
	like(call($on_a, 'zk_unlock', $key), qr/^(?:t|\{t,t,t\})$/, "$form: it is released");
	is_free($on_b, $key, "$form: another server can acquire a released lock");

	call($on_a, 'zk_lock_shared', $key);
	is($on_a->sqlstate, '00000', "$form: the shared lock is granted");
	is(call($on_b, 'zk_try_lock_shared', $key), 't',
		"$form: another server shares it");
	is(call($other, 'zk_try_lock_shared', $key), 't',
		"$form: another database shares it");
	is(call($on_c, 'zk_try_lock', $key), 'f',
		"$form: a session without a share cannot get a shared lock exclusively");
	is(call($on_b, 'zk_try_lock', $key), 'f',
		"$form: nor can one of several sharers");
	call($_, 'zk_unlock_shared', $key) for $on_a, $on_b, $other;
	is_free($on_c, $key, "$form: shared locks are released");

	$on_a->query_ok('BEGIN');
	call($on_a, 'zk_xact_lock', $key);
	is(call($on_b, 'zk_try_xact_lock', $key), 'f',
		"$form: a transaction-level lock excludes other servers");
	$on_a->query_ok('COMMIT');
	is_free($on_b, $key, "$form: the lock is free after the end of the transaction");

	$on_a->query_ok('BEGIN');
	call($on_a, 'zk_xact_lock_shared', $key);
	$on_b->query_ok('BEGIN');
	is(call($on_b, 'zk_try_xact_lock_shared', $key), 't',
		"$form: transactions on two servers share a lock");
	is(call($on_c, 'zk_try_lock', $key), 'f',
		"$form: no other session can acquire it exclusively meanwhile");
	$_->query_ok('COMMIT') for $on_a, $on_b;
	is_free($on_c, $key, "$form: the lock is free after the end of both transactions");
	nothing_left($zkc, "$form: no node is left");
}


# Arrays of names and single names.
call($on_a, 'zk_lock', "ARRAY['m1', 'm2']");
is(call($on_b, 'zk_try_lock', "'m1'"), 'f', 'each name of an array is locked');
is(call($on_b, 'zk_try_lock', "'m2'"), 'f', 'the last name of an array is locked');
is(call($on_a, 'zk_unlock', "'m1'"), 't', 'one name of an array can be released');
is_free($on_b, "'m1'", 'the released name is free');
is(call($on_b, 'zk_try_lock', "'m2'"), 'f', 'the other name stays held');
is(call($on_c, 'zk_try_lock', "ARRAY['m1', 'm2', 'm3']"), 'f',
	'an attempt at an array with a held name is refused');
is(call($on_b, 'zk_try_lock', "ARRAY['m1', 'm3'], interval '1 min'"), 't',
	'the free names of a refused array stay free');
$on_c->query_async("SELECT zk_lock_many(ARRAY['m1', 'm2', 'm3'])");
wait_blocked($on_c);
call($on_b, 'zk_unlock', "ARRAY['m1', 'm3']");
ok(!$on_c->finished, 'an array waits until all of its names are free');
call($on_a, 'zk_unlock', "'m2'");
my @tokens = $on_c->wait_result =~ /(\d+)/g;
is(scalar(@tokens), 3, 'an array is granted with a token for each name');
call($on_c, 'zk_unlock', "ARRAY['m3', 'm2', 'm1']");
nothing_left($zkc, 'several names: no node is left');


# Readers and writers in a queue.
call($on_a, 'zk_lock_shared', "'rw'");
$on_b->query_async("SELECT zk_lock('rw')");
wait_zk_children($zkc, path('rw'), 2);
is(call($on_c, 'zk_try_lock_shared', "'rw'"), 'f',
	'a non-blocking shared attempt is refused behind a waiting writer');
$on_c->query_async("SELECT zk_lock_shared('rw')");
wait_blocked($on_c);
wait_zk_children($zkc, path('rw'), 3);
ok(!$on_b->finished && !$on_c->finished,
	'a reader waits behind a waiting writer');
is(call($on_a, 'zk_try_lock_shared', "'rw'"), 't',
	'a sharer can acquire the shared lock again, despite waiters');
call($on_a, 'zk_unlock_shared', "'rw'") for 1 .. 2;
like($on_b->wait_result, qr/^\d+$/, 'the writer is next');
ok(!$on_c->finished, 'the reader waits until the writer has released the lock');
call($on_b, 'zk_unlock', "'rw'");
like($on_c->wait_result, qr/^\d+$/, 'the reader is granted the lock after the writer');
call($on_c, 'zk_unlock_shared', "'rw'");
nothing_left($zkc, 'reader behind writer: no node is left');

call($on_a, 'zk_lock', "'rw'");
$_->query_async("SELECT zk_lock_shared('rw')") for $on_b, $on_c;
wait_zk_children($zkc, path('rw'), 3);
call($on_a, 'zk_unlock', "'rw'");
like($_->wait_result, qr/^\d+$/, 'all readers at the head of the queue are granted together')
  for $on_b, $on_c;
call($_, 'zk_unlock_shared', "'rw'") for $on_b, $on_c;
nothing_left($zkc, 'readers behind writer: no node is left');


# Order of arrival among servers. The holder is another program, so all three wait
# in the ensemble.
my %session = (a => $on_a, b => $on_b, c => $on_c);
my $last_token = 0;
for my $order ([qw(a b c)], [qw(c a b)], [qw(b c a)])
{
	my $holder = foreign_node($zkc, path('fifo'), 'WRIT');
	for my $i (0 .. 2)
	{
		$session{ $order->[$i] }->query_async("SELECT zk_lock('fifo')");
		wait_zk_children($zkc, path('fifo'), 2 + $i);
	}
	$zkc->delete($holder);

	my (@served, @premature);
	my @waiting = @$order;
	while (my $name = shift @waiting)
	{
		my $token = $session{$name}->wait_result;
		push @served, $name if $token =~ /^\d+$/ && $token > $last_token;
		$last_token = $token;
		push @premature, grep { $session{$_}->finished } @waiting;
		call($session{$name}, 'zk_unlock', "'fifo'");
	}
	is_deeply(\@served, $order,
		"servers that queue as @$order are granted in that order, with growing tokens");
	is_deeply(\@premature, [], 'one server holds the lock at a time');
	nothing_left($zkc, "order @$order: no node is left");
}


# Timed attempts.
call($on_a, 'zk_lock', "'t'");
$on_b->query_async("SELECT zk_try_lock('t', interval '1 min')");
wait_blocked($on_b);
wait_zk_children($zkc, path('t'), 2);
call($on_a, 'zk_unlock', "'t'");
is($on_b->wait_result, 't', 'a timed attempt is granted a lock that is released in time');
for my $timeout ('100 years', $server{a}->pg_version >= 17 ? 'infinity' : ())
{
	$on_c->query_async("SELECT zk_try_lock_shared('t', '$timeout'::interval)");
	call($on_b, 'zk_unlock', "'t'");
	is($on_c->wait_result, 't', "a timed attempt may have the timeout $timeout");
	call($on_c, 'zk_unlock_shared', "'t'");
	call($on_b, 'zk_lock', "'t'");
}
call($on_b, 'zk_unlock', "'t'");
nothing_left($zkc, 'timed attempts: no node is left');


# Upgrade.
my $shared = call($on_a, 'zk_lock_shared', "'up'");
$on_b->query_async("SELECT zk_lock('up')");
wait_blocked($on_b);
wait_zk_children($zkc, path('up'), 2);
is(call($on_a, 'zk_lock', "'up'"), $shared,
	'the only sharer upgrades ahead of a writer that waits on another server');
ok(!$on_b->finished, 'that writer goes on waiting');
call($on_a, 'zk_unlock', "'up'");
is(call($on_c, 'zk_try_lock_shared', "'up'"), 'f',
	'after the release of an upgrade a reader is refused behind the waiting writer');
ok(!$on_b->finished, 'after the release of an upgrade the writer waits for the sharer');
call($on_a, 'zk_unlock_shared', "'up'");
my $token = $on_b->wait_result;
cmp_ok($token, '>', $shared, 'the writer is granted the lock, with a greater token');
call($on_b, 'zk_unlock', "'up'");
nothing_left($zkc, 'upgrade: no node is left');

call($_, 'zk_lock_shared', "'up'") for $on_a, $on_b;
$on_a->query_async("SELECT zk_lock('up')");
wait_blocked($on_a);
wait_zk_children($zkc, path('up'), 3);
ok(!$on_a->finished, 'an upgrade waits for the other sharer');
call($on_b, 'zk_unlock_shared', "'up'");
like($on_a->wait_result, qr/^\d+$/, 'the upgrade is granted when the other sharer releases');
is(call($on_b, 'zk_try_lock_shared', "'up'"), 'f', 'the upgraded lock excludes the former sharer');
$on_a->query_ok('SELECT zk_unlock_all()');
nothing_left($zkc, 'upgrade that waits: no node is left');

# Two upgraders; they start one after the other, then together.
call($_, 'zk_lock_shared', "'up'") for $on_a, $on_b;
$on_a->query_async("SELECT zk_lock('up')");
wait_blocked($on_a);
wait_zk_children($zkc, path('up'), 3);
is(call($on_b, 'zk_try_lock', "'up'"), 'f', 'a non-blocking attempt to upgrade beside another upgrade returns false');
call($on_b, 'zk_lock', "'up'");
is($on_b->sqlstate, '40P01',
	'the second of two upgraders gets the deadlock error');
is($on_b->query("SELECT mode, level, hold_count, state FROM zk_held_locks"),
	'shared|session|1|held', 'the second upgrader keeps its shared lock');
wait_zk_children($zkc, path('up'), 3);
ok(!$on_a->finished, 'the first upgrader goes on waiting');
is(call($on_c, 'zk_try_lock', "'up'"), 'f', 'no other session is granted the lock');
call($on_b, 'zk_unlock_shared', "'up'");
like($on_a->wait_result, qr/^\d+$/, 'the first upgrade is granted when the second session releases its share');
$on_a->query_ok('SELECT zk_unlock_all()');
nothing_left($zkc, 'two upgraders: no node is left');

my %victims = (0 => 0, 1 => 0, 2 => 0);
for my $round (1 .. 10)
{
	call($_, 'zk_lock_shared', "'up'") for $on_a, $on_b;
	$_->query_async("SELECT zk_lock('up')") for $on_a, $on_b;
	wait_until('one of two upgraders to end',
		sub { $on_a->finished || $on_b->finished });
	my ($first, $second) = $on_a->finished ? ($on_a, $on_b) : ($on_b, $on_a);
	$first->wait_result;
	my $victims = $first->sqlstate eq '40P01';
	$first->query_ok('SELECT zk_unlock_all()');
	$second->wait_result;
	$victims += $second->sqlstate eq '40P01';
	$second->query_ok('SELECT zk_unlock_all()');
	$victims{$victims}++;
}
is_deeply(\%victims, { 0 => 0, 1 => 10, 2 => 0 },
	'exactly one of two upgraders that start together is the victim');
nothing_left($zkc, 'two upgraders together: no node is left');


# Downgrade, with a writer before a reader in the queue.
$token = call($on_a, 'zk_lock', "'down'");
$on_b->query_async("SELECT zk_lock('down')");
wait_blocked($on_b);
wait_zk_children($zkc, path('down'), 2);
is(call($on_a, 'zk_lock_shared', "'down'"), $token,
	'an exclusive holder can acquire the shared lock, with the same token');
call($on_a, 'zk_unlock', "'down'");
my ($reader) = wait_until(
	'the downgrade',
	sub {
		my @found = grep { /READ/ } $zkc->children(path('down'));
		return @found ? $found[0] : undef;
	});
wait_until('the waiting writer to watch the reader',
	sub {
		grep { ($_->four_letter('wchp') // '') =~ /\Q$reader\E$/m }
		  $zk->members;
	});
ok(!$on_b->finished, 'a downgrade does not grant the lock to a waiting writer');
is(call($on_c, 'zk_try_lock_shared', "'down'"), 'f',
	'after a downgrade, readers are refused behind a waiting writer');
$on_b->cancel;
$on_b->wait_result;
is(call($on_c, 'zk_try_lock_shared', "'down', interval '1 min'"), 't',
	'without a waiting writer, a reader of another server is granted the lock');
is($on_a->query("SELECT zk_lock_token('down')"), $token,
	'a downgrade keeps the token');
call($_, 'zk_unlock_shared', "'down'") for $on_a, $on_c;
nothing_left($zkc, 'downgrade: no node is left');

# Downgrade, with a reader before a writer.
call($on_a, 'zk_lock', "'down'");
$on_b->query_async("SELECT zk_lock_shared('down')");
wait_zk_children($zkc, path('down'), 2);
$on_c->query_async("SELECT zk_lock('down')");
wait_zk_children($zkc, path('down'), 3);
call($on_a, 'zk_lock_shared', "'down'");
ok(!$on_b->finished, 'a shared lock beside the exclusive one lets no waiter in');
call($on_a, 'zk_unlock', "'down'");
like($on_b->wait_result, qr/^\d+$/,
	'a downgrade grants the lock to the readers at the head of the queue');
ok(!$on_c->finished, 'a downgrade does not grant the lock to the writer behind the readers');
call($on_a, 'zk_unlock_shared', "'down'");
ok(!$on_c->finished, 'the writer waits for the last reader');
call($on_b, 'zk_unlock_shared', "'down'");
like($on_c->wait_result, qr/^\d+$/, 'the writer is granted the lock after the last reader');
call($on_c, 'zk_unlock', "'down'");
nothing_left($zkc, 'downgrade before a reader: no node is left');


# Many sessions. Two independent proofs of exclusion: a counter in a file, which
# nothing but the lock protects, and the recorded times of each hold.
my $counter = PostgreSQL::Test::Utils::tempdir() . '/counter';
append_to_file($counter, "0\n");
for my $node (values %server)
{
	$node->safe_psql('postgres', <<"SQL");
CREATE TABLE held (
	mode text, token bigint, began timestamptz, ended timestamptz);

CREATE FUNCTION critical(mode text, token bigint) RETURNS void
LANGUAGE plpgsql AS \$\$
DECLARE
	began timestamptz := clock_timestamp();
	n bigint := pg_read_file('$counter')::bigint;
BEGIN
	IF mode = 'exclusive' THEN
		EXECUTE format('COPY (SELECT %s) TO %L', n + 1, '$counter');
	END IF;
	INSERT INTO held VALUES (mode, token, began, clock_timestamp());
END \$\$;

CREATE PROCEDURE crowd(rounds integer) LANGUAGE plpgsql AS \$\$
BEGIN
	FOR i IN 1..rounds LOOP
		CASE i % 4
		WHEN 0 THEN
			PERFORM critical('exclusive', zk_lock('crowd'));
			PERFORM zk_unlock('crowd');
		WHEN 1 THEN
			PERFORM critical('exclusive', zk_xact_lock('crowd'));
		WHEN 2 THEN
			PERFORM critical('exclusive',
				(zk_xact_lock_many(ARRAY['crowd', 'd']))[1]);
		WHEN 3 THEN
			PERFORM critical('shared', zk_xact_lock_shared('crowd'));
		END CASE;
		COMMIT;
	END LOOP;
END \$\$;
SQL
}
my ($backends, $rounds) = (4, 24);
my @crowd = map { my $node = $_; map { session($node) } 1 .. $backends }
  values %server;
$_->query_async("CALL crowd($rounds)") for @crowd;
$_->wait_result(timeout => 600) for @crowd;
is_deeply([ map { $_->error } grep { !$_->ok } @crowd ], [],
	'many sessions on three servers lock without an error');

my @held =
  sort { $a->{token} <=> $b->{token} || $a->{began} <=> $b->{began} }
  map {
	my ($mode, $token, $began, $ended) = split /\|/;
	{ mode => $mode, token => $token, began => $began, ended => $ended };
  }
  map {
	split /\n/,
	  $_->safe_psql('postgres',
		'SELECT mode, token, (extract(epoch FROM began) * 1e6)::bigint, '
		  . '(extract(epoch FROM ended) * 1e6)::bigint FROM held')
  } values %server;
is(scalar(@held), 3 * $backends * $rounds, 'every round of every session is recorded');
my @exclusive = grep { $_->{mode} eq 'exclusive' } @held;
is(slurp_file($counter) + 0, scalar(@exclusive),
	'no update that the lock protects is lost');
my %distinct = map { $_->{token} => 1 } @exclusive;
is(scalar(keys %distinct), scalar(@exclusive),
	'no two exclusive holders have the same token');

# Sorted by token: an exclusive hold begins after the end of all holds before it.
my ($latest, $latest_exclusive, $overlaps) = (0, 0, 0);
for my $hold (@held)
{
	my $alone = $hold->{mode} eq 'exclusive';
	$overlaps++ if $hold->{began} < ($alone ? $latest : $latest_exclusive);
	$latest = $hold->{ended} if $hold->{ended} > $latest;
	$latest_exclusive = $hold->{ended}
	  if $alone && $hold->{ended} > $latest_exclusive;
}
is($overlaps, 0, 'no exclusive hold overlaps another one, in the order of their tokens');
nothing_left($zkc, 'crowd: no node is left');

# Arrays in opposite orders.
$server{$_}->safe_psql('postgres', <<'SQL') for keys %server;
CREATE PROCEDURE take_both(first text, second text, rounds integer)
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..rounds LOOP
		PERFORM zk_lock_many(ARRAY[first, second]);
		PERFORM zk_unlock_many(ARRAY[second, first]);
	END LOOP;
END $$;
SQL
$_->query_async("CALL take_both('left', 'right', 30)") for $on_a, $on_b;
$_->query_async("CALL take_both('right', 'left', 30)") for $on_c, $crowd[0];
$_->wait_result(timeout => 600) for $on_a, $on_b, $on_c, $crowd[0];
is_deeply([ map { $_->sqlstate } $on_a, $on_b, $on_c, $crowd[0] ],
	[ ('00000') x 4 ],
	'arrays in opposite orders never deadlock');
nothing_left($zkc, 'arrays: no node is left');
