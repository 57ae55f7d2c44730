# Locks as znodes: their names, their data, the watches of waiters, and the number of
# requests that a lock costs.
#
# Promise: 2.2
# Tags: user

use ZkLock::Test;

no warnings 'portable';
use utf8;

use Encode qw(encode);
use Sys::Hostname qw(hostname);

# Sessions with a long timeout send no keepalive reads while requests are counted.
my ($zk, $zkc) = shared_zk_and_client(timeout => 60);
my @servers = map {
	shared_node($_, session_timeout => '90s', set => { timezone => 'UTC' })
} qw(a b);
my $server = $servers[0];

# UTF-8 for psql.
sub bytes { return encode('UTF-8', $_[0]) }


# The names of locks.
my $session = session($server);
$session->query_ok(q(SET client_encoding = 'UTF8'));
my $plain = 'ABCXYZabcxyz0189_.:@~+=-';
my @names = (
	'simple', $plain, 'with space', 'a/b', '/', '.', '..', '...', '.x',
	'100%', '%2F', '#7', "O'Reilly", "line\nbreak", "tab\t", '\\', '"', '*',
	'Straße', '東京', "\x{1F512}", "\x{7F}", 'zookeeper', 'quota',
	'x' x 512, 'ü' x 256);
my %wanted = map {
	my $name = bytes($_);
	$name =~ s/([^A-Za-z0-9_.:\@~+=-])/sprintf '%%%02X', ord $1/ge;
	$name =~ s/\./%2E/g if $name =~ /^\.\.?$/;
	($name => 1);
} @names;
for my $name (@names)
{
	(my $quoted = bytes($name)) =~ s/'/''/g;
	$session->query_ok("SELECT zk_lock('$quoted')");
}
$session->query_ok("SELECT zk_lock('7'), zk_lock('-9223372036854775808'), "
	  . "zk_lock('7,-8'), zk_lock('-2147483648,2147483647')");
$wanted{$_} = 1
  for '7', '-9223372036854775808', '7%2C-8', '-2147483648%2C2147483647';
my %held = map { m{^/zklock/locks/([^/]+)/} ? ($1 => 1) : () }
  lock_nodes($zkc);
is_deeply(\%held, \%wanted,
	'the znode of a lock has the percent-encoded name');
is($session->query('SELECT count(*) FROM zk_held_locks'),
	scalar(keys %wanted), 'all names are different locks');
is_deeply([ $zkc->children('/zklock') ],
	['locks'], 'no name creates a znode outside of the parent of the locks');

$session->query_ok('SELECT zk_unlock_all()');
nothing_left($zkc, 'names: no node is left');
ok( wait_until(
		'the znodes of the locks to be removed',
		sub { !$zkc->children('/zklock/locks') }),
	'the znode of a lock is a container: it is removed when it is empty');
ok($zkc->exists('/zklock/locks'), 'the parent of the locks stays');


# The names of nodes.
my $id = $session->query('SELECT session_id FROM zk_session()');
my ($upper, $middle, $lower) =
  sprintf('%016x', hex $id) =~ /^(.{8})(.{4})(.{4})$/;
my $guid = qr/$upper-$middle-$lower-[0-9a-f]{4}-[0-9a-f]{12}/;
$session->query_ok("SELECT zk_lock('w'), zk_lock_shared('r')");
my ($writer) = $zkc->children('/zklock/locks/w');
my ($reader) = $zkc->children('/zklock/locks/r');
like($writer, qr/^_c_$guid-__WRIT__\d{10}$/,
	'the node of a writer is named as by Curator, and its GUID contains the session id');
like($reader, qr/^_c_$guid-__READ__\d{10}$/,
	'the node of a reader is named as by Curator, and its GUID contains the session id');
isnt($writer =~ s/-__.*//r, $reader =~ s/-__.*//r,
	'no two nodes have the same GUID');
my $stat = $zkc->get("/zklock/locks/w/$writer");
is(hex $stat->{ephemeralOwner}, hex $id, 'the node is an ephemeral node of the session');
is($stat->{czxid}, $session->query("SELECT zk_lock_token('w')"),
	'the token is the czxid of the node');
$session->query_ok('SELECT zk_unlock_all()');

