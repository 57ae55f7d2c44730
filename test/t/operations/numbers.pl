# The numbers, limits and counters of doc/operations.md are correct: what servers grant and
# refuse, and the resources of a backend. So is the zoo.cfg of doc/install.md.

use IPC::Run ();
use ZkLock::Document;
use ZkLock::Test;

use constant CONNECTIONS => 6;
use constant DOCUMENT => 'doc/operations.md';

sub mntr
{
	my ($zk) = @_;
	return { ($zk->four_letter('mntr') // '') =~ /^zk_(\w+)\t(.*)$/mg };
}

# The settings that the manual shows for zoo.cfg, without places and members.
{
	my $document = 'doc/install.md';
	my %shown = map { /^([^#\s=]+)=(.*)$/ ? ($1 => $2) : () } split /\n/, block_of($document, 'zoo.cfg');
	delete @shown{ grep { /^(?:dataDir|dataLogDir|clientPort|tickTime|server\.\d)$/ } keys %shown };
	cmp_ok(scalar keys %shown, '>', 3, "$document has settings for zoo.cfg");
	my $server = ZkLock::ZkServer->start(config => \%shown);
	like($server->four_letter($_), qr/\bzk_version|^Mode: standalone/m, "$document: a server starts with the settings and answers $_")
	  for qw(srvr mntr);
	unlike($server->four_letter('conf') // '', qr/^clientPort=/m, 'the server answers no other command');
	$server->stop;
}

# Defaults: session timeouts of two to twenty ticks, and limited connections per address.
my $zk = ZkLock::ZkServer->start(
	tick_time => 2000,
	config => { maxClientCnxns => CONNECTIONS, maxSessionTimeout => undef });
my $node = shared_node('a', zk => $zk);

for ([ '1s', '00:00:04' ], [ '10s', '00:00:10' ], [ '2min', '00:00:40' ])
{
	my ($requested, $granted) = @$_;
	my $s = session_with($node, session_timeout => $requested);
	$s->query_ok("SELECT zk_lock('requested')");
	works($s, 'SELECT session_timeout FROM zk_session()', $granted,
		"a session timeout of $requested is granted as $granted with a tick of 2 s");
	$s->quit;
}

# Every four-letter command is a connection, too.
{
	my @in = map { session($node) } 1 .. CONNECTIONS;
	my $rejected = mntr($zk)->{connection_rejected};
	$_->query_ok("SELECT zk_lock('own-' || pg_backend_pid())") for @in;
	my $out = session($node);
	$out->query_ok("SET zklock.ensemble_timeout = '300ms'");
	fails_with($out, "SELECT zk_lock('one more')", '08001',
		'a connection beyond maxClientCnxns gets an error');
	works($in[0], "SELECT count(*) FROM zk_locks WHERE name LIKE 'own-%'", CONNECTIONS,
		'the other sessions still work');
	$in[-1]->quit;
	ok(wait_until('a free connection', sub { $out->query("SELECT zk_try_lock('one more')") eq 't' }),
		'the refused session connects when another one disconnects');
	$in[-2]->quit;
	ok(wait_until('the counter', sub { (mntr($zk)->{connection_rejected} // 0) > $rejected }),
		'the server counts refused connections');
	$_->quit for @in, $out;
}

# The resources of a backend, and the size of a lock.
{
	my $s = session($node);
	my $tasks = sub { return scalar(() = glob '/proc/' . $s->pid . '/task/*') };
	my $entries = 'SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() '
	  . "AND locktype = 'advisory'";
	is($tasks->(), 1, 'a backend without locks has one thread');
	$s->query_ok("SELECT zk_lock('1')");
	is($tasks->(), 1 + 1, 'a backend with a session has one more thread');
	works($s, $entries, 1, 'a lock has one entry in the lock table');
	$s->query_ok("SELECT zk_acquire_permit('permits', 2)");
	works($s, $entries, 1, 'a permit has no entry in the lock table');
	$s->query_ok("SELECT zk_release_permit('permits')");
	my $before = mntr($zk)->{approximate_data_size};
	$s->query_ok('SELECT count(zk_lock(n::text)) FROM generate_series(2, 101) AS n');
	works($s, $entries, 101, 'each lock has an entry in the lock table');
	cmp_ok(mntr($zk)->{approximate_data_size} - $before,
		'<', 100 * 1000, 'a lock needs less than 1 kB in the ensemble');
	$s->quit;
}

# Watches of a held lock, which is watched after a second, and of a long wait.
{
	my $zkc = ZkLock::ZkClient->new($zk->connect_string);
	my $s = session($node);
	my $holder = foreign_node($zkc, '/zklock/locks/theirs', 'WRIT');
	$s->query_ok("SELECT zk_lock('mine')");
	ok(wait_until('a watch', sub { mntr($zk)->{watch_count} > 0 }), 'a held lock is watched');
	$s->query_async("SELECT zk_lock('theirs')");
	wait_until('the wait report of a long wait', sub { scalar $zkc->children('/zklock/waiting') });
	my %counters = %{ mntr($zk) };
	cmp_ok($counters{watch_count}, '<=', 2 * $counters{ephemerals_count},
		'there are no more than two watches for each ephemeral znode');
	$zkc->delete($holder);
	$s->wait_result;
	$s->quit;
	$zkc->close;
}

# Runs commands of the document in zkCli.sh.
sub zk_cli
{
	my ($root, $word) = @_;
	my $commands = block_of(DOCUMENT, $word) =~ s{/zklock\b}{$root}gr;
	my $out = '';
	my $class_path = $ENV{ZOOKEEPER_CLASSPATH} // join ':', map { "/usr/share/java/$_.jar" } qw(zookeeper commons-cli slf4j-simple);
	IPC::Run::run([ 'java', '-cp', $class_path, 'org.apache.zookeeper.ZooKeeperMain', '-server', $zk->connect_string ],
		\$commands, '>&', \$out) or diag($out);
	return;
}

# New credentials need another root, or changed ACLs.
{
	my ($old, $new) = map {
		session_with($node, acl => 'creator', root => '/first', auth_file => credentials_file("locks:$_-password"))
	} qw(old new);
	works($old, "SELECT zk_try_lock('a'), zk_unlock('a')", 't|t', 'a session with credentials creates its root');
	fails_with($new, "SELECT zk_lock('b')", '42501', 'other credentials are refused below that root');
	$new->reconnect('zklock.root' => '/second');
	works($new, "SELECT zk_try_lock('b'), zk_unlock('b')", 't|t', 'other credentials can use another root');
	$new->reconnect('zklock.root' => '/first');
	zk_cli('/first', 'both');
	works($old, "SELECT zk_try_lock('c'), zk_unlock('c')", 't|t', 'with ACLs for both, the old credentials lock');
	works($new, "SELECT zk_try_lock('d'), zk_unlock('d')", 't|t', 'with ACLs for both, the new credentials lock');
	zk_cli('/first', 'new');
	works($new, "SELECT zk_try_lock('d'), zk_unlock('d')", 't|t', 'with ACLs for the new credentials, these lock');
	fails_with($old, "SELECT zk_lock('b')", '42501', 'with ACLs for the new credentials, the old ones are refused');
	$_->quit for $old, $new;
}

my $zkc = ZkLock::ZkClient->new($zk->connect_string);
nothing_left($zkc, 'no node is left', root => $_) for qw(/zklock /first /second);
