# ZkLock::Shim - a ZooKeeper client library that misbehaves on demand.
#
# Owns: building test/shim/library_shim.c, which documents the faults, and the files
# that switch the faults on.
#
#   my $shim = ZkLock::Shim->build;
#   my $node = do {
#       local @ENV{ $shim->names } = $shim->values;
#       zklock_node('a', zk => $zk);
#   };
#   $shim->break('answers');   # from now on, in every backend of the node
#   $shim->heal('answers');
#   $shim->seen('threads');    # a file that a fault has created

package ZkLock::Shim;

use strict;
use warnings;

use Carp qw(croak);
use File::Basename qw(dirname);
use File::Temp ();

sub build
{
	my ($class) = @_;
	my $tmp = File::Temp->newdir('shimXXXXXX', TMPDIR => 1);
	my $self = bless { tmp => $tmp, dir => $tmp->dirname }, $class;
	my $source = dirname(__FILE__) . '/../../shim/library_shim.c';
	system($ENV{CC} // 'cc', qw(-std=gnu11 -D_GNU_SOURCE -Wall -Wextra -O1),
		qw(-fPIC -shared -o), "$self->{dir}/shim.so", $source, '-ldl') == 0
	  or croak "$source does not compile";
	return $self;
}

# The environment of a server that uses the shim.
sub names { return qw(LD_PRELOAD ZKLOCK_SHIM_DIR) }
sub values { return ("$_[0]{dir}/shim.so", $_[0]{dir}) }

sub break
{
	my ($self, $fault) = @_;
	open my $fh, '>', "$self->{dir}/$fault" or croak "$fault: $!";
	close $fh;
	return;
}

sub seen { return -e "$_[0]{dir}/$_[1]" }

sub heal
{
	my ($self, $fault) = @_;
	unlink "$self->{dir}/$fault" or croak "$fault: $!";
	return;
}

1;
