# What goes wrong with an ensemble, its rights and its limits is an error with a
# SQLSTATE of its own and a hint, leaves nothing behind, and is over when the
# cause is gone.

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Util qw(free_port);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $secret = 'kept:S3cr3tPassw0rd';
my $dir = PostgreSQL::Test::Utils::tempdir();

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $address = $zk->connect_string;
my $zkc = ZkLock::ZkClient->new($address);
my $node = zklock_node('a', zk => $zk);
my $other = zklock_node('b', zk => $zk);
$node->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');

# A session with these settings, as 'name' => 'value'.
sub with_settings
{
	my ($where, %settings) = @_;
	my $s = session($where);
	$s->query_ok("SET zklock.$_ = '$settings{$_}'") for sort keys %settings;
	return $s;
}

sub works_again
{
	my ($s, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->query_ok("SET zklock.connect_string = '$address'");
	$s->query_ok('RESET zklock.connect_timeout');
	return works($s, "SELECT zk_try_lock('again'), zk_unlock('again')",
		't|t', $name);
}

# No session: nothing listens, no such host, silence.
my $hole = ZkLock::Proxy->start(target => $zk);
$hole->freeze;
my %nowhere = (
	'a port where nothing listens' => '127.0.0.1:' . free_port(),
	'a host name that does not resolve' => 'no-such-host.invalid:2181',
	'a silent network' => $hole->connect_string);
for my $what (sort keys %nowhere)
{
	my $s = with_settings($node,
		connect_string => $nowhere{$what},
		connect_timeout => '300ms');
	fails_with($s, "SELECT zk_lock('nowhere')", '08001',
		"$what is a failed connection", like => qr/^HINT:.*connect_string/m);
	fails_with($s, "SELECT zk_acquire('nowhere', 1)", '08001', "$what is that for a permit",
		like => qr/could not acquire a permit of semaphore "nowhere": no connection/);
	fails_with($s, "SELECT zk_try_lock(ARRAY['nowhere', 'x'])", '08001',
		"$what is that for a try of several locks as well");
	works($s, 'SELECT count(*) FROM zk_held_locks',
		'0', "nothing is held after $what");
	works_again($s, "the session can lock after $what");
	$s->quit;

	$s = with_settings($node,
		connect_string => $nowhere{$what},
		connect_timeout => '1h');
	$s->query_async("SELECT zk_lock('nowhere')");
	wait_blocked($s);
	$s->cancel;
	failed_with($s, '57014', "connecting to $what can be cancelled",
		hint => 0);
	$s->query_ok("SET statement_timeout = '100ms'");
	fails_with($s, "SELECT zk_lock('nowhere')", '57014',
		"connecting to $what obeys statement_timeout", hint => 0);
	$s->query_ok('RESET statement_timeout');
	works($s, 'SELECT 1', '1', "other work goes on in spite of $what");
	$s->query_async("SELECT zk_lock('nowhere')");
	wait_blocked($s);
	$s->terminate;
	$s->wait_result;
	is($s->sqlstate, 'lost', "connecting to $what can be terminated");
	wait_for_sql($node,
		'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid, '0');
}
$hole->stop;
nothing_left($zkc, 'failed connections leave nothing behind');

# A list of servers, some of which are down.
{
	my $down = '127.0.0.1:' . free_port();
	for my $list ("$down,$address", "$address,$down", "$down,$down,$address")
	{
		my $s = with_settings($node, connect_string => $list);
		works($s, "SELECT zk_try_lock('list')",
			't', "one server that serves is enough ($list)"
			  =~ s/\Q$address\E/it/r =~ s/\Q$down\E/down/gr);
	}
	nothing_left($zkc, 'a server that is down leaves nothing behind');
}

# A chroot.
{
	my $s = with_settings($node, connect_string => "$address/not/there");
	fails_with($s, "SELECT zk_lock('chroot')", 'F0000',
		'a chroot that does not exist is a fault of the configuration',
		like => qr/^HINT:.*connect_string/m);
	fails_with($s, "SELECT zk_try_xact_lock(ARRAY['chroot', 'x'])", 'F0000',
		'also for several locks');
	ok(!$zkc->exists('/not'), 'it is not created');
	works_again($s, 'the session can lock after that');
	$zkc->create('/there/deep', makepath => 1);
	$s->query_ok("SET zklock.connect_string = '$address/there/deep'");
	works($s, "SELECT zk_try_lock('chroot')", 't',
		'a chroot that exists works');
	is(scalar(queue_of($zkc, 'chroot', '/there/deep/zklock')), 1,
		'and the locks are below it');
	my $t = with_settings($other, connect_string => "$address/there/deep");
	works($t, "SELECT zk_try_lock('chroot')", 'f',
		'servers with the same chroot exclude each other');
	$_->quit for $s, $t;
	nothing_left($zkc, 'a chroot leaves nothing behind',
		root => '/there/deep/zklock');
	nothing_left($zkc, 'nor outside of it');
}

# A root that the ensemble does not let us use.
{
	$zkc->create('/readonly', acl => 'read');
	$zkc->create('/half/locks', makepath => 1);
	$zkc->create('/half/locks/closed', acl => 'read');
	my $s = with_settings($node, root => '/readonly');
	fails_with($s, "SELECT zk_lock('x')", '42501',
		'a root that refuses us is a lack of privilege',
		like => qr/could not lock "x": .*^HINT:.*ACL/ms);
	fails_with($s, "SELECT zk_acquire('x', 1)", '42501', 'for semaphores, too',
		like => qr/could not acquire a permit of semaphore "x": .*^HINT:.*ACL/ms);
	fails_with($s, "SELECT zk_lock(ARRAY['x', 'y'])", '42501',
		'also for several locks');
	$s->query_ok("SET zklock.root = '/half'");
	fails_with($s, "SELECT zk_lock('closed')", '42501',
		"a lock's own znode that refuses us likewise", like => qr/"closed"/);
	works($s, "SELECT zk_try_lock('open')", 't', 'another lock can be acquired');
	fails_with($s, "SELECT zk_try_lock(ARRAY['open2', 'closed'])", '42501',
		'one refusal among several locks refuses them all');
	works($s, 'SELECT string_agg(name, \',\') FROM zk_held_locks',
		'open', 'and leaves what was held before');
	$s->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'a refusal leaves nothing behind', root => '/half');
	$s->query_ok('RESET zklock.root');
	works_again($s, 'the session can lock elsewhere after a refusal');
}

# The file with the credentials.
sub auth_file
{
	my ($name, $content, $mode) = @_;
	my $path = "$dir/$name";
	open my $fh, '>', $path or die "$path: $!";
	print $fh $content;
	close $fh;
	chmod $mode // 0600, $path or die "$path: $!";
	return $path;
}

my $good_file = auth_file('good', "digest $secret\n");
{
	my %bad = (
		'that does not exist' => "$dir/none",
		'that is a directory' => $dir,
		'that the group can read' => auth_file('group', "digest $secret\n", 0640),
		'that others can read' => auth_file('others', "digest $secret\n", 0604),
		'that others can write' => auth_file('write', "digest $secret\n", 0602),
		'of another scheme' => auth_file('scheme', "sasl $secret\n"),
		'without a colon' => auth_file('colon', "digest S3cr3tPassw0rd\n"),
		'without anything' => auth_file('empty', ''),
		'that begins with an empty line' => auth_file('line', "\ndigest $secret\n"));
	my $log = -s $node->logfile;
	for my $what (sort keys %bad)
	{
		my $s = with_settings($node, auth_file => $bad{$what});
		fails_with($s, "SELECT zk_lock('auth')", 'F0000',
			"an auth_file $what is refused",
			like => qr/^HINT:.*digest user:password/m,
			unlike => qr/S3cr3t|No such file/);
		$s->query_ok('RESET zklock.auth_file');
		works_again($s, "the session can lock after an auth_file $what");
	}
	like(slurp_file($node->logfile, $log), qr/LOG:  could not read file ".*none" of setting zklock.auth_file: No such file/,
		'the server log has the reason and the name of the file');
	my $s = with_settings($node, auth_file => $good_file,
		log_min_messages => 'debug');
	works($s, "SELECT zk_try_lock('auth')", 't', 'a good auth_file is used');
	$s->quit;
	unlike(slurp_file($node->logfile, $log), qr/S3cr3t/,
		'no secret is in the server log, not even when the client logs most');

	$node->append_conf('postgresql.conf', "zklock.auth_file = '$good_file'");
	$node->reload;
	$s = session($node, user => 'ordinary');
	works($s, "SELECT zk_try_lock('auth of a role')", 't',
		'an ordinary role locks with the credentials of the server');
	fails_with($s, 'SHOW zklock.auth_file', '42501',
		'it cannot see the name of the file', hint => 0);
	works($s, "SELECT count(*) FROM pg_settings WHERE name = 'zklock.auth_file'",
		'0', 'nor in pg_settings');
	fails_with($s, "SET zklock.auth_file = '/etc/passwd'", '42501',
		'it cannot set it', hint => 0);
	$s->quit;
	$node->append_conf('postgresql.conf', "zklock.auth_file = ''");
	$node->reload;
	nothing_left($zkc, 'credentials leave nothing behind');
}

# Locks that only their creator may touch.
{
	my $rival_file = auth_file('rival', "digest rival:other\n");
	my %mine = (auth_file => $good_file, acl => 'creator', root => '/mine');
	my $s = with_settings($node, %mine);
	my $t = with_settings($other, %mine);
	works($s, "SELECT zk_lock('private')", qr/^\d+$/,
		'locks of acl = creator can be acquired');
	$t->query_async("SELECT zk_lock('private')");
	wait_zk_children($zkc, '/mine/locks/private', 2);
	my ($held) = queue_of($zkc, 'private', '/mine');
	like(join(' ', map { "$_->[1]:$_->[2]=$_->[0]" } $zkc->get_acls($held)),
		qr/^digest:kept:\S+=31 world:anyone=1$/,
		'their nodes belong to the creator, others may read');
	ok(!eval { $zkc->delete($held); 1 },
		'nobody without the credentials can remove them');
	$s->query_ok("SELECT zk_unlock('private')");
	like($t->wait_result, qr/^\d+$/,
		'two servers with the same credentials share them');
	my $rival = with_settings($node, %mine, auth_file => $rival_file);
	fails_with($rival, "SELECT zk_try_lock('private')", '42501',
		'somebody with other credentials is refused');
	fails_with($rival, "SELECT zk_try_lock('free')", '42501',
		'for every lock below that root');
	my $stranger = with_settings($node, root => '/mine');
	fails_with($stranger, "SELECT zk_lock(ARRAY['free', 'free2'])", '42501',
		'somebody without credentials as well');
	$stranger->query_ok("SET zklock.acl = 'creator'");
	fails_with($stranger, "SELECT zk_lock('free')", '42501',
		'acl = creator without credentials is refused',
		like => qr/^HINT:.*auth_file/m);
	$t->query_ok('SELECT zk_unlock_all()');
	is($t->error, '', 'in a tree of their own nobody is warned');
	nothing_left($zkc, 'private locks leave nothing behind', root => '/mine');
}

# A znode that others may change stays so; the first lock below it comes with a warning.
# Others can be everybody, addresses, or an ACL that cannot be read.
my %open_acl = (
	(map { $_ => 'world' } '', '/locks', '/semaphores', '/waits'),
	' of all addresses' => [ [ 31, 'ip', '0.0.0.0/0' ] ],
	' of a stranger' => [ [ 31, 'ip', '192.0.2.1' ], [ 4, 'world', 'anyone' ] ],
	'none' => { digest => $secret });
for my $open (sort keys %open_acl)
{
	my $root = '/open' . ($open =~ s{[/ ]}{-}gr);
	$zkc->create($root);
	$zkc->create("$root$_", acl => $_ eq $open ? 'world' : { digest => $secret })
	  for '/locks', '/semaphores', '/waits';
	$zkc->set_acl($root, $open =~ m{^/} ? { digest => $secret } : $open_acl{$open});
	my $s = with_settings($node, auth_file => $good_file, acl => 'creator', root => $root);
	works($s, "SELECT zk_try_lock('x')", 't', "locks below $root");
	if ($open eq 'none')
	{
		is($s->error, '', '... where nothing is open: no warning');
		next;
	}
	like($s->error, qr/WARNING:.*"\Q$root\E" can be changed by others.*^HINT:.*setAcl -R \Q$root\E auth::cdrwa,world:anyone:r/ms,
		"... where \"$root$open\" is open: a warning that names the command");
	works($s, "SELECT zk_unlock('x'), zk_try_acquire('x', 1), zk_release('x')", 't|t|t', '... and again');
	is($s->error, '', '... is no second warning');
}

# How many locks a session may have.
{
	my $s = with_settings($node, max_locks => 3);
	$s->query_ok("SELECT zk_lock('one')");
	fails_with($s, "SELECT zk_lock(ARRAY['two', 'three', 'four'])", '53400',
		'more locks than max_locks at once are refused',
		like => qr/^HINT:.*max_locks/m);
	works($s, "SELECT count(*) FROM zk_held_locks", '1',
		'what was held before is still held');
	$s->query_ok("SELECT zk_lock(ARRAY['one', 'two', 'three'])");
	fails_with($s, "SELECT zk_lock('four')", '53400',
		'one lock more than max_locks is refused', like => qr/"four"/);
	fails_with($s, "SELECT zk_try_xact_lock('four')", '53400',
		'also a try');
	works($s, "SELECT zk_lock(ARRAY['two', 'three']) = zk_lock(ARRAY['two', 'three'])",
		't', 'what is held can be locked once more');
	$s->query_ok("SELECT zk_unlock('three'), zk_unlock('three'), zk_unlock('three')");
	works($s, "SELECT zk_lock('four')", qr/^\d+$/,
		'a release makes room for another lock');
	my $t = session($other);
	works($t, "SELECT zk_try_lock('three', '1 min'), zk_try_lock('two')",
		't|f', 'refused locks are free for others, held ones are not');
	$_->quit for $s, $t;
	nothing_left($zkc, 'too many locks leave nothing behind');
}

# How long the names of one session may be together: what the ensemble can
# take in one packet.
{
	my $s = with_settings($node, max_locks => 100000);
	$s->query_ok("SELECT zk_lock('before')");
	fails_with($s,
		"SELECT zk_lock(array_agg(repeat('ü', 250) || i)) FROM generate_series(1, 900) i",
		'53400', 'names that are too long together are refused',
		like => qr/^HINT:.*shorter names/m);
	fails_with($s,
		"SELECT count(zk_lock(repeat('ü', 250) || i)) FROM generate_series(1, 900) i",
		'53400', 'also one after the other');
	works($s, "SELECT name FROM zk_held_locks WHERE name = 'before'",
		'before', 'what was held before is still held');
	works($s, "SELECT name FROM zk_held_locks WHERE state <> 'held'",
		'', 'the session is alive');
	$s->query_ok('SELECT zk_unlock_all()');
	works($s,
		"SELECT array_length(zk_lock(array_agg('short' || i)), 1) FROM generate_series(1, 1000) i",
		'1000', 'a thousand short names at once are no problem');
	$s->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'long names leave nothing behind');
}

