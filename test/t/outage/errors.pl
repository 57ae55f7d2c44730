# Each fault of an ensemble, of its access rights and of its limits gives an error with
# its own SQLSTATE and a hint, and leaves no node. The session can lock again when the
# fault has ended.
#
# Promise: 4.2
# Tags: edges

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my $secret = 'kept:S3cr3tPassw0rd';
my $dir = PostgreSQL::Test::Utils::tempdir();

my $zk = shared_zk();
my $address = $zk->connect_string;
my $zkc = ZkLock::ZkClient->new($address);
my $node = shared_node('a', zk => $zk);
my $other = shared_node('b', zk => $zk);
$node->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');

sub works_again
{
	my ($s, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->reconnect('zklock.connect_string' => $address, 'zklock.ensemble_timeout' => undef);
	return works($s, "SELECT zk_try_lock('again'), zk_unlock('again')",
		't|t', $name);
}

# No connection: a closed port, an unknown host, a silent network.
my $hole = ZkLock::Proxy->start(target => $zk);
$hole->freeze;
my %nowhere = (
	'a port where nothing listens' => '127.0.0.1:' . free_port(),
	'a host name that does not resolve' => 'no-such-host.invalid:2181',
	'a silent network' => $hole->connect_string);
for my $what (sort keys %nowhere)
{
	my $s = session_with($node,
		connect_string => $nowhere{$what},
		ensemble_timeout => '300ms');
	fails_with($s, "SELECT zk_lock('nowhere')", '08001',
		"a lock fails with $what", like => qr/^HINT:.*connect_string/m);
	fails_with($s, "SELECT zk_acquire_permit('nowhere', 1)", '08001', "a permit fails with $what",
		like => qr/could not acquire a permit of semaphore "nowhere": no connection/);
	fails_with($s, "SELECT zk_try_lock_many(ARRAY['nowhere', 'x'])", '08001',
		"an attempt at several locks fails with $what");
	works($s, 'SELECT count(*) FROM zk_held_locks',
		'0', "the session holds nothing after $what");
	works_again($s, "the session can lock after $what");
	$s->quit;

	$s = session_with($node,
		connect_string => $nowhere{$what},
		ensemble_timeout => '1h');
	$s->query_async("SELECT zk_lock('nowhere')");
	wait_blocked($s);
	$s->cancel;
	failed_with($s, '57014', "connecting to $what can be cancelled",
		hint => 0);
	fails_with($s, "SET LOCAL statement_timeout = '100ms'\\; SELECT zk_lock('nowhere')", '57014',
		"connecting to $what obeys statement_timeout", hint => 0);
	works($s, 'SELECT 1', '1', "other statements succeed with $what");
	$s->query_async("SELECT zk_lock('nowhere')");
	wait_blocked($s);
	$s->terminate;
	$s->wait_result;
	is($s->sqlstate, 'lost', "connecting to $what can be terminated");
	wait_for_sql($node,
		'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $s->pid, '0');
}
$hole->stop;
nothing_left($zkc, 'failed connections leave no node');

# A chroot.
{
	my $s = session_with($node, connect_string => "$address/not/there");
	fails_with($s, "SELECT zk_lock('chroot')", 'F0000',
		'a chroot that does not exist is a configuration error',
		like => qr/^HINT:.*connect_string/m);
	fails_with($s, "SELECT zk_try_xact_lock_many(ARRAY['chroot', 'x'])", 'F0000',
		'it is a configuration error for several locks, too');
	ok(!$zkc->exists('/not'), 'the chroot is not created');
	works_again($s, 'the session can lock after the error');
	$zkc->create('/there/deep', makepath => 1);
	$s->reconnect('zklock.connect_string' => "$address/there/deep");
	works($s, "SELECT zk_try_lock('chroot')", 't',
		'a chroot that exists works');
	is(scalar(queue_of($zkc, 'chroot', '/there/deep/zklock')), 1,
		'the locks are below the chroot');
	my $t = session_with($other, connect_string => "$address/there/deep");
	works($t, "SELECT zk_try_lock('chroot')", 'f',
		'servers with the same chroot exclude each other');
	$_->quit for $s, $t;
	nothing_left($zkc, 'no node is left below the chroot',
		root => '/there/deep/zklock');
	nothing_left($zkc, 'no node is left outside of the chroot');
}

# A root with an ACL that refuses the session.
{
	$zkc->create('/readonly', acl => 'read');
	$zkc->create('/half/locks', makepath => 1);
	$zkc->create('/half/locks/closed', acl => 'read');
	my $s = session_with($node, root => '/readonly');
	fails_with($s, "SELECT zk_lock('x')", '42501',
		'a lock below a root that refuses the session fails with insufficient privilege',
		like => qr/could not lock "x": .*^HINT:.*ACL/ms);
	fails_with($s, "SELECT zk_acquire_permit('x', 1)", '42501', 'a permit below that root fails, too',
		like => qr/could not acquire a permit of semaphore "x": .*^HINT:.*ACL/ms);
	fails_with($s, "SELECT zk_lock_many(ARRAY['x', 'y'])", '42501',
		'several locks below that root fail, too');
	$s->reconnect('zklock.root' => '/half');
	fails_with($s, "SELECT zk_lock('closed')", '42501',
		'a lock fails if its own znode refuses the session', like => qr/"closed"/);
	works($s, "SELECT zk_try_lock('open')", 't', 'another lock can be acquired');
	fails_with($s, "SELECT zk_try_lock_many(ARRAY['open2', 'closed'])", '42501',
		'an array fails if the znode of one name refuses the session');
	works($s, 'SELECT string_agg(name, \',\') FROM zk_held_locks',
		'open', 'the failed array keeps the lock held before');
	$s->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'the refusals leave no node', root => '/half');
	$s->reconnect('zklock.root' => undef);
	works_again($s, 'the session can lock below another root after a refusal');
}

# The credentials file.
sub auth_file
{
	my ($name, $content, $mode) = @_;
	my $path = "$dir/$name";
	write_file($path, $content);
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
		my $s = session_with($node, auth_file => $bad{$what});
		fails_with($s, "SELECT zk_lock('auth')", 'F0000',
			"an auth_file $what is refused",
			like => qr/^HINT:.*digest user:password/m,
			unlike => qr/S3cr3t|No such file/);
		$s->reconnect('zklock.auth_file' => undef);
		works_again($s, "the session can lock after an auth_file $what");
	}
	like(slurp_file($node->logfile, $log), qr/LOG:  could not read file ".*none" of setting zklock.auth_file: No such file/,
		'the server log contains the reason and the name of the file');
	my $s = session_with($node, auth_file => $good_file,
		client_log_level => 'debug');
	works($s, "SELECT zk_try_lock('auth')", 't', 'a good auth_file is used');
	$s->quit;
	unlike(slurp_file($node->logfile, $log), qr/S3cr3t/,
		'no secret is in the server log, even at the highest log level of the client');

	$node->append_conf('postgresql.conf', "zklock.auth_file = '$good_file'");
	$node->reload;
	$s = session($node, user => 'ordinary');
	works($s, "SELECT zk_try_lock('auth of a role')", 't',
		'an ordinary role locks with the credentials of the server');
	$s->quit;
	$node->append_conf('postgresql.conf', "zklock.auth_file = ''");
	$node->reload;
	nothing_left($zkc, 'locks with credentials leave no node');
}

