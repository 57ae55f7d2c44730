# ZkLock::PrivateNetwork - a private network for one test, which can drop packets.
#
# Owns: unprivileged name spaces for network and mounts, with a loopback interface, a
# device without a peer, and private files /etc/hosts and /etc/resolv.conf. Use the module
# before the test starts any process:
#
#   use ZkLock::PrivateNetwork;     # restarts the program inside the name spaces
#   name_host('zk.example');        # 127.0.0.1; lookups of other names get no answer
#   name_host_at('127.0.0.2', 'zk.example');
#   forget_hosts();
#   fail_lookups();                 # lookups of other names fail at once ...
#   silence_lookups();              # ... or get no answer again
#   drop_packets($port);                 # packets from and to this TCP port vanish
#   pass_packets();
#
# The test is skipped if users may not create name spaces.

package ZkLock::PrivateNetwork;

use strict;
use warnings;

use Carp qw(croak);
use Exporter ();
use File::Temp ();
use Sys::Hostname qw(hostname);
use Test::More;

our @EXPORT = qw(name_host name_host_at forget_hosts
  fail_lookups silence_lookups drop_packets pass_packets);

my @unshare =
  qw(unshare --user --map-current-user --keep-caps --mount --net);
my $tmp;

sub import
{
	if (!in_private_network())
	{
		plan(skip_all => 'needs name spaces for users')
		  if system("@unshare true 2>/dev/null") != 0;
		exec @unshare, 'env', 'ZKLOCK_OUTER_NETWORK=' . network(), $^X,
		  map({ "-I$_" } @INC), $0
		  or croak "unshare: $!";
	}
	set_up() unless $tmp;
	goto &Exporter::import;
}

# A variable that the caller happens to have set must not let set_up() change the network
# and the files of the machine: it has to name a network, and another one than this.
sub in_private_network
{
	my $outer = $ENV{ZKLOCK_OUTER_NETWORK} // '';
	return $outer =~ /^net:\[\d+\]$/ && $outer ne network();
}

sub network { return readlink('/proc/self/ns/net') // croak "ns/net: $!" }

sub run
{
	for my $command (@_)
	{
		system($command) == 0 or croak "failed: $command";
	}
	return;
}

# With fixed neighbour addresses the kernel sends no ARP request. The rule of the local
# table gets a lower priority, to let the rules of drop_packets() precede it.
sub set_up
{
	$tmp = File::Temp->newdir('netXXXXXX', TMPDIR => 1);
	silence_lookups();
	forget_hosts();
	run("mount --bind $tmp/resolv.conf /etc/resolv.conf",
		"mount --bind $tmp/hosts /etc/hosts",
		'ip link set lo up',
		'ip link add zklock0 type veth peer name zklock1',
		'ip addr add 192.0.2.1/24 dev zklock0',
		'ip link set zklock0 up',
		'ip link set zklock1 up',
		'ip neigh add 192.0.2.53 lladdr 02:00:00:00:00:53 dev zklock0',
		'ip neigh add 192.0.2.81 lladdr 02:00:00:00:00:81 dev zklock0',
		'echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet',
		'ip route add default via 192.0.2.81 dev zklock0 table 100',
		'ip rule add pref 1 lookup local',
		'ip rule del pref 0');
	return;
}

# Writes in place: the file itself is mounted.
sub put
{
	my ($name, $text) = @_;
	open my $fh, '>', "$tmp/$name" or croak "$name: $!";
	print $fh $text;
	close $fh or croak "$name: $!";
	return;
}

# ZooKeeper's servers resolve the machine's own name.
sub name_host_at
{
	my ($address, @names) = @_;
	return put('hosts',
		'127.0.0.1 localhost ' . hostname() . "\n" . (@names ? "$address @names\n" : ''));
}

sub name_host { return name_host_at('127.0.0.1', @_) }
sub forget_hosts { return name_host() }

sub name_server
{
	my ($address) = @_;
	return put('resolv.conf', "nameserver $address\noptions timeout:30 attempts:5\n");
}

# Nothing listens on port 53 of this address; the other one drops packets.
sub fail_lookups { return name_server('127.0.0.1') }
sub silence_lookups { return name_server('192.0.2.53') }

sub drop_packets
{
	my ($port) = @_;
	run(map { "ip rule add pref 0 ipproto tcp $_ $port lookup 100" }
		  qw(dport sport));
	return;
}

sub pass_packets { run('ip rule del pref 0', 'ip rule del pref 0'); return }

1;
