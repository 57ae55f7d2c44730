# The libraries of clients/ for psycopg2, psycopg 3 and JDBC: locks at session level, leaders, and
# jobs of several databases. A leader that is killed, loses the lock or is asked to release it has a
# successor on the other server, steps down, and reports it, also while it is idle. SIGTERM ends a candidate and a
# leader, and leaves nothing behind. A client whose driver is not installed is skipped.

use POSIX qw(mkfifo);
use PostgreSQL::Test::Utils;
use ZkLock::Clients;
use ZkLock::Test;

use constant RARELY => 3600;    # seconds between two steps of a leader

my $servers = ZkLock::Clients->start;
my $zkc = $servers->{zkc};
my @clients = $servers->clients(66);
my $other = session($servers->{two});

sub path_of { return "/zklock/locks/$_[0]" }

# Starts a leader and waits until it has done its first step.
sub start_leader
{
	my ($client, $server, $lock, $by, $every) = @_;
	my $run = $servers->run($client, $server, 'lead', $lock, $by, $every);
	$servers->wait_work_of($by, $run, $server);
	return $run;
}

sub stopped_by_term
{
	my ($client, $run, $name) = @_;
	my $output = $run->signal('TERM')->wait;
	my $status = $client->{name} eq 'JDBC' ? 143 << 8 : 0;
	return ok($? == $status && $output =~ /^stopped$/m, "$client->{name}: $name") || diag("$?: $output");
}

# The process of the leader is killed: while it is idle, and while a statement runs.
sub check_killed_leader
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "killed:$client->{name}");
	my $first = start_leader($client, 'one', $lock, 'first', RARELY);
	my $second = $servers->run($client, 'two', 'lead', $lock, 'second', 0.01);
	wait_zk_children($zkc, path_of($lock), 2, diag => sub { $second->log });
	is($servers->work_done('two'), '', "$name: a candidate does not lead while the leader lives");
	$first->signal('KILL')->wait;
	ok($servers->wait_work_of('second', $second, 'two'), "$name: the candidate leads when the idle leader is killed");

	my $third = $servers->run($client, 'one', 'lead', $lock, 'third', RARELY);
	wait_zk_children($zkc, path_of($lock), 2, diag => sub { $third->log });
	my $gate = $servers->close_gate(IN_WORK, 'two');
	$servers->wait_at_gate(IN_WORK, $second, 'two');
	$second->signal('KILL')->wait;
	ok($servers->wait_work_of('third', $third), "$name: the next one leads when the leader is killed in a statement");
	open_gate($gate);
	stopped_by_term($client, $third, 'an idle leader stops at SIGTERM');
	nothing_left($zkc, "$name: killed leaders leave nothing");
	$servers->work_done($_) for qw(one two);
	return;
}

# The leader loses the lock: by the end of its session, while it is idle; by the end of its node,
# while a statement runs.
sub check_lost_leadership
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "lost:$client->{name}");
	my $run = start_leader($client, 'one', $lock, 'leader', RARELY);
	my $token = token_of_holder($lock);
	$zkc->end_session(session_of_holder($lock));
	$run->wait_log(qr/not the leader/);
	pass("$name: an idle leader whose session expired steps down and reports it");
	wait_for_sql($servers->{one}, q(SELECT count(*) FROM work WHERE by = 'leader'), '2', diag => sub { $run->log });
	cmp_ok(token_of_holder($lock), '>', $token, "$name: it leads again, with a greater token");
	stopped_by_term($client, $run, 'it stops at SIGTERM');
	$servers->work_done;

	for my $every (0, 0.5)
	{
		$run = $servers->run($client, 'one', 'lead_elsewhere', $lock, $every);
		$run->wait_log(qr/^step/m);
		$servers->delete_nodes($lock);
		$run->wait_log(qr/not the leader/);
		pass("$name: a leader with a step each $every s elsewhere notices that its node is deleted");
		$run->signal('KILL')->wait;
	}

	my $gate = $servers->close_gate(AT_COMMIT);
	$run = $servers->run($client, 'one', 'lead', $lock, 'leader', RARELY);
	$servers->wait_at_gate(AT_COMMIT, $run);
	$other->query_async("SELECT zk_lock('$lock')");
	wait_zk_children($zkc, path_of($lock), 2);
	$zkc->delete((queue_of($zkc, $lock))[0]);
	$other->wait_result;
	$run->wait_log(qr/not the leader/);
	pass("$name: a leader whose node is deleted cannot finish its statement, and steps down");
	open_gate($gate);
	is($servers->work_done, '', "$name: a leader whose node is deleted has committed nothing");
	$other->query_ok("SELECT zk_unlock('$lock')");
	$servers->wait_work_of('leader', $run);
	stopped_by_term($client, $run, "$name: the program leads again, until SIGTERM");
	$servers->work_done;
	return;
}

