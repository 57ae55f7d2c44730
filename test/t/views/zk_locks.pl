# zk_locks shows every holder and waiter below the root: sessions of several servers,
# Curator, kazoo, junk nodes, and nodes that may not be read.
#
# Promise: 10.1
# Tags: user

use ZkLock::Test;

no warnings 'portable';
use utf8;

use Encode qw(encode);
use Sys::Hostname qw(hostname);

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $node_1 = zklock_node('a', zk => $zk);
my $node_2 = zklock_node('b', zk => $zk);
my $dba = session($node_1, application_name => 'dba');
my $first = session($node_1, application_name => 'one');
my $second = session($node_2, application_name => 'two');
my $third = session($node_2, application_name => 'three');

# Returns rows of the view as text; by default without columns that differ between runs.
sub rows
{
	my ($where, $columns) = @_;
	$columns //= 'mode, granted, queue_position, application_name';
	my $answer = $dba->query(
		"SELECT concat_ws(' ', $columns) FROM zk_locks WHERE $where "
		  . ($columns =~ /count/ ? '' : 'ORDER BY kind, name, granted DESC, queue_position, mode, znode'));
	return $dba->ok ? $answer : $dba->error;
}

is(rows('true'), '', 'the view is empty without a root');
is($dba->error, '', 'a missing root causes no warning');
is_deeply([ $zkc->children('/') ], ['zookeeper'], 'reading the view creates no znode');
is($dba->query('SELECT state FROM zk_session()'), 'connected',
	'the view opens a session if there is none');


# Sessions of two servers.
{
	my $token = $first->query_ok(q(SELECT zk_lock('a')));
	$second->query_async(q(SELECT zk_lock('a')));
	wait_zk_children($zkc, '/zklock/locks/a', 2);
	$third->query_ok(q(SELECT zk_lock_shared('s')));
	$first->query_ok(q(SELECT zk_lock_shared('s')));
	is(rows(q(name = 'a')), "exclusive t one\nexclusive f 1 two",
		'a holder and a waiter are shown');
	is(rows(q(name = 's'), 'count(*), min(mode), bool_and(granted)'), '2 shared t', 'both sharers are shown');
	my @queue = queue_of($zkc, 'a');
	is(rows(q(name = 'a' AND granted), 'kind, token, server, pid, datname, usename, client, '
			  . 'session_id, znode'),
		join(' ', 'lock', $token, hostname() . ':' . $node_1->port, $first->pid, 'postgres',
			scalar $first->query('SELECT session_user'), 'zklock', zk_session_id($first), $queue[0]),
		'all columns of a holder are shown');
	is(rows(q(name = 'a' AND NOT granted), 'pid, server, znode'),
		join(' ', $second->pid, hostname() . ':' . $node_2->port, $queue[1]), 'the process, server and znode of a waiter are shown');
	my $stat = $zkc->exists($queue[0]);
	is( rows(q(name = 'a' AND granted), 'extract(epoch FROM requested_at) * 1000 = ' . $stat->{ctime}),
		't', 'requested_at is the time of the ensemble');
	my $all = q(SELECT string_agg(l::text, ' ' ORDER BY znode) FROM zk_locks AS l);
	is($third->query($all), scalar $dba->query($all), 'every server shows the same rows');

	# An upgrade, a downgrade.
	$third->query_ok(q(SELECT zk_unlock_shared('s')));
	wait_zk_children($zkc, '/zklock/locks/s', 1);
	my $start = $first->query(q(SELECT zk_lock_token('s')));
	$first->query_ok(q(SELECT zk_lock('s')));
	is(rows(q(name = 's'), 'mode, granted, token'), "exclusive t $start\nshared t $start",
		'an upgraded lock is held in both modes, with one token');
	$first->query_ok(q(SELECT zk_unlock('s')));
	$first->query_ok(q(SELECT zk_unlock('a')));
	$second->wait_result;
	is(rows(q(name = 'a')), 'exclusive t two', 'the next holder is shown');
	$second->query_ok(q(SELECT zk_lock_shared('a'), zk_unlock('a')));
	wait_until('the downgrade', sub { ($zkc->children('/zklock/locks/a'))[0] =~ /READ/ });
	is(rows(q(name = 'a')), 'shared t two', 'a downgraded lock is shown as shared');
	$_->query_ok('SELECT zk_unlock_all()') for $first, $second, $third;
	nothing_left($zkc, 'no node of the locks is left');
	is(rows('true'), '', 'no released lock is shown');
}


