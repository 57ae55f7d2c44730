# zk_lock_tree shows each waiter once, below a session that blocks it, and each holder that blocks
# somebody. The first scene is the pile-up of doc/troubleshooting.md: three servers, a holder that
# sleeps, two levels of waiters, a semaphore, a Curator program.

use ZkLock::Document qw(block_of);
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my %nodes = (
	(map { $_ => shared_node($_, zk => $zk, set => { 'zklock.deadlock_detection' => 'off' }) } qw(db1 db2)),
	db3 => zklock_node('db3', zk => $zk));
my %name_of;
my $reader = session($nodes{db1});
my $tree = 'SELECT tree, name, mode, granted, waits_for, application_name FROM zk_lock_tree';
my $pids = 4000;

# A session that has executed these statements; a last one that waits is sent, and has queued.
sub party
{
	my ($server, $name, @statements) = @_;
	my $s = session($nodes{$server}, application_name => $name);
	my $waits = @statements > 1 && $statements[-1] =~ s/^waits: // ? pop @statements : undef;
	$s->query_ok($_) for @statements;
	$name_of{ $s->query_ok(q(SELECT zk_server() || '/' || pg_backend_pid())) } = "$server:5432/" . ($pids += 11);
	if ($waits)
	{
		$s->query_async($waits);
		$waits =~ /sleep/ ? wait_asleep($s) : wait_queued($name);
	}
	return $s;
}

# Waits until a session with this name waits in the ensemble. Its backend waits also while it connects.
sub wait_queued
{
	my ($name) = @_;
	return wait_until("$name to wait", sub {
		$reader->query_ok("SELECT count(*) FROM zk_locks WHERE application_name = '$name' AND NOT granted") > 0 });
}

# The output of psql with the names of the document instead of those of this run.
sub shown
{
	my ($sql) = @_;
	my ($rc, $text) = $nodes{db1}->psql('postgres', $sql, extra_params => [ '-A', '-F', '|', '-P', 'tuples_only=off', '-P', 'footer=off' ]);
	for my $real (sort { length $b <=> length $a } keys %name_of)
	{
		$text =~ s/\Q$real\E(?!\d)/$name_of{$real}/g;
	}
	return $text =~ s/0x[0-9a-f]+/0x100000d54dd000d/gr;
}

# The document's block in the same form.
sub document
{
	my ($word) = @_;
	my @lines = grep { !/^-/ } split /\n/, block_of('doc/troubleshooting.md', $word);
	s/^ //, s/ *\| */|/g, s/ +$// for @lines;
	$lines[0] =~ s/^ +//;
	return join "\n", @lines;
}

my $java = ZkLock::Opponent->curator($zk->connect_string);
my @sessions = (
	party(db1 => 'nightly', "SELECT zk_lock('invoices')", 'waits: SELECT pg_sleep(600)'),
	party(db2 => 'import', "SELECT zk_lock('stock')", "waits: SELECT zk_lock('invoices')"),
	party(db3 => 'report', 'SELECT 1', "waits: SELECT zk_lock_shared('stock')"),
	party(db3 => 'api1', "SELECT zk_acquire_permit('pool', 2)", "waits: SELECT zk_lock('invoices')"),
	party(db1 => 'api2', "SELECT zk_acquire_permit('pool', 2)", 'waits: SELECT pg_sleep(600)'),
	party(db2 => 'api3', 'SELECT 1', "waits: SELECT zk_acquire_permit('pool', 2)"),
	party(db1 => 'idle', "SELECT zk_lock('nobody waits')"));
my $curator = $java->lock(mutex => '/zklock/locks/stock');
$curator->acquire_async;
wait_zk_children($zkc, '/zklock/locks/stock', 3);
is(shown($tree), document('pile-up'), 'the pile-up of the document');
works($reader, q(SELECT count(*), count(DISTINCT (name, granted, application_name)), bool_and(requested_at <= now() + interval '1 min'),
	count(pid) FILTER (WHERE tree LIKE '%' || server || '/' || pid) FROM zk_lock_tree), '9|9|t|8', 'each row is there once');
$sessions[0]->cancel;
$sessions[0]->wait_result;
$_->terminate for @sessions;
ok($curator->wait_result, 'the Curator program gets its lock');
$curator->release;
nothing_left($zkc, 'no node is left after the pile-up');
works($reader, 'SELECT count(*) FROM zk_lock_tree', '0', 'without waiters the view is empty');

# Returns "indentation:application:name:granted" of each row.
sub outline
{
	return $reader->query_ok(q(SELECT string_agg(format('%s%s %s %s', substring(tree FROM '^ *'), application_name, name,
		CASE WHEN granted THEN 'holds' ELSE 'waits' END), E'\n') FROM zk_lock_tree));
}

@sessions = (
	party(db1 => 's1', "SELECT zk_lock_shared('conf')"),
	party(db2 => 's2', "SELECT zk_lock_shared('conf')"),
	party(db3 => 'w', 'SELECT 1', "waits: SELECT zk_lock('conf')"),
	party(db1 => 'r', 'SELECT 1', "waits: SELECT zk_lock_shared('conf')"));
is(outline(), join("\n", 's1 conf holds', '  w conf waits', '    r conf waits', 's2 conf holds'),
	'all sharers block the writer, and the writer blocks a later reader');
$sessions[1]->query_async("SELECT zk_lock('conf') > 0");
wait_zk_children($zkc, '/zklock/locks/conf', 5);
is(outline(), join("\n", 's1 conf holds', '  s2 conf waits', '  s2 conf holds', '    r conf waits', '  w conf waits'),
	'of two sharers one upgrades: it waits for the other one and not for itself, and comes before the writer');
$_->terminate for @sessions;
nothing_left($zkc, 'no node is left of the sharers');

# A deadlock that nobody searches.
@sessions = (party(db1 => 'a', "SELECT zk_lock('a')"), party(db2 => 'b', "SELECT zk_lock('b')"));
$sessions[0]->query_async("SELECT zk_lock('b')");
$sessions[1]->query_async("SELECT zk_lock('a')");
wait_queued($_) for qw(a b);
push @sessions, party(db3 => 'c', 'SELECT 1', "waits: SELECT zk_lock('b')");
is(outline(), join("\n", 'a a holds', 'b a waits', 'b b holds', 'a b waits', 'c b waits'),
	'each row of a deadlock is there once, without indentation');
$_->terminate for @sessions;
nothing_left($zkc, 'no node is left at the end');
