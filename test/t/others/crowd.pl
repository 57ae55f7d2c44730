# SQL sessions of two servers and Java and Python threads contend for one lock. A referee
# that is independent of the lock service checks every acquisition and release.
#
# Promises: 1.1, 9.1

use ZkLock::Crowd;
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);
my ($a, $b) = map { shared_node($_, zk => $zk) } qw(a b);

sub path { return "/zklock/locks/$_[0]" }

# Members.
sub program
{
	my ($driver, $kind, $lock, $mode) = @_;
	return { lock => $driver->lock($kind => path($lock)), mode => $mode };
}

sub java { return program($java, @_) }
sub python { return program($python, @_) }

sub sql
{
	my ($server, $names, $lock, $mode) = @_;
	my $kind = $mode eq 'x' ? 'exclusive' : 'shared';
	return {
		lock => $python->lock($kind => $lock, sql => $server, node_names => $names),
		mode => $mode
	};
}

# kazoo's readers wait for writers behind them, and these writers for the readers (see
# others/kazoo_locks.pl): the readers need a short timeout, and the writers pause.
sub with_timeout { my ($member) = @_; return { %$member, timeout => 200 } }
sub with_pause { my ($member) = @_; return { %$member, pause => 100 } }

my %crowd = (zkc => $zkc, duration => 2500, hold_time => 3);
my $crowd = ZkLock::Crowd->new(%crowd);
my $sharing = ZkLock::Crowd->new(%crowd, meeting => 2);
my $three = ZkLock::Crowd->new(%crowd, meeting => 3);

my $report = $crowd->contend_safely('mutexes', 'm',
	map({ java(mutex => 'm', 'x') } 1 .. 3),
	map({ python(curator_mutex => 'm', 'x') } 1 .. 3),
	map({ sql($_, 'curator_mutex', 'm', 'x') } $a, $a, $b, $b));
is($report->{most}{m}, 1, 'mutexes: one holder at a time');

$report = $sharing->contend_safely('readers and writers of Curator', 'rw',
	map({ java(write => 'rw', 'x') } 1 .. 2),
	map({ java(read => 'rw', 's') } 1 .. 4),
	python(curator_write => 'rw', 'x'),
	map({ sql($_, 'curator', 'rw', 'x') } $a, $b),
	map({ sql($_, 'curator', 'rw', 's') } $a, $a, $b, $b));
cmp_ok($report->{most}{rw}, '>', 1, 'readers and writers of Curator: readers held the lock together');

$report = $crowd->contend_safely("kazoo's locks", 'k',
	map({ python(lock => 'k', 'x') } 1 .. 3),
	map({ python(write => 'k', 'x') } 1 .. 2),
	map({ sql($_, 'kazoo', 'k', 'x') } $a, $a, $b, $b));
is($report->{most}{k}, 1, "kazoo's locks: one holder at a time");

$report = $sharing->contend_safely("kazoo's readers and writers", 'krw',
	map({ with_pause(python(write => 'krw', 'x')) } 1 .. 2),
	map({ with_timeout(python(read => 'krw', 's')) } 1 .. 3),
	map({ with_pause(sql($_, 'kazoo', 'krw', 'x')) } $a, $b),
	map({ sql($_, 'kazoo', 'krw', 's') } $a, $a, $b, $b));
cmp_ok($report->{most}{krw}, '>', 1, "kazoo's readers and writers: readers held the lock together");

$report = $sharing->contend_safely('SQL alone, with three lock recipes', 'sql',
	map({ my $names = $_; map { sql($_, $names, 'sql', 'x') } $a, $b }
		  qw(curator curator_mutex kazoo)),
	map({ my $names = $_; map { sql($_, $names, 'sql', 's') } $a, $b }
		  qw(curator kazoo)));
cmp_ok($report->{most}{sql}, '>', 1, 'SQL alone, with three lock recipes: readers held the lock together');

# Semaphores of capacity three, and of capacity one.
sub permit
{
	my ($driver, $names, $name, $capacity, $mode) = @_;
	my $lock = ref $driver && $driver->isa('ZkLock::Opponent')
	  ? $driver->lock(semaphore => "/zklock/semaphores/$name", leases => $capacity)
	  : $python->lock(permit => $name, sql => $driver, node_names => $names, leases => $capacity);
	return { lock => $lock, mode => $mode };
}

for my $names ('curator', 'kazoo')
{
	$report = $three->contend_safely("three permits, node names of $names", "three.$names",
		map({ permit($_, $names, "three.$names", 3, 3) } ($java) x 4, $a, $a, $b, $b));
	is($report->{most}{"three.$names"}, 3, "three permits, node names of $names: three holders");
	$report = $crowd->contend_safely("one permit, node names of $names", "one.$names",
		map({ permit($_, $names, "one.$names", 1, 'x') } ($java) x 3, $a, $b));
	is($report->{most}{"one.$names"}, 1, "one permit, node names of $names: one at a time");
}

# The referee detects different lock recipes on one lock: kazoo does not recognize
# Curator's node names.
$report = $crowd->contend('different lock recipes', 'wrong',
	map({ python(lock => 'wrong', 'x') } 1 .. 3),
	map({ sql($_, 'curator_mutex', 'wrong', 'x') } $a, $b));
cmp_ok(scalar(@{ $report->{overlaps} }), '>', 0,
	'different lock recipes: the referee saw two holders at once');
like($report->{overlaps}[0], qr/^member\d x entered wrong beside member\d x/,
	'different lock recipes: the report names both holders');
