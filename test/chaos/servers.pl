# The servers of the chaos test: three of ZooKeeper and three of PostgreSQL with
# the extension, and a proxy on every connection between two of them.
#
# Owns: those processes. Reads one command per line and answers each with one
# line, "ok ..." or "error ...", on its original standard output; ends at the end
# of its input. test/chaos/servers.py is the only caller and numbers the servers
# from 1. Elections do not go through proxies, so a follower that is cut off may
# still vote. But a proxy in front of a leader that is not ready makes its election
# ten times as long, so the last argument 1 leaves out the proxies between the
# servers of the ensemble.

use strict;
use warnings;

my $answers;
BEGIN { open $answers, '>&', \*STDOUT or die "stdout: $!" }

use JSON::PP ();
use PostgreSQL::Test::Utils;
use ZkLock::Cluster;
use ZkLock::Proxy;
use ZkLock::Util qw(hold_still read_file wait_until);
use ZkLock::ZkEnsemble;

my ($tick_time, $session_timeout, $settings, $direct) = @ARGV;
my %link;    # "from to" => proxy
my ($ensemble, @zk, @pg);

my %commands = (
	info => sub {
		my @servers = map {
			{ host => $_->host, port => $_->port, dir => $_->data_dir }
		} @pg;
		return JSON::PP->new->canonical->encode({
			pg => \@servers,
			zk => $ensemble->connect_string,
			logs => [ map { $_->logfile } @pg ],
			zk_logs => [ map { $_->log_file } @zk ]
		});
	},
	leader => sub {
		my $modes = $ensemble->modes;
		my ($leader) =
		  grep { ($modes->{ $zk[ $_ - 1 ]->port } // '') eq 'leader' } 1 .. @zk;
		return $leader // 0;
	},
	link => sub {
		my ($from, $to, $verb, @options) = @_;
		$link{"$from $to"}->$verb(@options);
	},
	zk_kill => sub { zk($_[0])->kill9 },
	zk_launch => sub { zk($_[0])->pid or zk($_[0])->launch },
	zk_pause => sub { zk($_[0])->is_running and zk($_[0])->pause },
	zk_resume => sub { zk($_[0])->is_running and zk($_[0])->resume },
	zk_ready => sub { $ensemble->wait_ready },
	pg_kill => sub { pg_kill(pg($_[0])) },
	pg_stop => sub { pg_stop(pg($_[0]), $_[1]) },
	pg_start => sub { pg_start(pg($_[0])) },
	pg_pause => sub { hold_still(processes(pg($_[0]))) },
	pg_resume => sub { kill 'CONT', processes(pg($_[0])) },);

sub zk { return $zk[ $_[0] - 1 ] }
sub pg { return $pg[ $_[0] - 1 ] }

start();
while (my $line = <STDIN>)
{
	my ($verb, @arguments) = split ' ', $line;
	my $answer = eval { 'ok ' . ($commands{$verb}->(@arguments) // '') }
	  // "error $@";
	$answer =~ s/\s+/ /g;
	syswrite $answers, "$answer\n";
}
pg_kill($_) for @pg;
$ensemble->kill9;

sub start
{
	$ensemble = ZkLock::ZkEnsemble->start(
		size => 3,
		tick_time => $tick_time,
		container_check_ms => 500,
		config => { initLimit => 50 },    # of ticks: on a busy machine members start slowly
		leader_port => sub {
			my ($from, $to, $port) = @_;
			return $port if $direct;
			return proxy("zk$from zk$to", "127.0.0.1:$port", patience => 10)->port;
		});
	@zk = $ensemble->members;
	for my $id (1 .. 3)
	{
		my @ways = map {
			proxy("pg$id zk$_", $zk[ $_ - 1 ]->connect_string, patience => 1)->connect_string
		} 1 .. @zk;
		push @pg,
		  zklock_node(
			"pg$id",
			zk => join(',', @ways),
			session_timeout => $session_timeout,
			extra_conf => $settings);
	}
	return;
}

sub proxy
{
	my ($name, $target, @options) = @_;
	return $link{$name} = ZkLock::Proxy->start(target => $target, @options);
}

# Returns the postmaster and its children, if it runs.
sub processes
{
	my ($node) = @_;
	my ($postmaster) = read_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/
	  or return;
	return unless read_file("/proc/$postmaster/stat") =~ /^\d+ \(postgres\) [^Z]/;
	my @children = map { /^(\d+) \(.*\) \S $postmaster / ? $1 : () }
	  map { read_file($_) } glob '/proc/[0-9]*/stat';
	return ($postmaster, @children);
}

# Kills all processes at once, like a power failure.
sub pg_kill
{
	my ($node) = @_;
	my @all = processes($node);
	hold_still(@all);
	$node->kill9;
	kill 'KILL', @all;
	wait_until('killed processes to end',
		sub { !grep { read_file("/proc/$_/stat") =~ /\) [^Z]/ } @all }, fatal => 1);

	# A killed postmaster counts as running until its parent has waited for it.
	unlink $node->data_dir . '/postmaster.pid',
	  $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	return;
}

sub pg_stop
{
	my ($node, $mode) = @_;
	return if !processes($node) || $node->stop($mode, fail_ok => 1);
	die "PostgreSQL did not stop\n";
}

sub pg_start
{
	my ($node) = @_;
	return if processes($node);
	return $node->start(fail_ok => 1) || die "PostgreSQL did not start\n";
}
