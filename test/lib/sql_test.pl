# Runs one file of test/sql or test/specs with private servers, as TAP: scripts/one-test calls it.
# Its output and its differences are in tmp_check/sql or tmp_check/specs.

use strict;
use warnings;

use Cwd qw(getcwd);
use File::Basename qw(basename dirname);
use File::Path qw(make_path);
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Cluster;
use ZkLock::Util qw(pg_config read_file);
use ZkLock::ZkServer;

my ($file) = @ARGV;
my ($kind, $name) = $file =~ m{(sql|specs)/(\w+)\.\w+$} or die "usage: sql_test.pl test/sql/NAME.sql\n";
my ($program, $expected) = $kind eq 'sql' ? ('regress/pg_regress', 'expected')
  : ('isolation/pg_isolation_regress', 'test/expected');
my $output = "$PostgreSQL::Test::Utils::tmp_check/$kind";
make_path($output);
symlink getcwd() . "/$expected", "$output/expected" unless -e "$output/expected";
unlink "$output/regression.diffs";

my $zk = ZkLock::ZkServer->start;
my $node = zklock_node($name, zk => $zk, extension => 0);
$node->safe_psql('postgres', q{CREATE ROLE postgres SUPERUSER LOGIN})
  if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_roles WHERE rolname = 'postgres'}) eq '0';
@ENV{qw(PGHOST PGPORT PGUSER)} = ($node->host, $node->port, 'postgres');
my @version = pg_config('version') =~ /(\d+)/;
ok( system_log(
		dirname($ENV{PG_REGRESS}) . "/../$program", '--inputdir=test', "--outputdir=$output",
		$version[0] > 15 ? "--expecteddir=$output" : (), '--bindir=' . pg_config('bindir'),
		'--load-extension=zklock', '--dbname=contrib_regression', $name) == 0,
	"$file prints what is expected") || diag(read_file("$output/regression.diffs"));

done_testing();
