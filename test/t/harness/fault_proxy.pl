# Tests of the fault proxy with frames made by hand: which operation a fault hits,
# what the server does, and what the client receives. Needs ZooKeeper and kazoo,
# but neither PostgreSQL nor the extension.

use IO::Select;
use IO::Socket::INET;
use ZkLock::Test;

my ($zk, $direct) = ZkLock::ZkServer->start(tick_time => 200)->with_client;
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $acl = pack 'N N N/a* N/a*', 1, 31, 'world', 'anyone';

# A simple client, which sends and reads one frame at a time.
sub dial
{
	my $socket = IO::Socket::INET->new(PeerAddr => $proxy->connect_string)
	  or die "connect: $!";
	put($socket, pack 'N q> N q> N/a* C', 0, 0, 60000, 0, "\0" x 16, 0);
	return $socket;
}

sub put { my ($socket, $body) = @_; return syswrite $socket, pack('N/a*', $body) }

# Returns the body of the next answer; '' at the end of the connection.
sub get
{
	my ($socket) = @_;
	my $buffer = '';
	while (length $buffer < 4 || length $buffer < 4 + unpack 'N', $buffer)
	{
		IO::Select->new($socket)->can_read(30) or die 'no answer';
		my $need = length $buffer < 4 ? 4 : 4 + unpack 'N', $buffer;
		sysread($socket, $buffer, $need - length $buffer, length $buffer)
		  or return '';
	}
	return substr $buffer, 4;
}

sub fresh { my $socket = dial(); get($socket); return $socket }
sub xid { return unpack 'l>', $_[0] }

sub create
{
	my ($xid, $path, $flags) = @_;
	return pack 'l> l> N/a* N/a* a* N', $xid, 1, $path, 'x', $acl, $flags // 0;
}

sub look { return pack 'l> l> N/a* C', $_[0], 3, $_[1], 0 }

sub multi
{
	my ($xid, @paths) = @_;
	return pack('l> l>', $xid, 14)
	  . join('', map { pack 'l> C l> N/a* N/a* a* N', 1, 0, -1, $_, 'x', $acl, 0 } @paths)
	  . pack('l> C l> N/a* l>', 13, 0, -1, '/', -1)
	  . pack('l> C l>', -1, 1, -1);
}

# The record.
my $socket = fresh();
put($socket, create(1, '/r'));
is(xid(get($socket)), 1, 'an answer passes');
put($socket, create(2, '/r'));
get($socket);
put($socket, multi(3, '/m1', '/m2'));
get($socket);
put($socket, multi(4, '/m3', '/m2'));
get($socket);
is_deeply(
	[ map { [ @$_{qw(op xid error)}, @{ $_->{paths} } ] } $proxy->record ],
	[
		[ 'connect', 'connect', 0 ],
		[ 'create', 1, 0, '/r' ],
		[ 'create', 2, -110, '/r' ],
		[ 'multi', 3, 0, '/m1', '/m2', '/' ],
		[ 'multi', 4, -110, '/m3', '/m2', '/' ],
	],
	'operations, paths and errors are recorded');
$proxy->clear_record;
is(scalar($proxy->record), 0, 'the record can be cleared');

# Pipelined requests, and requests that wait for the answer before.
$proxy->arm(fault => 'hold_request', op => 'exists');
put($socket, look(5, '/r'));
put($socket, look(6, '/r'));
wait_until('both sent', sub { 2 == $proxy->record });
$proxy->release;
is_deeply([ xid(get($socket)), xid(get($socket)) ],
	[ 5, 6 ], 'held requests are sent in order');
my ($first, $second) = $proxy->record;
cmp_ok($second->{sent}, '<', $first->{answered}, 'pipelined requests do not wait for answers');
put($socket, look(7, '/r'));
get($socket);
cmp_ok(($proxy->record)[2]{sent}, '>', $second->{answered}, 'other requests wait for the answer');

# Each fault: does the server carry out the request, and what does the client receive?
my %expected = (
	lose_request => [ 0, 'end' ],
	lose_answer => [ 1, 'end' ],
	cut_after => [ 1, 10, 'end' ],
	swallow_request => [ 0, 11 ],
	swallow_answer => [ 1, 11 ],
	hold_request => [ 0, 'silence', 10, 11 ],
	hold_answer => [ 1, 'silence', 10, 11 ],
	expire => [ 0, 'end' ],
	silence => [ 0, 'silence' ]);
