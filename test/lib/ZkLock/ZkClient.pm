# ZkLock::ZkClient - a ZooKeeper session that belongs to the test.
#
# Owns: one Python process (zk_client.py, which uses kazoo) and the pipe to it. For
# inspecting the tree and creating the nodes of other programs. Every method dies with
# the name of kazoo's exception, unless documented differently.
#
#   my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 10);
#   $zkc->children('/zklock/locks/x');      # sorted names; () when absent
#   $zkc->tree('/zklock');                  # sorted paths below
#   $zkc->get($path);         # hash: data, czxid, ephemeralOwner ('0x0': none),
#                             # isEphemeral, numChildren, ...; a server does not
                            # show whether a node is a container
#   $zkc->exists($path);      # the same without data, or undef
#   $zkc->create($path, data => 'x', ephemeral => 1, sequence => 1,
#       container => 1, makepath => 1,
#       acl => 'world' | 'read' | 'add' | 'creator' | { digest => 'user:password' }
#       | [ [ $perms, $scheme, $id ], ... ]);
#   $zkc->delete($path, recursive => 1);
#   $zkc->set($path, $data);
#   $zkc->set_acl($path, $acl); $zkc->get_acls($path);
#   $zkc->add_auth('digest', 'user:password');
#   $zkc->session_id; $zkc->state;          # 0x..., CONNECTED
#   $zkc->end_session('0x...');   # of another client
#   $zkc->close;              # closes the session
#   $zkc->drop;               # kills the process; the session expires after its timeout
#
# Data are byte strings.

package ZkLock::ZkClient;

use strict;
use warnings;

use Carp qw(croak);
use File::Basename qw(dirname);
use JSON::PP ();
use Scalar::Util qw(weaken);

use parent 'ZkLock::Child';

my $json = JSON::PP->new->ascii->canonical->allow_nonref;
my @clients;    # all that exist

sub new
{
	my ($class, $connect_string, %opt) = @_;
	my $python = $ENV{ZKLOCK_PYTHON} // '/usr/bin/python3';
	my $script = dirname(__FILE__) . '/../zk_client.py';
	my $self = $class->run_program(
		[ $python, '-u', $script, $connect_string, $opt{timeout} // 10 ],
		last_id => 0);
	$self->{session_id} = $self->answer('connect');
	push @clients, $self;
	weaken($clients[-1]);
	return $self;
}

# Closes the sessions of all clients that still run.
sub close_all
{
	for my $client (grep { $_ && $_->{pid} } @clients)
	{
		$client->resume;
		eval { $client->close };
	}
	return;
}

# Sends one request and returns its result.
sub call
{
	my ($self, $op, %args) = @_;
	croak 'the session is closed' unless $self->{pid};
	my $id = ++$self->{last_id};
	$self->write_line($json->encode({ op => $op, id => $id, %args }));
	return $self->answer($op);
}

# Returns the result of the last request. Skips the answers to earlier requests whose
# wait timed out.
sub answer
{
	my ($self, $op) = @_;
	my $answer;
	do
	{
		$answer = $json->decode($self->read_line($op));
	} until $answer->{id} == $self->{last_id};
	croak "$answer->{error}: $op: $answer->{message}" if $answer->{error};
	return $answer->{ok};
}

sub children { return @{ $_[0]->call('children', path => $_[1]) } }
sub tree { return @{ $_[0]->call('tree', path => $_[1] // '/') } }
sub get { return $_[0]->call('get', path => $_[1]) }
sub exists { return $_[0]->call('exists', path => $_[1]) }

# Returns the path of the new node, with its sequence number.
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

# Creates children with long names: their children list is large.
sub create_children { return $_[0]->call('create_children', path => $_[1], count => $_[2], length => $_[3]) }

# Creates contenders with data of this size.
sub create_contenders { return $_[0]->call('create_contenders', path => $_[1], count => $_[2], size => $_[3], first => $_[4] // 0) }
sub delete_children { return $_[0]->call('delete_children', path => $_[1]) }

sub delete
{
	my ($self, $path, %opt) = @_;
	$opt{recursive} = $opt{recursive} ? JSON::PP::true : JSON::PP::false;
	return $self->call('delete', path => $path, %opt);
}

sub set
{
	my ($self, $path, $data) = @_;
	return $self->call('set', path => $path, data => $data);
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

sub hold_session { return $_[0]->call('hold_session', session_id => $_[1]) }
sub end_session { return $_[0]->call('end_session', session_id => $_[1]) }
sub session_id { return $_[0]{pid} ? $_[0]->call('session_id') : undef }
sub state { return $_[0]->call('state') }

sub close
{
	my ($self) = @_;
	return unless $self->{pid};
	$self->call('close');
	return $self->end('TERM');
}

sub drop { return $_[0]->stop }

1;
