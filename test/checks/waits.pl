#!/usr/bin/perl
# A wait of a test that times out is a failed assertion at the line of the test, and the rest of the file
# runs. Outside tests, and where the test looks for it with eval, a wait that times out dies.
use strict;
use warnings;
use FindBin;
use Test::More;
use Time::HiRes qw(time);

my $library = <<'EOP';
package ZkLock::Check;
use ZkLock::Util qw(wait_until);
# line 100 "test/lib/ZkLock/Check.pm"
sub wait_for_rain { return wait_until('rain', sub { 0 }, timeout => 0, @_, diag => sub { 'no clouds' }) }
sub wait_for_snow { return wait_for_rain(@_) }
package main;
EOP

# What a program prints that uses the library, and whether it succeeds.
sub output_of
{
	my ($program) = @_;
	open my $run, '-|', 'sh', '-c', 'exec "$0" "$@" 2>&1', $^X, '-I', "$FindBin::Bin/../lib", '-e', $program
	  or die "sh: $!\n";
	my $output = join '', <$run>;
	return ($output, close $run);
}

my ($output, $succeeds) = output_of(<<"EOP");
use Test::More;
$library
# line 5 "test/t/rain.pl"
my \@answer = ZkLock::Check::wait_for_snow();
is_deeply(\\\@answer, [], 'it returns nothing');
ok(!eval { ZkLock::Check::wait_for_rain() }, 'a wait in an eval is the business of its author');
is(\$@, "timed out after 0 s waiting for rain\\nno clouds at test/t/rain.pl line 7.\\n", 'which dies');
if (fork == 0) { ZkLock::Check::wait_for_rain(); require POSIX; POSIX::_exit(0) }
wait;
isnt(\$?, 0, 'a child of the test dies');
done_testing();
EOP
like($output, qr/^not ok 1 - waited for rain\n/m, 'a wait that times out is a failed assertion');
like($output, qr/^#   at test\/t\/rain\.pl line 5\.\n# timed out after 0 s\n# no clouds$/m, 'it has the line of the test, and what was seen');
is(() = $output =~ /^ok/mg, 4, 'the rest of the file runs, and a wait whose failure the caller handles dies') || diag($output);
ok(!$succeeds, 'the test fails');

my $from = time();
($output) = output_of(<<"EOP");
use Test::More;
$library
ZkLock::Check::wait_for_rain(timeout => \$_) for 0, 60;
ok(1);
ZkLock::Check::wait_for_rain(fatal => 1);
ok(1);
EOP
is(() = $output =~ /^not ok/mg, 2, 'every wait that times out is a failed assertion');
cmp_ok(time() - $from, '<', 30, 'a wait after one that has timed out is short');
is(() = $output =~ /^ok/mg, 1, 'a wait without which nothing makes sense ends the file');

($output) = output_of(<<"EOP");
$library
# line 5 "scripts/rain"
ZkLock::Check::wait_for_rain();
print "not reached";
EOP
is($output, "timed out after 0 s waiting for rain\nno clouds at scripts/rain line 5.\n", 'a program that is no test dies');
done_testing();