# Node names of other programs.
{
	my $s = with_settings($node, node_names => 'curator_mutex');
	for my $call ("zk_lock_shared('mutex')", "zk_try_lock_shared('mutex')",
		"zk_xact_lock_shared(ARRAY['mutex', 'mutex2'])")
	{
		fails_with($s, "SELECT $call", '0A000',
			"curator_mutex has no shared mode: $call",
			like => qr/^HINT:.*node_names/m);
	}
	works($s, "SELECT zk_try_lock('mutex')", 't',
		'it has an exclusive one');
	fails_with($s, "SELECT zk_lock_shared(ARRAY['a', 'mutex'])", '0A000',
		'and does not share next to it');
	works($s, 'SELECT name, mode FROM zk_held_locks',
		'mutex|exclusive', 'a refused shared lock leaves the exclusive one');
	$s->quit;

	my @dialects = qw(curator curator_mutex kazoo);
	my %session_on_other = map { $_ => with_settings($other, node_names => $_) }
	  @dialects;
	my %pattern = (
		curator => qr/^_c_[0-9a-f-]{36}-__WRIT__\d{10}$/,
		curator_mutex => qr/^_c_[0-9a-f-]{36}-lock-\d{10}$/,
		kazoo => qr/^[0-9a-f]{32}__lock__\d{10}$/);
	for my $holder (@dialects)
	{
		my $h = with_settings($node, node_names => $holder);
		$h->query_ok("SELECT zk_lock('dialect')");
		like(($zkc->children('/zklock/locks/dialect'))[0],
			$pattern{$holder}, "the nodes of $holder are called as such");
		my $answers = join ' ', map {
			scalar $session_on_other{$_}->query("SELECT zk_try_lock('dialect')")
		} @dialects;
		is($answers, 'f f f', "a holder with $holder keeps all dialects out");
		my $waiter = $session_on_other{ $dialects[ $holder eq 'kazoo' ? 0 : 2 ] };
		$waiter->query_async("SELECT zk_lock('dialect')");
		wait_zk_children($zkc, '/zklock/locks/dialect', 2);
		ok(!$waiter->finished, "another dialect waits for $holder");
		$h->query_ok("SELECT zk_unlock('dialect')");
		like($waiter->wait_result, qr/^\d+$/, 'and gets the lock after it');
		$waiter->query_ok("SELECT zk_unlock('dialect')");
	}
	for my $sharer (qw(curator kazoo))
	{
		my $h = with_settings($node, node_names => $sharer);
		$h->query_ok("SELECT zk_lock_shared('dialect')");
		my $answers = join ' ', map {
			scalar $session_on_other{$_}->query("SELECT zk_try_lock('dialect')")
		} @dialects;
		is($answers, 'f f f', "a sharer with $sharer keeps all writers out");
		$answers = join ' ', map {
			scalar $session_on_other{$_}->query(
				"SELECT zk_try_lock_shared('dialect'), zk_unlock_shared('dialect')")
		} qw(curator kazoo);
		is($answers, 't|t t|t', "and shares with readers of every dialect");
		$h->quit;
		wait_zk_empty($zkc, '/zklock/locks/dialect');
	}
	nothing_left($zkc, 'dialects leave nothing behind');
}
$zkc->close;

