# The catalog of a version is the same for all paths to it: its install script, and updates
# from earlier versions, for both extensions. The test compares the output of pg_dump
# --binary-upgrade for every member of the extension, with comments, privileges and the tables
# to be dumped. Every version whose install script is in sql/ must have a path to the default version.
#
# An invented version with complete and incomplete update scripts shows that differences are
# detected. The two extensions can be updated in either order; views of users and privileges remain.
# Promise: 12.3
# Tags: user, edges

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ZkLock::Installation;
use ZkLock::Test;

my $installation = ZkLock::Installation->new(PostgreSQL::Test::Utils::tempdir());
my $node = PostgreSQL::Test::Cluster->new('paths',
	install_path => $installation->path);
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE path');

my %names_back = map { $_ => $installation->make_installable($_) }
  map { $installation->scripts($_) } qw(zklock zklock_advisory);
my ($default) = $installation->read('zklock.control') =~ /^default_version *= *'(.*)'/m;

# Returns all paths from an install script of an extension along update scripts, without
# repeated versions, as lists of versions.
sub paths
{
	my ($extension) = @_;
	my (@paths, %next);
	for my $script ($installation->scripts($extension))
	{
		my ($first, $second) = $script =~ /^\w+--(.+?)(?:--(.+))?\.sql$/;
		if (defined $second) { push @{ $next{$first} }, $second }
		else { push @paths, [$first] }
	}
	for (my $i = 0; $i < @paths; $i++)
	{
		my @path = @{ $paths[$i] };
		for my $version (@{ $next{ $path[-1] } // [] })
		{
			push @paths, [ @path, $version ]
			  unless grep { $_ eq $version } @path;
		}
	}
	return @paths;
}

# Removes OIDs and transaction ids, which differ between runs. The tables to be dumped are
# OIDs, too; catalog() compares their names.
sub without_numbers
{
	my ($line) = @_;
	return $line =~ s/\d+/N/gr if $line =~ /relfrozenxid = |^WHERE oid = '\d+'/;
	return $line =~ s/'\{[\d,]+\}'/tables/r;
}

# Creates an extension as the library of this version did.
sub create
{
	my ($dbname, $extension, $version) = @_;
	$node->safe_psql($dbname,
		"CREATE EXTENSION $extension VERSION '$version' CASCADE;\n" . ($names_back{"$extension--$version.sql"} // ''));
	return;
}

# Returns the catalog after a path, without OIDs. All paths use one database, because DROP
# DATABASE waits only a few seconds for the end of sessions.
sub catalog
{
	my ($extension, $first, @updates) = @_;
	create('path', $extension, $first);
	$node->safe_psql('path', join ';', map { "ALTER EXTENSION $extension UPDATE TO '$_'" } @updates);
	my ($dump, $errors) = run_command([
		$node->installed_command('pg_dump'), '--binary-upgrade', '--schema-only',
		'-d', $node->connstr('path') ]);
	is($errors, '', "$extension $first @updates: dumped") if $errors;
	my $dumped = $node->safe_psql('path',
		"SELECT extname, extconfig::regclass[], extcondition FROM pg_extension WHERE extname ~ 'zklock' ORDER BY 1");
	$node->safe_psql('path', 'DROP EXTENSION zklock CASCADE');
	my @lines = grep { !/^\\(?:un)?restrict |^--|^$|binary_upgrade_set_next_/ }
	  map { without_numbers($_) } split /\n/, "$dump\n$dumped";
	return \@lines;
}

# Returns the differences between an extension's catalogs of one version: paths and lines.
sub differences
{
	my ($extension, $only) = @_;
	my (%reference, @found);
	for my $path (grep { !defined $only || $_->[-1] eq $only } paths($extension))
	{
		my $catalog = catalog($extension, @$path);
		my $expected = $reference{ $path->[-1] } //= $catalog;
		my %there = map { $_ => 1 } @$catalog;
		my %expected = map { $_ => 1 } @$expected;
		my @lines = ((map { "+$_" } grep { !$expected{$_} } @$catalog),
			map { "-$_" } grep { !$there{$_} } @$expected);
		@lines = ('another order')
		  if !@lines && join("\n", @$catalog) ne join("\n", @$expected);
		push @found, map { "@$path: $_" } @lines;
	}
	return @found;
}


# The existing scripts.
for my $extension (qw(zklock zklock_advisory))
{
	my @paths = paths($extension);
	note(map { "path: $extension @$_\n" } @paths);
	is_deeply([ differences($extension) ], [], "all paths to a version of $extension give the same catalog");

	my %reached = map { $_ => 1 } map { @$_ } @paths;
	ok($reached{$default}, "$extension: the default version, $default, can be installed");
	for my $version (sort keys %reached)
	{
		next if $version eq $default;
		ok((grep { $_->[-1] eq $default && grep { $_ eq $version } @$_ } @paths),
			"$extension $version can be updated to $default");
	}
	for my $script ($installation->scripts($extension))
	{
		my ($version) = $script =~ /^\w+--(.+?)(?:--.+)?\.sql$/;
		ok($reached{$version}, "$script starts from a version that can be installed");
	}
}

my ($catalog) = join "\n", @{ catalog('zklock', $default) };
my $members = $node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION zklock;
SELECT count(*) FROM pg_depend AS d JOIN pg_extension AS e ON d.refobjid = e.oid
WHERE extname = 'zklock' AND deptype = 'e' AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass)
SQL
is(scalar(() = $catalog =~ /^CREATE (?:FUNCTION|PROCEDURE|TABLE|VIEW) /mg),
	$members, 'the compared text has every function, procedure, table and view');


# Objects of users, and the order of the two updates.
for my $order ([qw(zklock zklock_advisory)], [qw(zklock_advisory zklock)])
{
	create('path', 'zklock', '0.9');
	create('path', 'zklock_advisory', '0.9');
	$node->safe_psql('path', <<'SQL');
CREATE VIEW mine AS SELECT l.since, h.scope, h.count FROM zk_locks AS l, zk_held_locks AS h;
CREATE FUNCTION mine_of() RETURNS SETOF zk_locks BEGIN ATOMIC SELECT * FROM zk_locks_of('x'); END;
REVOKE EXECUTE ON FUNCTION zk_lock_all(text[]), zk_unlock_all(text[]) FROM PUBLIC;
REVOKE SELECT ON zk_locks, zk_held_locks FROM PUBLIC;
SQL
	$node->safe_psql('path', join ';', map { "ALTER EXTENSION $_ UPDATE" } @$order);
	my $what = "after the updates of @$order";
	is($node->safe_psql('path', q(SELECT pg_get_viewdef('mine'::regclass, true))) =~ s/\s+/ /gr,
		' SELECT l.requested_at AS since, h.level AS scope, h.hold_count AS count FROM zk_locks l, zk_held_locks h;',
		"$what a view of a user remains");
	is($node->safe_psql('path', <<'SQL'), 'f|f|f|f|t', "$what privileges remain");
SELECT has_function_privilege('public', 'zk_lock_many(text[])', 'EXECUTE'), has_function_privilege('public', 'zk_unlock_many(text[])', 'EXECUTE'),
	has_table_privilege('public', 'zk_locks', 'SELECT'), has_table_privilege('public', 'zk_held_locks', 'SELECT'),
	has_function_privilege('public', 'zk_try_lock_many(text[], interval)', 'EXECUTE')
SQL
	is($node->safe_psql('path', q(SELECT count(*) FROM pg_proc WHERE probin ~ 'zklock' AND prosrc IN ('zk_lock_all', 'zk_acquire', 'zklock_stat_reset'))),
		'1', "$what no function has an earlier name in the library");
	$node->safe_psql('path', 'DROP EXTENSION zklock CASCADE');
}

# An invented version: its correct update script, and scripts with mistakes.
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
	return differences('zklock', '9.9');
}

is_deeply([ after_update_by($news) ],
	[], 'a complete update script causes no difference');
cmp_ok(scalar(grep { $_->[-1] eq '9.9' } paths('zklock')), '>=', 2, 'there are at least two paths');
for my $mistake (
	[ 'a function', qr/^CREATE FUNCTION.*\n(?:.*zk_made_up\(.*\n)*/m ],
	[ 'a comment', qr/^COMMENT.*\n/m ],
	[ 'the REVOKE of a function', qr/^REVOKE.*\n/m ],
	[ 'the GRANT of a table', qr/^GRANT.*\n/m ],
	[ 'the dump configuration of a table', qr/^SELECT.*\n/m ],
	[ 'a column', qr/, b text/ ],
	[ 'a key', qr/ PRIMARY KEY/ ],
	[ 'a volatility', qr/STABLE/ ])
{
	my ($what, $pattern) = @$mistake;
	my $script = $news =~ s/$pattern//r;
	isnt($script, $news, "forgotten: $what");
	isnt(scalar(() = after_update_by($script)), 0, "forgotten: $what: the difference is detected");
}
isnt(scalar(() = after_update_by("${news}CREATE VIEW zk_left AS SELECT 1;")),
	0, 'an additional view is detected');
isnt(scalar(() = after_update_by($news =~ s/name'/name || ''x'''/r)),
	0, 'a different function body is detected');
