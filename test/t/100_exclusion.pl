# Exclusion, order, upgrade and downgrade among three PostgreSQL servers on one
# ensemble of three.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(nothing_left);
use ZkLock::Cluster;
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;

my $zk = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my %server = map { $_ => zklock_node($_, zk => $zk) } qw(a b c);
$server{a}->safe_psql('postgres', 'CREATE DATABASE other');
$server{a}->safe_psql('other', 'CREATE EXTENSION zklock');

my ($on_a, $on_b, $on_c) = map { session($server{$_}) } qw(a b c);
my $other = session($server{a}, dbname => 'other');

# A call of a lock function by a session.
sub call
{
	my ($session, $function, $arguments) = @_;
	return $session->query("SELECT $function($arguments)");
}

# Waits for the lock, and releases it: proof that nobody else holds it.
sub is_free
{
	my ($session, $key, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(call($session, 'zk_try_lock', "$key, interval '1 min'"), 't', $name);
	return call($session, 'zk_unlock', $key);
}

# The path of the lock with this encoded name.
sub path { return "/zklock/locks/$_[0]" }


# The modes, for every form of key and both levels.
my %keys = (
	'a name' => "'x'",
	'a bigint key' => '42::bigint',
	'two integer keys' => '42, -1',
	'an array of names' => "ARRAY['p', 'q', 'p']");
for my $form (sort keys %keys)
{
	my $key = $keys{$form};

	like(call($on_a, 'zk_lock', $key), qr/^\{?\d+(,\d+)*\}?$/,
		"$form: the exclusive lock is granted with a token");
	is(call($on_b, 'zk_try_lock', $key), 'f',
		"$form: another server cannot have it");
	is(call($on_c, 'zk_try_lock_shared', $key), 'f',
		"$form: another server cannot share it");
	is(call($other, 'zk_try_xact_lock', $key), 'f',
		"$form: another database of the same server cannot have it");
	is(call($other, 'zk_try_xact_lock_shared', $key), 'f',
		"$form: another database of the same server cannot share it");
	is(call($on_a, 'zk_unlock', $key), 't', "$form: it is released");
	is_free($on_b, $key, "$form: then another server gets it");

	call($on_a, 'zk_lock_shared', $key);
	is($on_a->sqlstate, '00000', "$form: the shared lock is granted");
	is(call($on_b, 'zk_try_lock_shared', $key), 't',
		"$form: another server shares it");
	is(call($other, 'zk_try_lock_shared', $key), 't',
		"$form: another database shares it");
	is(call($on_c, 'zk_try_lock', $key), 'f',
		"$form: nobody gets what others share");
	is(call($on_b, 'zk_try_lock', $key), 'f',
		"$form: nor one of several sharers");
	call($_, 'zk_unlock_shared', $key) for $on_a, $on_b, $other;
	is_free($on_c, $key, "$form: shared locks are released");

	$on_a->query_ok('BEGIN');
	call($on_a, 'zk_xact_lock', $key);
	is(call($on_b, 'zk_try_xact_lock', $key), 'f',
		"$form: a transaction's lock excludes other servers");
	$on_a->query_ok('COMMIT');
	is_free($on_b, $key, "$form: until the transaction has ended");

	$on_a->query_ok('BEGIN');
	call($on_a, 'zk_xact_lock_shared', $key);
	$on_b->query_ok('BEGIN');
	is(call($on_b, 'zk_try_xact_lock_shared', $key), 't',
		"$form: transactions on two servers share a lock");
	is(call($on_c, 'zk_try_lock', $key), 'f',
		"$form: which nobody else can have meanwhile");
	$_->query_ok('COMMIT') for $on_a, $on_b;
	is_free($on_c, $key, "$form: until both have ended");
	nothing_left($zkc, "$form: no node is left");
}

call($on_a, 'zk_lock', "'42'");
call($on_b, 'zk_lock', '42::bigint');
call($on_c, 'zk_lock', '0, 42');
is_deeply([ map { $_->sqlstate } $on_a, $on_b, $on_c ], [ ('00000') x 3 ],
	'a name, a bigint and two integers never meet');
is(call($on_c, 'zk_try_lock', "'#42'"),
	't', 'nor does a name that begins with #');
$_->query_ok('SELECT zk_unlock_all()') for $on_a, $on_b, $on_c;


# Several names and single ones.
call($on_a, 'zk_lock', "ARRAY['m1', 'm2']");
is(call($on_b, 'zk_try_lock', "'m1'"), 'f', 'each name of an array is locked');
is(call($on_b, 'zk_try_lock', "'m2'"), 'f', 'also the last one');
is(call($on_a, 'zk_unlock', "'m1'"), 't', 'each can be released by itself');
is_free($on_b, "'m1'", 'and is free then');
is(call($on_b, 'zk_try_lock', "'m2'"), 'f', 'while the others stay held');
is(call($on_c, 'zk_try_lock', "ARRAY['m1', 'm2', 'm3']"), 'f',
	'an array with a name that is held is refused');
is(call($on_b, 'zk_try_lock', "ARRAY['m1', 'm3'], interval '1 min'"), 't',
	'and what was free of it stays free');
$on_c->query_async("SELECT zk_lock(ARRAY['m1', 'm2', 'm3'])");
wait_blocked($on_c);
call($on_b, 'zk_unlock', "ARRAY['m1', 'm3']");
ok(!$on_c->finished, 'an array waits until all of its names are free');
call($on_a, 'zk_unlock', "'m2'");
my @tokens = $on_c->wait_result =~ /(\d+)/g;
is(scalar(@tokens), 3, 'and is granted with a token for each name');
call($on_c, 'zk_unlock', "ARRAY['m3', 'm2', 'm1']");
nothing_left($zkc, 'several names: no node is left');


# Readers and writers in a queue.
call($on_a, 'zk_lock_shared', "'rw'");
$on_b->query_async("SELECT zk_lock('rw')");
wait_blocked($on_b);
is(call($on_c, 'zk_try_lock_shared', "'rw'"), 'f',
	'a try to share is refused behind a waiting writer');
$on_c->query_async("SELECT zk_lock_shared('rw')");
wait_blocked($on_c);
wait_zk_children($zkc, path('rw'), 3);
ok(!$on_b->finished && !$on_c->finished,
	'a reader waits behind a waiting writer');
is(call($on_a, 'zk_try_lock_shared', "'rw'"), 't',
	'a sharer may share the lock again, despite waiters');
call($on_a, 'zk_unlock_shared', "'rw'") for 1 .. 2;
like($on_b->wait_result, qr/^\d+$/, 'the writer is next');
ok(!$on_c->finished, 'the reader waits until the writer has gone');
call($on_b, 'zk_unlock', "'rw'");
like($on_c->wait_result, qr/^\d+$/, 'then the reader has it');
call($on_c, 'zk_unlock_shared', "'rw'");
nothing_left($zkc, 'reader behind writer: no node is left');

call($on_a, 'zk_lock', "'rw'");
$_->query_async("SELECT zk_lock_shared('rw')") for $on_b, $on_c;
wait_zk_children($zkc, path('rw'), 3);
call($on_a, 'zk_unlock', "'rw'");
like($_->wait_result, qr/^\d+$/, 'all readers at the head are let in together')
  for $on_b, $on_c;
call($_, 'zk_unlock_shared', "'rw'") for $on_b, $on_c;
nothing_left($zkc, 'readers behind writer: no node is left');


# First come, first served among servers. The holder is none of them, so that
# all wait in the ensemble.
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
	while (my $who = shift @waiting)
	{
		my $token = $session{$who}->wait_result;
		push @served, $who if $token =~ /^\d+$/ && $token > $last_token;
		$last_token = $token;
		push @premature, grep { $session{$_}->finished } @waiting;
		call($session{$who}, 'zk_unlock', "'fifo'");
	}
	is_deeply(\@served, $order,
		"servers that came as @$order are served so, with growing tokens");
	is_deeply(\@premature, [], 'and one at a time');
	nothing_left($zkc, "order @$order: no node is left");
}