my $any = qr/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/;
my %shapes = (
	curator_mutex => { zk_lock => qr/^_c_$any-lock-\d{10}$/ },
	kazoo => {
		zk_lock => qr/^[0-9a-f]{32}__lock__\d{10}$/,
		zk_lock_shared => qr/^[0-9a-f]{32}__rlock__\d{10}$/
	});
for my $style (sort keys %shapes)
{
	for my $function (sort keys %{ $shapes{$style} })
	{
		my $other = session_with($server, node_names => $style);
		$other->query_ok("SELECT $function('w')");
		my ($node) = $zkc->children('/zklock/locks/w');
		like($node, $shapes{$style}{$function},
			"$function names its node as $style does");
		$other->quit;
		wait_zk_empty($zkc, '/zklock/locks/w');
	}
}
$session->quit;
nothing_left($zkc, 'names of nodes: no node is left');


# The data of a node, with names that need care.
my $database = "we\"iß\\ \t東";
my $role = "rö\"le\\";
(my $quoted = bytes($database)) =~ s/"/""/g;
$server->safe_psql('postgres', "CREATE DATABASE \"$quoted\"");
$server->safe_psql(bytes($database), 'CREATE EXTENSION zklock');
($quoted = bytes($role)) =~ s/"/""/g;
$server->safe_psql('postgres', "CREATE ROLE \"$quoted\" LOGIN");
$server->safe_psql('postgres', 'CREATE ROLE mask');
$server->safe_psql('postgres', "GRANT mask TO \"$quoted\"");

my $user = bytes($role) =~ s/\\/\\\\/r;
$session = session($server,
	dbname => bytes($database),
	user => "'$user'",
	application_name => q('it\'s "me" \\\\'));
