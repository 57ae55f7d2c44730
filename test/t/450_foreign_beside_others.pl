# What others leave below a lock, while other programs contend for it too: numbers
# at the wrap, subtrees, garbage in the data, thousands of nodes. 240 has the rest.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(nothing_left works);
use ZkLock::Cluster;
use ZkLock::Duel;
use ZkLock::Opponent;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 60);
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);
my @servers = map {
	zklock_node(
		$_,
		zk => $zk,
		session_timeout => '10s',
		extra_conf => "log_lock_waits = on\ndeadlock_timeout = '50ms'\n")
} qw(a b);
my ($here, $there) = map { session($_) } @servers;

sub path { return "/zklock/locks/$_[0]" }

sub queue
{
	my ($lock, $n) = @_;
	return wait_zk_children($zkc, path($lock), $n);
}

my $guid = '0a1b2c3d-1111-2222-3333-444455556666';
my $hex = '0a1b2c3d111122223333444455556666';
my @shapes = ("_c_$guid-lock-", "_c_$guid-__WRIT__", "_c_$guid-__READ__",
	"$hex\__lock__", "$hex\__rlock__");

# A contender with a number of somebody's choice. Whatever it does to those that
# wait, it does not let two in at a time; and when it goes, both get the lock.
sub number
{
	my ($name, $fate) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$zkc->create(path("n/$name"), makepath => 1);
	my $first = $here->query_ok("SELECT zk_try_lock('n')");
	my $second = $there->query_ok("SELECT zk_try_lock('n')");
	my @wrong;
	push @wrong, 'two hold' if $first eq 't' && $second eq 't';
	push @wrong, 'it does not exclude' if $fate eq 'excludes' && $first eq 't';
	push @wrong, 'it excludes' if $fate eq 'ignored' && $first eq 'f';
	$_->query_ok('SELECT zk_unlock_all()') for $here, $there;
	queue('n', 1);
	$here->query_async("SELECT zk_lock('n')");
	$zkc->delete(path("n/$name"));
	push @wrong, 'it is still waited for' unless $here->wait_result =~ /^\d+$/;
	push @wrong, 'not exclusive' if $there->query("SELECT zk_try_lock('n')") ne 'f';
	$here->query_ok("SELECT zk_unlock('n')");
	queue('n', 0);
	return @wrong;
}

my %numbers = (
	'-000000001' => 'excludes', '-1000000000' => 'excludes',
	'-2147483647' => 'any', '-2147483648' => 'any', '2147483646' => 'any',
	'2147483647' => 'any', '2147483648' => 'ignored', '-2147483649' => 'ignored',
	'4294967295' => 'ignored', '4294967296' => 'ignored',
	'9999999999' => 'ignored');
for my $number (sort keys %numbers)
{
	my @wrong = map { my $shape = $_;
		map { "$shape$number: $_" } number("$shape$number", $numbers{$number}) }
	  @shapes;
	is_deeply(\@wrong, [], "numbers: $number breaks nothing");
}
nothing_left($zkc, 'numbers: nothing is left');

# All of them at once, as nodes that stay, and the highest number behind us.
{
	$zkc->create(path("wrap/$_"), makepath => 1)
	  for map { my $shape = $_; map { "$shape$_" } qw(2147483646 2147483647) }
	  @shapes;
	works($here, "SELECT zk_lock('wrap') > 0", 't',
		'wrap: nodes with the last numbers are behind us');
	works($there, "SELECT zk_try_lock('wrap'), zk_try_lock_shared('wrap')", 'f|f',
		'wrap: we exclude each other');
	$there->query_async("SELECT zk_lock_shared('wrap')");
	queue('wrap', 12);
	works($here, "SELECT zk_lock_shared('wrap') > 0, zk_unlock('wrap')", 't|t',
		'wrap: we downgrade');
	like($there->wait_result, qr/^\d+$/, 'wrap: we share');
	$_->query_ok('SELECT zk_unlock_all()') for $here, $there;
	queue('wrap', 10);
	$zkc->delete(path('wrap'), recursive => 1);
}

