# On a new connection the credentials are sent first. The program is compiled with the
# sources of the client.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Temp ();
use Test::More;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

my $root = dirname(__FILE__) . '/../..';
my $tmp = File::Temp->newdir(TMPDIR => 1);
my $program = "$tmp/first_request";
is(system($ENV{CC} // 'cc', qw(-std=gnu11 -D_GNU_SOURCE -O1), "-I$root/src", '-o', $program,
		"$root/test/lib/first_request.c", glob("$root/src/recipe/zookeeper/*.c"),
		$ENV{ZK_LIBS} // '-l:libzookeeper_st.so.2', '-lpthread'),
	0, 'the program is compiled');

my $zk = ZkLock::ZkServer->start;
my $zkc = ZkLock::ZkClient->new($zk->connect_string);
$zkc->create('/closed', acl => { digest => 'me:secret' });
for (1 .. 3)
{
	is(`$program @{[ $zk->connect_string ]} me:secret /closed`, "read\n", "the credentials are sent first ($_)");
}
is(`$program @{[ $zk->connect_string ]} me:wrong /closed`, "no_auth\n", 'other credentials cannot read the znode');
$zkc->close;
$zk->stop;
done_testing();
