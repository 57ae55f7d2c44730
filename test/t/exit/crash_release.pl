# After a crash the server closes the ZooKeeper sessions that its former processes have left,
# once all of these have gone: their locks are free without waiting for the session timeout. It
# never closes a session whose process may still run.
#
# Promises: 3.4, 11.5

use Fcntl qw(:flock);
use File::stat;
use PostgreSQL::Test::Utils;
use ZkLock::Test;

# Longer than any wait of this test.
use constant LONG => '290s';

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client(timeout => 120);
my $proxy = ZkLock::Proxy->start(target => $zk);
my $here = zklock_node('here', proxy => $proxy, session_timeout => LONG,
	init => [ allows_streaming => 1 ],
	extra_conf => "restart_after_crash = on\nlogging_collector = on\nmax_connections = 120\n");
my $there = zklock_node('there', zk => $zk, session_timeout => LONG);
my $t = session($there);
my $directory = $here->data_dir . '/pg_stat_tmp';

# The processes of the server, but not the postmaster.
sub children { return child_processes(postmaster_pid($here->data_dir)) }

# Kills the postmaster, and then all its processes but these.
sub kill_all
{
	my @kept = @_;
	my @children = children();
	$here->kill9;
	for my $pid (@children)
	{
		kill 'KILL', $pid unless grep { $_ == $pid } @kept;
	}
	wait_until('the end of the processes', sub { !grep { my $pid = $_; kill(0, $pid) && !grep { $_ == $pid } @kept } @children });
	return;
}

# Returns the session that holds lock "x".
sub queue_owner
{
	my ($holder) = queue_of($zkc, 'x');
	return $zkc->get($holder)->{ephemeralOwner};
}

# Returns the background workers that close sessions.
sub worker { return grep { read_file("/proc/$_/cmdline") =~ /zklock crash release/ } children() }

# A session that holds locks and a permit.
sub holder
{
	my $s = session($here);
	$s->query_ok("SELECT zk_lock('x'), zk_lock_shared('y'), zk_acquire_permit('z', 1)");
	return $s;
}

sub has_former_file { return scalar(() = glob "$_[0]/zklock_sessions.*") }

sub free_at_once
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$t->query_async("SELECT zk_lock('x')");
	like($t->wait_result, qr/^\d+$/, "$name: another server gets the lock");
	$t->query_ok("SELECT zk_unlock('x')");
	nothing_left($zkc, "$name: no node is left");
	wait_until('the removal of the former file', sub { !has_former_file($directory) });
	return;
}

sub still_held
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($t->query("SELECT zk_try_lock('x')"), 'f', "$name: the lock is still held");
	return;
}

sub wait_for_server { return wait_for_sql($here, 'SELECT 1', '1') }

my $mode = stat("$directory/zklock_sessions")->mode & 07777;
is(sprintf('%o', $mode), '600', 'only the owner of the server can read the file');

# A backend crashes, twice in a row, and a crash with many sessions.
for my $n (1 .. 2)
{
	my ($s, $waiter) = (holder(), session($here));
	my $foreign = foreign_node($zkc, '/zklock/locks/waited', 'WRIT');
	$waiter->query_async("SELECT zk_lock('waited')");
	wait_zk_children($zkc, '/zklock/locks/waited', 2);
	$s->kill9;
	wait_for_server();
	$zkc->delete($foreign);
	free_at_once("crash $n of a backend, while another one waits");
	$_->drop for $s, $waiter;
}
{
	my @many = map { session($here) } 1 .. 80;
	$many[$_]->query_ok("SELECT zk_lock('many $_')") for 0 .. $#many;
	my $s = holder();
	$s->kill9;
	wait_for_server();
	free_at_once('crash with many sessions');
	$_->drop for @many, $s;
}

# A session that holds nothing any more, and only keeps the lock.
for my $end ('a backend', 'all processes')
{
	my $s = session($here);
	$s->query_ok("SET zklock.keep_time = '10min'; SELECT zk_lock('x'), zk_unlock('x')");
	is($t->query(q(SELECT kept FROM zk_locks WHERE name = 'x')), 't', "kill -9 of $end: the session keeps the lock");
	if ($end eq 'a backend')
	{
		$s->kill9;
		wait_for_server();
	}
	else
	{
		kill_all();
		$here->start;
	}
	free_at_once("kill -9 of $end that keeps the lock");
	$s->drop;
}

# The postmaster is killed.
{
	my $s = holder();
	kill_all();
	$here->start;
	free_at_once('kill -9 of all processes');
	$s->drop;
}

# An immediate shutdown.
{
	my $s = holder();
	$here->stop('immediate');
	$here->start;
	free_at_once('immediate shutdown');
	$s->drop;
}

