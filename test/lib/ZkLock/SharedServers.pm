# ZkLock::SharedServers - the servers of ZkLock::Shared, which outlive the file that starts
# them.
#
# Owns: starting, cleaning and ending such servers, each by its directory:
# ZkLock::SharedServers::ZooKeeper, a ZkLock::ZkServer, and
# ZkLock::SharedServers::PostgreSQL, a PostgreSQL::Test::Cluster whose end does not end the
# server. A file may stop and restart them, if they run at its end.

package ZkLock::SharedServers;

package ZkLock::SharedServers::ZooKeeper;

use strict;
use warnings;

use Carp qw(croak);
use Digest::SHA qw(sha1_base64);
use ZkLock::Util qw(free_port read_file spawn wait_until write_file);

use ZkLock::ZkClient;
use ZkLock::ZkServer;

our @ISA = ('ZkLock::ZkServer');

my $EMPTY = 5;    # the nodes of a new server

# The object of a server that runs already, or is launched next.
sub at
{
	my ($class, $dir) = @_;
	my ($pid) = read_file("$dir/zk.pid") =~ /(\d+)/;
	my ($port) = read_file("$dir/zoo.cfg") =~ /^clientPort=(\d+)/m;
	return bless {
		dir => $dir,
		log => "$dir/zookeeper.log",
		port => $port,
		pid => $pid,
		java => [ '-Dznode.container.checkIntervalMs=200',
			'-Dzookeeper.DigestAuthenticationProvider.superDigest=super:' . sha1_base64('super:shared') . '=' ],
	}, $class;
}

# Starts a server without data. A tick is short, because sessions expire at a tick.
sub create
{
	my ($self) = @_;
	mkdir $self->{dir} or croak "$self->{dir}: $!";
	$self->{port} = free_port();
	$self->write_config(
		tick_time => 200,
		config => { minSessionTimeout => 400 });
	return $self->launch;
}

sub launch
{
	my ($self) = @_;
	$self->{pid} = spawn($self->command, log => $self->{log}, outlives => 1);
	write_file("$self->{dir}/zk.pid", "$self->{pid}\n");
	return;
}

# Ends the server if it runs.
sub end
{
	my ($self) = @_;
	my $pid = delete $self->{pid} or return;
	return unless read_file("/proc/$pid/cmdline") =~ /\Q$self->{dir}\E/;
	kill 'CONT', $pid;
	kill 'KILL', $pid;
	return wait_until("process $pid to end",
		sub { waitpid($pid, 1); read_file("/proc/$pid/stat") =~ /^(?:.*\) Z |$)/ }, fatal => 1);
}

sub is_running { return kill 0, $_[0]{pid} }

# Removes all nodes. Returns what should not have been there: the ephemeral nodes.
sub clean
{
	my ($self) = @_;
	$self->mode or return 'ZooKeeper does not answer';
	my $gone = eval { wait_until('the contenders to go', sub { !$self->ephemerals }) };
	my @left = map { "left in the ensemble: $_" } $gone ? () : $self->ephemerals;
	return @left if $self->four_letter('srvr') =~ /^Node count: $EMPTY$/m;
	my $zkc = ZkLock::ZkClient->new($self->connect_string);
	$zkc->add_auth('digest', 'super:shared');
	$zkc->delete("/$_", recursive => 1) for grep { $_ ne 'zookeeper' } $zkc->children('/');
	$zkc->close;
	return @left;
}

