# A server that sends invalid or broken messages ends no backend: the connection is closed,
# the server log has the reason, and the next connection works.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::Proxy;
use ZkLock::Util qw(end_process free_port port_listens spawn);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = zklock_node('a', zk => $proxy, session_timeout => '20s');

# Returns a message in hex: the length, the xid, a zxid of 0, no error, and the body.
sub message
{
	my ($xid, $body) = @_;
	my $hex = $xid . '0' x 16 . '0' x 8 . $body;
	return sprintf('%08x', length($hex) / 2) . $hex;
}
my ($event, $stat) = ('ffffffff', '00' x 68);
my ($create, $list, $get, $multi) = ("SELECT zk_lock('x-%d')", 'SELECT count(*) FROM zk_locks',
	'SELECT count(*) FROM zk_locks', "SELECT zk_lock(ARRAY['x-%d', 'y-%1\$d'])");
my @cases = (
	[ 'an event without a path', create2 => $create, message($event, '0000000300000003') ],
	[ 'an event of an unknown type', create2 => $create, message($event, '000000ff00000003000000022f61') ],
	[ 'an event about the session', create2 => $create, message($event, 'ffffffffffffff9000000000') ],
	[ 'an event with a path beyond its end', create2 => $create, message($event, '00000003000000037ffffff02f61') ],
	[ 'an event with a path of negative length', create2 => $create, message($event, '0000000300000003ffffffff2f61') ],
	[ 'a second answer', create2 => $create, message('XXXXXXXX', "000000022f61$stat"), after => 1 ],
	[ 'an answer without a path', create2 => $create, message('XXXXXXXX', '') ],
	[ 'an answer with a path of negative length', create2 => $create, message('XXXXXXXX', "ffffffff$stat") ],
	[ 'an answer without all of its numbers', create2 => $create, message('XXXXXXXX', '000000022f6100') ],
	[ 'an answer to credentials', create2 => $create, message('fffffffc', ''), after => 1 ],
	[ 'a refusal of credentials', create2 => $create, '00000010' . 'fffffffc' . '0' x 16 . 'ffffff8d', after => 1 ],
	[ 'an answer to a ping that was not sent', create2 => $create, message('fffffffe', ''), after => 1 ],
	[ 'a negative length', create2 => $create, 'ffffffff00000000' ],
	[ 'an excessive length', create2 => $create, '7fffffff00000000' ],
	[ 'a message shorter than its header', create2 => $create, '0000000400000000' ],
	[ 'more children than fit in the message', getChildren => $list, message('XXXXXXXX', '7fffffff00000001') ],
	[ 'a negative number of children', getChildren => $list, message('XXXXXXXX', 'fffffff6') ],
	[ 'a child beyond the end', getChildren => $list, message('XXXXXXXX', '000000017fffffff61') ],
	[ 'data beyond the end', getData => $get, message('XXXXXXXX', "7fffffff$stat") ],
	[ 'data of negative length', getData => $get, message('XXXXXXXX', "fffffffe$stat") ],
	[ 'several reads without an end', multiRead => $list,
		message('XXXXXXXX', '0000000800ffffffff00000000' x 2) ],
	[ 'a child beyond the end of one of several reads', multiRead => $list,
		message('XXXXXXXX', '0000000800ffffffff000000017fffffff61') ],
	[ 'no results', multi => $multi, message('XXXXXXXX', '') ],
	[ 'too few results', multi => $multi, message('XXXXXXXX', 'ffffffff01ffffffff') ],
	[ 'too many results', multi => $multi,
		message('XXXXXXXX', 'ffffffff00ffffffffffffffff' x 5 . 'ffffffff01ffffffff') ]);

my $number = 0;
for my $case (@cases)
{
	my ($what, $op, $sql, $bytes, %how) = @$case;
	$number++;
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('held-$number')");
	my $pid = $s->pid;
	my $log = -s $node->logfile;
	$proxy->arm(fault => 'forge_answer', op => $op, bytes => $bytes, %how);
	$s->query_async(sprintf $sql, $number);
	my $answer = $s->wait_result;
	ok(defined $answer && $s->sqlstate eq '00000' && kill(0, $pid), "$what ends no backend")
	  || diag($s->sqlstate . ' ' . $s->error);
	if (!kill(0, $pid))
	{
		diag(join "\n", slurp_file($node->logfile, $log) =~ /(.*(?:terminated by signal|Assertion).*)/g);
		$node->poll_query_until('postgres', 'SELECT true');
		$proxy->disarm;
		next;
	}
	works($s, "SELECT zk_unlock('held-$number')", 't', '... and causes no loss');
	my @lines = grep { !/ connected to / } slurp_file($node->logfile, $log) =~ /(LOG:  ZooKeeper client: .*)/g;
	is(scalar(grep { / sent / } @lines), 1, '... the server log reports it once') || diag(join "\n", @lines);
	is(scalar(@lines), 1, '... and has no other message') || diag(join "\n", @lines);
	is($proxy->hits, $number, '... the forged message was sent');
	$proxy->disarm;
	$s->quit;
}

