# The settings of a ZooKeeper session are fixed for the life of a backend: after a reload new
# sessions use and show the new values; the others keep and show theirs, whatever they hold, also
# when they open another ZooKeeper session, and in parallel workers. Malformed values are refused.
#
# Tags: edges

use ZkLock::Test;

my @zk = map { ZkLock::ZkServer->start(tick_time => 500) } 0, 1;
my @zkc = map { ZkLock::ZkClient->new($_->connect_string) } @zk;
my @address = map { $_->connect_string } @zk;
my $node = zklock_node('a', zk => $zk[0]);

# Changes a setting of the server, to its default without a value; returns when each of the given
# sessions has read the file. Another setting, which is not fixed, shows that.
my $reloads = 0;

sub change
{
	my ($setting, $value, @sessions) = @_;
	my $mark = '1' . sprintf('%04d', ++$reloads) . 'ms';
	$node->safe_psql('postgres', $_)
	  for defined $value ? "ALTER SYSTEM SET zklock.$setting = '$value'" : "ALTER SYSTEM RESET zklock.$setting",
	  "ALTER SYSTEM SET zklock.ensemble_timeout = '$mark'";
	$node->reload;
	for my $s (@sessions)
	{
		wait_until("the session has read $mark", sub { $s->query('SHOW zklock.ensemble_timeout') eq $mark });
	}
	wait_for_sql($node, 'SHOW zklock.ensemble_timeout', $mark);
	return;
}

# The value in the leader and in a parallel worker, and what PostgreSQL finds wrong with the file.
sub shown
{
	my ($s, $setting) = @_;
	return [
		map { scalar $s->query($_) } "SHOW zklock.$setting", "SELECT max(current_setting('zklock.$setting')) FROM in_parallel",
		'SELECT string_agg(error, chr(10)) FROM pg_file_settings'
	];
}

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE in_parallel AS SELECT 1 AS a;
ALTER TABLE in_parallel SET (parallel_workers = 2);
ALTER DATABASE postgres SET parallel_setup_cost = 0;
ALTER DATABASE postgres SET min_parallel_table_scan_size = 0;
ALTER DATABASE postgres SET parallel_leader_participation = off;
SQL
like($node->safe_psql('postgres', q(EXPLAIN SELECT max(current_setting('zklock.root')) FROM in_parallel)), qr/Gather/,
	'the query that reads a setting is parallel');

sub has_node_in
{
	my ($zkc, $s, $lock, $root) = @_;
	my ($found) = queue_of($zkc, $lock, $root) or return 0;
	return $zkc->get($found)->{ephemeralOwner} eq zk_session_id($s);
}

# Each setting: sessions that hold nothing, a lock, or have not used the ensemble yet.
my $file = credentials_file('each:one');
my %new = (connect_string => $address[1], root => '/elsewhere/deep', session_timeout => '8s', node_names => 'kazoo',
	max_locks => 7, acl => 'creator', auth_file => $file);
for my $setting ('root', 'connect_string', 'session_timeout', 'node_names', 'max_locks', 'auth_file', 'acl')
{
	my ($idle, $holding, $unused) = map { session($node) } 1 .. 3;
	my $before = $idle->query("SHOW zklock.$setting");
	my $as_before = shown($idle, $setting);
	is_deeply($as_before, [ $before, $before, '' ], "$setting: a session and a parallel worker show the value");
	$idle->query_ok("SELECT zk_lock('idle'), zk_unlock('idle')");
	$holding->query_ok("SELECT zk_lock('held')");
	my %id = map { $_ => zk_session_id($_) } $idle, $holding;
	change($setting, $new{$setting}, $idle, $holding, $unused);
	is_deeply(shown(my $later = session($node), $setting), [ ($new{$setting}) x 2, '' ], "$setting: a new session shows the new value");
	$later->quit;
	$id{$unused} = $unused->query("SELECT zk_lock('first'), zk_unlock('first')") && zk_session_id($unused);
	for my $s ($idle, $holding, $unused)
	{
		my $what = $s == $idle ? 'holds nothing' : $s == $holding ? 'holds a lock' : 'uses the ensemble after the reload';
		is_deeply(shown($s, $setting), $as_before, "$setting: a session that $what shows the former value");
		works($s, "SELECT zk_try_lock('more' || pg_backend_pid())", 't', "$setting: a session that $what acquires its next lock");
		is(zk_session_id($s), $id{$s}, "$setting: a session that $what stays in its ZooKeeper session");
		ok(has_node_in($zkc[0], $s, 'more' . $s->pid), "$setting: a session that $what has its next lock in the same place");
		$s->query_ok('SELECT zk_unlock_all()');
		$zkc[0]->end_session(zk_session_id($s));
		works($s, "SELECT zk_try_lock('again' || pg_backend_pid())", 't', "$setting: a session that $what locks again in another ZooKeeper session");
		ok(has_node_in($zkc[0], $s, 'again' . $s->pid), "$setting: a session that $what has this lock in the same place");
	}
	$_->quit for $idle, $holding, $unused;
	nothing_left($zkc[0], "$setting: no node is left");
	my $old = session($node);
	change($setting, undef, $old);
	is(shown($old, $setting)->[0], $new{$setting}, "$setting: a session sees also that the setting is removed from the file");
	$old->quit;
	wait_for_sql($node, "SHOW zklock.$setting", $before);
}

