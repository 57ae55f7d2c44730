# ZkLock::Test - the first line of each test.
#
# Owns: what each file of test/t begins and ends with.
#
#   use ZkLock::Test;
#
# is strict and warnings, the functions of Test::More, ZkLock::Check, ZkLock::Cluster, ZkLock::Shared
# and ZkLock::Util, and the objects ZkLock::ZkServer, ZkLock::ZkEnsemble, ZkLock::ZkClient,
# ZkLock::Proxy and ZkLock::FaultProxy. done_testing() is called at the end of the file, unless the
# file dies or calls exit: then it has no plan, and fails.

package ZkLock::Test;

use strict;
use warnings;

my ($process, $has_exited) = ($$, 0);

# Of the code that is compiled from here on.
BEGIN
{
	*CORE::GLOBAL::exit = sub { $has_exited = 1; CORE::exit($_[0] // 0) };
}

use Exporter ();
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::Proxy;
use ZkLock::Shared;
use ZkLock::Util @ZkLock::Util::EXPORT_OK;
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;
use ZkLock::ZkServer;

our @EXPORT = do
{
	my %names = map { $_ => 1 } @Test::More::EXPORT, @ZkLock::Check::EXPORT, @ZkLock::Cluster::EXPORT,
	  @ZkLock::Shared::EXPORT, @ZkLock::Util::EXPORT_OK;
	sort keys %names;
};

sub import
{
	strict->import;
	warnings->import;
	goto &Exporter::import;
}

END
{
	done_testing() if $process == $$ && !$has_exited && $? == 0;
}

1;
