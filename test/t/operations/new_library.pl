# A new version of the library is installed while the server runs. The server uses the old one
# until it restarts.

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ZkLock::Installation;
use ZkLock::Test;

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my $installation = ZkLock::Installation->new(PostgreSQL::Test::Utils::tempdir());

# Returns the library of the backend: old, new, or none.
sub library
{
	my ($s) = @_;
	my ($mapped) = read_file('/proc/' . $s->pid . '/maps') =~ m{/zklock\.so( \(deleted\))?$}m
	  or return 'none';
	return defined $1 ? 'old' : 'new';
}

my $node = PostgreSQL::Test::Cluster->new('a', install_path => $installation->path);
$node->init;
$node->append_conf('postgresql.conf', <<"CONF");
shared_preload_libraries = 'zklock'
zklock.connect_string = '${\$zk->connect_string}'
zklock.session_timeout = '60s'
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
my $earlier = session($node);
my $token = $earlier->query_ok("SELECT zk_lock('held')");
$earlier->query_ok('BEGIN');
$earlier->query_ok("SELECT zk_xact_lock('transaction')");

$installation->replace_library;
is(library($earlier), 'old', 'a session that holds locks has the old library');
my $later = session($node);
works($later, "SELECT zk_try_lock('held'), zk_try_lock('transaction')", 'f|f',
	'a later session is excluded');
is(library($later), 'old', 'the later session has the old library');
works($earlier, "SELECT zk_lock_token('held'), zk_lock('another') > 0", "$token|t",
	'the earlier session works');
works($earlier, 'COMMIT', '', 'the earlier session commits');
$later->query_async("SELECT zk_lock('held')");
wait_blocked($later);
$earlier->query_ok("SELECT zk_unlock('held')");
like($later->wait_result, qr/^\d+$/, 'the later session acquires the released lock');
$_->quit for $earlier, $later;
nothing_left($zkc, 'no node is left');

$node->restart;
my $after = session($node);
is(library($after), 'new', 'the new library is loaded after a restart');
works($after, "SELECT zk_try_lock('held')", 't', 'the new library works');