# A release is requested of the idle leader: the next candidate leads, and the former leader is a
# candidate again.
sub check_revoked_leader
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "revoked:$client->{name}");
	my $first = start_leader($client, 'one', $lock, 'first', RARELY);
	$servers->work_done;
	my $second = $servers->run($client, 'two', 'lead', $lock, 'second', RARELY);
	wait_zk_children($zkc, path_of($lock), 2, diag => sub { $second->log });
	works($other, "SELECT zk_revoke('$lock')", '1', "$name: the release is requested");
	ok($servers->wait_work_of('second', $second, 'two'), "$name: a leader gives up the leadership when its release is requested");
	ok($first->wait_log(qr/not the leader of \S+ a release was requested/), "$name: the former leader reports the request");
	wait_zk_children($zkc, path_of($lock), 2, diag => sub { $first->log });
	is($servers->work_done, '', "$name: the former leader does no further step while another one leads");
	stopped_by_term($client, $second, 'the leader stops at SIGTERM');
	ok($servers->wait_work_of('first', $first), "$name: the former leader leads again when its successor stops");
	stopped_by_term($client, $first, 'a leader that was revoked before stops at SIGTERM');
	$servers->work_done($_) for qw(one two);
	return;
}

# A candidate that is stopped while it waits acquires the lock, and does nothing with it.
sub check_hanging_candidate
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "hanging:$client->{name}");
	$servers->{one}->safe_psql('postgres', "ALTER DATABASE postgres SET idle_session_timeout = '3s'");
	$other->query_ok("SELECT zk_lock('$lock')");
	my $run = $servers->run($client, 'one', 'lead', $lock, 'candidate', RARELY);
	wait_zk_children($zkc, path_of($lock), 2, diag => sub { $run->log });
	$servers->{one}->safe_psql('postgres', 'ALTER DATABASE postgres RESET idle_session_timeout');
	hold_still($run->{pid});
	$other->query_ok("SELECT zk_unlock('$lock')");
	works($other, "SELECT zk_lock('$lock') > 0", 't', "$name: a program that hangs loses the lock that it has waited for, after idle_session_timeout");
	$run->signal('CONT')->wait_log(qr/not the leader/);
	$other->query_ok("SELECT zk_unlock('$lock')");
	ok($servers->wait_work_of('candidate', $run), "$name: it leads when it goes on");
	stopped_by_term($client, $run, 'a leader that hung as a candidate stops at SIGTERM');
	$servers->work_done;
	return;
}

# The server refuses connections, and later accepts them.
sub check_refused_candidate
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "refused:$client->{name}");
	$servers->{one}->safe_psql('template1', 'ALTER DATABASE postgres ALLOW_CONNECTIONS false');
	my $run = $servers->run($client, 'one', 'lead', $lock, 'candidate', RARELY);
	$run->wait_log(qr/not the leader.*not currently accepting connections/s);
	$servers->{one}->safe_psql('template1', 'ALTER DATABASE postgres ALLOW_CONNECTIONS true');
	ok($servers->wait_work_of('candidate', $run), "$name: a candidate that is refused tries again");
	stopped_by_term($client, $run, 'a leader that was refused before stops at SIGTERM');
	$servers->work_done;
	return;
}

sub wait_candidate
{
	my ($run, $server) = @_;
	return wait_for_sql($servers->{$server},
		"SELECT count(*) FROM pg_stat_activity WHERE application_name = '$run->{name}' "
		  . "AND query LIKE 'CALL%' AND wait_event_type IN ('Lock', 'Extension')", '1', diag => sub { $run->log });
}

# A program may run a leader again after an error of a step.
sub check_second_run
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "again:$client->{name}");
	my $run = $servers->run($client, 'one', 'lead_again', $lock);
	$run->wait_log(qr/^holds/m);    # its first run, and hold(), look like a candidate, too
	wait_candidate($run, 'one');
	stopped_by_term($client, $run, 'a candidate that runs a second time stops at SIGTERM');
	return;
}

