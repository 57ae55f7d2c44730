# Foreign nodes below a lock for which other programs contend too: sequence numbers near
# the overflow, subtrees, garbage data, thousands of nodes. See also foreign_children.pl.
#
# Promises: 9.1, 10.1

use ZkLock::Contest;
use ZkLock::Opponent;
use ZkLock::Test;

my ($zk, $zkc, @servers) = contest(timeout => 60, set => { log_lock_waits => 'on', deadlock_timeout => '50ms' });
my $java = ZkLock::Opponent->curator($zk->connect_string);
my $python = ZkLock::Opponent->kazoo($zk->connect_string);
my ($here, $there) = map { session($_) } @servers;

my $guid = '0a1b2c3d-1111-2222-3333-444455556666';
my $hex = '0a1b2c3d111122223333444455556666';
my @shapes = ("_c_$guid-lock-", "_c_$guid-__WRIT__", "_c_$guid-__READ__",
	"$hex\__lock__", "$hex\__rlock__");

# Adds a node with a chosen number and returns the errors. The node may or may not exclude,
# but there are never two holders, and after its deletion both sessions can acquire the lock.
sub number
{
	my ($name, $effect) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$zkc->create(path("n/$name"), makepath => 1);
	my $first = $here->query_ok("SELECT zk_try_lock('n')");
	my $second = $there->query_ok("SELECT zk_try_lock('n')");
	my @wrong;
	push @wrong, 'two hold' if $first eq 't' && $second eq 't';
	push @wrong, 'it does not exclude' if $effect eq 'excludes' && $first eq 't';
	push @wrong, 'it excludes' if $effect eq 'ignored' && $first eq 'f';
	$_->query_ok('SELECT zk_unlock_all()') for $here, $there;
	queue('n', 1);
	$here->query_async("SELECT zk_lock('n')");
	$zkc->delete(path("n/$name"));
	push @wrong, 'the deleted node still excludes' unless $here->wait_result =~ /^\d+$/;
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
	'9999999999' => 'ignored', '-9999999999' => 'ignored');
for my $number (sort keys %numbers)
{
	my @wrong = map { my $shape = $_;
		map { "$shape$number: $_" } number("$shape$number", $numbers{$number}) }
	  @shapes;
	is_deeply(\@wrong, [], "numbers: $number keeps the lock exclusive");
}
nothing_left($zkc, 'numbers: no node is left');

# Persistent nodes of all kinds with the highest numbers, which are behind our nodes.
{
	$zkc->create(path("wrap/$_"), makepath => 1)
	  for map { my $shape = $_; map { "$shape$_" } qw(2147483646 2147483647) }
	  @shapes;
	works($here, "SELECT zk_lock('wrap') > 0", 't',
		'overflow: nodes with the highest numbers are behind ours');
	works($there, "SELECT zk_try_lock('wrap'), zk_try_lock_shared('wrap')", 'f|f',
		'overflow: our sessions exclude each other');
	$there->query_async("SELECT zk_lock_shared('wrap')");
	queue('wrap', 12);
	works($here, "SELECT zk_lock_shared('wrap') > 0, zk_unlock('wrap')", 't|t',
		'overflow: our session downgrades');
	like($there->wait_result, qr/^\d+$/, 'overflow: our sessions share');
	$_->query_ok('SELECT zk_unlock_all()') for $here, $there;
	queue('wrap', 10);
	$zkc->delete(path('wrap'), recursive => 1);
}

# Binary data of one megabyte.
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
	ok(!$here->finished, "data: we wait for $shape with a megabyte of garbage");
	$zkc->delete($node);
	like($here->wait_result, qr/^\d+$/, 'data: we acquire the lock when the node is deleted');
	is($here->error, '', 'data: no warning is reported');
	$here->query_ok('SELECT zk_unlock_all()');
	queue('data', 0);
}
nothing_left($zkc, 'data: no node is left');

# Thousands of nodes, some with data, some with children, below a lock for which both sides
# contend. Curator ignores names that sort behind digits; kazoo ignores names that do not
# look like contenders.
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
	is(scalar($zkc->children(path($lock))), $n, "$what: the foreign nodes remain");
	return;
}

duel_among_clutter("Curator's mutex among 2,000 foreign nodes", 'clutter',
	'curator_mutex', sub { $java->lock(mutex => path('clutter')) },
	'lease_holder', 'zzz', '_x_', 'x-0000000000', '~', "_c_$guid",
	map { "unknown-child-$_" } 1 .. 2000);
duel_among_clutter("kazoo's lock among foreign nodes", 'kclutter', 'kazoo',
	sub { $python->lock(lock => path('kclutter')) },
	'0', '1', '-1', '!', 'lease_holder', '__lock__', "$hex\__lock__", '0000000000',
	"$hex\__lock__1", "x-72057594037927936-0000000000",
	map { "__lock__$_" } 1 .. 100);

# A lock below the znode of another lock.
{
	$here->reconnect('zklock.node_names' => 'curator_mutex');
	my $nested = $java->lock(mutex => path('outer/0'));
	ok($nested->acquire(0), 'nested: they acquire a lock below ours');
	works($here, "SELECT zk_try_lock('outer')", 't', 'nested: their lock does not exclude us');
	works($there, "SELECT zk_try_lock('outer')", 'f', 'nested: our lock excludes');
	ok(!$java->lock(mutex => path('outer/0'))->acquire(0), 'nested: their lock excludes');
	$here->query_ok("SELECT zk_unlock('outer')");
	works($there, "SELECT zk_try_lock('outer', '30s')", 't', 'nested: our lock can be acquired after the release');
	$there->query_ok("SELECT zk_unlock('outer')");
	$nested->release;
	$nested->close;
	$here->reconnect('zklock.node_names' => undef);
}

# kazoo's leases: a lock that is held for a moment, and a persistent node.
{
	$_->reconnect('zklock.node_names' => 'kazoo') for $here, $there;
	my $lease = $python->lock(lease => path('leased'));
	my $rival = $python->lock(lease => path('leased'));
	ok($lease->acquire(0), 'lease: they acquire the lease');
	queue('leased', 1);
	works($here, "SELECT zk_try_lock('leased')", 't',
		'lease: the node of the lease does not exclude');
	works($there, "SELECT zk_try_lock('leased')", 'f', 'lease: our sessions exclude each other');
	$lease->acquire_async;
	queue('leased', 3);
	ok(!$lease->finished, 'lease: our lock delays the renewal of the lease');
	$here->query_ok("SELECT zk_unlock('leased')");
	ok($lease->wait_result, 'lease: the lease is renewed after our release');
	ok(!$rival->acquire(0), 'lease: another client cannot acquire the lease');
	$_->close for $lease, $rival;
	nothing_left($zkc, 'lease: no node is left');
}
