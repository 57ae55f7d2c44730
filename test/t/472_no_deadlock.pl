# Promise 7.2: no false alarms. What looks like a deadlock and is none, or has
# ceased to be one, is left alone. Every wait here lasts for longer than
# deadlock_timeout, so that it is published and searched.

use strict;
use warnings;

use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Deadlock qw(wait_reports wait_until_reported);
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;

my $zk = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my %node = map {
	my $node = zklock_node($_, zk => $zk,
		extra_conf => "deadlock_timeout = '100ms'\n");
	$node->safe_psql('postgres',
		'CREATE TABLE t AS SELECT g AS id, 0 AS v FROM generate_series(1, 9) g');
	($_ => $node)
} qw(a b c);
my $d = ZkLock::Deadlock->new(%node);

sub lock_row { return "UPDATE t SET v = v + 1 WHERE id = $_[0]" }


# A chain of seven over three servers, all of it told; released from its end.
{
	my @s = map { $d->open((qw(a b c))[ $_ % 3 ]) } 0 .. 6;
	$d->hold($s[$_], "SELECT zk_xact_lock('x$_')") for 0 .. 6;
	$d->wait_for($s[$_], "SELECT zk_xact_lock('x" . ($_ + 1) . "')")
	  for 0 .. 5;
	wait_until_reported($zkc, qr/\.w\./, 6);
	$d->release($s[6]);
	$d->all_succeed('a chain goes on from its end, one after the other');
}
is(scalar(wait_reports($zkc)), 0, '... and no wait is published any more');

# A blocking sharer has left, unnoticed by a session that waits behind another,
# and waits for that one now.
{
	my ($s, $left, $stays) = map { $d->open($_) } qw(a b c);
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($left, "SELECT zk_lock_shared('y')");
	$d->hold($stays, "SELECT zk_lock_shared('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	wait_until_reported($zkc, qr/\.w\./, 1);
	$left->query_ok("SELECT zk_unlock_shared('y')");
	$d->wait_for($left, "SELECT zk_xact_lock('x')");
	wait_until_reported($zkc, qr/./, 2);
	$d->release($stays);
	$d->all_succeed('who has left is in nobody\'s way');
}

# A wait for a row ends by its lock_timeout, again and again; a session that waits behind
# it on another server is left alone.
{
	my ($s, $t, $u) = map { $d->open($_) } qw(a b a);
	$s->query_ok("SET lock_timeout = '250ms'");
	$d->hold($u, lock_row(1));
	$d->hold($s, "SELECT zk_lock('x')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	my @ended;
	for (1 .. 3)
	{
		$s->query_ok('SAVEPOINT p');
		$s->query(lock_row(1));
		push @ended, $s->sqlstate;
		$s->query_ok('ROLLBACK TO p');
	}
	is_deeply(\@ended, [ ('55P03') x 3 ],
		'a wait for a row behind one that waits for nobody times out');
	$s->query_ok("SET lock_timeout = 0");
	$d->release($s);
	$d->all_succeed('... and the one far away goes on when it may');
}

# A circle that lock_timeout breaks before it is looked at.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$_->query_ok("SET deadlock_timeout = '1min'") for $s, $t;
	$s->query_ok("SET lock_timeout = '500ms'");
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	$t->query_ok("SELECT zk_xact_lock('x')");
	is($t->sqlstate, '00000', 'lock_timeout ends a circle first: the other goes on');
	failed_with($s, '55P03', '... and it is reported as that', hint => 0);
	$d->{waiting} = [];
	$d->close;
}

# Another program's holder: nobody knows what it waits for.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	my $foreign = foreign_node($zkc, '/zklock/locks/f', 'WRIT');
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->wait_for($s, "SELECT zk_xact_lock('f')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	wait_until_reported($zkc, qr/\.w\./, 2);
	$zkc->delete($foreign);
	$d->all_succeed('behind a holder of another program one waits');
}

# Somebody who waits is killed with its session: what it told goes with it.
{
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	wait_until_reported($zkc, qr/\.w\./, 1);
	$s->terminate;
	wait_until_reported($zkc, qr/./, 0);
	$t->query_ok("SELECT zk_xact_lock('x')");
	ok($t->ok, 'who was terminated is in nobody\'s way, and tells nothing');
	$d->{waiting} = [];
	$d->close;
}

# Off: nothing is published or read, lock_timeout ends the wait.
{
	$_->append_conf('postgresql.conf', 'zklock.deadlock_detection = off'),
	  $_->reload
	  for values %node;
	my ($s, $t) = map { $d->open($_) } qw(a b);
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->hold($t, "SELECT zk_xact_lock('y')");
	$t->query_ok("SET lock_timeout = '3s'");
	my $before = $zkc->exists('/zklock/waits')->{cversion};
	$d->wait_for($s, "SELECT zk_xact_lock('y')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	failed_with($t, '55P03', 'off: a deadlock is ended by lock_timeout', hint => 0);
	is($zkc->exists('/zklock/waits')->{cversion}, $before, '... and nothing is published');
	$d->{waiting} = [$s];
	$d->all_succeed('... and the other goes on');
}

# A backend shows its session to others of its server by one lock of its own.
{
	$_->append_conf('postgresql.conf', 'zklock.deadlock_detection = on'),
	  $_->reload
	  for values %node;
	my $s = $d->open('a');
	$s->query_ok("SELECT zk_xact_lock('x'), zk_xact_lock('y')");
	my $own = "SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = " . $s->pid;
	is($node{a}->safe_psql('postgres', $own), '1', 'a session is shown once');
	$s->query_ok('COMMIT');
	$s->query_ok('SELECT pg_advisory_unlock_all()');
	$s->query_ok("SELECT zk_lock('x')");
	is($node{a}->safe_psql('postgres', $own), '1', '... again after it was taken away');
	$d->close;
}

# A holder whose session is over, and who queues behind the one that waits for what
# the ensemble has left of that session, is not waited for.
{
	my ($s, $t) = map { $d->open('a') } 1 .. 2;
	# The outage lasts until the loss is noticed and the server has started again.
	$_->query_ok("SET zklock.connect_timeout = '5min'") for $s, $t;
	$d->hold($s, "SELECT zk_xact_lock('x')");
	$d->wait_for($t, "SELECT zk_xact_lock('x')");
	$zk->kill9;
	fails_with($s, 'SELECT pg_sleep(60)', '40001', 'a lock is lost in an outage');
	$s->query_ok('ROLLBACK');

	# Which gives every session the whole of its time again.
	$zk->restart;
	wait_until('a wait to be told, or over', sub { $t->finished || grep { /\.w\./ } wait_reports($zkc) });
	$d->wait_for($s, "SELECT zk_xact_lock('x')");
	$d->all_succeed('who has lost its session waits behind what is left of it');
}

is(scalar(wait_reports($zkc)), 0, 'no wait is published any more');
nothing_left($zkc, 'nothing is left');
done_testing();
