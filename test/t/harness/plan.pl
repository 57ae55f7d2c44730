# A file that begins with "use ZkLock::Test" has a plan if it ends at its end, and fails otherwise.

use IPC::Run qw(run);
use ZkLock::Test;

# What a file with this code prints, and whether it passes. Another module may have loaded
# Test::More before.
sub result_of
{
	my ($code) = @_;
	my $output = '';
	run([ $^X, (map { ('-I', $_) } @INC), '-e', "use PostgreSQL::Test::Utils;\nuse ZkLock::Test;\n$code" ], '<', \undef, '>&', \$output);
	return ($output, $? == 0);
}

my %passes = (
	'that ends' => 'ok(1); ok(1)',
	'whose child exits' => 'ok(1); if (fork == 0) { exit 0 } wait; ok(1)',
	'with a failure that is expected' => 'ok(1); { local $TODO = "later"; ok(0, "x") }',
	'that is skipped' => 'plan skip_all => "no X"');
my %fails = (
	'that dies' => 'ok(1); ok(1); die "x\n"',
	'that exits' => 'ok(1); ok(1); exit 0; ok(1)',
	'with a failure' => 'ok(1); ok(0, "x")',
	'without an assertion' => '1',
	'that does not declare a variable' => 'ok(1); $x = 1');
for my $what (sort keys %passes)
{
	my ($output, $passed) = result_of($passes{$what});
	ok($passed && $output =~ /^1\.\.(?:0 # SKIP|2$)/m, "a file $what passes") || diag($output);
}
for my $what (sort keys %fails)
{
	my ($output, $passed) = result_of($fails{$what});
	ok(!$passed, "a file $what fails") || diag($output);
}
