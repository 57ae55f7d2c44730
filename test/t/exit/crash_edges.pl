# What a crash leaves, where the sessions cannot be closed as usual: the worker does not keep
# them alive, does not disturb an ensemble for the sake of another one, and gives up no session
# because of a file that it cannot read. A damaged file of sessions costs the release after a
# crash, not the server. A worker that has done its work does not end.
#
# Promise: 3.4

use PostgreSQL::Test::Utils;
use ZkLock::Test;

# Longer than any wait of this test.
use constant LONG => '290s';

my $auth = credentials_file('user:secret');

# The second one refuses every request of a client without credentials, also that to close a
# session.
my ($zk, $strict) = map {
	ZkLock::ZkServer->start(
		tick_time => 500,
		config => $_,
		java => ['-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.ZooKeeperServer=debug'])
} {}, { 'enforce.auth.enabled' => 'true', 'enforce.auth.schemes' => 'digest' };
my $proxy = ZkLock::Proxy->start(target => $zk);
my ($here, $there) = map {
	zklock_node($_, zk => $zk, session_timeout => LONG,
		extra_conf => "restart_after_crash = on\nzklock.auth_file = '$auth'\n")
} qw(here there);
my $t = session($there);
my $directory = $here->data_dir . '/pg_stat_tmp';

sub crash
{
	my ($s) = @_;
	$s->kill9;
	wait_for_sql($here, 'SELECT 1', '1');
	return;
}

sub former_files { my @files = glob "$directory/zklock_sessions.*"; return @files }

# Returns the process that closes the sessions, if it runs.
sub worker
{
	my ($worker) = grep { read_file("/proc/$_/cmdline") =~ /zklock crash release/ }
	  child_processes(postmaster_pid($here->data_dir));
	return $worker;
}

