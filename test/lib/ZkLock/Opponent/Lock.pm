# ZkLock::Opponent::Lock - one lock of another program.
#
# Owns: the lock's name, thread and session in the driver. ZkLock::Opponent creates the
# locks and documents their methods.

package ZkLock::Opponent::Lock;

use strict;
use warnings;

use Carp qw(croak);

sub new
{
	my ($class, $driver, $kind, $path, %opt) = @_;
	my $number = $driver->new_number;
	my $near = $opt{beside};
	my $self = bless {
		driver => $driver,
		name => "lock$number",
		party => $near ? $near->{party} : "party$number",
		session => $near ? $near->{session} : "session$number"
	}, $class;
	if ($opt{sql})
	{
		$self->call('open_sql', $self->{session},
			$opt{sql}->connstr('postgres'), $opt{node_names} // 'curator');
	}
	elsif (!$near)
	{
		$self->call('open', $self->{session}, $opt{timeout} // 10000);
	}
	$self->call('lock', $self->{name}, $kind, $self->{session}, $path,
		$opt{leases} // 1);
	return $self;
}

# The data of this lock's nodes, in programs that can configure it.
sub identifier { return $_[0]{session} }

sub send
{
	my ($self, $verb, @arguments) = @_;
	croak 'still busy' if $self->{waiting};
	$self->{waiting} = $self->{driver}->order($self->{party}, $verb, @arguments);
	return $self;
}

sub finished
{
	my ($self) = @_;
	return !$self->{waiting}
	  || defined $self->{driver}->receive($self->{waiting}, 0);
}

# Returns whether the last order has ended with a true result.
sub succeeded
{
	my ($self) = @_;
	return unless $self->{waiting} && $self->finished;
	my ($status, $result) = @{ $self->{driver}->receive($self->{waiting}) };
	return $status eq 'ok' && $result;
}

# Returns the first result, or all results in list context.
sub wait_result
{
	my ($self) = @_;
	my @results = $self->outcome;
	croak $self->{failed} if $self->{failed};
	return wantarray ? @results : $results[0];
}

sub outcome
{
	my ($self) = @_;
	my $id = delete $self->{waiting} // croak 'nothing was ordered';
	my ($status, @results) = @{ $self->{driver}->receive($id) };
	$self->{failed} = $status eq 'ok' ? '' : join ': ', @results;
	return $status eq 'ok' ? @results : ();
}

sub call
{
	my ($self, @order) = @_;
	$self->send(@order);
	return $self->wait_result;
}

# As call() with the lock's name, but returns undef if the order raises an exception.
sub try
{
	my ($self, $verb, @arguments) = @_;
	$self->send($verb, $self->{name}, @arguments);
	my ($result) = $self->outcome;
	return $result;
}

sub failed { return $_[0]{failed} }

sub acquire { my ($self, $ms) = @_; return $self->acquire_async($ms)->wait_result }

sub acquire_async
{
	my ($self, $ms) = @_;
	return $self->send('acquire', $self->{name}, $ms // -1);
}

sub crowd
{
	my ($self, @arguments) = @_;
	return $self->send('crowd', $self->{name}, @arguments);
}

sub release { return $_[0]->call('release', $_[0]{name}) }
sub participants { return $_[0]->call('participants', $_[0]{name}) }
sub contenders { return $_[0]->call('contenders', $_[0]{name}) }
sub revocable { return $_[0]->call('revocable', $_[0]{name}) }
sub revoke_requested { return $_[0]->call('asked', $_[0]{name}, $_[1]) }
sub revoke { return $_[0]->call('revoke', $_[0]{session}, $_[1]) }
sub data { return $_[0]->call('data', $_[0]{session}, $_[1]) }
sub close { return $_[0]->call('close', $_[0]{session}) }

# Runs in another thread, and does not wait for the lock's own thread.
sub expire
{
	my ($self) = @_;
	my $driver = $self->{driver};
	my ($status, @results) = @{ $driver->receive($driver->order('aside', 'expire', $self->{session})) };
	croak "expire: @results" if $status ne 'ok';
	return;
}

sub interrupt
{
	my ($self) = @_;
	my $driver = $self->{driver};
	$driver->receive($driver->order($self->{party}, 'interrupt'));
	return;
}

1;
