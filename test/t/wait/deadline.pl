# A call that waits for its connection times out at the moment when its session ends: the
# locks of the session are reported as lost, exactly once.
#
# Promise: 5.3

use ZkLock::Shim;
use ZkLock::Test;

# When a call times out, the backend reads the state of its session several times, with
# pauses in between. So each call times out at another moment around the end of its
# session.
use constant SESSION_TIMEOUT_MS => 6000;
my @connect_timeouts = map { 3000 + 100 * $_ } 0 .. 25;
my %calls = (
	lock => "SELECT zk_lock('other' || pg_backend_pid())",
	view => 'SELECT count(*) FROM zk_locks');

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $proxy = ZkLock::Proxy->start(target => $zk);
my $shim = ZkLock::Shim->build;
my $node = do {
	local @ENV{ $shim->names } = $shim->values;
	zklock_node('a', proxy => $proxy, session_timeout => SESSION_TIMEOUT_MS . 'ms',
		extra_conf => "zklock.commit_check = off\n");
};

sub holder
{
	my ($timeout) = @_;
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('own' || pg_backend_pid())");
	$s->query_ok("SET zklock.ensemble_timeout = '${timeout}ms'");
	return $s;
}

sub wait_suspended
{
	my ($s) = @_;
	return wait_until('the end of the connection',
		sub { $s->query_ok('SELECT state FROM zk_session()') eq 'suspended' });
}

for my $call (sort keys %calls)
{
	my @holders = map { holder($_) } @connect_timeouts;
	my %first;
	$proxy->cut(refuse => 1);
	wait_suspended($holders[-1]);
	$_->query_async($calls{$call}) for @holders;
	$shim->break('unlocks');
	for my $s (@holders)
	{
		$s->wait_result;
		$first{ $s->sqlstate }++;
		$s->{reported} = $s->sqlstate eq '40001';
	}
	$shim->heal('unlocks');
	note("$call: ", join ', ', map { "$first{$_} times $_" } sort keys %first);
	is(join(' ', grep { !/^(08006|40001)$/ } sort keys %first), '',
		"$call: each call fails with a lost connection or with the loss");
	for my $s (grep { !$_->{reported} } @holders)
	{
		wait_until('the report of the loss',
			sub { $s->query('SELECT 1'); $s->sqlstate eq '40001' });
	}
	my $held = join '', map { $_->query_ok('SELECT count(*) FROM zk_held_locks') } @holders;
	like($held, qr/^0+$/, "$call: every loss is reported once");
	$proxy->accept;
	$_->quit for @holders;
}

nothing_left($zkc, 'nothing is left');
unlike(server_log($node), qr/PANIC|terminated by signal/, 'no backend has crashed');
