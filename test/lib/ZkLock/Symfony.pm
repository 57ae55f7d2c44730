# ZkLock::Symfony - a program that uses Symfony's locks.
#
# Owns: one process of test/clients/symfony.php, with one connection to a server.
#
#   my $program = ZkLock::Symfony->start($node, $search_path);
#   my $answer = $program->order('acquire report');
#   $program->write_line('wait report'); $program->read_line('the wait');
#   wait_blocked($program);

package ZkLock::Symfony;

use strict;
use warnings;

use Cwd qw(abs_path);

use parent 'ZkLock::Child';

my $script = abs_path(__FILE__) =~ s{/lib/.*}{/clients/symfony.php}r;

sub start
{
	my ($class, $node, @search_path) = @_;
	my $dsn = sprintf 'pgsql:host=%s;port=%d;dbname=postgres;user=%s', $node->host, $node->port, scalar getpwuid $>;
	my $self = $class->run_program([ 'php', $script, $dsn, @search_path ], node => $node);
	$self->{backend} = $self->read_line('the start');
	return $self;
}

# As of a ZkLock::Session.
sub node { return $_[0]{node} }
sub pid { return $_[0]{backend} }

sub order
{
	my ($self, $order) = @_;
	$self->write_line($order);
	return $self->read_line($order);
}

1;