# Names.
{
	my @names = ('simple', 'with space', 'a/b', '.', '..', '100%', '%2F', '#7', "O'Reilly",
		"line\nbreak", 'Straße', '東京', "\x{1F512}", 'x' x 512);
	my %held;
	$first->query_ok(q(SET client_encoding = 'UTF8'));
	for my $name (@names)
	{
		(my $quoted = encode('UTF-8', $name)) =~ s/'/''/g;
		$first->query_ok("SELECT zk_lock('$quoted')");
	}
	$first->query_ok("SELECT zk_lock('7'), zk_lock('-8'), zk_lock('7,-8')");
	# A control character is shown as in the znode's name.
	my $difference = q(SELECT count(*) FROM (SELECT replace(name, E'\\n', '%0A') AS name, token, mode, pg_backend_pid() AS pid FROM zk_held_locks) AS h )
	  . 'FULL JOIN (SELECT name, token, mode, pid FROM zk_locks) AS l USING (name, token, mode, pid) '
	  . 'WHERE h IS NULL OR l IS NULL';
	is($first->query($difference), '0', 'the names are those of zk_held_locks');
	is($first->query('SELECT count(*) FROM zk_locks'), @names + 3, 'all names are shown');

	# Database encodings that lack some characters.
	for my $encoding ('latin1', 'sql_ascii')
	{
		$node_2->safe_psql('postgres', "CREATE DATABASE db_$encoding TEMPLATE template0 "
			  . "ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'");
		$node_2->safe_psql("db_$encoding", 'CREATE EXTENSION zklock');
	}
	my $latin = session($node_2, dbname => 'db_latin1');
	$latin->query_ok(q(SET client_encoding = 'UTF8'));
	is($latin->query(q(SELECT name FROM zk_locks WHERE znode ~ '/Stra')), encode('UTF-8', 'Straße'),
		'a name is converted to the database encoding');
	is($latin->query(q(SELECT name FROM zk_locks WHERE znode ~ '/%E6')), '%E6%9D%B1%E4%BA%AC',
		'a name that cannot be converted is shown as in the znode');
	is($latin->query('SELECT count(*) FROM zk_locks'), @names + 3, 'no row is missing because of its encoding');
	my $ascii = session($node_2, dbname => 'db_sql_ascii');
	is($ascii->query(q(SELECT name FROM zk_locks WHERE znode ~ '/%E6')), encode('UTF-8', '東京'),
		'SQL_ASCII databases get the name in UTF-8');
	$_->quit for $latin, $ascii;
	$first->query_ok('SELECT zk_unlock_all()');
	nothing_left($zkc, 'no node of the names is left');
}


# Session data that need quoting.
{
	my $odd = session($node_1, application_name => q('"\\\\ {}[],:'));
	$odd->query_ok(q(SELECT zk_lock('odd')));
	is(rows(q(name = 'odd'), 'application_name'),
		$odd->query('SHOW application_name'), 'an application name with quotes is shown unchanged');
	$odd->quit;
	wait_zk_empty($zkc, '/zklock/locks/odd');
}


