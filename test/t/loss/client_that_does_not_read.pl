# A statement that sends to a client that does not read is not ended by a loss, as it is not by
# pg_cancel_backend: PostgreSQL handles no cancel while it sends. Other servers get the lock, and
# its own server's sessions wait. These end it, as the manual says: the client reads, the client
# closes the connection, pg_terminate_backend.
#
# Promises: 3.3, 5.3

use ZkLock::Test;

# PostgreSQL handles no cancel before a row is sent, and no row fits between the backend and a
# client that has stopped.
use constant COPY => q(COPY (SELECT repeat('x', 5000000) FROM generate_series(1, 3)) TO STDOUT);

my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my ($here, $there) = map { shared_node($_) } qw(here there);
my ($near, $far) = map { session($_) } $here, $there;

# The statement waits until its client reads.
sub is_sending
{
	my ($pid) = @_;
	return $near->query_ok(
		"SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND wait_event = 'ClientWrite'");
}

# What ends the statement.
my %ends = (
	'the client reads' => sub {
		my ($s, $name, $client) = @_;
		kill 'CONT', $client;
		$s->wait_result;		# psql has no SQLSTATE for a COPY that fails after its first row
		like($s->error, qr/^\S+ ERROR:  lock "x" was lost$/m, "$name: the statement fails");
		$s->quit;
	},
	'the client closes the connection' => sub { kill 'KILL', $_[2] },
	'pg_terminate_backend' => sub {
		my ($s, $name, $client) = @_;
		is($near->query_ok('SELECT pg_terminate_backend(' . $s->pid . ', 60000)'),
			't', "$name: the backend ends although its client does not read");
		kill 'KILL', $client;
	});

for my $end (sort keys %ends)
{
	my $s = connected_session($here);
	my $pid = $s->pid;
	my $client = $s->client_pid;

	$s->query_ok("SELECT zk_lock('x')");
	my $id = zk_session_id($s);
	$s->query_async(COPY);
	wait_until("$end: the statement to send", sub { is_sending($pid) });
	hold_still($client);
	wait_until("$end: the statement to wait for its client", sub { is_sending($pid) });
	lose_lock($zk, $zkc, 'x', $id);
	works($far, "SELECT zk_try_lock('x', '1min'), zk_unlock('x')", 't|t', "$end: another server gets the lost lock");
	works($near, "SELECT pg_cancel_backend($pid)", 't', "$end: a cancel is sent as well");
	works($near, "SELECT zk_try_lock('x')", 'f', "$end: the own server waits for the statement");
	is(is_sending($pid), 1, "$end: the statement still waits for its client");
	$ends{$end}->($s, $end, $client);
	works($near, "SELECT zk_try_lock('x', '1min'), zk_unlock('x')", 't|t', "$end: then the own server gets the lock");
}
nothing_left($zkc, 'no contender is left');