# Locks that only their creator may change.
{
	my $other_file = auth_file('rival', "digest rival:other\n");
	my %mine = (auth_file => $good_file, acl => 'creator', root => '/mine');
	my $s = session_with($node, %mine);
	my $t = session_with($other, %mine);
	works($s, "SELECT zk_lock('private')", qr/^\d+$/,
		'a lock with acl = creator can be acquired');
	$t->query_async("SELECT zk_lock('private')");
	wait_zk_children($zkc, '/mine/locks/private', 2);
	my ($held) = queue_of($zkc, 'private', '/mine');
	like(join(' ', map { "$_->[1]:$_->[2]=$_->[0]" } $zkc->get_acls($held)),
		qr/^digest:kept:\S+=31 world:anyone=1$/,
		'the node belongs to its creator, and others may read it');
	ok(!eval { $zkc->delete($held); 1 },
		'a client without the credentials cannot delete the node');
	$s->query_ok("SELECT zk_unlock('private')");
	like($t->wait_result, qr/^\d+$/,
		'a server with the same credentials is granted the lock');
	my $with_other = session_with($node, %mine, auth_file => $other_file);
	fails_with($with_other, "SELECT zk_try_lock('private')", '42501',
		'a session with other credentials is refused');
	fails_with($with_other, "SELECT zk_try_lock('free')", '42501',
		'a session with other credentials is refused each lock below that root');
	my $without = session_with($node, root => '/mine');
	fails_with($without, "SELECT zk_lock_many(ARRAY['free', 'free2'])", '42501',
		'a session without credentials is refused');
	$without->reconnect('zklock.acl' => 'creator');
	fails_with($without, "SELECT zk_lock('free')", '42501',
		'acl = creator without credentials is refused',
		like => qr/^HINT:.*auth_file/m);
	$t->query_ok('SELECT zk_unlock_all()');
	is($t->error, '', 'a tree that others cannot change gives no warning');
	nothing_left($zkc, 'locks with acl = creator leave no node', root => '/mine');
}

