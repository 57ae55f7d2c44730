# ZkLock::Harness - a TAP::Harness that leaves its totals in a file.
#
# Owns: the totals of a prove run. Every prove (also if started by make or pg_prove)
# uses this class when HARNESS_SUBCLASS names it, and appends to the file
# $ZKLOCK_TOTALS lines "passed N", "failed N", "bad <test file>", and for skipped tests
# "skip <test file>: <number>, or the reason". Skipped tests do not count as passed. A file that fails without a failed assertion
# counts as one failure.

package ZkLock::Harness;

use strict;
use warnings;

use parent 'TAP::Harness';

sub summary
{
	my ($self, $aggregate, @rest) = @_;
	$self->SUPER::summary($aggregate, @rest);
	my $path = $ENV{ZKLOCK_TOTALS} or return;

	my %total = (passed => 0, failed => 0);
	my (@bad, @skips);
	my %parsers = map { $_ => $aggregate->parsers($_) }
	  $aggregate->descriptions;
	for my $name (sort keys %parsers)
	{
		my $parser = $parsers{$name};
		my %skipped = map { $_ => 1 } $parser->skipped;
		my $failed = () = $parser->failed;
		push @skips, "$name: " . ($parser->skip_all || keys(%skipped) . ' tests')
		  if %skipped || $parser->skip_all;
		$total{passed} += grep { !$skipped{$_} } $parser->passed;
		$failed ||= 1 if $parser->has_problems;
		$total{failed} += $failed;
		push @bad, $name if $failed;
	}
	open my $out, '>>', $path or die "$path: $!";
	print $out "$_ $total{$_}\n" for sort keys %total;
	print $out "bad $_\n" for @bad;
	print $out "skip $_\n" for @skips;
	close $out or die "$path: $!";
	return;
}

1;
