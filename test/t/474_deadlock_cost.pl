# What detection costs the ensemble, counted by proxies that read the requests: a
# wait that is shorter than deadlock_timeout nothing, a longer one a few requests
# once, and then one list now and then, less and less often.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

# A proxy may think that an answer is late when the machine is busy; the nudge
# that follows is no part of detection, nor is the watch over what is held.
sub about_waits
{
	my ($proxy) = @_;
	return grep {
		my $request = $_;
		grep { m{^/zklock/waits} } @{ $request->{paths} }
	} $proxy->record;
}

use constant PER_SERVER => 15;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my %proxy = map { $_ => ZkLock::FaultProxy->start(target => $zk) } qw(a b);
my %node = map { $_ => zklock_node($_, zk => $proxy{$_} // $zk,
		session_timeout => '20s') } qw(a b c);
my $holder = session($node{c});
my $list = join ', ', map { "'x$_'" } 1 .. PER_SERVER;
$holder->query_ok("SELECT zk_lock(ARRAY[$list])");

# Short waits: deadlock_timeout is a second.
{
	my $s = session($node{a});
	$s->query_ok("SET deadlock_timeout = '1min'");
	is($s->query("SELECT zk_try_lock('x1', '1500ms')"), 'f',
		'a wait that ends before deadlock_timeout');
	is(scalar(about_waits($proxy{a})), 0, '... tells and asks nothing');
	$s->quit;
}

my @waiters;
for my $server (qw(a b))
{
	for my $i (1 .. PER_SERVER)
	{
		push @waiters, session($node{$server});
		$waiters[-1]->query_async("SELECT zk_lock('x$i')");
	}
}
wait_until('all to tell', sub { $zkc->children('/zklock/waits') == @waiters });

# create, watch, list; the first of all makes the parent; the second in a queue
# may have to look at the first one's place.
my $began = time();
wait_until('their looks', sub {
	2 * PER_SERVER <= grep { $_->{op} =~ /^getChildren/ } map { about_waits($_) } values %proxy });
my $first = map { about_waits($_) } values %proxy;
cmp_ok($first, '<=', 4 * @waiters + 4,
	"$first requests told of " . @waiters . ' long waits, and had them looked at');

# The first look again is after ten seconds.
$_->forget for values %proxy;
wait_until('somebody to look again', sub { map { about_waits($_) } values %proxy });
my @again = map { about_waits($_) } values %proxy;
is_deeply([ grep { $_->{op} !~ /^getChildren/ } @again ], [],
	'after that they only look again');
wait_until('all to have looked again', sub {
	@waiters <= map { about_waits($_) } values %proxy });
my $took = time() - $began;
my $rounds = 1 + int($took / 10);
my $count = map { about_waits($_) } values %proxy;
cmp_ok($count, '<=', @waiters * $rounds,
	sprintf '%d waiters sent %d requests in %.0f seconds', scalar @waiters, $count, $took);

$holder->quit;

for my $w (@waiters)
{
	$w->drop;
}
wait_zk_empty($zkc, '/zklock/waits');
pass('nothing is told when all have gone');
done_testing();