# An ensemble that insists on credentials.
my @enforcing = ('-Dzookeeper.enforce.auth.enabled=true', '-Dzookeeper.enforce.auth.schemes=digest');
{
	my $strict = ZkLock::ZkServer->start(tick_time => 200, java => \@enforcing);
	my $s = with_settings($node, connect_string => $strict->connect_string);
	fails_with($s, "SELECT zk_lock('strict')", '28000',
		'an ensemble that insists on credentials refuses us without them',
		like => qr/^HINT:.*auth_file/m);
	fails_with($s, "SELECT zk_try_lock(ARRAY['strict', 'x'])", '28000',
		'also for several locks');
	fails_with($s, 'SELECT count(*) FROM zk_locks', '28000', 'zk_locks as well',
		like => qr/could not read the locks .*: the ZooKeeper ensemble refused the credentials/);
	works($s, 'SELECT 1', '1', 'other work goes on');
	$s->query_ok("SET zklock.auth_file = '$good_file'");
	works($s, "SELECT zk_try_lock('strict')", 't',
		'with credentials it lets us in, in the same session');
	my $t = with_settings($other,
		connect_string => $strict->connect_string,
		auth_file => $good_file);
	works($t, "SELECT zk_try_lock('strict')", 'f',
		'and the lock is there for another server');
	$s->query_ok('SELECT zk_unlock_all()');
	works($t, "SELECT zk_try_lock('strict', '1 min'), zk_unlock('strict')",
		't|t', 'and free after its release');
	$s->query_ok('RESET zklock.auth_file');
	works_again($s, 'the session can lock in another ensemble after that');
	$strict->stop;
}

