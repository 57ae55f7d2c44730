# The libraries of clients/ for psycopg2, psycopg 3 and JDBC: transactions that hold a lock. They
# exclude each other over two servers, are repeated only if they certainly have not committed,
# and a job runs once for each tick, also if a worker is killed. A client whose driver is not
# installed is skipped. programs/client_leaders.pl tests session-level locks and leaders.

use PostgreSQL::Test::Utils;
use ZkLock::Clients;
use ZkLock::Test;

my $servers = ZkLock::Clients->start;
my $zkc = $servers->{zkc};
my @clients = $servers->clients(41);

# All clients at once, on both servers, and through a pooler in transaction mode.
{
	$servers->start_pooler;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/number';
	my $times = 15;
	write_file($file, '0');
	my @runs = map {
		my $client = $_;
		map { $servers->run($client, $_, 'count', 'counter', $file, $times) } qw(one two pooled)
	} @clients;
	like($_->wait, qr/^done$/m, 'a program has counted') for @runs;
	is(read_file($file), $times * @runs, 'transactions of all drivers on both servers, also through a pooler, exclude each other');
}

# Returns the output of a program whose obstacle is removed when it waits at a gate.
sub at_gate
{
	my ($gate, $client, $obstacle, @command) = @_;
	my $closed = $servers->close_gate($gate);
	my $run = $servers->run($client, 'one', @command);
	$obstacle->($servers->wait_at_gate($gate, $run));
	$run->wait_log(qr/failed|trying again/);
	open_gate($closed);
	return $run->wait;
}

sub check_repetition
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "repeat:$client->{name}");
	my %obstacle = (
		'whose lock is lost' => sub { $servers->delete_nodes($lock) },
		'whose connection breaks' => sub { $servers->terminate($_[0]) });
	for my $what (sort keys %obstacle)
	{
		like(at_gate(IN_WORK, $client, $obstacle{$what}, 'work', $lock, 'w'), qr/trying again.*\bdone$/ms,
			"$name: a transaction $what is repeated");
		is($servers->work_done, 'w', "$name: a transaction $what commits once");
	}
	like(at_gate(AT_COMMIT, $client, $obstacle{'whose lock is lost'}, 'work', $lock, 'w'),
		qr/attempt 1: 40001, trying again.*^done$/ms, "$name: a commit that is refused is repeated");
	is($servers->work_done, 'w', "$name: a commit that is refused has not happened");

	for my $state (qw(40P01 08001 08006 57P01 57P02 57P03 57P05 25006 23505))
	{
		$servers->{one}->safe_psql('postgres', 'ALTER SEQUENCE stumbles RESTART');
		my $output = $servers->run($client, 'one', 'stumble', $lock, $state)->wait;
		my $expected = $state eq '23505' ? qr/\Afailed: 23505$/ : qr/attempt 1: $state, trying again.*^done$/ms;
		like($output, $expected, "$name: SQLSTATE $state " . ($state eq '23505' ? 'is raised' : 'is repeated'));
	}
	return;
}

# A deadlock with a session that waits for the lock. The program begins to wait last, so it
# detects the deadlock.
sub check_deadlock
{
	my ($client) = @_;
	my $lock = "deadlock:$client->{name}";
	my $gate = $servers->close_gate(IN_WORK);
	my $other = $servers->close_gate(AT_COMMIT);
	$other->query_ok("SET deadlock_timeout = '1h'");
	my $run = $servers->run($client, 'one', 'work', $lock, 'w');
	$servers->wait_at_gate(IN_WORK, $run);
	$other->query_async("SELECT zk_lock('$lock')");
	wait_blocked_locally($other);
	open_gate($gate);
	$other->wait_result;
	$other->query_ok("SELECT zk_unlock('$lock')");
	open_gate($other);
	like($run->wait, qr/attempt 1: 40P01, trying again.*^done$/ms, "$client->{name}: a deadlock is repeated");
	is($servers->work_done, 'w', "$client->{name}: a transaction that was in a deadlock commits once");
	return;
}