sub free_at_once
{
	my ($lock, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$t->query_async("SELECT zk_lock('$lock')");
	like($t->wait_result, qr/^\d+$/, "$name: another server gets the lock");
	$t->query_ok("SELECT zk_unlock('$lock')");
	return;
}

# Returns how often clients have resumed a session of this ensemble.
sub count_resumed { my ($ensemble) = @_; return scalar(() = read_file($ensemble->log_file) =~ /attempting to renew session/g) }

# A worker that ends writes a line into the log that looks like a failure, or is not started
# after the next crash.
{
	$here->stop('fast');
	my $log = -s $here->logfile;
	$here->start;
	my $s = session($here);
	$s->query_ok("SELECT zk_lock('a')");
	crash($s);
	free_at_once('a', 'a crash');
	wait_for_log($here, qr/closed 1 ZooKeeper sessions/, $log);
	$here->stop('fast');
	my ($running) = split /received fast shutdown request/, substr(read_file($here->logfile), $log);
	unlike($running, qr/zklock crash release.* exited with exit code 1/, 'the worker does not end before the server');
	$here->start;
	$s->drop;
}

# The sessions of a database whose ensemble is unreachable.
{
	$here->safe_psql('postgres', "CREATE DATABASE other; ALTER DATABASE other SET zklock.connect_string = '"
		  . $proxy->connect_string . "'; ALTER DATABASE other SET zklock.session_timeout = '5s'");
	$here->safe_psql('other', 'CREATE EXTENSION zklock');
	my $other = session($here, dbname => 'other');
	my @sessions = map { session($here) } 1 .. 5;
	$other->query_ok("SELECT zk_lock('b')");
	$sessions[$_]->query_ok("SELECT zk_lock('b$_')") for 0 .. $#sessions;
	my $resumed = count_resumed($zk);
	my $log = -s $here->logfile;
	$proxy->cut(refuse => 1);
	crash($other);
	free_at_once("b$_", "one of several ensembles is unreachable, $_") for 0 .. $#sessions;
	wait_for_log($here, qr/could not close 1 ZooKeeper sessions of former processes/, $log);
	wait_until('the removal of the former file', sub { !former_files() });
	cmp_ok(count_resumed($zk) - $resumed, '<=', 4 * @sessions,
		'a session that is closed is not resumed again, while the worker tries to reach the other ensemble');
	ok(wait_for_log($here, qr/closed 5 ZooKeeper sessions/, $log), 'a session that is closed is counted once');
	$proxy->accept;
	free_at_once('b', 'the session that could not be closed has expired');
	$_->drop for $other, @sessions;
}

# Files that cannot be read, or that no server wrote, beside the one with the session. The order
# in which a directory lists its files is arbitrary: with nine of them, one comes before it.
{
	my $s = session($here);
	$s->query_ok("SELECT zk_lock('c')");
	$here->stop('immediate');
	my $log = -s $here->logfile;
	my @bad = map { "$directory/zklock_sessions.$_" } 1 .. 9;
	write_file($_, 'x' x 2000) for @bad;
	chmod 0, @bad[ 0 .. 5 ];
	unlink @bad[ 6, 7 ];
	mkdir $bad[6] or die "cannot create $bad[6]: $!";
	system_or_bail('mkfifo', $bad[7]);
	$here->start;
	free_at_once('c', 'former files that cannot be read');
	wait_until('the removal of the former file', sub { !grep { $_ eq "$directory/zklock_sessions.10" } former_files() });
	is_deeply([ sort(former_files()) ], [ @bad[ 0 .. 6 ] ], 'files that cannot be read are kept, others are removed');
	my $text = substr(read_file($here->logfile), $log);
	is(scalar(() = $text =~ /LOG:  could not read file "pg_stat_tmp\/zklock_sessions\.\d": /g), 7, 'each of them is logged once');
	unlike($text, qr/zklock crash release.* exited with exit code 1/, 'the worker has not ended because of them');
	chmod 0600, @bad[ 0 .. 5 ];
	unlink @bad[ 0 .. 5 ];
	rmdir $bad[6] or die "cannot remove $bad[6]: $!";
	$s->drop;
}

# The file with the session cannot be read.
{
	my $s = session($here);
	$s->query_ok("SELECT zk_lock('c')");
	$here->stop('immediate');
	my $log = -s $here->logfile;
	chmod 0, "$directory/zklock_sessions";
	$here->start;
	wait_for_log($here, qr/could not read file "pg_stat_tmp\/zklock_sessions.1": Permission denied/, $log);
	is_deeply([ former_files() ], ["$directory/zklock_sessions.1"], 'a file that cannot be read is kept');
	chmod 0600, former_files();
	$here->restart;
	free_at_once('c', 'the next start uses a file that can be read again');
	wait_until('the removal of the former file', sub { !former_files() });
	$s->drop;
}

# The worker ends while it cannot reach the ensemble: by a fast shutdown, and by a crash, after
# which the server has two former files.
{
	my $s = session($here, dbname => 'other');
	$s->reconnect('zklock.session_timeout' => LONG);
	$s->query_ok("SELECT zk_lock('w')");
	$proxy->cut(refuse => 1);
	crash($s);
	$s->drop;
	wait_until('the worker', sub { defined worker() });
	$here->stop('fast');
	is_deeply([ former_files() ], ["$directory/zklock_sessions.1"], 'a shutdown ends the worker, which keeps the file');
	$here->start;
	my $other = session($here);
	$other->query_ok("SELECT zk_lock('v')");
	my $worker = worker();
	kill 'KILL', $worker;
	wait_until('the next worker', sub { (worker() // $worker) != $worker });
	wait_for_sql($here, 'SELECT 1', '1');
	free_at_once('v', 'a crash of the worker');
	is($t->query("SELECT zk_try_lock('w')"), 'f', 'the unreachable ensemble keeps the other lock');
	$proxy->accept;
	free_at_once('w', 'the ensemble can be reached again');
	wait_until('the removal of the former files', sub { !former_files() });
	$other->drop;
}

# Each time that a session is resumed it lives for another timeout. The worker has no credentials,
# so it cannot close the session if the ensemble requires them.
{
	my $of_strict = "zklock.connect_string = '" . $strict->connect_string . "'";
	$_->safe_psql('postgres', "CREATE DATABASE strict; ALTER DATABASE strict SET $of_strict") for $here, $there;
	$_->safe_psql('strict', 'CREATE EXTENSION zklock') for $here, $there;
	my $s = session($here, dbname => 'strict');
	$s->query_ok("SELECT zk_lock('d')");
	my $other = session($there, dbname => 'strict');
	my $log = -s $here->logfile;
	my $resumed = count_resumed($strict);
	crash($s);
	wait_for_log($here, qr/could not close 1 ZooKeeper sessions of former processes/, $log);
	wait_until('the removal of the former file', sub { !former_files() });
	cmp_ok(count_resumed($strict) - $resumed, '<=', 12, 'a session that the ensemble does not close is left alone soon');
	is($other->query("SELECT zk_try_lock('d')"), 'f', 'its locks are free when it expires');
	my $after = session($here, dbname => 'strict');
	$after->query_ok("SET statement_timeout = '60s'; SET zklock.ensemble_timeout = '2min'; SELECT zk_lock('other')");
	is($after->query("SELECT zk_try_lock('d')"), 'f', 'a non-blocking attempt of the same server does not wait for it');
	$_->quit for $after, $other;
	$s->drop;
}

# The file is truncated while sessions are noted and others begin.
{
	my @sessions = map { session($here) } 1 .. 2;
	$sessions[0]->query_ok("SELECT zk_lock('e')");
	truncate "$directory/zklock_sessions", 0 or die "cannot truncate: $!";
	like($sessions[1]->query("SELECT zk_lock('f')"), qr/^\d+$/, 'a session begins although the file is truncated');
	crash($sessions[0]);
	is($t->query("SELECT zk_try_lock('e')"), 'f', 'after a crash the server runs again, and the locks are free later');
	wait_until('the removal of the former file', sub { !former_files() });
	$_->drop for @sessions;
}

# A byte of the connect string in a note is damaged.
{
	my $s = session($here);
	$s->query_ok("SELECT zk_lock('h')");
	$here->stop('immediate');
	my $bytes = read_file("$directory/zklock_sessions");
	substr($bytes, index($bytes, $zk->connect_string) + length('127.0.0.1'), 1) = ';';
	open my $file, '>:raw', "$directory/zklock_sessions" or die "cannot write: $!";
	print {$file} $bytes;
	close $file or die "cannot write: $!";
	my $log = -s $here->logfile;
	$here->start;
	wait_until('the removal of the former file', sub { !former_files() });
	unlike(substr(read_file($here->logfile), $log), qr/terminated by signal/, 'a damaged note does not end the worker');
	$s->drop;
}

# The machine has been booted since the file was written: its processes say nothing about those of
# the file, which may run elsewhere, on a copy of the disk. The header begins with eight bytes
# and the id of the boot.
{
	my $s = session($here);
	$s->query_ok("SELECT zk_lock('boot')");
	$here->stop('immediate');
	open my $file, '+<:raw', "$directory/zklock_sessions" or die "cannot open: $!";
	seek $file, 8, 0;
	read $file, my $boot, 36;
	is("$boot\n", read_file('/proc/sys/kernel/random/boot_id'), 'the file names the boot of the machine');
	seek $file, 8, 0;
	print {$file} $boot =~ tr/0-9a-f/1-9a-f0/r;
	close $file or die "cannot write: $!";
	$here->start;
	wait_until('the removal of the former file', sub { !former_files() });
	is($t->query("SELECT zk_try_lock('boot')"), 'f', 'the sessions of another boot are not closed');
	$s->drop;
}

# Without its directory.
{
	$here->stop('fast');
	rename $directory, "$directory.moved" or die "cannot rename $directory: $!";
	my $log = -s $here->logfile;
	$here->start;
	wait_for_log($here, qr/could not create file "pg_stat_tmp\/zklock_sessions": No such file or directory/, $log);
	is($here->safe_psql('postgres', "SELECT zk_try_lock('g')"), 't', 'a server without the file locks as ever');
	rename "$directory.moved", $directory or die "cannot rename $directory: $!";
}