# An ensemble that insists on credentials from now on, while a lock is held without. The
# holder connects again while it reads the locks.
{
	my @files = (tick_time => 3000, dir => "$dir/grows_strict");
	mkdir "$dir/grows_strict" or die "mkdir: $!\n";
	my $lenient = ZkLock::ZkServer->start(@files);
	my $s = with_settings($node, connect_string => $lenient->connect_string,
		session_timeout => '60s', connect_timeout => '60s');
	$s->query_ok("SELECT zk_lock('strict')");
	$lenient->stop;
	wait_state($s, 'suspended');
	$s->query_async('SELECT count(*) FROM zk_locks');
	my $strict = ZkLock::ZkServer->start(@files, port => $lenient->port, java => \@enforcing);
	my $answer = $s->wait_result;
	my $error = $s->error;
	$s->query('SELECT 1');
	$error .= $s->error;
	is($answer, '', 'the locks cannot be read then');
	like($error, qr/ERROR:  lock "strict" was lost\nDETAIL:  The ZooKeeper ensemble refused the session's credentials: /,
		'a lock whose session is refused is lost, for that reason');
	unlike($error, qr/expired|is over/, 'and for no other one');
	$strict->stop;
}

for my $server ($node, $other)
{
	unlike(slurp_file($server->logfile), qr/S3cr3t/,
		'no secret is in a server log in the end');
	unlike(slurp_file($server->logfile), qr/PANIC|terminated by signal/,
		'and no backend has crashed');
}
$_->stop for $node, $other;
$zk->stop;
done_testing();