# The connection of the leader breaks: during COMMIT, and while it is idle.
sub check_broken_connection
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "broken:$client->{name}");
	my $gate = $servers->close_gate(AT_COMMIT);
	my $run = $servers->run($client, 'one', 'lead', $lock, 'leader', RARELY);
	$servers->terminate($servers->wait_at_gate(AT_COMMIT, $run));
	$run->wait_log(qr/not the leader of \S+ the connection broke during COMMIT/);
	pass("$name: a leader whose connection breaks during COMMIT steps down");
	open_gate($gate);
	ok($servers->wait_work_of('leader', $run), "$name: a leader whose connection broke during COMMIT leads again");
	$servers->work_done;
	$servers->terminate(backend_of($run));
	ok($servers->wait_work_of('leader', $run), "$name: an idle leader whose connection breaks leads again");
	stopped_by_term($client, $run, 'an idle leader stops at SIGTERM');
	$servers->work_done;
	return;
}

sub session_of_holder
{
	my ($lock) = @_;
	return $other->query_ok("SELECT session_id FROM zk_locks_of('$lock') WHERE granted");
}

sub backend_of
{
	my ($run) = @_;
	return $servers->{one}->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE application_name = '$run->{name}'");
}

sub token_of_holder
{
	my ($lock) = @_;
	return $other->query_ok("SELECT token FROM zk_locks_of('$lock') WHERE granted");
}

# SIGTERM while the program waits for the lock, on this and on the other server, and while a
# statement of a step runs.
sub check_sigterm
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "term:$client->{name}");
	$other->query_ok("SELECT zk_lock('$lock')");
	for my $server (qw(one two))
	{
		my $run = $servers->run($client, $server, 'lead', $lock, 'candidate', RARELY);
		wait_candidate($run, $server);
		stopped_by_term($client, $run, "a candidate on server $server stops at SIGTERM");
		wait_zk_children($zkc, path_of($lock), 1);
		wait_for_sql($servers->{$server},
			"SELECT count(*) FROM pg_stat_activity WHERE application_name = '$run->{name}'", '0');
	}
	works($other, "SELECT zk_unlock('$lock')", 't', "$name: the leader is undisturbed");

	is($servers->run($client, 'one', 'lead_one_step', $lock)->wait, "step\nstopped\n",
		"$name: a step can stop its leader, and is the last one");
	for my $command ('lead', $name eq 'JDBC' ? () : 'lead_handler')
	{
		my $gate = $servers->close_gate(IN_WORK);
		my $run = $servers->run($client, 'one', $command, $lock, 'leader', RARELY);
		$servers->wait_at_gate(IN_WORK, $run);
		if ($command eq 'lead')
		{
			stopped_by_term($client, $run, 'a leader whose statement waits stops at SIGTERM');
		}
		else
		{
			is($run->signal('TERM')->wait, "handler\n", "$name: a leader whose statement waits stops also by an exception of the signal handler");
		}
		nothing_left($zkc, "$name: $command: nothing is left");
		open_gate($gate);
		is($servers->work_done, '', "$name: $command: its transaction is rolled back");
	}
	return if $name eq 'JDBC';
	is(start_leader($client, 'one', $lock, 'leader', 0.01)->signal('TERM')->wait, "stopped\n",
		"$name: a leader with many short steps stops at SIGTERM");
	$servers->work_done;
	my $run = $servers->run($client, 'one', 'lead_handler', $lock, 'leader', 0.01);
	$servers->wait_work_of('leader', $run);
	is($run->signal('TERM')->wait, "handler\n", "$name: a leader with many short steps stops also by an exception of the signal handler");
	$servers->work_done;

	my $fifo = PostgreSQL::Test::Utils::tempdir() . "/stubborn:$name";
	mkfifo($fifo, 0600) or die "mkfifo: $!";
	$run = $servers->run($client, 'one', 'lead_stubbornly', $lock, $fifo);
	$run->wait_log(qr/step/);
	$run->signal('TERM')->wait_log(qr/signal\n/);
	$run->signal('TERM')->wait_log(qr/signal\nsignal\n/);
	works($other, "SELECT zk_try_lock('$lock')", 'f', "$name: the lock is held until the step has ended, also after two signals");
	write_file($fifo, 'end');
	like($run->wait, qr/handler$/, "$name: the program ends with the step");
	return;
}

like(`/usr/bin/python3 test/clients/signals.py`, qr/^0 of [1-9]/, 'a second signal, at any moment, waits for the end of the step');
is($?, 0, 'the program exits without a crash after a second signal');

