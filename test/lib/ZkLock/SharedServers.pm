# ZkLock::SharedServers - the servers of ZkLock::Shared, which outlive the file that starts
# them.
#
# Owns: starting, cleaning and ending such servers, each by its directory:
# ZkLock::SharedServers::ZooKeeper, a ZkLock::ZkServer, and
# ZkLock::SharedServers::PostgreSQL, a PostgreSQL::Test::Cluster whose end does not end the
# server. Both croak if a file wants to end or restart them.

package ZkLock::SharedServers::ZooKeeper;

use strict;
use warnings;

use Carp qw(croak);
use ZkLock::Util qw(free_port read_file spawn wait_until write_file);

use parent -norequire, 'ZkLock::ZkServer';
require ZkLock::ZkServer;

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
		java => ['-Dznode.container.checkIntervalMs=500'],
	}, $class;
}

# A tick is short, because a session that ends expires at a tick.
sub launch
{
	my ($self) = @_;
	my $dir = $self->{dir};
	mkdir $dir or croak "$dir: $!";
	$self->{port} = free_port();
	$self->write_config(
		tick_time => 200,
		config => { minSessionTimeout => 400, maxSessionTimeout => 600000 });
	$self->{pid} = spawn($self->command, log => $self->{log}, outlives => 1);
	write_file("$dir/zk.pid", "$self->{pid}\n");
	return;
}

# Ends the server if it runs.
sub end
{
	my ($self, $as_file) = @_;
	croak 'a shared server' if $as_file;
	my $pid = delete $self->{pid} or return;
	return unless read_file("/proc/$pid/cmdline") =~ /\Q$self->{dir}\E/;
	kill 'KILL', $pid;
	return wait_until("process $pid to end",
		sub { waitpid($pid, 1); read_file("/proc/$pid/stat") =~ /^(?:.*\) Z |$)/ });
}

sub is_running { return kill 0, $_[0]{pid} }

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

use parent -norequire, 'PostgreSQL::Test::Cluster';
require PostgreSQL::Test::Cluster;

# What a file may not leave behind in a server: kind and name.
my $LEFT = <<'SQL';
SELECT 'database ' || datname FROM pg_database WHERE datname !~ '^(postgres|clean|template[01])$'
UNION ALL SELECT 'role ' || rolname FROM pg_roles WHERE oid >= 16384
UNION ALL SELECT 'tablespace ' || spcname FROM pg_tablespace WHERE oid >= 16384
UNION ALL SELECT 'replication slot ' || slot_name FROM pg_replication_slots
UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts
UNION ALL SELECT 'setting ' || name FROM pg_file_settings WHERE sourcefile ~ 'auto.conf$'
UNION ALL SELECT 'setting ' || setconfig[1] FROM pg_db_role_setting s
	WHERE setrole <> 0 OR setdatabase NOT IN (0, (SELECT oid FROM pg_database WHERE datname = 'postgres'))
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
restart_after_crash = off
log_line_prefix = '%m [%p] %q%a '
log_statement = all
wal_level = logical
max_connections = 100
max_prepared_transactions = 10
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
	my ($status) = $self->psql('postgres', 'SELECT');
	return $status == 0 && truncate $self->logfile, 0;
}

# Removes settings and makes a new database postgres. Returns what else the file left behind.
sub clean
{
	my ($self) = @_;
	my ($status, $left, $error) = $self->psql('template1', $LEFT);
	return 'server ' . $self->name . " does not answer: $error" if $status;
	($status, undef, $error) = $self->psql('template1', <<'SQL');
ALTER ROLE ALL RESET ALL;
DROP DATABASE postgres WITH (FORCE);
CREATE DATABASE postgres TEMPLATE clean;
SQL
	return map { 'left in server ' . $self->name . ": $_" } split(/\n/, $left), $error || ();
}

# Ends the server if it runs.
sub end
{
	my ($self) = @_;
	my $data = $self->data_dir;
	return unless -e "$data/postmaster.pid";
	return system_log('pg_ctl', '-D', $data, '-m', 'immediate', '-s', 'stop');
}

for my $ending (qw(stop restart kill9 append_conf adjust_conf reload))
{
	no strict 'refs';
	*$ending = sub { croak "$ending() of a shared server" };
}

1;
