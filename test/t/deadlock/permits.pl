# Deadlocks through permits of semaphores are detected.
# Exactly one participant fails, and without a deadlock none.
#
# Promise: 7.2

use Sys::Hostname qw(hostname);
use ZkLock::Deadlock qw(lock_row wait_until_reported);
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $d = ZkLock::Deadlock->start([qw(a b c)], zk => $zk, extra_conf => "deadlock_timeout = '300ms'\nlog_lock_waits = on\n");

# Semaphores keep their capacity for some time after their last use, so each has a
# different name.
sub acquire { return "SELECT zk_xact_acquire_permit('$_[0]', $_[1])" }

sub permit { return qr/waits for a permit of semaphore "$_[0]"; blocked by process/ }

my $program = ZkLock::Opponent->curator($zk->connect_string);

# The only permits of two semaphores.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($s, acquire('x', 1));
	$d->hold($t, acquire('y', 1));
	$d->wait_for($s, acquire('y', 1));
	$d->wait_for($t, acquire('x', 1));
	my @server = map { $_->node->port } $s, $t;
	my $victim = $d->is_resolved("each other's only permit",
		qr/ERROR:  deadlock detected while waiting for semaphore "[xy]"$/m,
		qr/Process ${\$s->pid} on server \S+:$server[0] waits for a permit of semaphore "y"; blocked by process ${\$t->pid} on server \S+:$server[1]\./,
		qr/Process ${\$t->pid} on server \S+:$server[1] waits for a permit of semaphore "x"; blocked by process ${\$s->pid} on server \S+:$server[0]\./);
	my $log = PostgreSQL::Test::Utils::slurp_file($victim->node->logfile);
	like($log, qr/Process ${\$victim->pid}: SELECT zk_xact_acquire_permit\('[xy]', 1\)/,
		'the server log contains the statement');
	like($log, qr/process ${\$victim->pid} still waiting for a permit of semaphore "[xy]" after/,
		'the server log contains the long wait');
}

# A lock, a permit and a row: the wait for the row is last, then that for the permit.
for my $last ('row', 'permit')
{
	my ($s, $t, $u) = map { $d->open($_) } qw(a b b);
	$d->hold($s, acquire('x', 1));
	$d->hold($t, "SELECT zk_xact_lock('l')");
	$d->hold($u, lock_row(1));
	$d->wait_for($s, "SELECT zk_xact_lock('l')");
	my @waits = ([ $u, acquire('x', 1) ], [ $t, lock_row(1) ]);
	$d->wait_for(@$_) for $last eq 'row' ? @waits : reverse @waits;
	$d->is_resolved("a lock, a permit, a row; the $last last",
		permit('x'), qr/waits for exclusive lock "l"/, qr/ShareLock on transaction/);
}

# A session that holds nothing but a permit waits for a row.
{
	my ($s, $t) = map { $d->open($_) } qw(a a);
	my $far = $d->open('b');
	$d->hold($s, acquire('x', 1));
	$d->hold($t, lock_row(2));
	$d->hold($far, acquire('y', 1));
	$d->wait_for($s, lock_row(2));
	$d->wait_for($t, acquire('y', 1));
	$d->wait_for($far, acquire('x', 1));
	$d->is_resolved('two permits and a row', permit('x'), permit('y'));
}

# One of two holders does not wait, so there is no deadlock until it waits as well.
{
	my ($s, $t, $u) = map { $d->open($_) } qw(a b c);
	$d->hold($_, acquire('two', 2)) for $s, $t;
	$d->hold($u, "SELECT zk_xact_lock('l')");
	$d->wait_for($u, acquire('two', 2));
	$d->wait_for($s, "SELECT zk_xact_lock('l')");
	wait_until_reported($zkc, 2);
	$d->nobody_fails('no deadlock while one of two holders does not wait');
	$d->wait_for($t, "SELECT zk_xact_lock('l')");
	$d->is_resolved('a deadlock when both holders wait', permit('two'));
}

# The second waiter in the queue for permits.
{
	my ($s, $t, $u) = map { $d->open($_) } qw(a b c);
	$d->hold($s, acquire('x', 1));
	$d->hold($u, "SELECT zk_xact_lock('l')");
	$d->wait_for($t, acquire('x', 1));
	wait_for_sql($t->node, 'SELECT count(*) FROM zk_blocking(' . $t->pid . ')', '1');
	$d->wait_for($u, acquire('x', 1));
	wait_for_sql($u->node, 'SELECT count(*) FROM zk_blocking(' . $u->pid . ')', '2');
	my $seen = session($d->{nodes}{c});
	is($seen->query_ok("SELECT concat_ws(' ', server, pid, name, mode, granted) FROM zk_blocking("
			  . $u->pid . ')'),
		join("\n", map { hostname() . ':' . $_->[0]->node->port . ' ' . $_->[0]->pid . " x permit $_->[1]" }
			  [ $s, 't' ], [ $t, 'f' ]),
		'zk_blocking() shows the holder and the waiter ahead');
	$seen->quit;
	$d->wait_for($s, "SELECT zk_xact_lock('l')");
	$d->is_resolved('second in the queue for permits', permit('x'));
}

# Another program holds one of two permits.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	my $theirs = $program->lock(semaphore => '/zklock/semaphores/two', leases => 2);
	ok($theirs->acquire(10_000), 'another program acquires a permit');
	$d->hold($s, acquire('two', 2));
	$d->hold($t, "SELECT zk_xact_lock('l')");
	$d->wait_for($t, acquire('two', 2));
	$d->wait_for($s, "SELECT zk_xact_lock('l')");
	wait_until_reported($zkc, 2);
	$d->nobody_fails('no deadlock while another program may release');
	$theirs->release;
	$d->all_succeed('all succeed after the release of the other program', $zkc);
	$theirs->close;
}

wait_zk_empty($zkc, '/zklock/waiting');
nothing_left($zkc, 'no node is left');