# A try may wait.
call($on_a, 'zk_lock', "'t'");
is(call($on_b, 'zk_try_lock', "'t', interval '50 ms'"), 'f',
	'a try that waits gives up when its time has passed');
ok(wait_zk_children($zkc, path('t'), 1), 'and leaves nothing behind');
is(call($on_b, 'zk_try_lock', "ARRAY['t', 'u'], interval '50 ms'"), 'f',
	'so does one for several names');
is(wait_zk_empty($zkc, path('u')), 0, 'also where it was first');
$on_b->query_async("SELECT zk_try_lock('t', interval '1 min')");
wait_blocked($on_b);
wait_zk_children($zkc, path('t'), 2);
call($on_a, 'zk_unlock', "'t'");
is($on_b->wait_result, 't', 'a try that waits gets what is released in time');
$on_c->query_async("SELECT zk_try_lock_shared('t', 'infinity'::interval)")
  if $server{a}->pg_version >= 17;
call($on_b, 'zk_unlock', "'t'");
if ($server{a}->pg_version >= 17)
{
	is($on_c->wait_result, 't', 'a try may wait for ever');
	call($on_c, 'zk_unlock_shared', "'t'");
}
nothing_left($zkc, 'try: no node is left');


# Upgrade.
my $shared = call($on_a, 'zk_lock_shared', "'up'");
$on_b->query_async("SELECT zk_lock('up')");
wait_blocked($on_b);
wait_zk_children($zkc, path('up'), 2);
is(call($on_a, 'zk_lock', "'up'"), $shared,
	'the only sharer upgrades ahead of a writer that waits elsewhere');
