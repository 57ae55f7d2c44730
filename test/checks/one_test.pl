#!/usr/bin/perl
# scripts/one-test finds the tests that a name means, and says what is missing before it starts
# anything. t/012 lets it run tests.
use strict;
use warnings;
use Cwd qw(abs_path);
use FindBin;
use Test::More;

my $script = abs_path("$FindBin::Bin/../../scripts/one-test");

is(output('--list', '120_release'), "test/t/120_release.pl\n", 'a part of a name finds the file');
is(output('--list', 'test/t/120_release.pl'), "test/t/120_release.pl\n", 'a path finds the file');
like(output('--list', 'release deadlock.pl'), qr{120_release.*470_deadlock}s, 'several words find several files');
is(output('--list', 'sql/savepoints'), "test/sql/savepoints.sql\n", 'a folder chooses regression tests');
is(output('--list', 'specs/queue'), "test/specs/queue.spec\n", 'a folder chooses isolation tests');
like(output('nonsense'), qr/^No test matches "nonsense"/, 'a name without a test is an error');
like(output(''), qr/^No test matches ""/, 'so is no name');
like(output('sql/savepoints 120'), qr/^Tests of one kind/, 'so are two kinds at once');
{
	local $ENV{ZOOKEEPER_CLASSPATH} = '/nowhere/zookeeper.jar';
	like(output('120'), qr{^Missing:\n.*/nowhere/zookeeper\.jar is not there}ms, 'missing jars are named');
}
done_testing();

# The script's output and its messages.
sub output
{
	my @arguments = map { "'$_'" } @_;
	my $text = `'$script' @arguments 2>&1`;
	return $text;
}
