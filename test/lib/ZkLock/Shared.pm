# ZkLock::Shared - a ZooKeeper server and two PostgreSQL servers that files use in turn.
#
# Owns: the servers below $ZKLOCK_SHARED, which outlive the file that starts them. A file
# takes a free set, or starts one, and has it alone until it ends. Each directory
# below $ZKLOCK_SHARED is a set, and its lock belongs to the file that uses it. scripts/test
# ends the servers. Without $ZKLOCK_SHARED a file has a set of its own.
#
#   my $zk = shared_zk();                     # as ZkLock::ZkServer
#   my ($zk, $zkc) = shared_zk_and_client(timeout => 60);    # and a ZkLock::ZkClient
#   my $node = shared_node('a');              # as zklock_node(), at most two
#   my $node = shared_node('b', zk => $proxy, session_timeout => '20s',
#       set => { deadlock_timeout => '100ms' });    # settings of all sessions
#
# The servers have preloaded zklock, and new databases "postgres" with the extension. At the
# end of the file its sessions end, and its databases, its roles, and the whole tree of the
# ensemble are removed. These fail the file: contenders and permits that stay, replication
# slots, prepared transactions, tablespaces and settings of the server, a crash of a
# backend (unless the option may_crash is set), and a server that does not answer. Then
# the next file gets new servers.

package ZkLock::Shared;

use strict;
use warnings;

use Carp qw(croak);
use Exporter qw(import);
use Fcntl qw(:flock);
use File::Basename qw(basename);
use File::Copy qw(copy);
use File::Path qw(remove_tree);
use File::Temp ();
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::SharedServers;
use ZkLock::Util qw(write_file);
use ZkLock::ZkClient;

our @EXPORT = qw(shared_zk shared_zk_and_client shared_node);

my @names = qw(a b);
my $set;    # the set that this file uses
my $own;    # a temporary directory instead of $ZKLOCK_SHARED

sub shared_zk { return taken()->{zk} }

sub shared_zk_and_client
{
	my (%opt) = @_;
	return (shared_zk(), ZkLock::ZkClient->new(shared_zk()->connect_string, %opt));
}

sub shared_node
{
	my ($name, %opt) = @_;
	my $node = shift @{ taken()->{unused} } // croak 'there are only two shared servers';
	my $to = $opt{proxy} // $opt{zk} // shared_zk();
	my %settings = (
		'zklock.connect_string' => ref $to ? $to->connect_string : $to,
		'zklock.session_timeout' => $opt{session_timeout} // '60s',
		%{ $opt{set} // {} });
	@$node{qw(_name may_crash)} = ($name, $opt{may_crash});
	$node->safe_psql('template1',
		join '', map { "ALTER ROLE ALL SET $_ = '$settings{$_}';\n" } sort keys %settings);
	return $node;
}

# Returns the set of this file.
sub taken
{
	return $set if $set;
	my $base = $ENV{ZKLOCK_SHARED}
	  // ($own = File::Temp->newdir('sharedXXXXXX', TMPDIR => 1))->dirname;
	my $n = 1;
	$n++ until $set = take("$base/$n");
	start() unless usable();
	$set->{unused} = [ @{ $set->{nodes} } ];
	return $set;
}

# Returns nothing if another file uses the set.
sub take
{
	my ($dir) = @_;
	mkdir $dir;
	open my $lock, '>', "$dir/lock" or croak "$dir/lock: $!";
	flock $lock, LOCK_EX | LOCK_NB or return;
	return {
		dir => $dir,
		lock => $lock,
		user => $$,
		zk => ZkLock::SharedServers::ZooKeeper->at("$dir/zk"),
		nodes => [ map { ZkLock::SharedServers::PostgreSQL->at($_, "$dir/$_") } @names ],
	};
}

# Returns whether the last file left the servers as they should be. Until this file has
# done so, they are not.
sub usable
{
	return unlink("$set->{dir}/clean")
	  && $set->{zk}->mode
	  && 2 == grep { $_->answers } @{ $set->{nodes} };
}

sub start
{
	my ($zk, @nodes) = ($set->{zk}, @{ $set->{nodes} });
	$_->end for $zk, @nodes;
	remove_tree(map { "$set->{dir}/$_" } 'zk', @names);
	$_->create for $zk, @nodes;
	$zk->wait_ready;
	return;
}

# Ends what the file left running, cleans the servers, and returns what should not
# have been there.
sub clean
{
	my @wrong = map { $_->clean } @{ $set->{nodes} };
	ZkLock::ZkClient->close_all;
	return (@wrong, $set->{zk}->clean);
}

# Keeps the servers' logs for a failed file.
sub keep_logs
{
	my $to = "$PostgreSQL::Test::Utils::log_path/" . basename($0, '.pl');
	copy($_->logfile, "${to}_" . $_->name . '.log') for @{ $set->{nodes} };
	copy($set->{zk}->log_file, "${to}_zookeeper.log");
	return;
}

END
{
	if ($set && $set->{user} == $$)
	{
		my $status = $?;
		my @wrong = eval { clean() };
		push @wrong, $@ if $@;
		print STDERR map { "# not ok - $_\n" } @wrong;
		keep_logs() if @wrong || $status || !Test::More->builder->is_passing;
		write_file("$set->{dir}/clean", '') unless @wrong;
		$_->end for $own ? ($set->{zk}, @{ $set->{nodes} }) : ();
		flock $set->{lock}, LOCK_UN;
		$? = $status || (@wrong ? 1 : 0);
	}
}

1;
