# Unchanged programs that use PostgreSQL's advisory locks, with the extension
# zklock_advisory: two runs of a program on two servers exclude each other as on one server.
# Without the schema in the search path they do not. A program that is not installed is
# skipped.
#
# Each program creates a type while it holds its lock. An event trigger blocks the first
# run there while the gate, a table lock, is closed.

use POSIX qw(WNOHANG);
use PostgreSQL::Test::Utils;
use ZkLock::Test;

use constant DROP_IN => '"$user", public, zklock_advisory, pg_catalog';

my $dir = PostgreSQL::Test::Utils::tempdir();
my $python = $ENV{ZKLOCK_PYTHON} // '/usr/bin/python3';
my ($pg_migrate) = grep { -e } map { "$_/node-pg-migrate/bin/node-pg-migrate.js" } split /:/, $ENV{NODE_PATH} // '';

mkdir "$dir/$_" or die "$dir/$_: $!" for qw(rails node);
write_file("$dir/rails/1_create_mood.rb", <<'RUBY');
class CreateMood < ActiveRecord::Migration[6.1]
  def up
    execute "CREATE TYPE mood AS ENUM ('good')"
    create_table :things
  end
end
RUBY
write_file("$dir/rails.rb", <<'RUBY');
require "active_record"

ActiveRecord::Base.establish_connection(
  adapter: "postgresql", database: ENV["PGDATABASE"], schema_search_path: ARGV[0]
)
ActiveRecord::Migrator.migrations_paths = [File.join(__dir__, "rails")]
base = ActiveRecord::Base
owner = base.connection_pool.respond_to?(:migration_context) ? base.connection_pool : base.connection
owner.migration_context.migrate
RUBY
write_file("$dir/pglocks.py", <<'PYTHON');
import os
import sys
from django.conf import settings

settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}})

from django.db import connection
from django_pglocks import advisory_lock

with advisory_lock("nightly", wait=sys.argv[1] == "wait") as acquired:
    if not acquired:
        sys.exit("another one runs")
    connection.cursor().execute("CREATE TYPE mood AS ENUM ('good')")
PYTHON
write_file("$dir/node/1_create-mood.js", <<'JS');
exports.up = pgm => {
  pgm.createType("mood", ["good"]);
  pgm.createTable("things", { id: "id" });
};
JS
write_file("$dir/pgboss.js", <<'JS');
const PgBoss = require("pg-boss");

const boss = new PgBoss({ noSupervisor: true, noScheduling: true });
boss.start().then(() => boss.send("mail", {})).then(() => process.exit(0));
JS

