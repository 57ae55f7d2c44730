# Symfony's PostgreSqlStore, unchanged, over the extension zklock_advisory: it looks its own
# locks up in pg_locks, and releases only what it finds there. The steps below get the same
# answers from two programs on one server with PostgreSQL's functions, and from two programs
# on two servers with the extension, also during an outage of the ensemble. After a loss
# the lock is not there.
#
# Promise: 1.1, 1.3, 1.4, 3.2, 5.3

use ZkLock::Symfony;
use ZkLock::Test;

plan skip_all => 'php, its pgsql driver, or symfony/lock is not installed'
  unless succeeds('php', '-r',
	q(exit(extension_loaded('pdo_pgsql') && file_exists('/usr/share/php/Symfony/Component/Lock/autoload.php') ? 0 : 1);));

use constant DROP_IN => '"$user", public, zklock_advisory, pg_catalog';

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::Proxy->start(target => $zk);
my %nodes = (A => shared_node('one', zk => $proxy), B => shared_node('two', zk => $zk));
$_->safe_psql('postgres', 'CREATE EXTENSION zklock_advisory') for values %nodes;

# Program, order and lock, answer. "waits: " begins an order that waits, and "=" is its answer.
my @steps = (
	[ A => 'acquire report', 'true' ],
	[ A => 'held report', 'true' ],
	[ A => 'refresh report', 'done' ],
	[ B => 'acquire report', 'false' ],
	[ B => 'held report', 'false' ],
	[ B => 'read report', 'false' ],
	[ B => 'refresh report', 'LockConflictedException' ],
	[ A => 'acquire report#2', 'false' ],
	[ A => 'acquire other', 'true' ],
	[ A => 'release report', 'done' ],
	[ A => 'held report', 'false' ],
	[ A => 'held other', 'true' ],
	[ B => 'acquire report', 'true' ],
	[ A => 'waits: wait report' ],
	[ B => 'release report', 'done' ],
	[ A => '=', 'true' ],
	# shared, twice in one program; to exclusive while another shares; back to shared
	[ B => 'waits: wait_read report' ],
	[ A => 'read report', 'true' ],
	[ B => '=', 'true' ],
	[ A => 'read report#2', 'true' ],
	[ A => 'release report#2', 'done' ],
	[ A => 'held report', 'true' ],
	[ A => 'waits: wait report' ],
	[ B => 'release report', 'done' ],
	[ A => '=', 'true' ],
	[ B => 'read report', 'false' ],
	[ A => 'release report', 'done' ],
	[ B => 'acquire report', 'true' ],
	[ B => 'release report', 'done' ]);

sub answers
{
	my (%programs) = @_;
	my @answers;
	for my $step (@steps)
	{
		my ($name, $order, $expected) = @$step;
		my $program = $programs{$name};
		if ($order =~ s/^waits: //)
		{
			$program->write_line($order);
			wait_blocked($program);
			next;
		}
		push @answers, "$name $order: " . ($order eq '=' ? $program->read_line('the wait') : $program->order($order));
	}
	return \@answers;
}

my @expected = map { "$_->[0] $_->[1]: $_->[2]" } grep { defined $_->[2] } @steps;
is(scalar @expected, 26, 'there are 26 answers');
{
	my %programs = map { $_ => ZkLock::Symfony->start($nodes{A}) } qw(A B);
	is_deeply(answers(%programs), \@expected, 'the answers with pg_advisory_lock on one server');
	$_->stop for values %programs;
}
my %programs = map { $_ => ZkLock::Symfony->start($nodes{$_}, DROP_IN) } qw(A B);
is_deeply(answers(%programs), \@expected, 'the answers on two servers');
is($programs{A}->order('release other'), 'done', 'the other lock is released');
nothing_left($zkc, 'the programs have released every lock while they are connected');

# An outage: the view reads nothing from the ensemble.
is($programs{A}->order('acquire report'), 'true', 'a lock before the outage');
$proxy->cut(refuse => 1);
is($programs{A}->order('held report'), 'true', 'the lock is held during an outage');
is($programs{A}->order('release report'), 'done', 'and released');
is($programs{A}->order('held report'), 'false', 'and then it is not held');
$proxy->accept;
nothing_left($zkc, 'the release reaches the ensemble after the outage');

# A loss.
is($programs{B}->order('acquire report'), 'true', 'a lock before its loss');
my ($lock, $id) = split /\|/, $nodes{B}->safe_psql('postgres', 'SELECT name, session_id FROM zk_locks');
lose_lock($zk, $zkc, $lock, $id);
is($programs{B}->order('held report'), 'PDOException', 'the loss is an error');
is($programs{B}->order('held report'), 'false', 'after the loss the lock is not held');
is($programs{B}->order('acquire report'), 'true', 'and can be acquired again');
is($programs{B}->order('release report'), 'done', 'and released');

$_->stop for values %programs;
nothing_left($zkc, 'no node is left');
