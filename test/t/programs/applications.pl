# The programs of doc/examples, each with its real driver. A program waits for a
# session of another server, excludes that session, and repeats its transaction when the
# commit fails because the lock was lost. It fails when its connection breaks, and does not
# commit a transaction of its caller. A program whose driver is not installed is skipped.
# The file also tests the script for migration tools. programs/clients.pl tests the library.

use POSIX qw(mkfifo);
use PostgreSQL::Test::Utils;
use ZkLock::Test;

use constant EXAMPLES => 'doc/examples';
use constant LOCK => '/zklock/locks/invoices';

my $dir = PostgreSQL::Test::Utils::tempdir();
my $python = $ENV{ZKLOCK_PYTHON} // '/usr/bin/python3';
local $ENV{NODE_PATH} = join ':', grep { defined } $ENV{NODE_PATH}, '/usr/share/nodejs';
local @ENV{qw(GO111MODULE GOPATH GOCACHE GOFLAGS)} =
  ('off', '/usr/share/gocode', "$dir/go-cache", '');

# file, command, and a command that succeeds if the driver is installed
my @programs = (
	[ 'book_asyncpg.py', [$python], [ $python, '-c', 'import asyncpg' ] ],
	[ 'book.rb', ['ruby'], [ 'ruby', '-rpg', '-e', '' ] ],
	[ 'book_rails.rb', ['ruby'], [ 'ruby', '-rpg', '-ractive_record', '-e', '' ] ],
	[ 'book.js', ['node'], [ 'node', '-e', 'require("pg")' ] ],
	[ 'book.go', [], [ 'go', 'list', 'github.com/jackc/pgx/v4/pgxpool' ] ]);

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my %nodes = map {
	$_ => zklock_node($_, zk => $zk,
		extra_conf => "listen_addresses = '127.0.0.1'\n")
} qw(one two);
my $url = sprintf 'postgresql://%s@127.0.0.1:%d/postgres', scalar getpwuid($>), $nodes{one}->port;

# A transaction waits at its commit while the gate, an advisory lock, is closed.
$nodes{one}->safe_psql('postgres', <<'SQL');
CREATE TABLE invoices (number int PRIMARY KEY, customer text NOT NULL);
CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(1);
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON invoices DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION pass_gate();
SQL
my $gate = session($nodes{one});
my $other = session($nodes{two});

# Go programs are compiled first.
sub command_of
{
	my ($file, @command) = @_;
	write_file("$dir/$file", read_file(EXAMPLES . "/$file"));
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

	wait_zk_children($zkc, LOCK, 2, %diag);
	ok(alive($pid) && read_file($log) !~ /booked/, "$file: the program waits for a session of the other server");
	$other->query_ok("SELECT zk_unlock('invoices')");
	wait_at_gate(%diag);
	works($other, "SELECT zk_try_lock('invoices')", 'f', "$file: then it excludes that session");

	my ($lost) = wait_zk_children($zkc, LOCK, 1, %diag);
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
		'1', "$file: the repeated transaction commits once");
	nothing_left($zkc, "$file: no node is left");
	return;
}

# The connection breaks while the program works.
sub check_broken_connection
{
	my ($file, @command) = @_;
	my $log = "$dir/$file.broken";
	my %diag = (diag => sub { read_file($log) });
	$gate->query_ok('SELECT pg_advisory_lock(1)');
	my $pid = spawn([ command_of($file, @command), $url, "broken $file" ], log => $log);
	wait_at_gate(%diag);
	$nodes{one}->safe_psql('postgres', q(SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND objid = 1 AND NOT granted));
	waitpid $pid, 0;
	isnt($?, 0, "$file: the program fails when its connection breaks");
	unlike(read_file($log), qr/booked|trying again|Unhandled/, "$file: the program reports the error and does not retry")
	  or diag(read_file($log));
	$gate->query_ok('SELECT pg_advisory_unlock(1)');
	nothing_left($zkc, "$file: no node is left after a broken connection");
	return;
}

for (@programs)
{
	my ($file, $command, $probe) = @$_;
  SKIP:
	{
		skip "$file: its driver is not installed", 8 unless succeeds(@$probe);
		check_program($file, @$command);
		check_broken_connection($file, @$command);
	}
}

