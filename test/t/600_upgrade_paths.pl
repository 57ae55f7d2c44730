# Whichever way a version of the extension is reached, by its install script or
# by updates from earlier ones, the catalog is the same. As PostgreSQL sees it:
# what pg_dump --binary-upgrade writes about every member of the extension, with
# comments, privileges and which tables are to be dumped.
#
# That differences would be found is shown with a version made up for it, and
# update scripts that forget something. What an update makes of the rows of
# zklock_fences is not looked at here.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZkLock::Installation;

my $installation = ZkLock::Installation->new(PostgreSQL::Test::Utils::tempdir());
my $node = PostgreSQL::Test::Cluster->new('paths',
	install_path => $installation->path);
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE way');

my ($default) = $installation->read('zklock.control') =~ /^default_version *= *'(.*)'/m;

# Every way from an install script along update scripts, none twice over the
# same version: lists of versions.
sub ways
{
	my (@ways, %next);
	for my $script ($installation->scripts)
	{
		my ($first, $second) = $script =~ /^zklock--(.+?)(?:--(.+))?\.sql$/;
		if (defined $second) { push @{ $next{$first} }, $second }
		else { push @ways, [$first] }
	}
	for (my $i = 0; $i < @ways; $i++)
	{
		my @way = @{ $ways[$i] };
		for my $version (@{ $next{ $way[-1] } // [] })
		{
			push @ways, [ @way, $version ]
			  unless grep { $_ eq $version } @way;
		}
	}
	return @ways;
}

# Numbers of objects, and how old rows may be. Which tables are to be dumped is
# told by numbers, too; catalog() asks for their names.
sub chance_removed
{
	my ($line) = @_;
	return $line =~ s/\d+/N/gr if $line =~ /relfrozenxid = |^WHERE oid = '\d+'/;
	return $line =~ s/'\{[\d,]+\}'/tables/r;
}

# What the catalog says after a way, without what is a matter of chance. All ways use one
# database, because dropping one waits only some seconds for the end of sessions in it.
sub catalog
{
	my ($first, @updates) = @_;
	$node->safe_psql('way', join ';', "CREATE EXTENSION zklock VERSION '$first'",
		map { "ALTER EXTENSION zklock UPDATE TO '$_'" } @updates);
	my ($dump, $errors) = run_command([
		$node->installed_command('pg_dump'), '--binary-upgrade', '--schema-only',
		'-d', $node->connstr('way') ]);
	is($errors, '', "$first @updates: dumped") if $errors;
	my $dumped = $node->safe_psql('way',
		"SELECT extconfig::regclass[], extcondition FROM pg_extension WHERE extname = 'zklock'");
	$node->safe_psql('way', 'DROP EXTENSION zklock');
	my @lines = grep { !/^\\(?:un)?restrict |^--|^$|binary_upgrade_set_next_/ }
	  map { chance_removed($_) } split /\n/, "$dump\n$dumped";
	return \@lines;
}

# Where catalogs of one version differ: lines, with the way before them.
sub differences
{
	my ($only) = @_;
	my (%reference, @found);
	for my $way (grep { !defined $only || $_->[-1] eq $only } ways())
	{
		my $catalog = catalog(@$way);
		my $expected = $reference{ $way->[-1] } //= $catalog;
		my %there = map { $_ => 1 } @$catalog;
		my %expected = map { $_ => 1 } @$expected;
		my @lines = ((map { "+$_" } grep { !$expected{$_} } @$catalog),
			map { "-$_" } grep { !$there{$_} } @$expected);
		@lines = ('another order')
		  if !@lines && join("\n", @$catalog) ne join("\n", @$expected);
		push @found, map { "@$way: $_" } @lines;
	}
	return @found;
}


# The scripts as they are.
my @ways = ways();
note(map { "way: @$_\n" } @ways);
is_deeply([ differences() ], [], 'every way to a version gives the same catalog');

my %reached = map { $_ => 1 } map { @$_ } @ways;
ok($reached{$default}, "the default version, $default, can be installed");
for my $version (sort keys %reached)
{
	next if $version eq $default;
	ok((grep { $_->[-1] eq $default && grep { $_ eq $version } @$_ } @ways),
		"$version can be updated to $default");
}
for my $script ($installation->scripts)
{
	my ($version) = $script =~ /^zklock--(.+?)(?:--.+)?\.sql$/;
	ok($reached{$version}, "$script starts from a version that can be installed");
}

my ($catalog) = join "\n", @{ catalog($default) };
my $members = $node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION zklock;
SELECT count(*) FROM pg_depend AS d JOIN pg_extension AS e ON d.refobjid = e.oid
WHERE extname = 'zklock' AND deptype = 'e' AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass)
SQL
is(scalar(() = $catalog =~ /^CREATE (?:FUNCTION|PROCEDURE|TABLE|VIEW) /mg),
	$members, 'what is compared has every function, procedure, table and view');


# A version made up: its update script as it should be, and with mistakes.
my $news = <<'SQL';
CREATE FUNCTION zk_made_up(name text) RETURNS text LANGUAGE sql STABLE AS 'SELECT name';
COMMENT ON FUNCTION zk_made_up(text) IS 'made up';
REVOKE EXECUTE ON FUNCTION zk_made_up(text) FROM PUBLIC;
CREATE TABLE zk_made_up_rows (a integer PRIMARY KEY, b text);
GRANT SELECT ON zk_made_up_rows TO PUBLIC;
SELECT pg_extension_config_dump('zk_made_up_rows', '');
SQL
$installation->write('zklock--9.9.sql',
	$installation->read("zklock--$default.sql") . $news);

sub after_update_by
{
	my ($script) = @_;
	$installation->write("zklock--$default--9.9.sql", $script);
	return differences('9.9');
}

is_deeply([ after_update_by($news) ],
	[], 'an update script that does all of it: no difference');
cmp_ok(scalar(grep { $_->[-1] eq '9.9' } ways()), '>=', 2, '... of two ways');
for my $mistake (
	[ 'a function', qr/^CREATE FUNCTION.*\n(?:.*zk_made_up\(.*\n)*/m ],
	[ 'a comment', qr/^COMMENT.*\n/m ],
	[ 'that a function is not for everybody', qr/^REVOKE.*\n/m ],
	[ 'that a table is for everybody', qr/^GRANT.*\n/m ],
	[ 'that a table is to be dumped', qr/^SELECT.*\n/m ],
	[ 'a column', qr/, b text/ ],
	[ 'a key', qr/ PRIMARY KEY/ ],
	[ 'a volatility', qr/STABLE/ ])
{
	my ($what, $pattern) = @$mistake;
	my $script = $news =~ s/$pattern//r;
	isnt($script, $news, "forgotten: $what");
	isnt(scalar(() = after_update_by($script)), 0, '... which is found');
}
isnt(scalar(() = after_update_by("${news}CREATE VIEW zk_left AS SELECT 1;")),
	0, 'a view too many is found');
isnt(scalar(() = after_update_by($news =~ s/name'/name || ''x'''/r)),
	0, 'another body of a function is found');

$node->stop;
done_testing();
