# ZkLock::Contest - shared setup of tests of SQL locks against locks of another program.
#
# Owns: the ensemble and the two servers of such a test, and the paths of its locks.
#
#   my ($zk, $zkc, @servers) = contest(%options);     # of shared_node(), and the client's timeout
#   path('x');                    # the lock's znode
#   queue('x', 2);                # waits for two nodes, and returns them
#   duel("Curator's mutex", $java, mutex => 'x', 'exclusive',
#       node_names => 'curator_mutex', ...);       # see ZkLock::Duel

package ZkLock::Contest;

use strict;
use warnings;

use Exporter qw(import);
use ZkLock::Cluster;
use ZkLock::Duel;
use ZkLock::Shared;

our @EXPORT = qw(contest path queue duel);

my ($zk, $zkc, @servers);

sub contest
{
	my %opt = @_;
	($zk, $zkc) = shared_zk_and_client(timeout => delete $opt{timeout});
	@servers = map { shared_node($_, %opt) } qw(a b);
	return ($zk, $zkc, @servers);
}

sub path { return "/zklock/locks/$_[0]" }

sub queue
{
	my ($lock, $n) = @_;
	return wait_zk_children($zkc, path($lock), $n);
}

sub duel
{
	my ($what, $program, $kind, $lock, $mode, %opt) = @_;
	return ZkLock::Duel->new(
		what => $what,
		lock => $lock,
		mode => $mode,
		theirs => sub { $program->lock($kind => path($lock)) },
		servers => \@servers,
		zk => $zk,
		queue => sub { queue($lock, @_) },
		%opt)->all;
}

1;