# The main thread of the program ends before the thread in which it leads.
sub check_thread
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "thread:$client->{name}");
	my $run = $servers->run($client, 'one', 'lead_in_thread', $lock, 'leader', 'plain');
	$run->wait_log(qr/main ends/);
	$servers->wait_work_of('leader', $run);
	$servers->work_done;
	$servers->terminate(backend_of($run));
	ok($servers->wait_work_of('leader', $run), "$name: a thread leads again after the main thread has ended");
	$run->signal('KILL')->wait;
	is($servers->run($client, 'one', 'lead_in_thread', $lock, 'leader', 'daemon')->wait, "main ends\n",
		"$name: a daemon thread that leads ends with the program");
	$servers->work_done;
	return;
}

# A lock at session level, for several transactions.
sub check_hold
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "hold:$client->{name}");
	my $output = $servers->run($client, 'one', 'hold', $lock, 'h')->wait;
	like($output, qr/\Atoken \d+\ndone\n\z/, "$name: hold runs several transactions");
	is($servers->work_done, 'h h', "$name: the transactions of hold commit once");

	for my $state (qw(40001 40P01 23505))
	{
		$servers->{one}->safe_psql('postgres', 'ALTER SEQUENCE stumbles RESTART');
		my $expected = $state eq '23505' ? qr/\Afailed: 23505$/ : qr/attempt 1: $state, trying again.*^done$/ms;
		like($servers->run($client, 'one', 'held_stumble', $lock, $state)->wait, $expected,
			"$name: a transaction under a lock that is still held: SQLSTATE $state "
			  . ($state eq '23505' ? 'is raised' : 'is repeated'));
	}

	like($servers->run($client, 'one', 'nested', $lock, 'h')->wait, qr/\Afailed: (?:ValueError|IllegalStateException)$/,
		"$name: a transaction inside another one is refused");
	is($servers->work_done, '', "$name: a transaction with a transaction inside is not committed");
	is($servers->run($client, 'one', 'aborted', $lock)->wait, "failed: 25P02\n",
		"$name: a check in a failed transaction reports no loss");

	my $gate = $servers->close_gate(AT_COMMIT);
	my $run = $servers->run($client, 'one', 'hold', $lock, 'h');
	$servers->wait_at_gate(AT_COMMIT, $run);
	is($servers->run($client, 'two', 'hold', $lock, 'h', '0')->wait, "failed: LockTimeout\n",
		"$name: hold excludes the other server");
	$servers->delete_nodes($lock);
	is($run->wait, "failed: LockLost\n", "$name: a lock that is lost is reported, and its transaction is not repeated");
	open_gate($gate);
	is($servers->work_done, '', "$name: a transaction whose lock is lost is not committed");

	my $fifo = PostgreSQL::Test::Utils::tempdir() . "/$name";
	mkfifo($fifo, 0600) or die "mkfifo: $!";
	$run = $servers->run($client, 'one', 'lose', $lock, $fifo);
	$run->wait_log(qr/holds/);
	lose_lock($servers->{zk}, $zkc, $lock, session_of_holder($lock));
	write_file($fifo, 'end');
	is($run->wait, "holds $lock\nfailed: LockLost\n", "$name: the end of hold reports a loss that nothing has reported");
	return;
}

# A job of workers with a database each: the lock is held for a minimum time.
sub check_at_most_once
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "most:$client->{name}");
	my $run = $servers->run($client, 'one', 'most', $lock, RARELY);
	$run->wait_log(qr/works/);
	is($servers->run($client, 'two', 'most', $lock, RARELY)->wait, "another\n",
		"$name: the job of another database does not run while the first one holds the lock");
	$servers->delete_nodes($lock);
	is($run->wait, "works\nfailed: LockLost\n", "$name: a loss after the work is reported");
	is($servers->run($client, 'two', 'most', $lock, 0)->wait, "works\nran\n", "$name: the next job runs");

	$other->query_ok("SELECT zk_lock('$lock.busy')");
	is($servers->run($client, 'one', 'most_busy', $lock, "$lock.busy")->wait, "failed: LockTimeout\n",
		"$name: work that waits for another lock in vain has failed");
	$other->query_ok("SELECT zk_unlock('$lock.busy')");
	return;
}

for my $client (@clients)
{
	check_killed_leader($client);
	check_lost_leadership($client);
	check_revoked_leader($client);
	check_hanging_candidate($client);
	check_refused_candidate($client);
	check_second_run($client) if $client->{name} eq 'JDBC';
	check_broken_connection($client);
	check_sigterm($client);
	check_thread($client) if $client->{name} ne 'JDBC';
	check_hold($client);
	check_at_most_once($client);
	nothing_left($zkc, "$client->{name}: no node is left");
}