# A process is left, stopped.
{
	my $s = holder();
	my $pid = $s->pid;
	hold_still($pid);
	kill_all($pid);
	ok(!$here->start(fail_ok => 1), 'PostgreSQL does not start beside a stopped process');
	open my $file, '<', "$directory/zklock_sessions" or die "cannot open the file: $!";
	ok(!flock($file, LOCK_EX | LOCK_NB), 'a stopped process has the lock of the file');
	close $file;
	still_held('a stopped process is left');
	kill 'KILL', $pid;
	wait_until('the end of the process', sub { !kill 0, $pid });
	$here->start;
	free_at_once('the stopped process has been killed');
	$s->drop;
}

# A process is left that PostgreSQL cannot see, as one in another namespace: here it is this test,
# which has the file's lock.
{
	my $s = holder();
	$here->stop('immediate');
	open my $file, '<', "$directory/zklock_sessions" or die "cannot open the file: $!";
	wait_until("the end of the server's processes", sub { flock $file, LOCK_EX | LOCK_NB });
	$here->start;
	wait_until('the worker', sub { worker() });
	still_held('a process is left');
	ok(has_former_file($directory), 'a process is left: the server waits for its end');
	close $file;
	free_at_once('the process has ended');
	$s->drop;
}

# The header of a file names another boot of the machine, or another file: its processes are not
# those of this kernel, so nobody knows whether they have ended.
{
	my %bytes = ('another boot' => 8, 'another device' => 56, 'another inode' => 64);
	for my $what (sort keys %bytes)
	{
		my $s = holder();
		$here->stop('immediate');
		open my $file, '+<:raw', "$directory/zklock_sessions" or die "cannot open the file: $!";
		seek $file, $bytes{$what}, 0;
		read $file, my $byte, 1;
		seek $file, $bytes{$what}, 0;
		print {$file} chr(ord($byte) ^ 1);
		close $file or die "cannot write the file: $!";
		$here->start;
		wait_until('the removal of the former file', sub { !has_former_file($directory) });
		still_held($what);
		$zkc->end_session(queue_owner());
		free_at_once("$what: the session has been ended by the test");
		$s->drop;
	}
}

# Copies: of the data directory while sessions hold locks, a base backup with its standby, and
# pg_upgrade's way, a clean shutdown.
{
	my $s = holder();
	$here->backup('base');
	ok(!-e $here->backup_dir . '/base/pg_stat_tmp/zklock_sessions', 'a base backup has no file');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($here, 'base', has_streaming => 1);
	mkdir $standby->data_dir . '/pg_stat_tmp';
	system_or_bail('cp', '-p', "$directory/zklock_sessions", $standby->data_dir . '/pg_stat_tmp/');
	$standby->start;
	wait_until('the removal of the copied file',
		sub { !has_former_file($standby->data_dir . '/pg_stat_tmp') });
	still_held('a standby started with a copy of the file');
	$standby->restart;
	still_held('the standby was started again');
	$standby->stop;
	$here->stop('fast');
	ok(!grep({ tr/\0//c > 4 } substr(read_file("$directory/zklock_sessions"), 80)),
		'after a clean shutdown no session is noted');
	$here->start;
	free_at_once('clean shutdown');
	$s->drop;
}

# A damaged note closes nothing; the others are used.
{
	my ($s, $damaged) = map { session($here) } 1 .. 2;
	$s->query_ok("SELECT zk_lock('x')");
	$damaged->reconnect('zklock.session_timeout' => '9s');
	$damaged->query_ok("SELECT zk_lock('w')");
	my $file = "$directory/zklock_sessions";
	$here->stop('immediate');
	my $bytes = read_file($file);
	my @notes = grep { substr($bytes, $_ + 8, 8) =~ /[^\0]/ }
	  map { 80 + $_ * 1024 } 0 .. (length($bytes) - 80) / 1024 - 1;
	is(scalar @notes, 2, 'two sessions are noted');
	for my $at (@notes)
	{
		next unless unpack('l', substr($bytes, $at + 4, 4)) < 10000;
		open my $out, '+<:raw', $file or die "cannot open $file: $!";
		seek $out, $at + 20, 0;
		print {$out} 'X';
		close $out;
	}
	$here->start;
	free_at_once('a damaged note beside a good one');
	$_->drop for $s, $damaged;
}

# A database with another ensemble's address: each session is closed where it was opened.
{
	$here->safe_psql('postgres', "CREATE DATABASE other; ALTER DATABASE other SET zklock.connect_string = '"
		  . $zk->connect_string . "'");
	$here->safe_psql('other', 'CREATE EXTENSION zklock');
	my $s = session($here, dbname => 'other');
	$s->query_ok("SELECT zk_lock('x')");
	$proxy->cut(refuse => 1);
	$s->kill9;
	wait_for_server();
	free_at_once('a session with a connect string of its own');
	$proxy->accept;
	$s->drop;
}