# zklock does not change the ACL of a znode that others may change. The first lock below
# it gives a warning. "Others" are everybody, certain addresses, or an unreadable ACL.
my %open_acl = (
	(map { $_ => 'world' } '', '/locks', '/semaphores', '/waiting', '/bells'),
	' of all addresses' => [ [ 31, 'ip', '0.0.0.0/0' ] ],
	' of a stranger' => [ [ 31, 'ip', '192.0.2.1' ], [ 4, 'world', 'anyone' ] ],
	'none' => { digest => $secret });
for my $open (sort keys %open_acl)
{
	my $root = '/open' . ($open =~ s{[/ ]}{-}gr);
	$zkc->create($root);
	$zkc->create("$root$_", acl => $_ eq $open ? 'world' : { digest => $secret })
	  for '/locks', '/semaphores', '/waiting', '/bells';
	$zkc->set_acl($root, $open =~ m{^/} ? { digest => $secret } : $open_acl{$open});
	my $s = session_with($node, auth_file => $good_file, acl => 'creator', root => $root);
	works($s, "SELECT zk_try_lock('x')", 't', "a lock below $root can be acquired");
	if ($open eq 'none')
	{
		is($s->error, '', "below $root no znode is open: no warning");
		next;
	}
	like($s->error, qr/WARNING:.*can be changed by others.*^HINT:.*setAcl -R PATH auth::cdrwa,world:anyone:r/ms,
		"\"$root$open\" is open: a warning that names the command");
	works($s, "SELECT zk_unlock('x'), zk_try_acquire_permit('x', 1), zk_release_permit('x')", 't|t|t',
		"the next lock and a permit can be acquired below $root");
	is($s->error, '', 'the lock and the permit are acquired without a second warning');
}

# The number of locks of a session. Refused names are not requested from the ensemble.
{
	my $s = session_with($node, max_locks => 2);
	$s->query_ok("SELECT zk_lock('one')");
	fails_with($s, "SELECT zk_lock_many(ARRAY['two', 'three'])", '53400',
		'more locks than max_locks at once are refused',
		like => qr/^HINT:.*max_locks/m);
	my $t = session($other);
	works($t, "SELECT zk_try_lock_many(ARRAY['two', 'three'])", 't', 'refused locks are free for another session');
	$_->quit for $s, $t;
	nothing_left($zkc, 'refused locks leave no node');
}