# Returns the ephemeral nodes.
sub ephemerals
{
	my ($self) = @_;
	my ($nodes) = ($self->four_letter('dump') // '') =~ /ephemeral nodes dump:(.*)/s;
	return ($nodes // 'no answer') =~ m{^\s+(/.*|no answer)$}mg;
}

package ZkLock::SharedServers::PostgreSQL;

use strict;
use warnings;

use Carp qw(croak);
use PostgreSQL::Test::Utils;
use ZkLock::Util qw(read_file);

use PostgreSQL::Test::Cluster;

our @ISA = ('PostgreSQL::Test::Cluster');

# What a file may not leave behind in a server: it has effects beyond a database.
my $LEFT = <<'SQL';
SELECT 'replication slot ' || slot_name FROM pg_replication_slots
UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts
UNION ALL SELECT 'tablespace ' || spcname FROM pg_tablespace WHERE oid >= 16384
UNION ALL SELECT 'setting ' || name FROM pg_file_settings WHERE sourcefile ~ 'auto.conf$'
SQL

# Removes everything else, and makes a new database postgres.
my $CLEAN = <<'SQL';
SELECT format('DROP DATABASE %I WITH (FORCE)', datname) FROM pg_database
	WHERE datname !~ '^(clean|template[01])$' \gexec
DO $$
DECLARE
	r name;
BEGIN
	FOR r IN SELECT rolname FROM pg_roles WHERE oid >= 16384 LOOP
		EXECUTE format('DROP ROLE %I', r);
	END LOOP;
	FOR r IN SELECT rolname FROM pg_roles JOIN pg_db_role_setting s ON s.setrole = pg_roles.oid LOOP
		EXECUTE format('ALTER ROLE %I RESET ALL', r);
	END LOOP;
END $$;
ALTER ROLE ALL RESET ALL;
CREATE DATABASE postgres TEMPLATE clean;
SQL

sub at
{
	my ($class, $name, $dir) = @_;
	my $self = bless {
		_name => $name,
		_port => 5432,
		_host => $dir,
		_basedir => $dir,
		_logfile => "$dir/log",
	}, $class;
	$self->_set_pg_version;
	return $self;
}

# Makes the data and starts the server, in a new directory.
sub create
{
	my ($self) = @_;
	my ($dir, $data) = ($self->basedir, $self->data_dir);
	mkdir $dir or croak "$dir: $!";
	run($ENV{INITDB_TEMPLATE} ? ('cp', '-RPp', $ENV{INITDB_TEMPLATE}, $data)
		: ('initdb', '-D', $data, '-A', 'trust', '-N'));
	PostgreSQL::Test::Utils::append_to_file("$data/postgresql.conf", <<"CONF");
listen_addresses = ''
unix_socket_directories = '$dir'
fsync = off
restart_after_crash = on
log_line_prefix = '%m [%p] %q%a '
log_statement = all
wal_level = logical
max_connections = 150
max_prepared_transactions = 10
max_locks_per_transaction = 1000
shared_preload_libraries = 'zklock'
CONF
	run('pg_ctl', '-D', $data, '-w', '-s', '-l', $self->logfile, 'start');
	$self->safe_psql('template1', 'CREATE DATABASE clean');
	$self->safe_psql('clean', 'CREATE EXTENSION zklock');
	$self->safe_psql('template1', "DROP DATABASE postgres;\nCREATE DATABASE postgres TEMPLATE clean");
	return;
}

sub run { system_log(@_) == 0 or croak "failed: @_"; return }

# Returns whether the server runs; its log is empty then.
sub answers
{
	my ($self) = @_;
	return system_log('pg_isready', '-q', '-h', $self->host, '-p', $self->port) == 0 && truncate $self->logfile, 0;
}

# Cleans the server. Returns what should not have been there.
sub clean
{
	my ($self) = @_;
	my ($status, $left, $error) = $self->psql('template1', $LEFT);
	my @wrong = $status ? "no answer: $error" : split /\n/, $left;
	(undef, undef, $error) = $self->psql('template1', $CLEAN) if !$status;
	push @wrong, $error if $error;
	my ($crash) = read_file($self->logfile) =~ /^(.*(?:PANIC|terminated by signal).*)$/m;
	push @wrong, "crash: $crash" if $crash && !$self->{may_crash};
	return map { 'server ' . $self->name . ": $_" } @wrong;
}

# Ends the server if it runs.
sub end
{
	my ($self) = @_;
	my $data = $self->data_dir;
	return unless -e "$data/postmaster.pid";
	return system_log('pg_ctl', '-D', $data, '-m', 'immediate', '-s', 'stop');
}

1;
