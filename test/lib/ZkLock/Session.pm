# ZkLock::Session - a database session whose statements can run in the background.
#
# Owns: one psql process with one connection. ZkLock::Cluster creates it:
#
#   my $s = session($node);
#   is($s->query("SELECT zk_try_lock('x')"), 't', ...);
#   $s->query_async("SELECT zk_lock('x')");   # returns at once
#   ok(!$s->finished);                        # and succeeded()
#   like($s->so_far, qr/NOTICE/);
#   my $answer = $s->wait_result;             # the output
#   $s->error;     # standard error of the last query: messages, notices
#   $s->sqlstate;  # of the last statement; 00000 when it succeeded
#   $s->pid;       # of its backend
#   $s->client_pid;    # of psql
#   $s->cancel; $s->terminate;                # from another session
#   $s->alive;     # 0 when the connection was lost (then psql has ended)
#   $s->reconnect('zklock.root' => '/x');     # as the same role
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

	$self->{connstr} = $node->connstr($dbname // 'postgres');
	$self->{connstr} .= " user=$opt{user}" if $opt{user};
	$self->{connstr} .= " application_name=$opt{application_name}"
	  if $opt{application_name};
	return $self->connect;
}

sub connect
{
	my ($self) = @_;
	$self->{run} = IPC::Run::start(
		[ $self->{node}->installed_command('psql'),
			'-XAtq', '-d', $self->{connstr}, '-f', '-' ],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err});
	$self->{backend} = $self->query('SELECT pg_backend_pid()', fatal => 1);
	croak "no connection to $self->{connstr}: $self->{error}"
	  unless $self->{backend} =~ /^\d+$/;
	return $self;
}

# After a wait that has failed, the rest of the file has a new connection without locks. The old
# backend may not notice that its client is gone.
sub connect_anew
{
	my ($self) = @_;
	kill 'KILL', $self->client_pid;
	kill $_, $self->{backend} for 'TERM', 'CONT';
	$self->drop;
	@$self{qw(in out err)} = ('', '', '');
	delete $self->{waiting};
	$self->connect;
	$self->reconnect if $self->{settings};
	@$self{qw(sqlstate error)} = ('lost', 'no answer in time');
	return '';
}

# Connects again, with settings that are fixed when a session starts, by name, besides those of
# earlier calls; without those whose value is undef. Other settings have their defaults again.
sub reconnect
{
	my ($self, %settings) = @_;
	my $all = $self->{settings} = { %{ $self->{settings} // {} }, %settings };
	delete @$all{ grep { !defined $all->{$_} } keys %$all };
	my $options = join ' ', map { "-c $_=" . $all->{$_} =~ s/([\\ ])/\\$1/gr } sort keys %$all;
	$options =~ s/(['\\])/\\$1/g;
	$self->query_ok(qq(\\connect -reuse-previous=on "options='$options'"));
	$self->{backend} = $self->query('SELECT pg_backend_pid()');
	return $self;
}

# Runs SQL and returns its output; in list context also its standard error.
sub query
{
	my ($self, $sql, %opt) = @_;
	$self->query_async($sql);
	return $self->wait_result(%opt);
}

# As query(), but dies if the last statement failed.
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

# Returns whether the last query has ended.
sub finished
{
	my ($self) = @_;
	return 1 unless defined $self->{waiting};
	$self->pump;
	return 1 if !$self->alive;
	return $self->{out} =~ $self->{end} && $self->{err} =~ $self->{end};
}

# Returns whether the last query has ended without an error.
sub succeeded
{
	my ($self) = @_;
	return $self->finished && (defined $self->{waiting} ? $self->{out} =~ $self->{end} && $1 eq '00000' : $self->ok);
}

# Returns whether a query was sent whose result has not been fetched.
sub is_busy { return defined $_[0]{waiting} }

# Waits for the end of the last query. Returns as query() does. If it does not end in time, which is
# a failed assertion, its answer is that of a lost connection.
sub wait_result
{
	my ($self, %opt) = @_;
	croak 'no query was sent' unless defined $self->{waiting};
	wait_until(
		"the end of: $self->{waiting}",
		sub { $self->finished },
		timeout => $opt{timeout},
		fatal => $opt{fatal},
		pause => 0.005,
		diag => sub { "output so far: $self->{out}\n$self->{err}" })
	  or return $self->connect_anew;

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
sub client_pid { return $_[0]{run} && $_[0]{run}{KIDS}[0]{PID} }
sub node { return $_[0]{node} }

# These use another connection.
sub cancel { return $_[0]->signal('pg_cancel_backend') }
sub terminate { return $_[0]->signal('pg_terminate_backend') }

sub signal
{
	my ($self, $function) = @_;
	$self->{node}
	  ->safe_psql('postgres', "SELECT $function($self->{backend})");
	return $self;
}

# SIGKILL: the whole server runs crash recovery, or shuts down.
sub kill9 { kill 'KILL', $_[0]{backend}; return $_[0] }

# SIGSTOP and SIGCONT for the backend with all its threads.
sub pause { hold_still($_[0]{backend}); return $_[0] }
sub resume { kill 'CONT', $_[0]{backend}; return $_[0] }

# Returns whether psql still runs. It ends when its connection is lost.
sub alive
{
	my ($self) = @_;
	return 0 unless $self->{run};
	return $self->{run}->pumpable ? 1 : 0;
}

# Returns the output and standard error, so far, of a query that still runs.
sub so_far { my ($self) = @_; $self->pump; return $self->{out} . $self->{err} }

sub pump
{
	my ($self) = @_;
	eval { $self->{run}->pump_nb if $self->{run}->pumpable; };
	return;
}

# Ends the session cleanly, after a query that still runs.
sub quit
{
	my ($self) = @_;
	my $run = delete $self->{run} or return;
	$self->{in} .= "\\q\n" if $run->pumpable;
	eval { $run->finish; };
	return;
}

# Kills psql: the backend loses its client.
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