# The total length of the names of a session: the ensemble must accept them in one
# packet.
{
	my $s = session_with($node, max_locks => 7143);
	$s->query_ok("SELECT zk_lock('before')");
	fails_with($s,
		"SELECT zk_lock_many(array_agg(repeat('ü', 250) || i)) FROM generate_series(1, 900) i",
		'53400', 'an array whose names are too long in total is refused',
		like => qr/^HINT:.*shorter names/m);
	fails_with($s,
		"SELECT count(zk_lock(repeat('ü', 250) || i)) FROM generate_series(1, 900) i",
		'53400', 'single locks whose names are too long in total are refused');
	works($s, "SELECT name FROM zk_held_locks WHERE name = 'before'",
		'before', 'a lock held before is still held');
	works($s, "SELECT name FROM zk_held_locks WHERE state <> 'held'",
		'', 'no lock is lost or suspect');
	$s->query_ok('SELECT zk_unlock_all()');
	works($s,
		"SELECT array_length(zk_lock_many(array_agg('short' || i)), 1) FROM generate_series(1, 1000) i",
		'1000', 'a thousand short names can be locked at once');
	$s->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'long names leave no node');
}
$zkc->close;

# An ensemble that requires credentials.
my @enforcing = ('-Dzookeeper.enforce.auth.enabled=true', '-Dzookeeper.enforce.auth.schemes=digest');
{
	my $strict = ZkLock::ZkServer->start(tick_time => 200, java => \@enforcing);
	my $s = session_with($node, connect_string => $strict->connect_string);
	fails_with($s, "SELECT zk_lock('strict')", '28000',
		'an ensemble that requires credentials refuses a session without them',
		like => qr/^HINT:.*auth_file/m);
	fails_with($s, "SELECT zk_try_lock_many(ARRAY['strict', 'x'])", '28000',
		'that ensemble refuses several locks');
	fails_with($s, 'SELECT count(*) FROM zk_locks', '28000', 'that ensemble refuses zk_locks',
		like => qr/could not read the locks .*: the ZooKeeper ensemble refused the credentials/);
	works($s, 'SELECT 1', '1', 'other statements succeed');
	$s->reconnect('zklock.auth_file' => $good_file);
	works($s, "SELECT zk_try_lock('strict')", 't',
		'with credentials the same session can lock');
	my $t = session_with($other,
		connect_string => $strict->connect_string,
		auth_file => $good_file);
	works($t, "SELECT zk_try_lock('strict')", 'f',
		'the lock excludes another server');
	$s->query_ok('SELECT zk_unlock_all()');
	works($t, "SELECT zk_try_lock('strict', '1 min'), zk_unlock('strict')",
		't|t', 'the lock is free after its release');
	$s->reconnect('zklock.auth_file' => undef);
	works_again($s, 'the session can lock in another ensemble after that');
	$strict->stop;
}

# An ensemble that requires credentials after a restart, while a session without them
# holds a lock. The holder reconnects while it reads the locks.
{
	my @files = (tick_time => 3000, dir => "$dir/grows_strict");
	mkdir "$dir/grows_strict" or die "mkdir: $!\n";
	my $lenient = ZkLock::ZkServer->start(@files);
	my $s = session_with($node, connect_string => $lenient->connect_string,
		session_timeout => '60s', ensemble_timeout => '60s');
	$s->query_ok("SELECT zk_lock('strict')");
	$lenient->stop;
	wait_state($s, 'suspended');
	$s->query_async('SELECT count(*) FROM zk_locks');
	my $strict = ZkLock::ZkServer->start(@files, port => $lenient->port, java => \@enforcing);
	my $answer = $s->wait_result;
	my $error = $s->error;
	$s->query('SELECT 1');
	$error .= $s->error;
	is($answer, '', 'the locks cannot be read');
	like($error, qr/ERROR:  lock "strict" was lost\nDETAIL:  The ZooKeeper ensemble refused the session's credentials: /,
		'a lock whose session is refused is lost, for that reason');
	unlike($error, qr/expired|is over/, 'the error gives no other reason');
	$strict->stop;
}

for my $server ($node, $other)
{
	unlike(slurp_file($server->logfile), qr/S3cr3t/,
		'no secret is in the server log at the end');
	
}
