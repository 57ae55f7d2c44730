#!/usr/bin/perl
# A private ensemble of three ZooKeeper servers for bench/scale/scale.py, which talks
# to it by lines: first it prints the connect string; "leader" and "pids" are answered
# with process ids, "restart" with "ok". Ends with its input.

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
while (my $order = <STDIN>)
{
	if ($order eq "leader\n") { print $ensemble->leader->pid, "\n" }
	elsif ($order eq "pids\n") { print join(' ', map { $_->pid } $ensemble->running), "\n" }
	elsif ($order eq "restart\n")
	{
		for my $member ($ensemble->members) { $member->kill9 if !$member->is_running && $member->pid }
		$ensemble->restart;
		print "ok\n";
	}
	else { die "no such order: $order" }
}
$ensemble->stop;
