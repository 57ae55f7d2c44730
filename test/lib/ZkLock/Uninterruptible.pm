# ZkLock::Uninterruptible - an expression that blocks and ignores cancels.
#
# Owns: a FIFO, and an empty large object. lo_export() of the object into the FIFO blocks in
# open(), and returns 1 when the FIFO is opened here.
#
#   my $block = ZkLock::Uninterruptible->new($node);
#   $s->query_async('SELECT ' . $block->sql);
#   $block->wait_until_blocked($s);
#   $block->end;

package ZkLock::Uninterruptible;

use strict;
use warnings;

use File::Temp ();
use POSIX qw(mkfifo);
use ZkLock::Cluster;

sub new
{
	my ($class, $node) = @_;
	my $dir = File::Temp->newdir('fifoXXXXXX', TMPDIR => 1);
	my $fifo = $dir->dirname . '/fifo';
	chmod 0755, $dir->dirname;
	mkfifo($fifo, 0666) or die "mkfifo: $!";
	chmod 0666, $fifo;
	my $object = $node->safe_psql('postgres', 'SELECT lo_create(0)');

	# The name is set, and no check for interrupts follows before open().
	my $named = "set_config('application_name', 'blocked', false)";
	return bless { dir => $dir, fifo => $fifo, sql => "lo_export($object, '$fifo' || left($named, 0))" }, $class;
}

sub sql { return $_[0]{sql} }

sub wait_until_blocked
{
	my ($self, $s, %opt) = @_;
	return wait_for_sql($s->node, 'SELECT application_name FROM pg_stat_activity WHERE pid = '
		  . $s->pid, 'blocked', %opt);
}

sub end
{
	my ($self) = @_;
	open my $in, '<', $self->{fifo} or die "$self->{fifo}: $!";
	close $in;
	return;
}

1;
