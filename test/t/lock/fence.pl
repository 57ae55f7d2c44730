# Fencing: an earlier holder was stopped while another session acquired its lock. If both call
# zk_fence(), the transaction of the earlier holder cannot commit, without any check at
# commit, whatever the modes were, are, or become.
#
# Promise: 6.1
# Tags: user

use ZkLock::Test;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $node = zklock_node('a', zk => $zk,
	init => [ allows_streaming => 1 ],
	extra_conf => "zklock.commit_check = off\nrestart_after_crash = on");
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

# A session whose connection to the ensemble can be frozen. Its local locks are others, because
# its connect string is.
sub stoppable
{
	my (%settings) = @_;
	return session_with($node, connect_string => $proxy->connect_string, session_timeout => '10min', %settings);
}

# The session expires, and does not notice it.
sub stop_holder
{
	my ($s) = @_;
	my $id = zk_session_id($s);
	$proxy->freeze;
	$zkc->end_session($id);
	wait_until('the end of the nodes of the stopped holder', sub {
		!grep { (($zkc->exists($_) // {})->{ephemeralOwner} // '') eq $id } lock_nodes($zkc);
	});
	return;
}

# One assertion: the fence of a stopped holder asks the ensemble, which refuses it.
sub refused
{
	my ($s, $lock, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->query_async("SELECT zk_fence('$lock')");
	wait_blocked($s, or => sub { $s->finished });
	$proxy->thaw;
	return failed_with($s, '40001', $what, like => qr/lock "\Q$lock\E" was lost.*while trying to fence lock/s);
}

# One assertion: the fence passes without an answer of the ensemble.
sub passes_alone
{
	my ($s, $lock, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$proxy->freeze;
	$s->query_async("SELECT zk_fence('$lock') = zk_lock_token('$lock')");
	wait_blocked($s, or => sub { $s->finished });
	my $good = ok($s->finished && $s->wait_result eq 't', $what);
	$proxy->thaw;
	$s->wait_result if $s->is_busy;
	return $good;
}


# Modes. E is the earlier holder, which is stopped after its steps; then L, and another session R,
# do theirs. Each of these fences in a transaction of its own.
my %sql = (
	lock => 'SELECT zk_lock(%s)',
	share => 'SELECT zk_lock_shared(%s)',
	unlock => 'SELECT zk_unlock(%s)',
	unshare => 'SELECT zk_unlock_shared(%s)',
	fence => 'SELECT zk_fence(%s)',
	rolledback => 'BEGIN; SELECT zk_fence(%s); ROLLBACK');
my @cases = (
	[ 'exclusive; exclusive', 'E lock', 'L lock, L fence' ],
	[ 'exclusive, has fenced before; exclusive', 'E lock, E fence', 'L lock, L fence' ],
	[ 'exclusive; shared', 'E lock', 'L share, L fence' ],
	[ 'exclusive, has fenced before; shared', 'E lock, E fence', 'L share, L fence' ],
	[ 'exclusive; shared, of two', 'E lock', 'R share, L share, L fence' ],
	[ 'shared; exclusive', 'E share', 'L lock, L fence' ],
	[ 'shared, has fenced before; exclusive', 'E share, E fence', 'L lock, L fence' ],
	[ 'shared; exclusive, then shared', 'E share', 'L lock, L fence, L unlock, R share, R fence' ],
	[ 'upgraded; shared', 'E share, E lock', 'L share, L fence' ],
	[ 'upgraded, has fenced as sharer; shared', 'E share, E fence, E lock', 'L share, L fence' ],
	[ 'upgraded, has fenced in both modes; shared', 'E share, E fence, E lock, E fence', 'L share, L fence' ],
	[ 'upgraded; exclusive', 'E share, E lock', 'L lock, L fence' ],
	[ 'shared; a sharer that upgrades', 'L share, E share', 'L lock, L fence' ],
	[ 'shared; a sharer that has fenced, and upgrades', 'L share, L fence, E share', 'L lock, L fence' ],
	[ 'shared, has fenced before; a sharer that upgrades', 'L share, E share, E fence', 'L lock, L fence' ],
	[ 'shared; a former exclusive holder that upgrades', 'L lock, L fence, L share, L unlock, E share', 'L lock, L fence' ],
	[ 'shared; the same, has fenced as sharer', 'L lock, L fence, L share, L unlock, L fence, E share', 'L lock, L fence' ],
	[ 'downgraded; exclusive', 'E lock, E fence, E share, E unlock', 'L lock, L fence' ],
	[ 'upgraded again; shared', 'E lock, E fence, E share, E unlock, E fence, E lock, E fence', 'L share, L fence' ],
	[ 'exclusive; exclusive, rolled back', 'E lock', 'L lock, L rolledback' ],
	[ 'kept and taken again; exclusive', 'E lock, E fence, E unlock', 'L lock, L fence', 'E lock' ]);
for my $case (@cases)
{
	my ($what, $before, $meanwhile, $after) = @$case;
	my %s = (E => stoppable('keep_time' => $after ? '10min' : 0), L => session($node), R => session($node));
	my $do = sub {
		for (split /, /, $_[0] // '')
		{
			my ($who, $step) = split;
			$s{$who}->query_ok(sprintf $sql{$step}, "'$what'");
		}
	};
	$do->($before);
	$s{E}->query_ok("BEGIN; INSERT INTO t VALUES ('$what')");
	stop_holder($s{E});
	$do->($meanwhile);
	$do->($after);
	refused($s{E}, $what, "$what: the fence of the earlier holder is refused");
	$s{E}->query('COMMIT');
	is(rows_with($node, $what), 0, "$what: the earlier holder cannot commit");
	$_->quit for values %s;
}


# No question: nobody has fenced, or sharers only, or holders that this one follows.
{
	my ($s, $sharer, $other) = (stoppable(), session($node), session($node));
	$other->query_ok("SELECT zk_lock('alone'), zk_fence('alone'), zk_unlock('alone')");
	$s->query_ok("SELECT zk_lock('alone')");
	passes_alone($s, 'alone', 'the first fence of a holder needs no answer if nobody has fenced since');
	passes_alone($s, 'alone', 'further fences need no answer');
	$s->query_ok("SELECT zk_unlock('alone'), zk_lock_shared('alone')");
	$sharer->query_ok("SELECT zk_lock_shared('alone'), zk_fence('alone')");
	passes_alone($s, 'alone', 'the fence of a sharer needs no answer if other sharers have fenced');
	$sharer->query_ok("SELECT zk_unlock_shared('alone')");
	$s->query_ok("SELECT zk_lock('alone')");
	passes_alone($s, 'alone', 'the fence of an upgraded holder needs no answer if it has fenced after all other sharers');
	$s->query_ok('SELECT zk_unlock_all()');
	$s->query_ok("SELECT zk_lock('alone')");
	stop_holder($s);
	passes_alone($s, 'alone', 'the fence of a stopped holder needs no answer while no later holder has fenced');
	$_->quit for $s, $sharer, $other;
}


# Waits: the heavyweight lock is held to the end of the top transaction.
my $handler = "DO \$\$ BEGIN PERFORM zk_fence('%s'); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END \$\$";
for my $case (
	[ 'a fence', "SELECT zk_fence('%s')" ],
	[ 'a fence, rolled back to a savepoint', "SAVEPOINT a; SELECT zk_fence('%s'); ROLLBACK TO a" ],
	[ 'a fence in a subtransaction', "SAVEPOINT a; SELECT zk_fence('%s'); RELEASE a" ],
	[ 'a fence in a block with an exception handler', $handler ])
{
	my ($what, $sql) = @$case;
	my ($earlier, $later) = (stoppable(), session($node));
	$earlier->query_ok("SELECT zk_lock('$what')");
	$earlier->query_ok("BEGIN; INSERT INTO t VALUES ('$what')");
	$earlier->query_ok(sprintf $sql, $what);
	stop_holder($earlier);
	$later->query_ok("BEGIN; SELECT zk_lock('$what')");
	$later->query_async("SELECT zk_fence('$what') > 0, count(*) FROM t WHERE v = '$what'");
	wait_blocked($later, or => sub { $later->finished });
	works(session($node), 'SELECT pg_blocking_pids(' . $later->pid . ')', '{' . $earlier->pid . '}',
		"$what: a later holder waits for the transaction of the earlier one");
	$later->cancel;
	failed_with($later, '57014', "$what: the wait can be cancelled", hint => 0, like => qr/while trying to fence lock/);
	$later->query_ok('ROLLBACK; BEGIN');
	$later->query_async("SELECT zk_fence('$what') > 0");
	wait_blocked($later, or => sub { $later->finished });
	$earlier->query_ok('COMMIT');
	is($later->wait_result, 't', "$what: the later holder fences after the commit of the earlier one");
	works($later, "SELECT count(*) FROM t WHERE v = '$what'", '1', "$what: the later holder sees the rows of the earlier one");
	$later->query_ok('COMMIT');
	$proxy->thaw;
	$_->quit for $earlier, $later;
}

# The transaction that has fenced ends without a commit.
{
	my ($earlier, $later) = (stoppable(), session($node));
	$earlier->query_ok("SELECT zk_lock('ended')");
	$earlier->query_ok("BEGIN; SELECT zk_fence('ended')");
	stop_holder($earlier);
	$later->query_ok("BEGIN; SELECT zk_xact_lock('ended')");
	$later->query_async("SELECT zk_fence('ended') > 0");
	wait_blocked_locally($later);
	$earlier->terminate;
	is($later->wait_result, 't', 'the fence succeeds after the end of the earlier session');
	$later->query_ok('COMMIT');
	$proxy->thaw;
	$later->quit;
}


# An unanswered question ends by a cancel, with the session's own clock, or with the answer.
{
	my ($s, $other) = (stoppable(), session($node));
	my $ask = sub {
		$s->query_ok("SELECT zk_lock_shared('asked')") if $s->query("SELECT zk_lock_token('asked')") eq '';
		$other->query_ok("SELECT zk_lock_shared('asked'), zk_fence('asked'), zk_unlock_shared('asked')");
		$s->query_ok("SELECT zk_lock('asked')") if $s->query(q(SELECT mode FROM zk_held_locks WHERE name = 'asked')) eq 'shared';
		$s->query_ok("BEGIN; INSERT INTO t VALUES ('asked'); SAVEPOINT a");
		$proxy->freeze;
		$s->query_async("SELECT zk_fence('asked') > 0");
		wait_blocked($s, or => sub { $s->finished });    # a session with a short timeout may have ended the wait
	};
	$ask->();
	works($other, 'SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $s->pid, 'Extension',
		'a fence that asks waits for the ensemble');
	$s->cancel;
	failed_with($s, '57014', 'the question can be cancelled', hint => 0, like => qr/while trying to fence lock "asked"/);
	$s->query_ok('ROLLBACK TO a; COMMIT');
	is(rows_with($node, 'asked'), 1, 'a transaction whose fence was cancelled can commit without the fence');
	$s->query_async("BEGIN; SELECT zk_fence('asked') > 0");
	wait_blocked($s);
	$proxy->thaw;
	is($s->wait_result, 't', 'the next fence asks again, and succeeds with the answer');
	$s->query_ok('COMMIT');
	$s->quit;

	$s = stoppable(session_timeout => '12s');
	$ask->();
	failed_with($s, '40001', 'a question without an answer fails when the session can no longer be trusted');
	$s->query('ROLLBACK TO a; COMMIT');
	is(rows_with($node, 'asked'), 1, 'its transaction cannot commit, even if the error is caught');
	$proxy->thaw;
	$_->quit for $s, $other;
}


# Two names with one pair of generations cost each other a question, and are refused by nobody.
{
	my $same = $node->safe_psql('postgres', <<'SQL');
SELECT string_agg(name, ' ') FROM (
	SELECT name, ((get_byte(h, 6) & 31) << 8) + get_byte(h, 7) AS slot
	FROM (SELECT 'same ' || i AS name, sha256(convert_to('same%20' || i, 'UTF8')) AS h FROM generate_series(1, 2000) AS i) AS a) AS b
GROUP BY slot ORDER BY count(*) DESC, slot LIMIT 1
SQL
	my ($one, $two) = $same =~ /(same \d+) (same \d+)/ or die $same;
	# No session sends a proof of its own meanwhile.
	my ($s, $t) = map { session_with($node, session_timeout => '10min') } 1 .. 2;
	$s->query_ok("SELECT zk_lock('$one')");
	$t->query_ok("SELECT zk_lock('$two')");
	my @ids = map { zk_session_id($_) } $s, $t;
	my $asked = sub { my $n = 0; $n += requests_of($zk, $_) for @ids; return $n };
	my $before = $asked->();
	works($s, "SELECT zk_fence('$one') > 0", 't', 'the first of two names with one pair');
	is($asked->(), $before, 'the fence of the first name sends no request');
	works($t, "SELECT zk_fence('$two') > 0", 't', 'the second of two names with one pair');
	cmp_ok($asked->(), '>', $before, 'the fence of the second name asks: the two share a pair');
	works($s, "SELECT zk_fence('$one') > 0", 't', 'the first name again');
	$before = $asked->();
	for (1 .. 3)
	{
		$s->query_ok("SELECT zk_fence('$one')");
		$t->query_ok("SELECT zk_fence('$two')");
	}
	is($asked->(), $before, 'when each has asked once, neither asks again');
	$_->quit for $s, $t;
}

# Ten thousand other names during one hold (more than there are pairs), in any database.
{
	my ($long, $crowd) = (stoppable(), session($node));
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION zklock');
	my $other = session($node, dbname => 'other');
	$long->query_ok("SELECT zk_lock('long'), zk_fence('long')");
	my $fence_all = sub {
		my ($s, $from, $to) = @_;
		$s->query_ok(<<"SQL", timeout => 600);
DO \$\$
BEGIN
	FOR i IN $from .. $to LOOP
		PERFORM zk_lock_many((SELECT array_agg('crowd' || i || '.' || j) FROM generate_series(1, 1000) AS j));
		PERFORM zk_fence('crowd' || i || '.' || j) FROM generate_series(1, 1000) AS j;
		PERFORM zk_unlock_all();
		COMMIT;
	END LOOP;
END \$\$
SQL
	};
	$fence_all->($other, 1, 2);
	passes_alone($long, 'long', 'names of another database cost no question');
	$fence_all->($crowd, 1, 10);
	works($long, "SELECT zk_fence('long') = zk_lock_token('long')", 't', 'a long holder fences after 10,000 other names');
	passes_alone($long, 'long', 'its next fence needs no answer');
	my $id = zk_session_id($long);
	$long->query_ok("BEGIN; INSERT INTO t VALUES ('long')");
	stop_holder($long);
	$crowd->query_ok("SELECT zk_lock('long'), zk_fence('long')");
	refused($long, 'long', 'and is refused when a later holder has fenced');
	$_->quit for $long, $crowd, $other;
}
nothing_left($zkc, 'fencing leaves no node in the ensemble');


# A prepared transaction keeps the fence over a crash; all holders end with the crash.
{
	my ($earlier, $later) = map { session($node) } 1, 2;
	$earlier->query_ok("SELECT zk_lock('prepared')");
	$earlier->query_ok("BEGIN; INSERT INTO t VALUES ('prepared'); SELECT zk_fence('prepared'); PREPARE TRANSACTION 'fence'");
	$earlier->query_ok("SELECT zk_unlock('prepared')");
	$later->query_ok("SELECT zk_lock('prepared')");
	$later->query_ok("SET lock_timeout = '100ms'");
	fails_with($later, "SELECT zk_fence('prepared')", '55P03', 'a later holder waits for a prepared transaction that has fenced',
		hint => 0, like => qr/while trying to fence lock "prepared"/);
	$later->kill9;
	$_->drop for $earlier, $later;
	wait_for_sql($node, q(SELECT count(*) FROM pg_prepared_xacts), '1');
	$later = session($node);
	$later->query_ok("BEGIN; SELECT zk_xact_lock('prepared')");
	$later->query_async("SELECT zk_fence('prepared') > 0");
	wait_blocked_locally($later);
	pass('a later holder also waits after a crash of the server');
	$node->safe_psql('postgres', q(COMMIT PREPARED 'fence'));
	is($later->wait_result, 't', 'the later holder fences after COMMIT PREPARED');
	works($later, q(SELECT count(*) FROM t WHERE v = 'prepared'), '1', 'the later holder sees what was committed');
	$later->query_ok('COMMIT');
	$later->quit;
}


# A standby: refused during recovery. A hold from that time asks after the promotion, because
# the fences of the primary were in the primary's memory.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
{
	my ($prepared, $later) = map { session($node) } 1, 2;
	my ($stopped, $healthy) = map {
		session_with($standby, connect_string => $proxy->connect_string, session_timeout => '10min')
	} 1, 2;
	$stopped->query_ok("SELECT zk_lock('stopped')");
	$healthy->query_ok("SELECT zk_lock('healthy'), zk_lock_shared('healthy shared')");
	fails_with($healthy, "SELECT zk_fence('$_')", '25006', "a standby refuses the fence of $_", hint => 0)
	  for 'healthy', 'healthy shared';
	$prepared->query_ok("SELECT zk_lock('across')");
	$prepared->query_ok("BEGIN; INSERT INTO t VALUES ('across'); SELECT zk_fence('across'); PREPARE TRANSACTION 'across'");
	$prepared->quit;
	stop_holder($stopped);
	$later->query_ok("SELECT zk_lock('stopped')");
	$later->query_ok("BEGIN; SELECT zk_fence('stopped'); INSERT INTO t VALUES ('later'); COMMIT");
	$later->quit;
	$node->wait_for_catchup($standby);
	$node->stop;
	$standby->promote;
	refused($stopped, 'stopped', 'a hold from before the promotion, which the primary saw a later holder fence, is refused');
	works($healthy, "SELECT zk_fence('$_') > 0", 't', "after the promotion the healthy holder of $_ fences")
	  for 'healthy', 'healthy shared';
	passes_alone($healthy, 'healthy', 'its next fence needs no answer');

	my $new = session($standby);
	$new->query_ok("BEGIN; SELECT zk_xact_lock('across')");
	$new->query_async("SELECT zk_fence('across') > 0");
	wait_blocked_locally($new);
	pass('a prepared transaction keeps its fence over a promotion');
	$standby->safe_psql('postgres', q(COMMIT PREPARED 'across'));
	is($new->wait_result, 't', 'a later holder on the promoted server fences after COMMIT PREPARED');
	$new->query_ok('COMMIT');
	$_->quit for $stopped, $healthy, $new;
}
nothing_left($zkc, 'nothing is left in the ensemble');
