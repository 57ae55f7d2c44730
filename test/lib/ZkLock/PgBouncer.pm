# ZkLock::PgBouncer - a connection pooler in front of PostgreSQL servers.
#
# Owns: one pgbouncer process, its configuration, and connection strings for the
# pooler. session() accepts the result of through() as a server:
#
#   my $pooler = ZkLock::PgBouncer->start(
#       databases => { few => { node => $node, pool_size => 2 } },
#       config => { pool_mode => 'transaction' });
#   my $s = session($pooler->through('few'));
#   $pooler->console('RECONNECT');
#   $pooler->stop;
#
# The pid of such a session is that of its first backend.

package ZkLock::PgBouncer;

use strict;
use warnings;

use Carp qw(croak);
use File::Temp ();
use ZkLock::Util
  qw(free_port wait_until spawn end_process alive log_tail port_listens);

my %running;    # poolers to end at exit: pid => pid of the process that started it

sub start
{
	my ($class, %opt) = @_;
	my $tmp = File::Temp->newdir('pgbouncerXXXXXX', TMPDIR => 1);
	my $self = bless {
		tmp => $tmp,
		log => $tmp->dirname . '/pgbouncer.log',
		port => free_port(),
		databases => $opt{databases},
	}, $class;
	my $file = $tmp->dirname . '/pgbouncer.ini';
	open my $fh, '>', $file or croak "$file: $!";
	print $fh $self->ini(%{ $opt{config} // {} });
	close $fh or croak "$file: $!";

	local $ENV{PATH} = "$ENV{PATH}:/usr/sbin";
	$self->{pid} = spawn([ 'pgbouncer', $file ], log => $self->{log});
	$running{ $self->{pid} } = $$;
	wait_until(
		"pgbouncer on port $self->{port}",
		sub {
			croak "pgbouncer ended at once\n" . log_tail($self->{log})
			  unless alive($self->{pid});
			return port_listens($self->{port});
		},
		fatal => 1,
		diag => sub { log_tail($self->{log}) });
	return $self;
}

# Accepts every client, as the user that the tests run as.
sub ini
{
	my ($self, %config) = @_;
	my %all = (
		listen_addr => '127.0.0.1',
		listen_port => $self->{port},
		unix_socket_dir => '',
		auth_type => 'any',
		admin_users => 'pgbouncer',
		%config);
	my $ini = "[databases]\n";
	for my $name (sort keys %{ $self->{databases} })
	{
		my %database = %{ $self->{databases}{$name} };
		my $node = delete $database{node};
		$ini .= "$name = host=" . $node->host . ' port=' . $node->port
		  . ' dbname=postgres user=' . getpwuid($>)
		  . join('', map { " $_=$database{$_}" } sort keys %database) . "\n";
	}
	return "$ini\n[pgbouncer]\n" . join '', map { "$_ = $all{$_}\n" } sort keys %all;
}

sub stop
{
	my ($self) = @_;
	my $pid = delete $self->{pid} or return;
	end_process($pid, 'TERM');
	delete $running{$pid};
	return;
}

# Returns a server as seen through the pooler. Methods that need no connection are
# those of the server itself.
sub through
{
	my ($self, $name) = @_;
	return ZkLock::PgBouncer::Route->new($self->{databases}{$name}{node},
		"host=127.0.0.1 port=$self->{port} dbname=$name");
}

# Runs a command of the administration console.
sub console
{
	my ($self, $command) = @_;
	my ($route) = map { $self->through($_) } keys %{ $self->{databases} };
	my $connstr = "host=127.0.0.1 port=$self->{port} user=pgbouncer dbname=pgbouncer";
	system($route->installed_command('psql'), '-XAtq', '-d', $connstr, '-c', $command) == 0
	  or croak "$command failed\n" . log_tail($self->{log});
	return;
}

# Objects that are still referenced at exit are destroyed too late.
END
{
	local $?;
	end_process($_, 'KILL') for grep { $running{$_} == $$ } keys %running;
}

package ZkLock::PgBouncer::Route;

sub new { my ($class, $node, $connstr) = @_; return bless { node => $node, connstr => $connstr }, $class }
sub connstr { return $_[0]{connstr} }
sub installed_command { my ($self, @args) = @_; return $self->{node}->installed_command(@args) }
sub psql { my ($self, @args) = @_; return $self->{node}->psql(@args) }
sub safe_psql { my ($self, @args) = @_; return $self->{node}->safe_psql(@args) }
sub logfile { return $_[0]{node}->logfile }

1;
