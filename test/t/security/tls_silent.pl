# A server that accepts connections but does not answer the TLS handshake delays nothing:
# the session continues with the next server, a lost lock is reported in time, and new
# sessions can be opened.

use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use ZkLock::SlowServers qw(end_server full_server);
use ZkLock::Test;
use ZkLock::Tls;

require_tls();
my $tls = ZkLock::Tls->new;
my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 200, tls => $tls)->with_client;
my $answering = ZkLock::Proxy->start(target => $zk->secure_connect_string);
my $silent = ZkLock::Proxy->start(target => $zk->secure_connect_string);
my $node = shared_node('a', zk => $answering->connect_string . ',' . $silent->connect_string, session_timeout => '12s',
	set => $tls->settings);

# Each session tries the servers in a different order: some try the silent server first.
use constant SESSIONS => 4;
$silent->freeze;
my @sessions = map { session($node) } 1 .. SESSIONS;
{
	my $n = 0;
	works($_, "SELECT zk_lock('first " . ++$n . "') > 0", 't', 'a session reaches the server that answers') for @sessions;
	my @ids = map { zk_session_id($_) } @sessions;
	$answering->cut;
	wait_state($_, 'connected') for @sessions;
	is_deeply([ map { zk_session_id($_) } @sessions ], \@ids, 'the sessions reconnect to it after a lost connection');
	$_->query_ok('SELECT zk_unlock_all()') for @sessions;
	nothing_left($zkc, 'a silent server leaves no node');
}

# No server answers: the loss of the locks is reported after the session timeout.
{
	$_->reconnect('zklock.session_timeout' => '3s') for @sessions;
	my $n = 0;
	$_->query_ok("BEGIN; SELECT zk_xact_lock('lost " . ++$n . "')") for @sessions;
	$_->query_async('SELECT pg_sleep(600)') for @sessions;
	$answering->freeze;
	$answering->cut;
	my $began = time;
	failed_with($_, '40001', 'the loss of a lock is reported', like => qr/"lost/) for @sessions;
	note(sprintf 'reported after %.1f s', time - $began);

	# The old sessions still try to reach a server.
	$_->query_ok('ROLLBACK') for @sessions;
	$_->reconnect('zklock.connect_string' => $zk->secure_connect_string) for @sessions;
	works($_, "SELECT zk_try_lock('other' || pg_backend_pid())", 't', 'a new session can be opened meanwhile') for @sessions;
	$began = time;
	my $pids = join ',', map { $_->pid } @sessions;
	$_->quit for @sessions;
	wait_for_sql($node, "SELECT count(*) FROM pg_stat_activity WHERE pid IN ($pids)", '0');
	note(sprintf 'all backends have ended after %.1f s', time - $began);
	$_->thaw for $answering, $silent;
}

# Returns the CPU time of a backend in seconds.
sub cpu_time
{
	my ($s) = @_;
	my @field = split ' ', slurp_file('/proc/' . $s->pid . '/stat') =~ s/^.*\)//sr;
	return ($field[11] + $field[12]) / 100;
}

# Reconnecting to servers that do not even accept a connection costs no CPU time.
{
	my ($holder, $waiter) = map { session($node) } 1 .. 2;
	my $full = full_server();
	$holder->reconnect('zklock.connect_string' => $zk->secure_connect_string);
	$holder->query_ok("SELECT zk_acquire_permit('busy', 1)");
	$waiter->reconnect('zklock.connect_string' => $answering->connect_string . ",$full->{connect_string}");
	$waiter->query_ok("SELECT zk_lock('connected')");
	$waiter->query_async("SELECT zk_acquire_permit('busy', 1)");
	wait_blocked($waiter);
	my $before = cpu_time($waiter);
	$answering->cut(refuse => 1);
	$holder->query_ok('SELECT pg_sleep(6)');
	cmp_ok(cpu_time($waiter) - $before, '<', 2, 'a backend that cannot reconnect for six seconds is idle');
	$answering->accept;
	$_->quit for $holder, $waiter;
	end_server($full);
}
