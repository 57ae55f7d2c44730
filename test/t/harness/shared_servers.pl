# The shared servers: a file gets clean servers, whatever the file before it did, and a file
# that leaves something behind fails.

use File::Temp ();
use IPC::Run qw(run);
use ZkLock::SharedServers;
use ZkLock::Test;

my $dir = File::Temp->newdir('sharedXXXXXX', TMPDIR => 1);
my %environment = (
	ZKLOCK_SHARED => "$dir",
	TESTDIR => "$dir/test",
	TESTDATADIR => "$dir/test/tmp_check",
	TESTLOGDIR => "$dir/test/tmp_check/log");
mkdir "$dir/test";

# Runs a file with this code, and other environment variables. Returns its exit code, its output, and the server that it used.
sub run_file
{
	my ($code, %more) = @_;
	my $output = '';
	my %variables = (%environment, %more);
	local @ENV{ keys %variables } = values %variables;
	write_file("$dir/file.pl", <<"PERL");
use ZkLock::Test;
my \$zk = shared_zk();
my \$zkc = ZkLock::ZkClient->new(\$zk->connect_string, timeout => 300);
my \$node = shared_node('a');
my \$s = session(\$node);
print STDERR 'server ' . \$zk->pid . "\n";
$code
ok(1);
PERL
	run([ $^X, (map { ('-I', $_) } @INC), "$dir/file.pl" ], '<', \undef, '>&', \$output);
	my $status = $? >> 8 || $? & 127;
	my ($log) = glob "$dir/test/tmp_check/log/regress_log_file*";
	$output .= read_file($log);
	unlink $log;
	my ($server) = $output =~ /^.*server (\d+)$/m;
	return ($status, $output, $server // 'none');
}

my $is_clean = <<'PERL';
is(join(' ', $zkc->children('/')), 'zookeeper', 'the ensemble is empty');
is($s->query(q(SELECT count(*) FROM pg_class WHERE relname = 'left')), '0', 'there is no table');
is($s->query('SELECT count(*) FROM pg_roles WHERE oid >= 16384'), '0', 'there is no role');
is($s->query('SHOW work_mem'), '4MB', 'there is no setting');
PERL

my ($status, $output, $first) = run_file(<<'PERL');
$s->query_ok('CREATE TABLE "left" (); CREATE ROLE "left"; CREATE DATABASE other');
$s->query_ok(q(ALTER ROLE "left" SET work_mem = '1MB'; ALTER DATABASE postgres SET work_mem = '2MB'));
$s->query_ok("SELECT zk_lock('held')");
$zkc->create('/elsewhere/below', makepath => 1);
$zkc->set_acl($_, { digest => 'user:password' }) for '/elsewhere/below', '/elsewhere';
PERL
is($status, 0, 'a file may leave tables, roles, databases, sessions and znodes') || diag($output);
($status, $output, my $next) = run_file($is_clean);
is($status, 0, 'the next file sees nothing of them') || diag($output);
is($next, $first, 'the next file uses the same servers');

# Each kind of leftover, and the message that names it.
my %left = (
	'a contender' => [
		q{$zkc->create('/zklock/locks/x/lock-', ephemeral => 1, sequence => 1, makepath => 1); ZkLock::ZkClient::drop($zkc)},
		qr{left in the ensemble: /zklock/locks/x/lock-} ],
	'a prepared transaction' =>
	  [ q{$s->query_ok("BEGIN; PREPARE TRANSACTION 'p'")}, qr/server a: prepared transaction p/ ],
	'a setting' => [
		q{$node->safe_psql('postgres', q(ALTER SYSTEM SET work_mem = '1MB'))},
		qr/server a: setting work_mem/ ],
	'a crash' => [ '$s->kill9; wait_for_log($node, qr/was terminated by signal/)', qr/server a: crash: .*terminated by signal 9/ ],
	'a stopped server' => [ '$zk->stop', qr/ZooKeeper does not answer/ ],
	'a killed file' => [ q{kill 'KILL', $$}, qr/server/ ]);
for my $what (sort keys %left)
{
	my ($code, $message) = @{ $left{$what} };
	# For the contender, which has a session, the servers wait in vain.
	my %short = $what eq 'a contender' ? (PG_TEST_TIMEOUT_DEFAULT => 10) : ();
	($status, $output, my $spoilt) = run_file("$code;", %short);
	isnt($status, 0, "$what fails the file");
	like($output, $message, "$what fails the file with a message");
	($status, $output, $next) = run_file($is_clean);
	is($status, 0, "the next file has clean servers after $what") || diag($output);
	isnt($next, $spoilt, 'the servers of the next file are new');
}

END
{
	local $?;
	$_->end
	  for ZkLock::SharedServers::ZooKeeper->at("$dir/1/zk"),
	  map { ZkLock::SharedServers::PostgreSQL->at($_, "$dir/1/$_") } qw(a b);
}
