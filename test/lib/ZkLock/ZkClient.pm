# ZkLock::ZkClient - a ZooKeeper session of the test's own.
#
# Owns: one Python process (zk_client.py, on the kazoo library) and the pipe to
# it. For looking at the tree and for playing other people's nodes. Every
# method dies with the name of kazoo's exception, unless said otherwise.
#
#   my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 10);
#   $zkc->children('/zklock/locks/x');      # sorted names; () when absent
#   $zkc->tree('/zklock');                  # sorted paths below
#   $zkc->get($path);         # hash: data, czxid, ephemeralOwner ('0x0': none),
#                             # isEphemeral, numChildren, ...; a server does not
                            # tell that a node is a container
#   $zkc->exists($path);      # the same without data, or undef
#   $zkc->create($path, data => 'x', ephemeral => 1, sequence => 1,
#       container => 1, makepath => 1,
#       acl => 'world' | 'read' | 'creator' | { digest => 'user:password' });
#   $zkc->delete($path, recursive => 1, version => 3);
#   $zkc->set($path, $data, version => 3);
#   $zkc->set_acl($path, $acl); $zkc->get_acls($path);
#   $zkc->add_auth('digest', 'user:password');
#   $zkc->session_id; $zkc->state;          # 0x..., CONNECTED
#   $zkc->close;              # closes the session
#   $zkc->drop;               # dies; its session expires after its timeout
#   $zkc->pause; $zkc->resume;  # silent; the session expires meanwhile
#
# Data are byte strings.

package ZkLock::ZkClient;

use strict;
use warnings;

use Carp qw(croak);
use File::Basename qw(dirname);
use File::Temp ();
use IO::Select;
use IPC::Open3 qw(open3);
use JSON::PP ();
use Time::HiRes qw(time);
use ZkLock::Util qw(end_process hold_still log_tail);

my $json = JSON::PP->new->ascii->canonical->allow_nonref;
my %running;

sub new
{
	my ($class, $connect_string, %opt) = @_;
	my $python = $ENV{ZKLOCK_PYTHON} // '/usr/bin/python3';
	my $script = dirname(__FILE__) . '/../zk_client.py';
	my $errors = File::Temp->new(TEMPLATE => 'zkcXXXXXX', TMPDIR => 1);
	my ($in, $out);
	my $err = '>&' . fileno($errors);
	my $pid = open3($in, $out, $err,
		'setpriv', '--pdeathsig', 'KILL',
		$python, '-u', $script, $connect_string, $opt{timeout} // 10);
	my $self = bless {
		pid => $pid,
		in => $in,
		out => $out,
		errors => $errors,
		buffer => '',
		last_id => 0,
		owner => $$,
	}, $class;
	$running{$pid} = $$;
	$self->{session_id} = $self->answer('connect');
	return $self;
}

# Sends one request and returns the answer's value.
sub call
{
	my ($self, $op, %args) = @_;
	croak 'the session is closed' unless $self->{pid};
	local $SIG{PIPE} = 'IGNORE';
	my $id = ++$self->{last_id};
	my $line = $json->encode({ op => $op, id => $id, %args }) . "\n";
	syswrite($self->{in}, $line) == length $line
	  or croak "zk_client.py: $!\n" . $self->errors;
	return $self->answer($op);
}

# The answer to the last request; answers to earlier ones that were given up
# are passed over.
sub answer
{
	my ($self, $op) = @_;
	my $deadline = time() + $ZkLock::Util::TIMEOUT;
	my $answer;
	do
	{
		$answer = $json->decode($self->read_line($op, $deadline));
	} until $answer->{id} == $self->{last_id};
	croak "$answer->{error}: $op: $answer->{message}" if $answer->{error};
	return $answer->{ok};
}

sub read_line
{
	my ($self, $op, $deadline) = @_;
	my $select = IO::Select->new($self->{out});
	while (index($self->{buffer}, "\n") < 0)
	{
		my $left = $deadline - time();
		croak "zk_client.py: no answer to $op\n" . $self->errors
		  if $left <= 0;
		next unless $select->can_read($left);
		sysread($self->{out}, $self->{buffer}, 65536,
			length $self->{buffer})
		  or croak "zk_client.py ended during $op\n" . $self->errors;
	}
	(my $line, $self->{buffer}) = split /\n/, $self->{buffer}, 2;
	return $line;
}

sub errors { return log_tail($_[0]{errors}->filename) }

sub children { return @{ $_[0]->call('children', path => $_[1]) } }
sub tree { return @{ $_[0]->call('tree', path => $_[1] // '/') } }
sub get { return $_[0]->call('get', path => $_[1]) }
sub exists { return $_[0]->call('exists', path => $_[1]) }

# Returns the path of the node made, with its sequence number.
sub create
{
	my ($self, $path, %opt) = @_;
	for my $flag (qw(ephemeral sequence container makepath))
	{
		next unless exists $opt{$flag};
		$opt{$flag} = $opt{$flag} ? JSON::PP::true : JSON::PP::false;
	}
	return $self->call('create', path => $path, %opt);
}

sub delete
{
	my ($self, $path, %opt) = @_;
	$opt{recursive} = $opt{recursive} ? JSON::PP::true : JSON::PP::false;
	return $self->call('delete', path => $path, %opt);
}

sub set
{
	my ($self, $path, $data, %opt) = @_;
	return $self->call('set', path => $path, data => $data, %opt);
}

sub get_acls { return @{ $_[0]->call('get_acls', path => $_[1]) } }

sub set_acl
{
	my ($self, $path, $acl) = @_;
	return $self->call('set_acl', path => $path, acl => $acl);
}

sub add_auth
{
	my ($self, $scheme, $credential) = @_;
	return $self->call('add_auth', scheme => $scheme,
		credential => $credential);
}

sub session_id { return $_[0]{pid} ? $_[0]->call('session_id') : undef }
sub state { return $_[0]->call('state') }

sub close
{
	my ($self) = @_;
	return unless $self->{pid};
	$self->call('close');
	return $self->end('TERM');
}

sub drop { return $_[0]->end('KILL') }

sub end
{
	my ($self, $signal) = @_;
	my $pid = delete $self->{pid} or return;
	end_process($pid, $signal);
	delete $running{$pid};
	return;
}

sub pause { return hold_still($_[0]{pid}) }
sub resume { kill 'CONT', $_[0]{pid}; return }

sub DESTROY
{
	my ($self) = @_;
	return unless $self->{owner} == $$;
	local ($?, $@, $!);
	$self->drop;
	return;
}

END
{
	local $?;
	end_process($_, 'KILL') for grep { $running{$_} == $$ } keys %running;
}

1;
