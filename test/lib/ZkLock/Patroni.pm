# ZkLock::Patroni - one member of a Patroni cluster.
#
# Owns: its configuration, the Patroni process, the PostgreSQL server that this process
# runs, and its REST API. session() accepts a member as a server.
#
#   my $one = ZkLock::Patroni->start('one', zk => $zk, settings => { ... });
#   $one->wait_role('primary');
#   $one->request(POST => 'switchover', { leader => 'one', candidate => 'two' });
#   $one->kill9;              # Patroni and PostgreSQL, as in a crash of the machine
#   $one->stop;

package ZkLock::Patroni;

use strict;
use warnings;

use Carp qw(croak);
use File::Temp ();
use HTTP::Tiny;
use IPC::Run ();
use JSON::PP ();
use ZkLock::Cluster;
use ZkLock::Util qw(alive child_processes end_process free_port hold_still log_tail pg_config postmaster_pid read_file spawn
  wait_until write_file);

# The first member initializes the cluster with these settings.
sub start
{
	my ($class, $name, %opt) = @_;
	my $tmp = File::Temp->newdir('patroniXXXXXX', TMPDIR => 1);
	my $self = bless {
		tmp => $tmp,
		dir => $tmp->dirname,
		name => $name,
		log => $tmp->dirname . '/patroni.log',
		port => free_port(),
		api => free_port(),
		bindir => pg_config('bindir'),
	}, $class;
	my $to = ref $opt{zk} ? $opt{zk}->connect_string : $opt{zk};
	# JSON is YAML, too.
	write_file("$self->{dir}/patroni.yml",
		JSON::PP->new->canonical->pretty->encode($self->configuration($to, %{ $opt{settings} // {} })));
	$self->launch;
	return $self;
}

sub configuration
{
	my ($self, $zk, %settings) = @_;
	my @hba = map { "$_ 127.0.0.1/32 trust" } 'host replication all', 'host all all';
	return {
		scope => 'shop',
		name => $self->{name},
		restapi => { map { $_ => "127.0.0.1:$self->{api}" } qw(listen connect_address) },
		zookeeper => { hosts => [ split /,/, $zk ] },
		bootstrap => {
			dcs => {
				ttl => 20,
				loop_wait => 1,
				retry_timeout => 3,
				postgresql => { use_pg_rewind => JSON::PP::true, parameters => { %settings, fsync => 'off' } },
			},
			initdb => [ { encoding => 'UTF8' }, 'data-checksums' ],
		},
		postgresql => {
			(map { $_ => "127.0.0.1:$self->{port}" } qw(listen connect_address)),
			data_dir => "$self->{dir}/data",
			bin_dir => $self->{bindir},
			pgpass => "$self->{dir}/pgpass",
			authentication => {
				superuser => { username => 'postgres' },
				replication => { username => 'replicator' },
			},
			parameters => { unix_socket_directories => $self->{dir} },
			pg_hba => \@hba,
		},
	};
}

sub launch
{
	my ($self) = @_;
	$self->{pid} = spawn([ '/usr/bin/python3', '-m', 'patroni', "$self->{dir}/patroni.yml" ], log => $self->{log});
	return;
}

# Returns the answer of the REST API, decoded if it is JSON.
sub request
{
	my ($self, $method, $path, $body) = @_;
	my $answer = HTTP::Tiny->new(timeout => 60)->request($method, "http://127.0.0.1:$self->{api}/$path",
		{ $body ? (content => JSON::PP::encode_json($body)) : () });
	return eval { JSON::PP::decode_json($answer->{content}) } // $answer->{content};
}

# Waits until PostgreSQL runs as primary or as replica, according to both Patroni and
# PostgreSQL.
sub wait_role
{
	my ($self, $role) = @_;
	my $standby = $role eq 'primary' ? 'f' : 't';
	return wait_until(
		"$self->{name} to be $role",
		sub {
			croak "Patroni ended\n" . log_tail($self->{log}) unless alive($self->{pid});
			my $status = $self->request(GET => 'patroni');
			return ref $status && ($status->{state} // '') eq 'running'
			  && (($self->psql('postgres', 'SELECT pg_is_in_recovery()'))[1] // '') eq $standby;
		},
		fatal => 1,
		diag => sub { log_tail($self->{log}) });
}

sub wait_logged
{
	my ($self, $pattern) = @_;
	my $from = -s $self->{log};
	return wait_until(
		"$pattern in the log of $self->{name}",
		sub { substr(read_file($self->{log}), $from) =~ $pattern },
		diag => sub { log_tail($self->{log}) });
}

# Kills all processes of this member at once.
sub kill9
{
	my ($self) = @_;
	my $postmaster = postmaster_pid("$self->{dir}/data");
	my @processes = ($postmaster, child_processes($postmaster));
	hold_still($self->{pid}, @processes);
	kill 'KILL', @processes;
	end_process($self->{pid}, 'KILL');
	return;
}

# Patroni stops PostgreSQL on SIGTERM.
sub stop
{
	my ($self) = @_;
	end_process($self->{pid}, 'TERM', 60);
	return;
}

# The methods of a server that session() and wait_for_sql() need.
sub connstr { return "host=127.0.0.1 port=$_[0]{port} user=postgres dbname=" . ($_[1] // 'postgres') }
sub installed_command { return "$_[0]{bindir}/$_[1]" }
sub logfile { return $_[0]{log} }

sub psql
{
	my ($self, $dbname, $sql) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ $self->installed_command('psql'), '-XAtq', '-d', $self->connstr($dbname), '-c', $sql ],
		'>', \$out, '2>', \$err);
	chomp $out;
	return (undef, $out, $err);
}

sub safe_psql
{
	my ($self, $dbname, $sql) = @_;
	my (undef, $out, $err) = $self->psql($dbname, $sql);
	croak "$sql: $err" if $err =~ /ERROR|FATAL/;
	return $out;
}

sub DESTROY
{
	my ($self) = @_;
	local $?;
	return unless alive($self->{pid});
	$self->kill9;
	return;
}

1;