ok(!$on_b->finished, 'which goes on waiting');
call($on_a, 'zk_unlock', "'up'");
is(call($on_c, 'zk_try_lock_shared', "'up'"), 'f',
	'an upgrade that is released lets nobody past the writer');
ok(!$on_b->finished, 'nor the writer past the sharer');
call($on_a, 'zk_unlock_shared', "'up'");
my $token = $on_b->wait_result;
cmp_ok($token, '>', $shared, 'the writer follows, with a greater token');
call($on_b, 'zk_unlock', "'up'");
nothing_left($zkc, 'upgrade: no node is left');

call($_, 'zk_lock_shared', "'up'") for $on_a, $on_b;
$on_a->query_async("SELECT zk_lock('up')");
wait_blocked($on_a);
wait_zk_children($zkc, path('up'), 3);
ok(!$on_a->finished, 'an upgrade waits for the other sharer');
call($on_b, 'zk_unlock_shared', "'up'");
like($on_a->wait_result, qr/^\d+$/, 'and no longer');
is(call($on_b, 'zk_try_lock_shared', "'up'"), 'f', 'then it excludes it');
$on_a->query_ok('SELECT zk_unlock_all()');
nothing_left($zkc, 'upgrade that waits: no node is left');

# Two upgraders; they start one after the other, then together.
call($_, 'zk_lock_shared', "'up'") for $on_a, $on_b;
$on_a->query_async("SELECT zk_lock('up')");
wait_blocked($on_a);
wait_zk_children($zkc, path('up'), 3);
call($on_b, 'zk_lock', "'up'");
is($on_b->sqlstate, '40P01',
	'the second of two upgraders gets the deadlock error');
is($on_b->query("SELECT mode, scope, count, state FROM zk_held_locks"),
	'shared|session|1|held', 'and keeps its shared lock');
wait_zk_children($zkc, path('up'), 3);
ok(!$on_a->finished, 'so that the first goes on waiting');
is(call($on_c, 'zk_try_lock', "'up'"), 'f', 'and nobody else gets it');
call($on_b, 'zk_unlock_shared', "'up'");
like($on_a->wait_result, qr/^\d+$/, 'until the second has given it up');
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
	'of two upgraders that start together exactly one is the victim');
nothing_left($zkc, 'two upgraders together: no node is left');


# Downgrade. A writer waits before a reader.
$token = call($on_a, 'zk_lock', "'down'");
$on_b->query_async("SELECT zk_lock('down')");
wait_blocked($on_b);
wait_zk_children($zkc, path('down'), 2);
is(call($on_a, 'zk_lock_shared', "'down'"), $token,
	'an exclusive holder shares with itself, under the same token');
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
ok(!$on_b->finished, 'no writer slips in at a downgrade');
is(call($on_c, 'zk_try_lock_shared', "'down'"), 'f',
	'and readers stay behind the writer that waits');