# Nodes of other programs.
my $uuid = '_c_0a1b2c3d-1111-2222-3333-444455556666';
my $uuid_2 = '_c_1a1b2c3d-1111-2222-3333-444455556666';
my $hex = '0a1b2c3d111122223333444455556666';
my $hex_2 = '1a1b2c3d111122223333444455556666';
my $id = $zkc->session_id;
{
	my %made = (
		"cur/$uuid-__READ__0000000000" => "\x0a\x01\x02\x03",
		"cur/$uuid_2-__WRIT__0000000001" => "\xfe\x80" . "\0" x 13 . "\x01",
		"cur/$uuid-lock-0000000002" => 'worker 7',
		"cur/$uuid-lock-0000000003" => 'word',
		"kaz/$hex\__rlock__0000000000" => 'host-1',
		"kaz/$hex_2\__lock__0000000001" => encode('UTF-8', 'wörker'),
		"any/x__lock__0000000000" => "\xff\xfe\0\x01",
		"any/x__lock__0000000001" => '',
		"any/x__lock__0000000002" => '__REVOKE__',
		"any/x__lock__0000000003" => 'zklock server=a:1 pid=1');
	$zkc->create("/zklock/locks/$_", data => $made{$_}, ephemeral => 1, makepath => 1)
	  for sort keys %made;
	$zkc->create("/zklock/locks/any/$_", data => 'junk')
	  for 'lease_holder', 'lock-', "caf\x{e9}", '%', 'x' x 900;
	my $columns = 'mode, granted, client, queue_position, server, application_name';
	is(rows(q(name = 'cur'), $columns),
		"shared t curator 10.1.2.3\nexclusive f curator 1 fe80::1\n"
		  . "exclusive f curator 2 worker 7\nexclusive f curator 3 word",
		"Curator's nodes show an address, or the text of the program");
	is(rows(q(name = 'kaz'), $columns),
		"shared t kazoo host-1\nexclusive f kazoo 1 " . encode('UTF-8', 'wörker'),
		"kazoo's nodes show the identifier");
	is(rows(q(name = 'any'), $columns),
		"exclusive t other ????\nexclusive f other 1\nexclusive f other 2\n"
		  . 'exclusive f other 3 zklock server=a:1 pid=1',
		'any bytes are shown safely, and no other program is shown as zklock');
	is(rows(q(name = 'cur'), 'count(*), min(session_id), max(session_id)'), "4 $id $id", 'the sessions of other programs are shown');
	$dba->query_ok('CREATE TEMP TABLE kept AS SELECT * FROM zk_locks');
	ok($dba->ok, 'all rows can be stored in a table');

	# Znode names that zklock never creates.
	my @odd = ('a%41', '%zz', '%', '%E6', "caf\x{e9}", '%2f', '#x', 'a%00');
	$zkc->create("/zklock/locks/$_/x__lock__0000000000", makepath => 1) for @odd;
	is( join(' ', sort split /\n/, rows(q(znode ~ 'x__lock__0000000000' AND name <> 'any'), 'name')),
		join(' ', sort map { encode('UTF-8', $_) } @odd), 'znode names that zklock never creates are shown unchanged');
	$zkc->delete("/zklock/locks/$_", recursive => 1) for @odd, 'any', 'cur', 'kaz';
}