# Data that is no text, and much of it.
for my $shape (@shapes)
{
	my $garbage = join '', map { chr(int rand 256) } 1 .. 1_000_000;
	my $node = $zkc->create(path("data/$shape"), data => $garbage,
		sequence => 1, makepath => 1);
	my $mode = $shape =~ /READ|rlock/ ? '' : '_shared';
	my $log = -s $servers[0]->logfile;
	$here->query_async("SELECT zk_lock$mode('data')");
	queue('data', 2);
	wait_for_log($servers[0], qr/still waiting/, $log);
	ok(!$here->finished, "data: a megabyte of garbage in $shape is waited for");
	$zkc->delete($node);
	like($here->wait_result, qr/^\d+$/, 'data: and no longer');
	is($here->error, '', 'data: with nothing to complain of');
	$here->query_ok('SELECT zk_unlock_all()');
	queue('data', 0);
}
nothing_left($zkc, 'data: nothing is left');

# Thousands, some with data, some with nodes of their own, below a lock for which
# both sides contend. Curator ignores what sorts behind digits; kazoo what does not
# look like a contender.
sub clutter
{
	my ($lock, @names) = @_;
	$zkc->create(path($lock), makepath => 1);
	for my $i (0 .. $#names)
	{
		my $node = path("$lock/$names[$i]");
		$zkc->create($node, data => $i % 7 ? '' : "\xff\0\xfe$i");
		next if $i % 10;
		$zkc->create("$node/$_") for "_c_$guid-lock-0000000000", 'sub';
	}
	return scalar @names;
}

sub duel_among_clutter
{
	my ($what, $lock, $names, $theirs, @clutter) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $n = clutter($lock, @clutter);
	my $duel = ZkLock::Duel->new(
		what => $what,
		lock => $lock, mode => 'exclusive',
		node_names => $names,
		theirs => $theirs,
		servers => \@servers, zk => $zk,
		queue => sub { wait_zk_children($zkc, path($lock), $n + $_[0]) });
	$duel->$_ for qw(they_hold we_hold abandoned_attempts their_loss);
	is(scalar($zkc->children(path($lock))), $n, "$what: it is left alone");
	return;
}

duel_among_clutter("Curator's mutex among 2,000 nodes of others", 'clutter',
	'curator_mutex', sub { $java->lock(mutex => path('clutter')) },
	'lease_holder', 'zzz', '_x_', 'x-0000000000', '~', "_c_$guid",
	map { "unknown-child-$_" } 1 .. 2000);
duel_among_clutter("kazoo's lock among nodes of others", 'kclutter', 'kazoo',
	sub { $python->lock(lock => path('kclutter')) },
	'0', '1', '-1', '!', 'lease_holder', '__lock__', "$hex\__lock__", '0000000000',
	"$hex\__lock__1", "x-72057594037927936-0000000000",
	map { "__lock__$_" } 1 .. 100);

# A lock inside another one's znode.
{
	$here->query_ok("SET zklock.node_names = 'curator_mutex'");
	my $nested = $java->lock(mutex => path('outer/0'));
	ok($nested->acquire(0), 'nested: they hold a lock below ours');
	works($here, "SELECT zk_try_lock('outer')", 't', 'nested: which is not ours');
	works($there, "SELECT zk_try_lock('outer')", 'f', 'nested: ours excludes');
	ok(!$java->lock(mutex => path('outer/0'))->acquire(0), 'nested: so does theirs');
	$here->query_ok("SELECT zk_unlock('outer')");
	works($there, "SELECT zk_try_lock('outer', '30s')", 't', 'nested: ours goes on');
	$there->query_ok("SELECT zk_unlock('outer')");
	$nested->release;
	$nested->close;
	$here->query_ok('RESET zklock.node_names');
}

# kazoo's leases: a lock that is held for a moment, and a node that stays.
{
	$_->query_ok("SET zklock.node_names = 'kazoo'") for $here, $there;
	my $lease = $python->lock(lease => path('leased'));
	my $rival = $python->lock(lease => path('leased'));
	ok($lease->acquire(0), 'lease: they take it');
	queue('leased', 1);
	works($here, "SELECT zk_try_lock('leased')", 't',
		'lease: its node is in nobody\'s way');
	works($there, "SELECT zk_try_lock('leased')", 'f', 'lease: we exclude each other');
	$lease->acquire_async;
	queue('leased', 3);
	ok(!$lease->finished, 'lease: and its renewal, which needs the lock');
	$here->query_ok("SELECT zk_unlock('leased')");
	ok($lease->wait_result, 'lease: and then is done');
	ok(!$rival->acquire(0), 'lease: and nobody else has it');
	$_->close for $lease, $rival;
	nothing_left($zkc, 'lease: nothing is left');
}

unlike(slurp_file($_->logfile), qr/PANIC|terminated by signal/,
	'no backend has crashed')
  for @servers;
$zkc->close;
$_->stop for $java, $python, @servers, $zk;
done_testing();