for my $fault (sort keys %expected)
{
	my ($done, @received) = @{ $expected{$fault} };
	$socket = fresh();
	my $hits = $proxy->hits;
	$proxy->disarm->clear_record;
	$proxy->arm(fault => $fault, op => [ 'create', 'create2' ],
		path => "^/$fault\$", nth => 2);
	put($socket, create(8, "/other"));
	get($socket);
	put($socket, create(9, "/$fault"));
	is(xid(get($socket)), 9, "$fault: the first passes");
	$direct->delete("/$fault");
	put($socket, create(10, "/$fault"));
	wait_until('the hit', sub { $proxy->hits == $hits + 1 });

	# A later request on the same connection proves that the server has not
	# received the earlier one.
	wait_until('the server', sub { $direct->exists("/$fault") }) if $done;
	put($socket, look(11, '/r')) if grep { $_ eq '11' } @received;
	if ($received[0] eq 'silence')
	{
		shift @received;
		ok(!IO::Select->new($socket)->can_read(0.3), "$fault: silence");
		ok(!$direct->exists("/$fault"), "$fault: not done yet") unless $done;
		$proxy->release;
	}
	for my $wanted (@received)
	{
		my $body = get($socket);
		is($body eq '' ? 'end' : xid($body), $wanted, "$fault: $wanted");
	}
	ok(!$direct->exists("/$fault"), "$fault: never done")
	  if !$done && $fault !~ /^hold/;
	ok($direct->exists("/$fault"), "$fault: done") if $done || $fault =~ /^hold/;
	is(scalar(grep { $_->{fault} eq $fault } $proxy->record),
		1, "$fault: recorded once");
	close $socket;
}

# The ephemeral nodes of an expired session are removed, and no others.
{
	my $kept = fresh();
	$socket = fresh();
	put($socket, create(1, '/ephemeral', 1));
	get($socket);
	put($kept, create(1, '/kept', 1));
	get($kept);
	$proxy->disarm->arm(fault => 'expire', path => '^/x$');
	put($socket, look(2, '/x'));
	is(get($socket), '', 'expire: the connection ends');
	wait_until('the node to go', sub { !$direct->exists('/ephemeral') });
	ok($direct->exists('/kept'), 'expire: other sessions stay alive');
	put($kept, look(2, '/kept'));
	is(xid(get($kept)), 2, 'expire: other connections stay open');
	close $kept;
}

# A request on a silent connection leaves the rule to the next connection.
{
	$socket = fresh();
	my $hits = $proxy->hits;
	$proxy->disarm->clear_record;
	$proxy->arm(fault => 'silence', op => 'exists');
	put($socket, look(1, '/r'));
	wait_until('the hit', sub { $proxy->hits == $hits + 1 });
	$proxy->arm(fault => 'lose_answer', op => 'exists');
	put($socket, look(2, '/r'));
	wait_until('both sent', sub { 2 == $proxy->record });
	my $next = fresh();
	put($next, look(1, '/r'));
	is(get($next), '', 'silence: a later rule hits another connection');
	close $socket;
}

# A rule that hits every match, and a proxy that stays down.
$proxy->disarm->arm(fault => 'lose_answer', op => 'exists', every => 1);
for (1 .. 2)
{
	$socket = fresh();
	put($socket, look(1, '/r'));
	is(get($socket), '', "a rule for every match hits, $_");
}
$proxy->disarm->arm(fault => 'lose_request', op => 'exists', down => 1);
$socket = fresh();
put($socket, look(1, '/r'));
is(get($socket), '', 'a rule with down => 1 cuts the connection');
is(get(dial()), '', 'while the proxy is down, new connections are refused');
$proxy->up;
isnt(get(dial()), '', 'a proxy that is up again accepts connections');

# A number of answers, on new connections.
$socket = fresh();
$proxy->limit_answers(2);
is(get($socket), '', 'a limit of answers cuts the connections');
$socket = fresh();
put($socket, look($_, '/r')) for 1, 2;
is(xid(get($socket)), 1, 'the answers up to the limit pass');
ok(!IO::Select->new($socket)->can_read(0.3), 'no answers beyond the limit pass');
$proxy->disarm->cut;
is(get($socket), '', 'a connection can be cut');
