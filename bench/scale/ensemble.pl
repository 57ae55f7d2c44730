#!/usr/bin/perl
# A private ensemble of three ZooKeeper servers for bench/scale/scale.py. First it prints
# the connect string. Then it reads commands, one in each line: the answers to "leader" and
# "pids" are process ids, the answer to "restart" is "ok". Ends at the end of its input.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../../test/lib";
use ZkLock::ZkEnsemble;

local $| = 1;
my $ensemble = ZkLock::ZkEnsemble->start(
	size => 3, tick_time => 2000,
	java => [qw(-Xms64m -Xmx700m -XX:TieredStopAtLevel=4)]);
print $ensemble->connect_string, "\n";
while (my $command = <STDIN>)
{
	if ($command eq "leader\n") { print $ensemble->leader->pid, "\n" }
	elsif ($command eq "pids\n") { print join(' ', map { $_->pid } $ensemble->running), "\n" }
	elsif ($command eq "restart\n")
	{
		for my $member ($ensemble->members) { $member->kill9 if !$member->is_running && $member->pid }
		$ensemble->restart;
		print "ok\n";
	}
	else { die "no such command: $command" }
}
$ensemble->stop;
