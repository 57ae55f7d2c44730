# ZkLock::Clients - the programs that use the libraries of clients/, and their servers.
#
# Owns: a ZooKeeper server; the PostgreSQL servers "one" and "two" with the tables, triggers
# and gates below; the programs of test/clients, one for each driver. They use the libraries as a
# user would: from a wheel that is built and installed, and from a jar.
#
#   my $servers = ZkLock::Clients->start;      # zk, zkc, one, two
#   for my $client ($servers->clients) { ... } # those whose driver is installed
#   my $run = $servers->run($client, 'one', 'work', 'lock', 'by');
#   $run->log; $run->alive; $run->wait; $run->signal('TERM');
#   my $gate = $servers->close_gate(IN_WORK);  # a session; open it with open_gate($gate)
#   $servers->wait_at_gate(IN_WORK);           # until a program waits there
#   my $run = run_example('leader.py', $name, @arguments);  # of doc/examples, with servers of your own
#
# Each row that a program inserts into "work" passes the gate IN_WORK, and its transaction passes
# the gate AT_COMMIT during COMMIT. A gate is an advisory lock: closed while a session holds it.

package ZkLock::Clients;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter qw(import);
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Cluster;
use ZkLock::PgBouncer;
use ZkLock::Util qw(alive read_file spawn succeeds wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkServer;

our @EXPORT = qw(IN_WORK AT_COMMIT create_gates close_gate wait_at_gate open_gate has_psycopg run_example);

use constant { IN_WORK => 2, AT_COMMIT => 1 };
use constant JDBC => '/usr/share/java/postgresql.jar';

my $python = $ENV{ZKLOCK_PYTHON} // '/usr/bin/python3';
my $root = abs_path(__FILE__) =~ s{/test/lib/.*}{}r;
my $dir;    # made by start(): the library knows the directory of tests only when the test runs
my $runs = 0;

sub start
{
	my ($class) = @_;
	$dir = PostgreSQL::Test::Utils::tempdir();
	my $zk = ZkLock::ZkServer->start(tick_time => 500);
	my $self = bless { zk => $zk, zkc => ZkLock::ZkClient->new($zk->connect_string) }, $class;
	for my $name (qw(one two))
	{
		$self->{$name} = zklock_node($name, zk => $zk, init => [ allows_streaming => 1 ],
			extra_conf => "listen_addresses = '127.0.0.1'\n");
		create_tables($self->{$name});
	}
	return $self;
}

# Starts "pooled", a pooler in transaction mode in front of the server "one".
sub start_pooler
{
	my ($self) = @_;
	$self->{pooled} = ZkLock::PgBouncer->start(
		databases => { postgres => { node => $self->{one}, pool_size => 2 } },
		config => { pool_mode => 'transaction', ignore_startup_parameters => 'extra_float_digits' });
	return;
}

sub create_tables
{
	my ($node) = @_;
	create_gates($node);
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE work (n serial, by text);
CREATE TRIGGER in_work BEFORE INSERT ON work FOR EACH ROW EXECUTE FUNCTION pass_gate(2);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON work DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION pass_gate(1);
CREATE TABLE job_runs (job text, tick text, run_at timestamptz DEFAULT now(), PRIMARY KEY (job, tick));
-- Fails with this SQLSTATE at its first call. A rollback does not undo nextval().
CREATE SEQUENCE stumbles;
CREATE FUNCTION stumble(state text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('stumbles') = 1 THEN
		RAISE EXCEPTION USING ERRCODE = state;
	END IF;
END $$;
SQL
	return;
}

# Returns the clients whose driver is installed, and skips about $tests tests for each other one.
sub clients
{
	my ($self, $tests) = @_;
	my @found;
	install_wheel();
	for my $driver (qw(psycopg2 psycopg))
	{
		push @found, { name => $driver, command => [ $python, "$root/test/clients/program.py", $driver ] }
		  if has($driver, $tests, $python, '-c', "import $driver");
	}
	push @found, { name => 'JDBC', command => [ 'java', '-cp', JDBC . ":$dir/zklock.jar:$dir", 'Program' ] }
	  if has('JDBC', $tests, 'test', '-e', JDBC) && compile_java();
	return @found;
}

sub has
{
	my ($driver, $tests, @probe) = @_;
	return 1 if succeeds(@probe);
  SKIP: { skip "$driver is not installed", $tests }
	return 0;
}

# Builds the wheel from a copy, because a build leaves files in its directory. Nothing is downloaded.
sub install_wheel
{
	my @pip = ($python, '-m', 'pip', '--quiet', '--disable-pip-version-check', '--no-cache-dir');
	my @offline = qw(--no-index --no-deps);
	is(system('cp', '-r', "$root/clients/python", "$dir/python"), 0, 'Python: the library is copied');
	is(system(@pip, 'wheel', @offline, '--no-build-isolation', '-w', "$dir/wheel", "$dir/python"), 0, 'Python: the wheel is built');
	is(system(@pip, 'install', @offline, '--target', "$dir/site", glob "$dir/wheel/*.whl"), 0, 'Python: the wheel is installed');
	$ENV{PYTHONPATH} = "$dir/site";
	return;
}

sub compile_java
{
	my @javac = ('javac', '-Xlint:all', '-Werror');
	return is(system(@javac, '-cp', JDBC, '-d', "$dir/classes", "$root/clients/java/zklock/ZkLock.java"), 0,
		'JDBC: the library compiles without warnings')
	  && is(system('jar', '--create', '--file', "$dir/zklock.jar", '-C', "$dir/classes", '.'), 0, 'JDBC: the jar is built')
	  && is(system(@javac, '-cp', JDBC . ":$dir/zklock.jar", '-d', $dir, "$root/test/clients/Program.java"), 0,
		'JDBC: the program compiles without warnings');
}

# Starts a command of a client, with a server, or the pooler in transaction mode.
sub run
{
	my ($self, $client, $server, @command) = @_;
	my $log = sprintf '%s/%d_%s.log', $dir, ++$runs, $client->{name};
	my $port = $self->{$server}{port} // $self->{$server}->port;
	my $url = sprintf 'postgresql://127.0.0.1:%d/postgres?user=%s&%s=run%d', $port, scalar getpwuid($>),
	  $client->{name} eq 'JDBC' ? 'prepareThreshold=0&ApplicationName' : 'application_name', $runs;
	my $pid = spawn([ @{ $client->{command} }, $url, @command ], log => $log);
	return bless { pid => $pid, log => $log, name => "run$runs" }, 'ZkLock::Clients::Run';
}

sub has_psycopg { return succeeds($python, '-c', 'import psycopg') }

# Starts a program of doc/examples beside the library for Python, as after copying both.
sub run_example
{
	my ($file, $name, @arguments) = @_;
	$dir //= PostgreSQL::Test::Utils::tempdir();
	local $ENV{PYTHONPATH} = "$root/clients/python";
	local $ENV{PYTHONDONTWRITEBYTECODE} = 1;
	my $log = "$dir/$name.log";
	my $pid = spawn([ $python, "$root/doc/examples/$file", @arguments ], log => $log);
	return bless { pid => $pid, log => $log, name => $name }, 'ZkLock::Clients::Run';
}

# Gates: a trigger that executes pass_gate(number) waits while that gate is closed.
sub create_gates
{
	my ($node) = @_;
	$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(TG_ARGV[0]::int);
	RETURN NEW;
END $$;
SQL
	return;
}

# $servers: nodes by their names, such as an object of this class.
sub close_gate
{
	my ($servers, $gate, $server) = @_;
	my $session = session($servers->{ $server // 'one' });
	$session->query_ok("SELECT pg_advisory_lock($gate)");
	return $session;
}

sub open_gate
{
	my ($session) = @_;
	$session->query_ok('SELECT pg_advisory_unlock_all()');
	$session->quit;
	return;
}

# Waits until a session waits at the gate, and returns the pid of its backend.
sub wait_at_gate
{
	my ($servers, $gate, $run, $server) = @_;
	my $node = $servers->{ $server // 'one' };
	my $waiting = "FROM pg_locks WHERE locktype = 'advisory' AND objid = $gate AND NOT granted";
	wait_for_sql($node, "SELECT count(*) $waiting", '1', diag => sub { $run->log });
	return $node->safe_psql('postgres', "SELECT pid $waiting");
}

# Returns which of the programs has this backend.
sub run_of_backend
{
	my ($self, $backend, @runs) = @_;
	my $name = $self->{one}->safe_psql('postgres',
		"SELECT application_name FROM pg_stat_activity WHERE pid = $backend");
	return (grep { $_->{name} eq $name } @runs)[0];
}

sub terminate
{
	my ($self, $backend, $server) = @_;
	return $self->{ $server // 'one' }->safe_psql('postgres', "SELECT pg_terminate_backend($backend)");
}

# Returns who has inserted rows into "work", and deletes the rows.
sub work_done
{
	my ($self, $server) = @_;
	return $self->{ $server // 'one' }->safe_psql('postgres',
		'SET synchronous_commit = off; WITH gone AS (DELETE FROM work RETURNING n, by) '
		  . q(SELECT coalesce(string_agg(by, ' ' ORDER BY n), '') FROM gone));
}

# Waits until somebody has inserted rows into "work".
sub wait_work_of
{
	my ($self, $by, $run, $server) = @_;
	return wait_for_sql($self->{ $server // 'one' }, "SELECT count(*) > 0 FROM work WHERE by = '$by'",
		't', diag => sub { $run->log });
}

# Deletes the nodes of a lock: its holder loses the lock.
sub delete_nodes
{
	my ($self, $lock) = @_;
	my $path = "/zklock/locks/$lock";
	$self->{zkc}->delete("$path/$_") for $self->{zkc}->children($path);
	return;
}

sub stop
{
	my ($self) = @_;
	$self->{zkc}->close;
	$self->{pooled}->stop if $self->{pooled};
	$self->{$_}->stop for qw(one two);
	$self->{zk}->stop;
	return;
}

package ZkLock::Clients::Run;

use Test::More;
use ZkLock::Util qw(wait_until);

sub log { return ZkLock::Util::read_file($_[0]{log}) }
sub alive { return ZkLock::Util::alive($_[0]{pid}) }

sub signal
{
	my ($self, $signal) = @_;
	kill $signal, $self->{pid};
	return $self;
}

sub wait_log
{
	my ($self, $pattern) = @_;
	return wait_until("$pattern in the output of the program", sub { $self->log =~ $pattern },
		diag => sub { $self->log });
}

# Waits for the end of the program, and returns its output, and the signal that killed it if
# one did; the wait status is in $?.
sub wait
{
	my ($self) = @_;
	my $status;
	wait_until('the end of the program',
		sub { waitpid($self->{pid}, POSIX::WNOHANG()) == $self->{pid} && defined($status = $?) },
		diag => sub { $self->log });
	$? = $status;
	return $self->log . ($status & 127 ? sprintf("killed by signal %d\n", $status & 127) : '');
}

1;
