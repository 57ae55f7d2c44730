# The machine is suspended, or its virtual machine stopped, while a session holds a lock, and goes on
# an hour later: the locks have been lost meanwhile. The session finds that by its own clock, which
# counts the time of the suspension, and does not wait for what the ensemble says: the first answer
# may come from a follower that is behind.
#
# Promises: 5.1, 5.2, 5.11

use ZkLock::Shim;
use ZkLock::Test;

# The kernel's number of the clock that counts the time of a suspension.
use constant CLOCK_BOOTTIME => 7;

# The session timeout is so long that no session is lost because this machine is slow.
my $zk = ZkLock::ZkServer->start;
my $shim = ZkLock::Shim->build;
my $node = do {
	local @ENV{ $shim->names } = $shim->values;
	zklock_node('a', zk => $zk, session_timeout => '1min');
};
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');

# What a session does meanwhile. Each has a lock of its own.
my %s = map { $_ => session($node) } qw(runs commits idles);
for my $work (sort keys %s)
{
	$s{$work}->query_ok("BEGIN; SELECT zk_xact_lock('$work'); INSERT INTO t VALUES ('$work')");
}
$s{runs}->query_async('SELECT pg_sleep(600)');
wait_asleep($s{runs});

# The timer that ends the statement of a session whose I/O thread is late.
my @clocks = read_file('/proc/' . $s{runs}->pid . '/timers') =~ /^ClockID: (\d+)$/mg;
is("@{[ grep { $_ == CLOCK_BOOTTIME } @clocks ]}", CLOCK_BOOTTIME, 'the timer of a backend counts the time of a suspension')
  or diag("clocks: @clocks");

$shim->break('suspend');
fails_with($s{commits}, 'COMMIT', '40001', 'a commit after a suspension is refused', like => qr/lock "commits" was lost/);
failed_with($s{runs}, '40001', 'a running statement ends', like => qr/lock "runs" was lost.*did not confirm the session in time/s);
wait_until('the loss of an idle transaction', sub { $s{idles}->query('SELECT 1'); !$s{idles}->ok });
like($s{idles}->error, qr/ERROR:  lock "idles" was lost.*did not confirm the session in time/s, 'a later statement of an idle transaction fails');
is($s{idles}->sqlstate, '40001', 'it fails with the SQLSTATE of a loss');
$_->query('ROLLBACK') for values %s;
is(rows_with($node, $_), 0, "nothing is committed by the session that $_") for sort keys %s;
is($node->safe_psql('postgres', 'SELECT locks_lost FROM zk_stat'), 3, 'the losses are counted');
