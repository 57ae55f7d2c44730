#!/usr/bin/perl
# A wait that times out in the test library is reported at the line of the test.
use strict;
use warnings;
use FindBin;
use Test::More;

my $program = <<'EOP';
package ZkLock::Check;
use ZkLock::Util qw(wait_until);
# line 100 "test/lib/ZkLock/Check.pm"
sub wait_for_rain { return wait_until('rain', sub { 0 }, timeout => 0) }
package main;
# line 5 "test/t/rain.pl"
ZkLock::Check::wait_for_rain();
EOP

open my $run, '-|', 'sh', '-c', 'exec "$0" "$@" 2>&1', $^X, '-I', "$FindBin::Bin/../lib", '-e', $program
  or die "sh: $!\n";
my $message = join '', <$run>;
is($message, "timed out after 0 s waiting for rain at test/t/rain.pl line 5.\n", 'the message has the line of the test');
done_testing();