# A new session moves.
{
	change('connect_string', $address[1]);
	my $new = session($node);
	$new->query_ok("SELECT zk_lock('moved')");
	ok(has_node_in($zkc[1], $new, 'moved'), 'a new session is in the new ensemble');
	$new->quit;
	nothing_left($zkc[1], 'no node is left');
}

# A waiter does not move.
{
	my $waiter = session($node);
	my $gate = foreign_node($zkc[1], '/zklock/locks/gate', 'WRIT');
	$waiter->query_async("SELECT zk_lock('gate')");
	wait_zk_children($zkc[1], '/zklock/locks/gate', 2);
	change('connect_string', $address[0]);
	ok(!$waiter->finished, 'a reload does not disturb a waiter');
	$zkc[1]->delete($gate);
	like($waiter->wait_result, qr/^\d+$/, 'the waiter is granted the lock');
	ok(has_node_in($zkc[1], $waiter, 'gate'), 'the lock is in the ensemble where the session waited');
	$waiter->quit;
	nothing_left($zkc[1], 'a waiter leaves no node');
}

# Without an ensemble.
{
	change('connect_string', '');
	my $s = session($node);
	fails_with($s, q(SELECT zk_lock('x')), 'F0000', 'no ensemble is configured');
	change('connect_string', $address[0], $s);
	fails_with($s, q(SELECT zk_lock('x')), 'F0000', 'no ensemble is configured for a session from before the reload');
	$s->reconnect;
	works($s, q(SELECT zk_lock('x') > 0), 't', 'an ensemble is configured for a new session');
	$s->quit;
}

# Malformed values. ZooKeeper refuses the last five, also in a chroot.
{
	my $s = session($node);
	fails_with($s, "ALTER SYSTEM SET zklock.connect_string = 'no port'", '22023', 'a malformed setting is refused');
	for my $root ('', '/', 'zklock', '/zklock/', '/a//b', '/a/../b',
		"/\xc2\x85", "/\xee\x80\x80", "/\xf0\x9f\x98\x80", "/\xef\xbf\xb0", "/\xef\xbf\xbf")
	{
		fails_with($s, "ALTER SYSTEM SET zklock.root = '$root'", '22023', "the root '$root' is refused", hint => 0);
	}
	for my $chroot ('/a//b', '/a/../b', "/\xc2\x85", "/\xee\x80\x80", "/\xef\xbf\xb0")
	{
		fails_with($s, "ALTER SYSTEM SET zklock.connect_string = '127.0.0.1:1$chroot'", '22023',
			"the chroot '$chroot' is refused", hint => 0);
	}
	$s->quit;
}

# Credentials: a file is read whenever a ZooKeeper session is opened.
{
	my $creator = sub {
		my ($found) = queue_of($zkc[0], $_[0], '/credentials');
		my ($id) = map { $_->[2] } grep { $_->[1] eq 'digest' } $zkc[0]->get_acls($found);
		return $id =~ s/:.*//r;
	};
	my $s = session($node)->reconnect('zklock.root' => '/credentials', 'zklock.acl' => 'creator', 'zklock.auth_file' => $file);
	$s->query_ok("SELECT zk_lock('c.first')");
	is($creator->('c.first'), 'each', 'a node has the credentials in the file');
	$s->query_ok('SELECT zk_unlock_all()');
	write_file($file, "digest second:two\n");
	$s->query_ok("SELECT zk_lock('c.same')");
	is($creator->('c.same'), 'each', 'a ZooKeeper session keeps its credentials');
	$s->query_ok('SELECT zk_unlock_all()');
	$zkc[0]->end_session(zk_session_id($s));
	fails_with($s, "SELECT zk_lock('c.second')", '42501', 'the next one has those in the file');
	$s->quit;
	nothing_left($zkc[0], 'other credentials leave no node', root => '/credentials');
}