# Each refused message delays the next connection, but never beyond the session timeout.
{
	my $s = session($node);
	$s->query_ok("SET zklock.session_timeout = '4s'; SELECT zk_lock('held')");
	for my $refusal (1 .. 6)
	{
		$proxy->arm(fault => 'forge_answer', op => 'create2', bytes => 'ffffffff00000000');
		works($s, "SELECT zk_lock('refused $refusal') > 0", 't', "refused message $refusal costs no session");
		$proxy->disarm;
	}
	works($s, "SELECT zk_unlock('held')", 't', 'a session with refused messages keeps its locks');
	$s->quit;
}

# A node without a transaction is refused: the token would be NULL.
{
	my $s = session($node);
	$proxy->arm(fault => 'forge_answer', op => 'getData', path => 'a-token',
		bytes => message('XXXXXXXX', '00000000' . $stat), every => 1);
	fails_with($s, "SET statement_timeout = '20s'; SELECT zk_lock(ARRAY['a-token', 'b'])", '58000',
		'a lock whose token would be 0 is not granted');
	$proxy->disarm;
	works($s, 'SELECT count(*) FROM zk_held_locks', '0', '... and not held');
	$s->quit;
}

# Two backends with one session: each would release the locks of the other.
{
	my ($first, $second) = map { session($node) } 1 .. 2;
	$first->query_ok("SELECT zk_lock('first')");
	my ($id) = zk_session_id($first) =~ /([0-9a-f]+)$/;
	$proxy->arm(fault => 'forge_answer', op => 'connect',
		bytes => '00000025' . '00000000' . '00004e20' . substr('0' x 16 . $id, -16) . '00000010' . '00' x 17);
	fails_with($second, "SET statement_timeout = '20s'; SELECT zk_lock('second')", '58000',
		'a session that another backend of this server has is refused', like => qr/the same ZooKeeper session/);
	$proxy->disarm;
	works($first, "SELECT zk_unlock('first')", 't', '... and costs the other backend nothing');
	$_->quit for $first, $second;
}

# A commit does not wait as long as the server says that the session lasts.
{
	my $s = session($node);
	$proxy->arm(fault => 'forge_answer', op => 'connect',
		bytes => '00000025' . '00000000' . '38a8f200' . '00000000000000ff' . '00000010' . '00' x 17);
	$s->query_ok("SET zklock.session_timeout = '1s'; SET zklock.connect_timeout = '1s'; SET zklock.commit_check = always");
	$s->query_ok("BEGIN; SELECT zk_lock('endless')");
	$proxy->arm(fault => 'silence');
	$s->query_ok("SET statement_timeout = '20s'");
	fails_with($s, 'COMMIT', '40001', 'a commit does not wait for days', like => qr/did not answer within 1000 ms/);
	$proxy->disarm;
	$s->drop;
}

# What no check can detect: a server determines the holders, and receives passwords, lock
# names and identities of clients in plain text, as does everybody on the network.
my $secret_file = PostgreSQL::Test::Utils::tempdir() . '/secret';
append_to_file($secret_file, "digest kept:S3cr3tPassw0rd\n");
chmod 0600, $secret_file or die "$secret_file: $!";
my $liar = ZkLock::ZkServer->start(tick_time => 200);
my $record = $liar->log_file . '.record';
my $port = free_port();
my $listener = spawn([ 'socat', '-r', $record, "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork", 'TCP:' . $liar->connect_string ]);
wait_until('socat', sub { port_listens($port) });
my $switch = ZkLock::Proxy->start(target => $zk);
my $holder = session($node);
$holder->query_ok("SET zklock.connect_string = '" . $switch->connect_string . q('));
$holder->query_ok("SELECT zk_lock('secret lock')");
my $elsewhere = zklock_node('b', zk => $zk);
my $honest = session($elsewhere);
$honest->query_async("SELECT zk_lock('secret lock') > 0");
wait_zk_children($zkc, '/zklock/locks/secret%20lock', 2);
$switch->retarget("127.0.0.1:$port");
my $victim = session($node, application_name => 'victim');
$victim->query_ok("SET zklock.auth_file = '$secret_file'; SET zklock.acl = 'creator'; SET zklock.connect_string = '" . $switch->connect_string . q('));
$victim->query_async("SELECT zk_lock('secret lock') > 0");
wait_blocked_locally($victim);
pass('on one PostgreSQL server a lying ensemble cannot grant a lock to two sessions');
$holder->query_ok('SELECT zk_unlock_all()');
is($honest->wait_result, 't', 'the ensemble grants the released lock to a session of another server');
is($victim->wait_result, 't', 'a lying ensemble grants the lock that this session holds');
my $seen = slurp_file($record);
like($seen, qr/kept:S3cr3tPassw0rd/, '... and receives the password');
like($seen, qr/secret%20lock.*"application_name":"victim"/s, '... the names of locks, and the identities of clients');
$_->quit for $holder, $victim, $honest;
$switch->stop;
end_process($listener, 'TERM');
$liar->stop;

$_->stop for $node, $elsewhere;
$proxy->stop;
$zk->stop;
done_testing();
