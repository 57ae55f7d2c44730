# doc/examples/leader.py, a leader that works under fencing, on a server and its standby: each order
# is dispatched once, and always by the leader. A leader whose program is stopped loses the lead, also
# if it was stopped as a candidate. A request to release the lock moves it. A leader whose server is
# stopped in the middle of a step, and goes on when the standby is promoted and another one leads,
# cannot commit.
#
# Promises: 1.1, 1.5, 5.2

use PostgreSQL::Test::Cluster;
use ZkLock::Clients;
use ZkLock::Test;

plan skip_all => 'psycopg is not installed' unless has_psycopg();

use constant LOCK => 'shop:dispatcher';

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $one = zklock_node('one', zk => $zk, session_timeout => '10s', init => [ allows_streaming => 1 ], extra_conf => "listen_addresses = '127.0.0.1'\n");
create_gates($one);
$one->safe_psql('postgres', <<'SQL');
CREATE TABLE orders (id bigint PRIMARY KEY);
CREATE TABLE couriers (name text PRIMARY KEY);
CREATE TABLE deliveries (order_id bigint, courier text, leader text, token bigint);
CREATE TRIGGER gate BEFORE INSERT ON deliveries FOR EACH ROW EXECUTE FUNCTION pass_gate(2);
SQL
$one->backup('base');
my $two = PostgreSQL::Test::Cluster->new('two');
$two->init_from_backup($one, 'base', has_streaming => 1);
$two->start;

my $primary = $one;
my @stopped;
END { kill 'CONT', @stopped }

sub start_candidate
{
	my ($name, @servers) = @_;
	return run_example('leader.py', $name, sprintf('postgresql://%s@%s/postgres?target_session_attrs=read-write&application_name=%s',
			scalar getpwuid($>), join(',', map { '127.0.0.1:' . $_->port } @servers), $name), $name);
}

my $orders = 0;

sub place_order
{
	$orders++;
	$primary->safe_psql('postgres', "INSERT INTO orders VALUES ($orders)");
	return $orders;
}

sub dispatched_by
{
	my ($order) = @_;
	return $primary->safe_psql('postgres', "SELECT string_agg(leader, ' ') FROM deliveries WHERE order_id = $order");
}

# One assertion: an order that is placed now is dispatched, by this candidate.
sub leads
{
	my ($run, $name) = @_;
	my $order = place_order();
	wait_for_sql($primary, "SELECT count(*) > 0 FROM deliveries WHERE order_id = $order", 't', diag => sub { $run->log });
	return is(dispatched_by($order), $run->{name}, $name);
}

# Waits until this candidate holds the lock, under a condition.
sub wait_leader
{
	my ($run, $condition) = (@_, '');
	return wait_for_sql($primary, "SELECT application_name FROM zk_locks_of('${\LOCK}') WHERE granted$condition",
		$run->{name}, diag => sub { $run->log });
}

# Waits until this program waits for the lock.
sub wait_candidate
{
	my ($run) = @_;
	return wait_for_sql($primary, "SELECT wait_event_type IN ('Lock', 'Extension') FROM pg_stat_activity "
		  . "WHERE application_name = '$run->{name}' AND query LIKE 'CALL%'", 't', diag => sub { $run->log });
}

my $first = start_candidate('first', $one, $two);