# Runs a program and returns its output; the exit status is in $?.
sub output_of
{
	my @command = @_;
	my $log = "$dir/output.log";
	write_file($log, '');
	waitpid spawn(\@command, log => $log), 0;
	return read_file($log);
}

# A list without a cast is several names; a number is refused, and not taken for a name.
write_file("$dir/list.py", <<'PYTHON');
import importlib
import sys

driver = importlib.import_module(sys.argv[2])
conn = driver.connect(sys.argv[1])
conn.autocommit = True
cursor = conn.cursor()
for call, value in (("zk_try_lock_many(%s)", ["a", "b"]), ("zk_try_lock(%s)", "42")):
    cursor.execute("SELECT " + call, (value,))
    cursor.execute("SELECT name FROM zk_held_locks ORDER BY name")
    print([row[0] for row in cursor.fetchall()])
    cursor.execute("SELECT zk_unlock_all()")
for call in "zk_try_lock(%s)", "zk_lock_token(%s)":
    try:
        cursor.execute("SELECT " + call, (42,))
    except driver.Error as error:
        print(getattr(error, "sqlstate", None) or error.pgcode)
PYTHON
for my $driver (qw(psycopg2 psycopg))
{
  SKIP:
	{
		skip "$driver is not installed", 1 unless succeeds($python, '-c', "import $driver");
		is(output_of($python, "$dir/list.py", $url, $driver), "['a', 'b']\n['42']\n42883\n42883\n",
			"$driver: a list is several names, a text is a name, a number is refused");
	}
}

# A call inside a transaction of the caller is refused, and does not commit.
write_file("$dir/nested.rb", <<'RUBY');
url = ARGV[0]
load File.join(__dir__, "book.rb")
conn = PG.connect(url)
begin
  with_lock(conn, "invoices") do
    book(conn, "nested")
    with_lock(conn, "other") { nil }
  end
rescue RuntimeError => error
  puts error.message
end
RUBY
SKIP:
{
	skip 'the Ruby driver is not installed', 2 unless succeeds('ruby', '-rpg', '-e', '');
	like(output_of('ruby', "$dir/nested.rb", $url, 'before'), qr/begins the transaction itself/, 'book.rb: a nested call is refused');
	is($nodes{one}->safe_psql('postgres', "SELECT count(*) FROM invoices WHERE customer = 'nested'"), '0',
		"book.rb: a nested call does not commit its caller's work");
}

# The script that runs a migration tool under the lock.
{
	my $script = "$dir/migrate.sh";
	my $lock = '/zklock/locks/shop:migrations';
	write_file($script, read_file(EXAMPLES . '/migrate.sh'));
	local @ENV{qw(PGHOST PGPORT PGDATABASE)} = ('127.0.0.1', $nodes{one}->port, 'postgres');
	my $held = q(psql -XAtc "SELECT count(*) FROM zk_locks_of('shop:migrations')");
	is(output_of('sh', $script, $held), "1\n", 'migrate.sh: the command runs under the lock');
	is($?, 0, 'migrate.sh: the script succeeds with the command');
	output_of('sh', $script, 'exit 3');
	is($? >> 8, 3, 'migrate.sh: the script fails with the command');
	nothing_left($zkc, 'migrate.sh: the script releases the lock');

	my $log = "$dir/migrate.log";
	# The statement after the command checks the lock at its end, with this setting always and
	# not only when the lease is old.
	local $ENV{PGOPTIONS} = '-c zklock.commit_check=always';
	mkfifo("$dir/go", 0600) or die "mkfifo: $!";
	my $pid = spawn([ 'sh', $script, "echo runs; cat $dir/go" ], log => $log);
	wait_until('the command to run', sub { -e $log && read_file($log) =~ /runs/ });
	$zkc->delete("$lock/$_") for $zkc->children($lock);
	write_file("$dir/go", '');
	waitpid $pid, 0;
	isnt($?, 0, 'migrate.sh: the script fails when the lock was lost') or diag(read_file($log));

	$ENV{PGOPTIONS} = '-c lock_timeout=100';
	$other->query_ok("SELECT zk_lock('shop:migrations')");
	unlike(output_of('sh', $script, 'echo runs'), qr/runs/, 'migrate.sh: the command does not run without the lock');
	is($? >> 8, 75, 'migrate.sh: the exit status shows that the lock was not acquired');
	$other->query_ok("SELECT zk_unlock('shop:migrations')");
}