$on_b->cancel;
$on_b->wait_result;
is(call($on_c, 'zk_try_lock_shared', "'down', interval '1 min'"), 't',
	'without a writer a reader of another server is let in');
is($on_a->query("SELECT zk_lock_token('down')"), $token,
	'a downgrade keeps the token');
call($_, 'zk_unlock_shared', "'down'") for $on_a, $on_c;
nothing_left($zkc, 'downgrade: no node is left');

# A reader before the writer.
call($on_a, 'zk_lock', "'down'");
$on_b->query_async("SELECT zk_lock_shared('down')");
wait_zk_children($zkc, path('down'), 2);
$on_c->query_async("SELECT zk_lock('down')");
wait_zk_children($zkc, path('down'), 3);
call($on_a, 'zk_lock_shared', "'down'");
ok(!$on_b->finished, 'a shared request of its own changes nothing yet');
call($on_a, 'zk_unlock', "'down'");
like($on_b->wait_result, qr/^\d+$/,
	'a downgrade lets in the readers at the head');
ok(!$on_c->finished, 'and not the writer behind them');
call($on_a, 'zk_unlock_shared', "'down'");
ok(!$on_c->finished, 'which waits for the last of them');
call($on_b, 'zk_unlock_shared', "'down'");
like($on_c->wait_result, qr/^\d+$/, 'and no longer');
call($on_c, 'zk_unlock', "'down'");
nothing_left($zkc, 'downgrade before a reader: no node is left');


# A crowd. The referees: a counter in a file, read and written without any
# other protection, and the times between which each token was held.
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
				(zk_xact_lock(ARRAY['crowd', 'd']))[1]);
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
$_->wait_result for @crowd;
is_deeply([ map { $_->error } grep { !$_->ok } @crowd ], [],
	'a crowd on three servers is served without an error');

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
is(scalar(@held), 3 * $backends * $rounds, 'everybody had every turn');
my @exclusive = grep { $_->{mode} eq 'exclusive' } @held;
is(slurp_file($counter) + 0, scalar(@exclusive),
	'no update that the lock protects is lost');
my %distinct = map { $_->{token} => 1 } @exclusive;
is(scalar(keys %distinct), scalar(@exclusive),
	'no two exclusive holders have the same token');

# Sorted by token: an exclusive turn begins after all before it have ended.
my ($latest, $latest_exclusive, $overlaps) = (0, 0, 0);
for my $turn (@held)
{
	my $alone = $turn->{mode} eq 'exclusive';
	$overlaps++ if $turn->{began} < ($alone ? $latest : $latest_exclusive);
	$latest = $turn->{ended} if $turn->{ended} > $latest;
	$latest_exclusive = $turn->{ended}
	  if $alone && $turn->{ended} > $latest_exclusive;
}
is($overlaps, 0, 'in the order of their tokens no turns overlap');
nothing_left($zkc, 'crowd: no node is left');

# Arrays in opposite orders.
$server{$_}->safe_psql('postgres', <<'SQL') for keys %server;
CREATE PROCEDURE take_both(first text, second text, rounds integer)
LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..rounds LOOP
		PERFORM zk_lock(ARRAY[first, second]);
		PERFORM zk_unlock(ARRAY[second, first]);
	END LOOP;
END $$;
SQL
$_->query_async("CALL take_both('left', 'right', 30)") for $on_a, $on_b;
$_->query_async("CALL take_both('right', 'left', 30)") for $on_c, $crowd[0];
$_->wait_result for $on_a, $on_b, $on_c, $crowd[0];
is_deeply([ map { $_->sqlstate } $on_a, $on_b, $on_c, $crowd[0] ],
	[ ('00000') x 4 ],
	'arrays never deadlock each other, whatever their order');
nothing_left($zkc, 'arrays: no node is left');

$_->quit for $on_a, $on_b, $on_c, $other, @crowd;
$_->stop for values %server;
done_testing();