# name, command, a command that succeeds if the program is installed, the output of a
# refused second run (without it, the second run waits), and whether the program locks in a
# separate session
my @programs = (
	{ name => 'rails', command => [ 'ruby', "$dir/rails.rb" ],
		probe => [ 'ruby', '-rpg', '-ractive_record', '-e', '' ],
		refusal => qr/ConcurrentMigrationError/, locks_elsewhere => 1 },
	{ name => 'pglocks', command => [ $python, "$dir/pglocks.py", 'wait' ],
		probe => [ $python, '-c', 'import django_pglocks, six, django, psycopg2' ] },
	{ name => 'pglocks_try', command => [ $python, "$dir/pglocks.py", 'try' ],
		probe => [ $python, '-c', 'import django_pglocks, six, django, psycopg2' ],
		refusal => qr/another one runs/ },
	{ name => 'node_pg_migrate', command => [ 'node', $pg_migrate // '', '-m', "$dir/node", 'up' ],
		probe => [ 'test', '-n', $pg_migrate // '' ],
		refusal => qr/Another migration is already running/ },
	{ name => 'pgboss', command => [ 'node', "$dir/pgboss.js" ],
		probe => [ 'node', '-e', 'require("pg-boss")' ] });

my ($zk, $zkc) = shared_zk_and_client();
my %nodes = map { $_ => shared_node($_, zk => $zk) } qw(one two);
$_->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE DATABASE empty') for values %nodes;
$_->safe_psql('empty', <<'SQL') for values %nodes;
CREATE EXTENSION zklock_advisory CASCADE;
CREATE TABLE gate ();
GRANT SELECT ON gate TO PUBLIC;
CREATE FUNCTION pass_gate() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM public.gate;
END $$;
CREATE EVENT TRIGGER gate ON ddl_command_start WHEN tag IN ('CREATE TYPE')
	EXECUTE FUNCTION pass_gate();
SQL

my $started = 0;

# Creates a database on both servers, in which the role has this search path.
sub make_databases
{
	my ($dbname, $search_path) = @_;
	$_->safe_psql('postgres', <<"SQL") for values %nodes;
CREATE DATABASE $dbname TEMPLATE empty OWNER app;
ALTER ROLE app IN DATABASE $dbname SET search_path = $search_path;
SQL
	return $dbname;
}

sub start_program
{
	my ($node, $dbname, @command) = @_;
	my $log = "$dir/$dbname." . ++$started;
	local @ENV{qw(PGHOST PGPORT PGUSER PGDATABASE)} = ($node->host, $node->port, 'app', $dbname);
	return { log => $log, node => $node, pid => spawn(\@command, log => $log) };
}

# Returns the exit status of a program that has ended.
sub status_of
{
	my ($program) = @_;
	local $?;
	$program->{status} //= $? if !defined $program->{status} && waitpid($program->{pid}, WNOHANG) != 0;
	return $program->{status};
}

sub output_of { return read_file($_[0]{log}) }

sub wait_for_end
{
	my ($program) = @_;
	wait_until('the end of the program', sub { defined status_of($program) }, diag => sub { output_of($program) });
	return $program->{status};
}

sub asks_server
{
	my ($program, $sql) = @_;
	return $program->{node}->safe_psql('postgres', $sql) eq 't';
}

sub wait_at_gate
{
	my ($program) = @_;
	return wait_until('the program at the gate', sub {
			die "the program has ended:\n" . output_of($program) if defined status_of($program);
			return asks_server($program,
				q(SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'relation' AND NOT granted));
		}, diag => sub { output_of($program) });
}

sub waits_for_lock
{
	my ($program) = @_;
	return asks_server($program, <<'SQL');
SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)
	OR EXISTS (SELECT FROM zk_locks WHERE NOT granted)
SQL
}

# Returns the behaviour of the second run while the first one holds the lock. A wait is
# detected only for programs that wait: a non-blocking attempt also queues for a moment.
sub outcome
{
	my ($program, $refusal) = @_;
	wait_until('the end or the wait of the program',
		sub { defined status_of($program) || !$refusal && waits_for_lock($program) },
		diag => sub { output_of($program) });
	return 'waits' unless defined $program->{status};
	return 'runs' if $program->{status} == 0;
	return 'is refused' if $refusal && output_of($program) =~ $refusal;
	return "fails:\n" . output_of($program);
}

# Runs a program to its end, and the code while the program is at the gate. Returns the
# program and the result of the code.
sub run_with_pause
{
	my ($program, $dbname, $meanwhile) = @_;
	my $gate = session($nodes{one}, dbname => $dbname);
	$gate->query_ok('BEGIN; LOCK TABLE gate');
	my $run = start_program($nodes{one}, $dbname, @{ $program->{command} });
	wait_at_gate($run);
	my @returned = $meanwhile->();
	$gate->query_ok('COMMIT');
	$gate->quit;
	wait_for_end($run);
	return ($run, @returned);
}

# Runs a program twice. Returns the behaviour of the second run while the first one holds
# its lock, and both runs.
sub run_twice
{
	my ($program, $dbname, $second_server) = @_;
	my ($first, $second, $outcome) = run_with_pause($program, $dbname, sub {
		my $run = start_program($nodes{$second_server}, $dbname, @{ $program->{command} });
		return ($run, outcome($run, $program->{refusal}));
	});
	wait_for_end($second);
	return ($outcome, $first, $second);
}

sub check_program
{
	my ($program) = @_;
	my ($name, $expected) = ($program->{name}, $program->{refusal} ? 'is refused' : 'waits');
	my $plain = '"$user", public';

	my ($outcome) = run_twice($program, make_databases("${name}_one", $plain), 'one');
	is($outcome, $expected, "$name: on one server the second run $expected");
	($outcome) = run_twice($program, make_databases("${name}_two", $plain), 'two');
	is($outcome, 'runs', "$name: on two servers both run at once");

	my ($first, $second);
	($outcome, $first, $second) = run_twice($program, make_databases("${name}_zk", DROP_IN), 'two');
	is($outcome, $expected, "$name: with zklock_advisory the second run $expected");
	is($first->{status}, 0, "$name: the first run succeeds") or diag(output_of($first));
	$second = start_program($nodes{two}, "${name}_zk", @{ $program->{command} }) if $program->{refusal};
	is(wait_for_end($second), 0, "$name: the second run succeeds after the first") or diag(output_of($second));
	nothing_left($zkc, "$name: no node is left");
	return;
}

# A loss ends the statement of the session that holds the lock. An idle session, such as
# the one in which ActiveRecord holds its lock, does not stop another session.
sub check_loss
{
	my ($program) = @_;
	my ($name, $idle) = @$program{qw(name locks_elsewhere)};
	my $dbname = make_databases("${name}_lost", DROP_IN);
	$nodes{one}->safe_psql('postgres', 'SELECT zk_stat_reset()');
	my ($run) = run_with_pause($program, $dbname, sub {
		$zkc->delete($_) for lock_nodes($zkc);
		wait_for_sql($nodes{one}, 'SELECT locks_lost FROM zk_stat', '1') unless $idle;
	});
	isnt($run->{status}, 0, "$name: a run that loses its lock fails") unless $idle;
	is($nodes{one}->safe_psql($dbname, "SELECT count(*) FROM pg_type WHERE typtype = 'e'"), $idle ? 1 : 0,
		"$name: after a loss of the lock its changes are " . ($idle ? 'committed' : 'not committed'))
	  or diag(output_of($run));
	nothing_left($zkc, "$name: no node is left after the loss");
	return;
}

# The search path as described in doc/zklock_advisory.md.
sub check_search_path_of_rails
{
	my ($rails) = @_;
	my $dbname = make_databases('rails_first', 'zklock_advisory, "$user", public, pg_catalog');
	my $program = start_program($nodes{one}, $dbname, @{ $rails->{command} });
	isnt(wait_for_end($program), 0, 'rails: no table can be created with zklock_advisory before the schema of the tables');
	like(output_of($program), qr/permission denied for schema zklock_advisory/, 'rails: the error names the schema');

	for my $case ([ 'own_path', '"$user", public', 'runs' ], [ 'own_drop_in', DROP_IN, 'is refused' ])
	{
		my ($suffix, $path, $expected) = @$case;
		my %own = (%$rails, command => [ @{ $rails->{command} }, $path ]);
		my ($outcome) = run_twice(\%own, make_databases("rails_$suffix", DROP_IN), 'two');
		is($outcome, $expected, "rails: with schema_search_path $path the second run $expected");
	}
	return;
}

# node-pg-migrate sets its search path after it has acquired the lock.
sub check_release_of_node_pg_migrate
{
	my ($program) = @_;
	my $run = start_program($nodes{one}, make_databases('node_release', DROP_IN), @{ $program->{command} });
	is(wait_for_end($run), 0, 'node_pg_migrate: a run succeeds') or diag(output_of($run));
	like(output_of($run), qr/Failed to release migration lock/,
		'node_pg_migrate: it does not find the function that releases the lock');
	nothing_left($zkc, 'node_pg_migrate: its lock ends with its connection');
	return;
}

my %more = (rails => \&check_search_path_of_rails, node_pg_migrate => \&check_release_of_node_pg_migrate);
for my $program (@programs)
{
  SKIP:
	{
		skip "$program->{name} is not installed", 1 unless succeeds(@{ $program->{probe} });
		check_program($program);
		check_loss($program);
		$more{ $program->{name} }->($program) if $more{ $program->{name} };
	}
}
