# scripts/one-test runs a test with what was built in this directory: it installs nothing, and leaves
# no server.

use File::Temp ();
use ZkLock::Test;

is(system('make', '-s', 'with_llvm=no', 'zklock.so'), 0, 'the library is built');

my $installed = pg_config('pkglibdir') . '/zklock.so';
my @before = stat $installed;
my $temporary = File::Temp->newdir('oneXXXX', TMPDIR => 1);
local $ENV{TMPDIR} = $temporary->dirname;

my $output = `scripts/one-test sql/basic 2>&1`;
like($output, qr/^Result: PASS$/m, 'a regression test passes') || diag($output);

$output = `scripts/one-test lock/release_then_try 'permits' 2>&1`;
like($output, qr/^Result: PASS$/m, 'a file of test/t passes') || diag($output);
like($output, qr/^ok \d+ - .*permit/m, 'the assertions with the word show') || diag($output);
unlike($output, qr/^ok \d+ - (?!.*permits)/im, 'no others do');

is_deeply([ stat $installed ], \@before, 'the installed library is the same');
is_deeply([ glob "$temporary/zklock*" ], [], 'no server has left a directory');
is_deeply([ grep { read_file($_) =~ m{\Q$temporary\E/} } glob '/proc/[0-9]*/cmdline' ], [], 'no server runs any more');
