# ZkLock::Session - a database session that a test can leave waiting.
#
# Owns: one psql process on one connection. ZkLock::Cluster makes it:
#
#   my $s = session($node);
#   is($s->query("SELECT zk_try_lock('x')"), 't', ...);
#   $s->query_async("SELECT zk_lock('x')");   # sent, not waited for
#   ok(!$s->finished);
#   like($s->so_far, qr/NOTICE/);
#   my $answer = $s->wait_result;             # what it printed
#   $s->error;     # standard error of the last query: messages, notices
#   $s->sqlstate;  # of the last statement; 00000 when it succeeded
#   $s->pid;       # of its backend
#   $s->cancel; $s->terminate;                # from another session
#   $s->alive;     # 0 when the connection was lost (then psql has ended)
#   $s->quit;

package ZkLock::Session;

use strict;
use warnings;

use Carp qw(croak);
use IPC::Run;
use Time::HiRes qw(time);
use ZkLock::Util qw(hold_still wait_until);

# Connects to database $dbname of a PostgreSQL::Test::Cluster node.
sub new
{
	my ($class, $node, $dbname, %opt) = @_;
	my $self = bless {
		node => $node,
		in => '',
		out => '',
		err => '',
		number => 0,
		error => '',
		sqlstate => '',
	}, $class;

	my $connstr = $node->connstr($dbname // 'postgres');
	$connstr .= " user=$opt{user}" if $opt{user};
	$connstr .= " application_name=$opt{application_name}"
	  if $opt{application_name};
	$self->{run} = IPC::Run::start(
		[ $node->installed_command('psql'),
			'-XAtq', '-d', $connstr, '-f', '-', @{ $opt{extra_params} // [] } ],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err});
	$self->{backend} = $self->query('SELECT pg_backend_pid()');
	croak "no connection to $connstr: $self->{error}"
	  unless $self->{backend} =~ /^\d+$/;
	return $self;
}

# Runs SQL and returns what it printed; in list context that, and what it wrote
# to standard error.
sub query
{
	my ($self, $sql, %opt) = @_;
	$self->query_async($sql);
	return $self->wait_result(%opt);
}

# As query(), and dies when the last statement failed.
sub query_ok
{
	my ($self, $sql, %opt) = @_;
	my $answer = $self->query($sql, %opt);
	croak "query failed: $sql\n$self->{error}" unless $self->ok;
	return $answer;
}

# Sends SQL without waiting for the answer.
sub query_async
{
	my ($self, $sql) = @_;
	croak "still waiting for: $self->{waiting}" if defined $self->{waiting};
	croak 'the session has ended' unless $self->alive;
	my $number = ++$self->{number};
	$self->{waiting} = $sql;
	$self->{end} = qr/^=== end of $number, (\w+) ===\n/m;
	$self->{in} .= "$sql\n;\n"
	  . "\\echo '=== end of $number,' :SQLSTATE '==='\n"
	  . "\\warn '=== end of $number,' :SQLSTATE '==='\n";
	$self->pump while length $self->{in} && $self->alive;
	return $self;
}

# Has the query sent last come to its end?
sub finished
{
	my ($self) = @_;
	return 1 unless defined $self->{waiting};
	$self->pump;
	return 1 if !$self->alive;
	return $self->{out} =~ $self->{end} && $self->{err} =~ $self->{end};
}

# Was a query sent whose answer nobody has asked for yet?
sub is_busy { return defined $_[0]{waiting} }

# Waits for the end of the query sent last. Returns as query() does.
sub wait_result
{
	my ($self, %opt) = @_;
	croak 'no query was sent' unless defined $self->{waiting};
	wait_until(
		"the end of: $self->{waiting}",
		sub { $self->finished },
		timeout => $opt{timeout},
		pause => 0.005,
		diag => sub { "output so far: $self->{out}\n$self->{err}" });

	delete $self->{waiting};
	$self->{sqlstate} = $self->{out} =~ s/$self->{end}// ? $1 : 'lost';
	$self->{err} =~ s/$self->{end}//;
	my ($answer, $error) = ($self->{out}, $self->{err});
	($self->{out}, $self->{err}) = ('', '');
	$answer =~ s/\n\z//;
	$self->{error} = $error;
	return wantarray ? ($answer, $error) : $answer;
}

sub error { return $_[0]{error} }
sub sqlstate { return $_[0]{sqlstate} }
sub ok { return $_[0]{sqlstate} eq '00000' }
sub pid { return $_[0]{backend} }
sub node { return $_[0]{node} }

# From another connection.
sub cancel { return $_[0]->signal('pg_cancel_backend') }
sub terminate { return $_[0]->signal('pg_terminate_backend') }

sub signal
{
	my ($self, $function) = @_;
	$self->{node}
	  ->safe_psql('postgres', "SELECT $function($self->{backend})");
	return $self;
}

# SIGKILL: the whole server goes through crash recovery, or down.
sub kill9 { kill 'KILL', $_[0]{backend}; return $_[0] }

# SIGSTOP, SIGCONT: the backend with all its threads holds still.
sub pause { hold_still($_[0]{backend}); return $_[0] }
sub resume { kill 'CONT', $_[0]{backend}; return $_[0] }

# Does psql still run? It ends when its connection is lost.
sub alive
{
	my ($self) = @_;
	return 0 unless $self->{run};
	return $self->{run}->pumpable ? 1 : 0;
}

# What a query that still runs has printed, and written to standard error.
sub so_far { my ($self) = @_; $self->pump; return $self->{out} . $self->{err} }

sub pump
{
	my ($self) = @_;
	eval { $self->{run}->pump_nb if $self->{run}->pumpable; };
	return;
}

# Ends the session in good order; a query still running is waited for.
sub quit
{
	my ($self) = @_;
	my $run = delete $self->{run} or return;
	$self->{in} .= "\\q\n" if $run->pumpable;
	eval { $run->finish; };
	return;
}

# Ends psql at once: the backend sees its client vanish.
sub drop
{
	my ($self) = @_;
	my $run = delete $self->{run} or return;
	$run->kill_kill;
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@, $!);
	eval { $self->drop };
	return;
}

1;
