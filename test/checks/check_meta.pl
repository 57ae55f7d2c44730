#!/usr/bin/perl
# scripts/check-meta accepts this tree, and reports each place in which the version or the
# project's home differs, and each released script that is missing or has changed.
use strict;
use warnings;
use Cwd qw(abs_path);
use Digest::SHA qw(sha256_hex);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use FindBin;
use Test::More;

my $top = abs_path("$FindBin::Bin/../..");
my @names = qw(META.json CHANGELOG.md SECURITY.md README.md doc/zklock_advisory.md zklock.control zklock_advisory.control
  debian/changelog debian/control debian/control.in debian/copyright debian/watch packaging/zklock.spec
  packaging/Containerfile clients/python/pyproject.toml clients/java/pom.xml sql/released.sha256);
my %good = map { $_ => slurp("$top/$_") } @names, map { s{^\Q$top/\E}{}r } glob "$top/sql/*.sql";
my ($version) = $good{'zklock.control'} =~ /^default_version = '(.*)'$/m;
my @scripts = ("sql/zklock--$version.sql", "sql/zklock_advisory--$version.sql");

is(complaints(), "meta: ok\n", 'this tree has no complaint');

# Versions: every number of a version that the check should see becomes another one.
for my $change (
	[ 'zklock.control', qr/default_version = '\K/ ],
	[ 'zklock_advisory.control', qr/default_version = '\K/ ],
	[ 'META.json', qr/^\t"version": "\K/m ],
	[ 'META.json', qr/^\t\t\t"version": "\K/m ],
	[ 'META.json', qr{"sql/zklock--\K} ],
	[ 'META.json', qr{"sql/zklock_advisory--\K} ],
	[ 'debian/changelog', qr/\Azklock \(\K/ ],
	[ 'packaging/zklock.spec', qr/^Version:\s*\K/m ],
	[ 'packaging/zklock.spec', qr/^%changelog\n.* - \K/m ],
	[ 'clients/python/pyproject.toml', qr/^version = "\K/m ],
	[ 'clients/java/pom.xml', qr{<artifactId>zklock</artifactId>\s*<version>\K} ],
	[ 'packaging/Containerfile', qr/image\.version="\K/ ],
	[ 'packaging/Containerfile', qr/image\.sql\.version="\K/ ],
	[ 'CHANGELOG.md', qr/^## \K/m ])
{
	complains(@$change, '7');
}

# The home, and the address of its maintainers.
complains($_, qr/^Homepage: \S+/m, 'x') for 'debian/control', 'debian/control.in';
complains($_, qr/^Vcs-Git: \S+/m, 'x') for 'debian/control', 'debian/control.in';
complains($_, qr/^Maintainer: /m, 'x') for 'debian/control', 'debian/control.in';
complains('debian/watch', qr/^https\S+/m, 'x');
complains('debian/copyright', qr/^Source: \S+/m, 'x');
complains('packaging/zklock.spec', qr/^URL:\s*\S+/m, 'x');
complains('SECURITY.md', qr/\@[^>]+/, 'x');
complains('META.json', qr/"repository": \{\s*"url": "https/, 'x');

# Scripts that were released: a section without "(not released)".
my %released = (%good, 'CHANGELOG.md' => $good{'CHANGELOG.md'} =~ s/^(## \S+).*/$1 (a date)/mr,
	'sql/released.sha256' => sums(@scripts));
is(complaints(%released), "meta: ok\n", 'a release with the checksums of its scripts has no complaint');
for my $script (@scripts)
{
	like(complaints(%released, 'sql/released.sha256' => sums(grep { $_ ne $script } @scripts)),
		qr/^sql\/released.sha256 lacks \Q$script\E$/m, "a release without the checksum of $script is reported");
	like(complaints(%released, $script => "$good{$script}\n"),
		qr/^\Q$script\E: \w+, expected/m, "a released $script that has changed is reported");
	like(complaints(%released, $script => undef), qr/^\Q$script\E is missing/m, "a released $script that is missing is reported");
}
done_testing();

# Inserts text after the pattern.
sub complains
{
	my ($file, $pattern, $text) = @_;
	my $changed = $good{$file} =~ s/$pattern\K/$text/r;
	isnt($changed, $good{$file}, "$file has $pattern");
	like(complaints($file => $changed), qr/expected|not there|missing/, "a difference in $file is reported");
	return;
}

# Returns the output of the check for this tree with these files; undef removes a file.
sub complaints
{
	my %files = (%good, @_);
	my $dir = tempdir(CLEANUP => 1);
	for my $name (grep { defined $files{$_} } sort keys %files)
	{
		make_path(dirname("$dir/$name"));
		open my $out, '>', "$dir/$name" or die "$name: $!\n";
		print $out $files{$name};
		close $out or die "$name: $!\n";
	}
	my $output = qx('$top/scripts/check-meta' '$dir' 2>&1);
	die "the check ended with $?: $output" if $? != ($output eq "meta: ok\n" ? 0 : 256);
	return $output;
}

sub sums { return join '', map { sha256_hex($good{$_}) . "  $_\n" } @_ }

sub slurp
{
	my ($name) = @_;
	open my $file, '<', $name or die "$name: $!\n";
	local $/ = undef;
	return scalar(<$file>) // '';
}
