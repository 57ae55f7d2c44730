# doc/examples/scheduler.py, on two servers that have no table in common: each slot runs exactly
# once, although the backend of a scheduler is stopped and loses the lock, its program is stopped,
# and a server cannot be reached. Slots that nobody has run in time run later.
#
# Promises: 1.1, 5.2, 5.5

use ZkLock::Clients;
use ZkLock::Test;

plan skip_all => 'psycopg is not installed' unless has_psycopg();

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my %nodes = map { $_ => zklock_node($_, zk => $zk, session_timeout => '10s', extra_conf => "listen_addresses = '127.0.0.1'\n") } qw(one two);
create_gates($_) for values %nodes;
$_->safe_psql('postgres', <<'SQL') for values %nodes;
CREATE TABLE slots (slot bigint PRIMARY KEY, run_at timestamptz DEFAULT now());
CREATE TRIGGER gate BEFORE INSERT ON slots FOR EACH ROW EXECUTE FUNCTION pass_gate(2);
SQL

sub start_scheduler
{
	my @servers = @_;
	return run_example('scheduler.py', $servers[0], '0.5',
		map { sprintf 'postgresql://%s@127.0.0.1:%d/postgres?application_name=%s', scalar getpwuid($>), $nodes{$_}->port, $servers[0] } @servers);
}

my %run = (one => start_scheduler(qw(one two)));

sub slots { return split /\n/, $nodes{ $_[0] }->safe_psql('postgres', 'SELECT slot FROM slots ORDER BY slot') }

# Waits until the scheduler of this server has run more slots.
sub wait_slots
{
	my ($server) = @_;
	my $last = (slots($server))[-1] // 0;
	return wait_for_sql($nodes{$server}, "SELECT count(*) > 2 FROM slots WHERE slot > $last", 't',
		diag => sub { join "\n", map { "$_: " . $run{$_}->log } sort keys %run });
}

# Waits until the scheduler of this server waits for the other one.
sub wait_candidate
{
	my ($server) = @_;
	wait_for_sql($nodes{$server}, "SELECT wait_event_type FROM pg_stat_activity WHERE application_name = '$server' AND query LIKE 'CALL%'",
		'Extension', diag => sub { $run{$server}->log });
	return;
}

# Waits until the scheduler of this server is in the transaction of a slot, calls $stop with its
# backend, and lets the transaction go on.
sub stop_in_slot
{
	my ($server, $stop) = @_;
	my $gate = close_gate(\%nodes, IN_WORK, $server);
	$stop->(wait_at_gate(\%nodes, IN_WORK, $run{$server}, $server));
	open_gate($gate);
	return;
}

# One assertion: the slots of both servers together are all, and each of them once.
sub exactly_once
{
	my ($name) = @_;
	my @slots = sort { $a <=> $b } map { slots($_) } qw(one two);
	return is("@slots", join(' ', $slots[0] .. $slots[-1]), $name);
}

sub set_read_only
{
	my ($node, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET default_transaction_read_only = $value");
	$node->reload;
	return;
}

wait_slots('one');
$run{two} = start_scheduler(qw(two one));
wait_candidate('two');
is(join(' ', slots('two')), '', 'one of two schedulers runs all slots');

{
	my $backend;
	stop_in_slot('one', sub { hold_still($backend = $_[0]) });
	wait_slots('two');
	my $slots = slots('one');
	kill 'CONT', $backend;
	$run{one}->wait_log(qr/not the leader/);
	wait_candidate('one');
	is(slots('one'), $slots, 'a scheduler whose backend was stopped in a slot, and has lost the lock, does not commit');
	exactly_once('each slot runs exactly once although a backend was stopped');
}

{
	stop_in_slot('two', sub { hold_still($run{two}{pid}) });
	wait_slots('one');
	my $slots = slots('two');
	$run{two}->signal('CONT')->wait_log(qr/not the leader/);
	wait_candidate('two');
	is(slots('two'), $slots, 'a scheduler whose program was stopped in a slot does not commit');
	exactly_once('each slot runs exactly once although a program was stopped');
}

# No step succeeds while the other server is read-only, as a standby, which may lag behind, or down.
{
	$run{two}->signal('TERM')->wait;
	is($?, 0, 'a candidate ends at SIGTERM') or diag($run{two}->log);
	set_read_only($nodes{two}, 'on');
	$run{one}->wait_log(qr/not the leader.*session is read-only/s);
	pass('the slots of a server that may be a standby are not read');
	set_read_only($nodes{two}, 'off');
	$nodes{two}->stop;
	my $refused = qr/not the leader.*refused/s;
	$run{one}->wait_log($refused);
	my $slots = slots('one');
	$run{one}->wait_log(qr/$refused.*$refused.*$refused/s);
	is(slots('one'), $slots, 'no slot runs while the other database cannot be reached');
	$nodes{two}->start;
	wait_slots('one');
	exactly_once('slots that did not run in time have run later');
}

$run{one}->signal('TERM')->wait;
is($?, 0, 'a scheduler ends at SIGTERM') or diag($run{one}->log);
nothing_left($zkc, 'no node is left');