$session->query_ok('SET ROLE mask');
$session->query_ok("SELECT zk_lock('data')");
my ($node) = $zkc->children('/zklock/locks/data');
my $data = $zkc->get("/zklock/locks/data/$node")->{data};
like($data, qr/^zklock [!-~ ]+$/, 'the data of a node are printable ASCII');
is_deeply(
	node_members($data),
	{
		server => hostname() . ':' . $server->port,
		pid => $session->pid,
		datname => bytes($database),
		usename => bytes($role),
		application_name => q(it's "me" \\)
	},
	'the data of a node identify the session that created it');
is($servers[1]->safe_psql('postgres', "SELECT datname || usename || application_name FROM zk_locks"),
	bytes("$database$role") =~ tr/\t/?/r . q(it's "me" \\), 'zk_locks of another server shows them');
$session->quit;
nothing_left($zkc, 'data: no node is left');


# Watches of waiters. Returns session => the nodes of this lock that it watches. A holder
# watches its own node, after a moment, which does not count.
sub watches
{
	my ($lock) = @_;
	my (%watches, $session, $own);

	# The holders are the first node, and all readers before the first writer.
	my $holders = '';
	for my $node (sort { number($a) <=> number($b) } $zkc->children("/zklock/locks/$lock"))
	{
		last if $holders ne '' && "$holders$node" =~ /WRIT/;
		$holders .= "$node ";
	}
	for my $line (split /\n/, $zk->four_letter('wchc') // '')
	{
		if ($line =~ /^(0x[0-9a-f]+)/)
		{
			$session = $1;
			$own = sprintf('_c_%016x', hex $1) =~ s/(.{4})(.{4})$/-$1-$2-/r;
		}
		my ($node) = $line =~ m{^\s+/zklock/locks/\Q$lock\E/?+(.*)} or next;
		push @{ $watches{$session} }, $node
		  unless $node =~ /^$own/ && $holders =~ /\Q$node\E /;
	}
	return \%watches;
}

sub number
{
	my ($number) = $_[0] =~ /(\d{10})$/;
	return $number;
}

# Checks that each of the sessions, in the order of their nodes, watches the node at
# the index given. A waiter that gave up may keep its watch until the watched node
# is removed.
sub watched_are
{
	my ($lock, $order, $indexes, $name) = @_;
	my @nodes =
	  sort { number($a) <=> number($b) } $zkc->children("/zklock/locks/$lock");
	my (%wanted, %watched);
	for my $i (0 .. $#$order)
	{
		$wanted{ $order->[$i] } =
		  defined $indexes->[$i] ? [ $nodes[ $indexes->[$i] ] ] : undef;
	}
	eval {
		wait_until(
			'watches',
			sub {
				my $watches = watches($lock);
				%watched = map { $_ => $watches->{$_} } @$order;
				return !grep { defined $wanted{$_} && !defined $watched{$_} }
				  @$order;
			});
	};
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_deeply(\%watched, \%wanted, $name);
	return;
}

# A server has one node in the queue of a lock.
my @others = map { zklock_node($_, zk => $zk, session_timeout => '90s') } qw(c d e);
my @sessions = map { session($_) } @servers, @others;
my $first = session($server);
$_->query_ok("SELECT zk_lock_shared('else')") for $first, @sessions;
my @ids =
  map { scalar $_->query('SELECT session_id FROM zk_session()') } @sessions;
$_->query_ok("SELECT zk_unlock_shared('else')") for $first, @sessions;

my $holder = foreign_node($zkc, '/zklock/locks/q', 'WRIT');
for my $i (0 .. $#sessions)
{
	$sessions[$i]->query_async("SELECT zk_lock('q')");
	wait_zk_children($zkc, '/zklock/locks/q', 2 + $i);
}
watched_are('q', [ '', @ids ], [ undef, 0 .. 4 ],
	'each of five waiters watches the node before it, and nothing else');
my $before = watches('q');
$zkc->delete($holder);
$sessions[0]->wait_result;
delete $before->{ $ids[0] };
is_deeply(watches('q'), $before, 'a release changes the watch of the next waiter only');

# A waiter in the middle gives up: the waiter behind it moves up.
$sessions[2]->cancel;
$sessions[2]->wait_result;
wait_zk_children($zkc, '/zklock/locks/q', 4);
watched_are('q', [ @ids[ 0, 1, 3, 4 ] ], [ undef, 0 .. 2 ],
	'when a waiter gives up, the waiter behind it watches the next predecessor');
ok( !grep({ $_->finished } @sessions[ 1, 3, 4 ]),
	'no waiter is granted the lock when another one gives up');
for my $i (0, 1, 3, 4)
{
	$sessions[$i]->wait_result if $i;
	$sessions[$i]->query_ok("SELECT zk_unlock('q')");
}
is_deeply(watches('q'), {}, 'no watch is left after the last release');
nothing_left($zkc, 'queue: no node is left');

# A reader watches the last writer before it, a writer the node before it.
$holder = foreign_node($zkc, '/zklock/locks/q', 'WRIT');
my @functions = qw(zk_lock_shared zk_lock_shared zk_lock zk_lock_shared
  zk_lock);
for my $i (0 .. $#sessions)
{
	$sessions[$i]->query_async("SELECT $functions[$i]('q')");
	wait_zk_children($zkc, '/zklock/locks/q', 2 + $i);
}
watched_are('q', [ '', @ids ], [ undef, 0, 0, 2, 3, 4 ],
	'a reader watches the last writer before it, a writer the node before it');
$before = watches('q');
$zkc->delete($holder);
$sessions[$_]->wait_result for 0, 1;
delete $before->{ $ids[$_] } for 0, 1;
is_deeply(watches('q'), $before, 'a release grants the readers at the head of the queue');
$_->quit for @sessions[ 0, 1 ];
for my $i (2 .. 4)
{
	$sessions[$i]->wait_result;
	$sessions[$i]->query_ok('SELECT zk_unlock_all()');
}
$_->quit for @sessions[ 2 .. 4 ];
nothing_left($zkc, 'queue of readers and writers: no node is left');

# A role that is renamed while its session is open.
$server->safe_psql('postgres', 'CREATE ROLE before_renaming SUPERUSER LOGIN');
my $renamed = session($server);
$renamed->query_ok('SET SESSION AUTHORIZATION before_renaming');
$renamed->query_ok("SELECT zk_lock('y')");
works($renamed, "SELECT usename FROM zk_locks WHERE name = 'y'", 'before_renaming', 'the node of a lock contains the role');
$renamed->query_ok("SELECT zk_unlock('y')");
$server->safe_psql('postgres', 'ALTER ROLE before_renaming RENAME TO after_renaming');
$renamed->query_ok("SELECT zk_lock('y')");
works($renamed, "SELECT usename FROM zk_locks WHERE name = 'y'", 'after_renaming',
	'after a rename the next node contains the new name of the role');
