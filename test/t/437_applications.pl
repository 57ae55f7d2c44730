# The programs of doc/applications.md, each with its real driver: a program waits for a
# session of another server, excludes that session, and repeats its transaction when the
# commit fails because the lock was lost. A program whose driver is not installed is skipped.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Check qw(nothing_left works);
use ZkLock::Cluster;
use ZkLock::Document;
use ZkLock::Util qw(alive read_file spawn write_file);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

use constant DOCUMENT => 'doc/applications.md';
use constant LOCK => '/zklock/locks/invoices';

my $dir = PostgreSQL::Test::Utils::tempdir();
my $python = $ENV{ZKLOCK_PYTHON} // '/usr/bin/python3';
my $jdbc = '/usr/share/java/postgresql.jar';
local $ENV{NODE_PATH} = join ':', grep { defined } $ENV{NODE_PATH}, '/usr/share/nodejs';
local @ENV{qw(GO111MODULE GOPATH GOCACHE GOFLAGS)} =
  ('off', '/usr/share/gocode', "$dir/go-cache", '');

# file, command, and a command that succeeds where the driver is installed
my @programs = (
	[ 'book.py', [$python], [ $python, '-c', 'import psycopg2' ] ],
	[ 'Book.java', [ 'java', '-cp', $jdbc ], [ 'test', '-e', $jdbc ] ],
	[ 'book.rb', ['ruby'], [ 'ruby', '-rpg', '-e', '' ] ],
	[ 'book_rails.rb', ['ruby'], [ 'ruby', '-rpg', '-ractive_record', '-e', '' ] ],
	[ 'book.js', ['node'], [ 'node', '-e', 'require("pg")' ] ],
	[ 'book.go', [], [ 'go', 'list', 'github.com/jackc/pgx/v4/pgxpool' ] ]);

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
my %nodes = map {
	$_ => zklock_node($_, zk => $zk, session_timeout => '10s',
		extra_conf => "listen_addresses = '127.0.0.1'\n")
} qw(one two);
my $url = sprintf 'postgresql://127.0.0.1:%d/postgres?user=%s', $nodes{one}->port,
  scalar getpwuid($>);

# At its commit a transaction waits for the gate, as long as the gate is closed.
$nodes{one}->safe_psql('postgres', <<'SQL');
CREATE TABLE invoices (number int PRIMARY KEY, customer text NOT NULL);
CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(1);
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON invoices DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION pass_gate();
CREATE TABLE batches (number int);
CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON batches DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION pass_gate();
SQL
my $gate = session($nodes{one});
my $other = session($nodes{two});

sub is_installed
{
	my (@command) = @_;
	my $pid = spawn(\@command);
	waitpid $pid, 0;
	return $? == 0;
}

# Go programs are compiled first.
sub command_of
{
	my ($file, @command) = @_;
	write_file("$dir/$file", block_of(DOCUMENT, $file));
	return (@command, "$dir/$file") unless $file =~ /\.go$/;
	system('go', 'build', '-o', "$dir/$file.bin", "$dir/$file") == 0 or die "$file does not compile";
	return "$dir/$file.bin";
}

sub wait_at_gate
{
	my (%diag) = @_;
	return wait_for_sql($nodes{one},
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted",
		'1', %diag);
}

sub check_program
{
	my ($file, @command) = @_;
	my $log = "$dir/$file.log";
	my %diag = (diag => sub { read_file($log) });
	$other->query_ok("SELECT zk_lock('invoices')");
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	my $pid = spawn([ command_of($file, @command), $url, $file ], log => $log);

	wait_zk_waiting($zkc, LOCK, 2, %diag);
	ok(alive($pid) && read_file($log) !~ /booked/, "$file: the program waits for a session of the other server");
	$other->query_ok("SELECT zk_unlock('invoices')");
	wait_at_gate(%diag);
	works($other, "SELECT zk_try_lock('invoices')", 'f', "$file: then it excludes that session");

	my ($lost) = wait_zk_waiting($zkc, LOCK, 1, %diag);
	$zkc->delete(LOCK . "/$lost");
	wait_until('another node of the program',
		sub { grep { $_ ne $lost } $zkc->children(LOCK) }, %diag);
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
	wait_until('the end of the program', sub { !alive($pid) }, %diag);
	# ActiveRecord rolls back after a COMMIT that failed, which is a warning.
	my $printed = read_file($log) =~ s/^WARNING:.*\n//mgr;
	like($printed, qr/\Aattempt 1: 40001, trying again\nbooked invoice \d+\n\z/,
		"$file: the commit fails because the lock was lost, and the transaction is repeated");
	is($nodes{one}->safe_psql('postgres', "SELECT count(*) FROM invoices WHERE customer = '$file'"),
		'1', "$file: which commits once");
	nothing_left($zkc, "$file: nothing is left");
	return;
}

for (@programs)
{
	my ($file, $command, $probe) = @$_;
  SKIP:
	{
		skip "$file: its driver is not installed", 5 unless is_installed(@$probe);
		check_program($file, @$command);
	}
}

# What a Python program prints that has ended.
sub printed
{
	my @command = ($python, @_, $url);
	my $log = "$dir/printed.log";
	write_file($log, '');
	waitpid spawn(\@command, log => $log), 0;
	return read_file($log);
}

# Work that catches the error of a statement is not taken for committed.
write_file("$dir/swallow.py", <<'PYTHON');
import sys
import psycopg2
import book

def work(cursor):
    try:
        cursor.execute("SELECT 1 / 0")
    except psycopg2.Error:
        pass

try:
    book.with_lock(psycopg2.connect(sys.argv[1]), "invoices", work)
except book.NotCommitted:
    print("not committed")
PYTHON
is(printed("$dir/swallow.py"), "not committed\n", 'book.py: an error that the work has caught is not ignored');

# The job at session level.
{
	my $job = "$dir/job.py";
	my $log = "$dir/job.log";
	write_file($job, block_of(DOCUMENT, 'job.py'));
	$other->query_ok("SELECT zk_lock('job:nightly')");
	is(printed($job), "another session runs the job\n", 'job.py: it does not run while another session runs it');
	$other->query_ok("SELECT zk_unlock('job:nightly')");
	is(printed($job), "done\n", 'job.py: it runs alone');
	nothing_left($zkc, 'job.py: it releases its lock');

	$gate->query_ok('SELECT pg_advisory_lock(1)');
	my $pid = spawn([ $python, $job, $url ], log => $log);
	wait_at_gate(diag => sub { read_file($log) });
	$zkc->delete("/zklock/locks/job:nightly/$_") for $zkc->children('/zklock/locks/job:nightly');
	wait_until('the end of the job', sub { !alive($pid) }, diag => sub { read_file($log) });
	is(read_file($log), "lost the lock in batch 0\n", 'job.py: it stops when it has lost the lock');
	is($nodes{one}->safe_psql('postgres', 'SELECT count(*) FROM batches'), '3', 'job.py: nothing more is committed');
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
}

$zkc->close;
$_->stop for values %nodes;
$zk->stop;
done_testing();
