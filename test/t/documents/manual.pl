# The manual is complete, and describes nothing that does not exist. Every function, view
# and table is in a heading of doc/reference.md, or in the signatures below one, and every
# setting in a heading of doc/settings.md, in agreement with the catalog. Every SQLSTATE of
# the source has a row in doc/troubleshooting.md, and the messages themselves have the
# hints. The links of all documents are valid, and so are the files that they name.
#
# Tags: user

use File::Find;
use File::Temp;
use ZkLock::Document;
use ZkLock::Messages;
use ZkLock::Test;

# There is no ensemble: the tests read only the catalog.
my $node = shared_node('a', zk => '127.0.0.1:1');

sub rows
{
	my ($sql) = @_;
	return map { [ split /\|/, $_, -1 ] } split /\n/, $node->safe_psql('postgres', $sql);
}

sub sorted_lines { return join '', map { "$_\n" } sort @_ }


# The parser of headings.
{
	my $file = File::Temp->new;
	print $file "# One `a`\ntext\n```sql\n# no heading\n```\n## Two `b`, `c d`\n\n### Three\nend\n";
	close $file;
	is_deeply(
		[ map { [ $_->{heading}, $_->{level}, $_->{names}, $_->{text} =~ tr/\n// ] } sections_of($file->filename) ],
		[ [ 'One `a`', 1, ['a'], 4 ], [ 'Two `b`, `c d`', 2, [ 'b', 'c d' ], 1 ], [ 'Three', 3, [], 1 ] ],
		'headings and the text below them are found');
}


# The reference.
my %section;
for my $section (grep { $_->{level} == 3 } map { sections_of($_) } qw(doc/reference.md doc/settings.md))
{
	my ($signatures) = $section->{text} =~ /^```signature\n(.*?)^```/ms;
	my %names = map { $_ => 1 } @{ $section->{names} }, ($signatures // '') =~ /^(\w+)\(/mg;
	for my $name (sort keys %names)
	{
		ok(!$section{$name}, "one section for $name") || diag('a second section');
		$section{$name} = $section->{text};
	}
}

my %functions;
push @{ $functions{ $_->[0] } }, $_
  for rows(<<'SQL');
SELECT p.proname, p.oid::regprocedure,
	p.proname || '(' || regexp_replace(replace(
		pg_get_function_arguments(p.oid), ' DEFAULT ''00:00:00''::interval', ' DEFAULT ''0'''),
		'^OUT .*|\mIN |(?<=NULL)::\w+', '', 'g') || ')' || coalesce(' returns ' || pg_get_function_result(p.oid), ''),
	has_function_privilege('public', p.oid, 'EXECUTE')
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
ORDER BY 1, 2
SQL
my %relations = map { $_->[0] => $_->[1] } rows(<<'SQL');
SELECT c.relname, has_table_privilege('public', c.oid, 'SELECT')
FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
SQL
my %settings = map { $_->[0] => $_ } rows(<<'SQL');
SELECT name, vartype, boot_val, min_val, max_val, unit, array_to_string(enumvals, ' '), context
FROM pg_settings WHERE name LIKE 'zklock.%'
SQL

cmp_ok(scalar keys %functions, '>', 25, 'the catalog has functions');
cmp_ok(scalar keys %settings, '>', 12, 'the server has settings');
my %there = (%functions, %relations, %settings);
is(sorted_lines(grep { !$section{$_} } keys %there), '', 'every object of the catalog has a section in the manual');

# A build may lack a setting.
my $source = read_file('src/backend/base/settings.c');
is(sorted_lines(grep { !$there{$_} && index($source, "\"$_\"") < 0 } keys %section), '',
	'every name in a heading or a signature of the manual is an existing object');

# PUBLIC has the privilege unless the section has a line "Privileges".
sub public
{
	my ($text) = @_;
	return $text =~ /^- \*\*Privileges\*\*: /m ? 'f' : 't';
}

for my $name (sort keys %functions)
{
	my $text = $section{$name} // '';
	my ($shown) = $text =~ /^```signature\n(.*?)^```/ms;
	is(sorted_lines(grep { /^\Q$name\E\(/ } split /\n/, $shown // ''),
		sorted_lines(map { $_->[2] } @{ $functions{$name} }), "$name: the signatures are those of the catalog");
	is(public($text), $_->[3], "$_->[1]: the privileges are those of the catalog") for @{ $functions{$name} };
}
is(public($section{$_} // ''), $relations{$_}, "$_: the privileges are those of the catalog") for sort keys %relations;

for my $name (sort keys %relations)
{
	my @columns = map { $_->[0] } rows("SELECT attname FROM pg_attribute WHERE attrelid = '$name'::regclass AND attnum > 0 ORDER BY attnum");
	my @rows = ($section{$name} // '') =~ /^\| (`.*?) \|/mg;
	is(join(' ', map { /`(\w+)/g } @rows), "@columns", "$name: the columns are those of the catalog");
}

# The line "Default: ..." agrees with pg_settings.
for my $setting (map { $settings{$_} } sort keys %settings)
{
	my ($name, $type, $default, $min, $max, $unit, $values, $context) = @$setting;
	$unit = $unit eq '' ? '' : " $unit";
	my $line = 'Default: ' . ($default eq '' ? 'empty' : "`$default$unit`") . '.';
	$line .= " Range: $min to $max$unit." if $type eq 'integer';
	$line .= ' Values: ' . join(', ', map { "`$_`" } split / /, $values) . '.' if $type eq 'enum';
	$line .= ' Set by ' . ($context eq 'superuser' ? 'superusers' : 'any role') . '.';
	my ($shown) = ($section{$name} // '') =~ /^(Default: .*)$/m;
	is($shown, $line, "$name: default, range and required role are those of pg_settings");
	like($section{$name} // '', qr/^Takes effect /m, "$name: the manual says when a change takes effect");
}


# The SQLSTATEs: those of the source in the first table, those of PostgreSQL in the second one.
my %states_of = messages_of_source('src');
cmp_ok(scalar keys %states_of, '>', 45, 'the source has messages');
is($states_of{"lock \xe2\x80\xa6 was lost"}[0], '40001', 'the SQLSTATEs of the messages are found');

my ($sqlstates) = map { $_->{text} } grep { $_->{heading} eq 'SQLSTATEs' } sections_of('doc/troubleshooting.md');
my ($own) = split /^PostgreSQL's own/m, $sqlstates;
my %row = map { $_ => 1 } $own =~ /^\| ([0-9A-Z]{5}) \|/mg;
my %raised = map { $_ => 1 } map { @$_ } values %states_of;
is(sorted_lines(keys %row), sorted_lines(keys %raised), 'every SQLSTATE of the source has a row, and no other one');

# Only messages that PostgreSQL has too have no hint.
is(sorted_lines(errors_without_hint('src')),
	sorted_lines('canceling statement due to lock timeout', 'canceling statement due to statement timeout', 'out of memory'),
	'every other error has a hint');


# Links, with anchors as GitHub derives them from headings.
sub anchors
{
	my ($path) = @_;
	return {
		map { (lc $_->{heading} =~ s/[^\w \-]//gr) =~ tr/ /-/r => 1 } sections_of($path) };
}

# Names in the text without a directory: of C files, and of files of test/t.
my %file;
find(sub { $file{$_} = 1 }, qw(bench doc scripts sql src test));

for my $path (glob '*.md clients/*.md clients/*/*.md packaging/*.md doc/*.md doc/*/*.md bench/*.md test/*.md test/*/*.md')
{
	my ($dir) = $path =~ m{^(.*/)?};
	my @broken;
	for my $link (map { $_->{text} =~ /\]\(([^()\s]+)\)/g } sections_of($path))
	{
		next if $link =~ /^https?:/;
		my ($file, $anchor) = $link =~ /^([^#]*)#?(.*)$/;
		my $target = $file eq '' ? $path : ($dir // '') . $file;
		push @broken, $link
		  if !-e $target || ($anchor ne '' && !anchors($target)->{$anchor});
	}
	is(sorted_lines(@broken), '', "$path: all links are valid");
	my $text = read_file($path);
	is(sorted_lines(grep { !$file{$_} } $text =~ /`(\w{2,}\.[ch])`/g, map { "$_.pl" } $text =~ /\b(\d{3}_[a-z]\w+)/g), '',
		"$path: all files that it names exist");
}