# The connection breaks during COMMIT: first before, then after the server has committed.
sub check_unknown_commit
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "unknown:$client->{name}");
	my $break = sub { $servers->terminate($_[0]) };
	my $output = at_gate(AT_COMMIT, $client, $break, 'work', $lock, 'w');
	like($output, qr/failed: CommitUnknown$/, "$name: a connection that breaks during COMMIT is reported");
	unlike($output, qr/trying again/, "$name: a transaction whose connection breaks during COMMIT is not repeated");
	is($servers->work_done, '', "$name: the server has not committed before the connection broke");

	my $one = $servers->{one};
	require_standby($one);
	for my $command ([ 'work', $lock, 'w' ], [ 'once', $lock, 'tick', 'w' ])
	{
		my $run = $servers->run($client, 'one', @$command);
		my $waiting = q(FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = 'COMMIT');
		wait_for_sql($one, "SELECT count(*) $waiting", '1', diag => sub { $run->log });
		$servers->terminate($one->safe_psql('postgres', "SELECT pid $waiting"));
		$output = $run->wait;
		like($output, qr/failed: CommitUnknown$/, "$name: $command->[0]: the unknown commit is reported");
		unlike($output, qr/trying again/, "$name: $command->[0]: the unknown commit is not repeated");
		is($servers->work_done, 'w', "$name: $command->[0]: the server has committed before the connection broke");
	}
	$one->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
	$one->reload;
	is($servers->run($client, 'one', 'once', $lock, 'tick', 'w')->wait, "has run\n",
		"$name: the record of a tick answers whether its unknown commit has happened");
	is($servers->work_done, '', "$name: the job of a recorded tick does not run again");
	return;
}

sub check_refusals
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "refused:$client->{name}");
	my $other = session($servers->{two});
	$other->query_ok("SELECT zk_lock('$lock')");
	is($servers->run($client, 'one', 'work', $lock, 'w', '0.1')->wait, "failed: LockTimeout\n",
		"$name: a lock that another session holds is reported after the timeout");
	$servers->{one}->safe_psql('postgres', "ALTER DATABASE postgres SET lock_timeout = '100ms'");
	is($servers->run($client, 'one', 'work', $lock, 'w')->wait, "failed: LockTimeout\n",
		"$name: a lock that another session holds is reported after lock_timeout");
	$servers->{one}->safe_psql('postgres', 'ALTER DATABASE postgres RESET lock_timeout');
	$other->query_ok("SELECT zk_unlock('$lock')");
	is($servers->run($client, 'one', 'swallow', $lock)->wait, "failed: NotCommitted\n",
		"$name: an error that the work has caught is reported");
	like($servers->run($client, 'one', 'in_transaction', $lock)->wait,
		qr/\Afailed: (?:ValueError|IllegalStateException)$/, "$name: a connection inside a transaction is refused");
	is($servers->work_done, '', "$name: the transaction of a connection that is refused is not committed");
	is($servers->run($client, 'one', 'failing_release', $lock, 'w')->wait, "done\n",
		"$name: a connection that breaks after the commit is no error");
	is($servers->work_done, 'w', "$name: a transaction whose connection breaks after the commit is not repeated");
	return if $name ne 'psycopg2';
	is($servers->run($client, 'one', 'session_ends', $lock, 'w')->wait, "done\n",
		"$name: a session whose settings cannot be restored after the commit is no error");
	is($servers->work_done, 'w', "$name: a transaction whose settings cannot be restored is not repeated");
	return;
}

# Waits until one program waits at a gate, and the others for its lock.
sub wait_blocked_programs
{
	my ($n) = @_;
	return wait_for_sql($servers->{one}, q(SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'), $n);
}

# Three workers run each of four ticks; the one that begins is killed in two of them.
sub check_ticks
{
	my ($client) = @_;
	my ($name, $job) = ($client->{name}, "job:$client->{name}");
	my @ticks = (1 .. 4);
	my (@answers, @done);
	for my $tick (@ticks)
	{
		my $gate = $servers->close_gate(IN_WORK);
		my @runs = map { $servers->run($client, 'one', 'once', $job, $tick, "tick$tick") } 1 .. 3;
		wait_blocked_programs(3);
		my $backend = $servers->wait_at_gate(IN_WORK, $runs[0]);
		if ($tick % 2)
		{
			my $victim = $servers->run_of_backend($backend, @runs);
			$victim->signal('KILL')->wait;
			@runs = grep { $_ != $victim } @runs;
			wait_blocked_programs(2);
		}
		open_gate($gate);
		push @answers, join ' ', sort map { $_->wait =~ s/\n//r } @runs;
		push @done, $servers->work_done;
	}
	is_deeply(\@done, [ map { "tick$_" } @ticks ], "$name: each tick runs exactly once");
	is_deeply(\@answers, [ ('has run ran', 'has run has run ran') x 2 ], "$name: one worker reports that it has run");
	return;
}

for my $client (@clients)
{
	check_repetition($client);
	check_deadlock($client);
	check_unknown_commit($client);
	check_refusals($client);
	check_ticks($client);
	nothing_left($zkc, "$client->{name}: no node is left");
}

for my $client (grep { $_->{name} eq 'psycopg2' } @clients)
{
	is($servers->run($client, 'one', 'pooled', 'pool')->wait, "1 False\n",
		'psycopg2: a pool gets its connection back, as it was');
}