# Semaphores of Curator.
{
	my $at = '/zklock/semaphores';
	my %made = (
		"cur/leases/$uuid-lease-0000000000" => 'p1',
		"cur/leases/$uuid-lease-0000000001" => 'p2',
		"cur/locks/$uuid-lock-0000000002" => 'w1');
	$zkc->create("$at/$_", data => $made{$_}, makepath => 1) for sort keys %made;
	$zkc->set("$at/cur", '2');
	is( rows(q(kind = 'semaphore'), 'name, mode, granted, queue_position, client, application_name'),
		"cur permit t curator p1\ncur permit t curator p2\ncur permit f 1 curator w1",
		'permits and their waiters are shown');
	$zkc->set("$at/cur", '1');
	is( rows(q(name = 'cur'), 'granted, queue_position, application_name'),
		"t p1\nf 1 p2\nf 2 w1", 'a permit node beyond the capacity is shown as waiting');
	$zkc->create("$at/age/leases/$_", data => $_, makepath => 1) for 'b', 'a';
	$zkc->set("$at/age", '1');
	is(rows(q(name = 'age'), 'granted, queue_position, application_name'), "t b\nf 1 a", 'the older permit node is the holder, whatever the names are');
	# The first waiter has a permit node already. Data that are no number are no capacity.
	for my $data ('192.0.2.1', '1x', '9999999999', '')
	{
		$zkc->create("$at/any/leases/$uuid-lease-0000000000", data => 'other', makepath => 1);
		$zkc->set("$at/any", $data);
		$zkc->create("$at/any/leases/$uuid_2-lease-0000000001", data => 'first', ephemeral => 1);
		$zkc->create("$at/any/locks/$uuid_2-lock-0000000000", data => 'first', ephemeral => 1, makepath => 1);
		is(rows(q(name = 'any'), 'granted, queue_position, application_name'), "t other\nf 1 first",
			"without a capacity ('$data') the newest permit node of the first waiter's session is one entry with the waiter");
		$zkc->delete("$at/any", recursive => 1);
	}
	$zkc->delete($at, recursive => 1);
}


# Nodes that may not be read.
{
	my $acl = { digest => 'me:secret' };
	$zkc->create('/zklock/locks/shown/x__lock__0000000000', data => 'seen', makepath => 1);
	$zkc->create("/zklock/locks/shown/$uuid-lock-0000000001", data => 'unseen', acl => $acl);
	$zkc->create('/zklock/locks/hidden', acl => $acl);
	is( rows(q(name = 'shown'), 'mode, granted, queue_position, client, application_name, token > 0, requested_at IS NULL'),
		"exclusive t other seen t f\nexclusive f 1 curator t",
		'a node that may not be read is shown with the information in its name');
	like($dba->error, qr/^.*WARNING:  could not read some znodes .*\n.*DETAIL:  .*: 2\.\n.*HINT:  \S/,
		'a warning reports the number of unreadable znodes');
	$zkc->create('/closed');
	$zkc->create('/closed/locks', acl => $acl);
	my $shut = session_with($node_1, root => '/closed');
	fails_with($shut, 'SELECT count(*) FROM zk_locks', '42501', 'the view fails if the root may not be read',
		like => qr/could not read the locks of the ensemble/);
	fails_with($dba, "SELECT count(*) FROM zk_locks_of('hidden')", '42501', 'the view fails if the only queue that is asked for may not be read');
	$zkc->create('/half/locks', makepath => 1);
	$zkc->create('/half/locks/hidden', acl => $acl);
	$shut->reconnect('zklock.root' => '/half');
	works($shut, 'SELECT count(*) FROM zk_locks', '0', 'one queue that may not be read is no error, also if no lock is held');
	like($shut->error, qr/WARNING:  could not read .*\n.*DETAIL:  .*: 1\.\n/, 'one queue that may not be read is a warning');
	$shut->reconnect('zklock.root' => '/none');
	works($shut, 'SELECT count(*) FROM zk_locks', '0', 'the view is empty if the root does not exist');
	is($shut->error, '', 'another missing root causes no warning');
	$shut->quit;
	$zkc->add_auth('digest', 'me:secret');
	$zkc->delete("/zklock/locks/$_", recursive => 1) for 'shown', 'hidden';
}


# Privileges.
{
	$node_1->safe_psql('postgres', 'CREATE ROLE ordinary LOGIN');
	$first->query_ok(q(SELECT zk_lock('seen')));
	my $s = session($node_1, user => 'ordinary');
	works($s, q(SELECT pid, application_name FROM zk_locks WHERE name = 'seen'),
		$first->pid . '|one', 'every role sees all columns, as in pg_stat_activity');
	$s->quit;
	$first->query_ok('SELECT zk_unlock_all()');
}

nothing_left($zkc, 'no node is left');