# There is an order, and no courier yet. The second LOCK waits until the transaction that waited for
# the first one has ended.
{
	my $locker = session($one);
	$locker->query_ok('BEGIN; LOCK TABLE couriers');
	place_order();
	wait_for_sql($one, q(SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%INTO deliveries%' AND wait_event_type = 'Lock'), '1',
		diag => sub { $first->log });
	$locker->query_ok('COMMIT');
	$locker->query_ok('BEGIN; LOCK TABLE couriers');
	works($locker, 'SELECT count(*) FROM deliveries', '0', 'no order is dispatched to nobody');
	$locker->query_ok(q(INSERT INTO couriers VALUES ('ann'), ('bob'); COMMIT));
}
leads($first, 'a single candidate leads');
my $second = start_candidate('second', $one, $two);
wait_candidate($second);

# The program is stopped. The session that nobody uses any more ends.
{
	hold_still($first->{pid});
	wait_leader($second);
	leads($second, 'a candidate leads when the program of the leader is stopped');
	$first->signal('CONT')->wait_log(qr/not the leader/);
	wait_candidate($first);
	leads($second, 'a program that goes on later does not lead');
}

sub request_release
{
	my ($name) = @_;
	return works(session($two), "SELECT zk_revoke('${\LOCK}')", '1', $name);
}

# The program of a candidate is stopped while it waits, and acquires the lock.
{
	hold_still($first->{pid});
	my $token = $primary->safe_psql('postgres', "SELECT token FROM zk_locks_of('${\LOCK}') WHERE granted");
	request_release('a release is requested while the next candidate is stopped');
	wait_leader($second, " AND token > $token");
	leads($second, 'a candidate leads when the program that became the leader was stopped before');
	$first->signal('CONT')->wait_log(qr/not the leader.*not the leader/s);
	wait_candidate($first);
}

# A request to release the lock, from the other server, during a step that has more to do. The holder
# has received it when its node has its own data again.
{
	my $gate = close_gate({ one => $one }, IN_WORK);
	my @placed = (place_order(), place_order());
	wait_at_gate({ one => $one }, IN_WORK, $second);
	my ($node) = queue_of($zkc, LOCK);
	my $data = $zkc->get($node)->{data};
	request_release('a session of the other server requests the release');
	wait_until('the holder to receive the request', sub { $zkc->get($node)->{data} eq $data });
	open_gate($gate);
	leads($first, 'the leadership moves when the release is requested');
	is(join(' ', map { dispatched_by($_) } @placed), 'second first', 'it moves before the next order, also if there are more');
}

# The primary is stopped in the middle of a step, between the fence and the commit, and the standby
# is promoted. Later the former primary goes on.
{
	$second->signal('TERM')->wait;
	is($?, 0, 'a candidate ends at SIGTERM') or diag($second->log);
	my $gate = close_gate({ one => $one }, IN_WORK);
	my $order = place_order();
	hold_still(wait_at_gate({ one => $one }, IN_WORK, $first));
	open_gate($gate);
	$one->wait_for_catchup($two);
	my $postmaster = postmaster_pid($one->data_dir);
	@stopped = ($postmaster, child_processes($postmaster));
	hold_still(@stopped);
	$two->promote;
	$primary = $two;
	my $third = start_candidate('third', $two, $one);
	leads($third, 'the promoted standby has a leader');
	is(dispatched_by($order), 'third', 'the successor does the work of the interrupted step');
	kill 'CONT', @stopped;
	@stopped = ();
	$first->wait_log(qr/not the leader/);
	is($one->safe_psql('postgres', "SELECT count(*) FROM deliveries WHERE order_id = $order"), '0',
		'the write of the deposed leader is refused on the former primary');
	leads($third, 'the successor still leads');
	for my $run ($first, $third)
	{
		$run->signal('TERM')->wait;
		is($?, 0, "$run->{name}: a candidate or leader ends at SIGTERM") or diag($run->log);
	}
}

is($primary->safe_psql('postgres', q(SELECT string_agg(order_id || ':' || n, ' ' ORDER BY order_id)
		FROM (SELECT order_id, count(*) AS n FROM deliveries GROUP BY order_id) d)),
	join(' ', map { "$_:1" } 1 .. $orders), 'each order is dispatched exactly once');
is($primary->safe_psql('postgres', q(SELECT bool_and(token > before) FROM (SELECT leader, token, order_id,
		lag(token) OVER w AS before, lag(leader) OVER w AS former FROM deliveries WINDOW w AS (ORDER BY order_id)) d WHERE leader <> former)),
	't', 'each leader has a greater token than the one before');
nothing_left($zkc, 'no node is left');
