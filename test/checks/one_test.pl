#!/usr/bin/perl
# scripts/one-test finds the tests that a name means, and says what is missing before it starts
# anything. t/harness/one_test lets it run tests.
use strict;
use warnings;
use Cwd qw(abs_path);
use FindBin;
use Test::More;

my $script = abs_path("$FindBin::Bin/../../scripts/one-test");

is(output('--list', 'crash_rel'), "test/t/exit/crash_release.pl\n", 'a part of a name finds the file');
is(output('--list', 'test/t/lock/release.pl'), "test/t/lock/release.pl\n", 'a path finds the file');
is(output('--list', 'revoke/'), "test/t/revoke/ask.pl\ntest/t/revoke/revoked.pl\ntest/t/revoke/workers_without_role.pl\n",
	'a folder finds its files');
like(output('--list', 'release across'), qr{lock/release.*deadlock/across_servers}s, 'several words find several files');
is(output('--list', 'sql/savepoints'), "test/sql/savepoints.sql\n", 'a folder chooses regression tests');
is(output('--list', 'specs/queue'), "test/specs/queue.spec\n", 'a folder chooses isolation tests');
like(output('nonsense'), qr/^No test matches "nonsense"/, 'a name without a test is an error');
like(output(''), qr/^No test matches ""/, 'so is no name');
like(output('sql/savepoints release'), qr/^Tests of one kind/, 'so are two kinds at once');
{
	local $ENV{ZOOKEEPER_CLASSPATH} = '/nowhere/zookeeper.jar';
	like(output('release'), qr{^Missing:\n.*/nowhere/zookeeper\.jar is not there}ms, 'missing jars are named');
}
done_testing();

# The script's output and its messages.
sub output
{
	my @arguments = map { "'$_'" } @_;
	my $text = `'$script' @arguments 2>&1`;
	return $text;
}
