# The examples of the documents give the output that the documents show.

use File::Temp;
use ZkLock::Document;
use ZkLock::Test;

my $dots = "\xe2\x80\xa6";
my $shown = " name | pid\n------+-----\n a    | $dots\n";
ok(same_result(" name |  pid\n------+------\n a    | 1234\n", $shown), 'column widths and text behind "…" are ignored');
ok(!same_result(" name | pid\n b | 1234\n", $shown), 'another value is a difference');
ok(!same_result(" name | pid\n a | 1\n a | 2\n", $shown), 'an additional row is a difference');
ok(!same_result(" name | pid\n", $shown), 'a missing row is a difference');

my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)->with_client;
my %nodes = map { $_ => zklock_node($_, zk => $zk, session_timeout => '10s', extension => 0) } qw(one two);

# Errors of a document are detected, each at its example.
my $file = File::Temp->new;
print $file <<'END';
```sql
SELECT 1 AS one;
```

```text
 one
-----
   2
```

```sql session=B
SELECT 1 / 0;
SELECT 1;
```

```sql session=B
SELECT 1 / 0;
```

```text
ERROR:  division by zero
```

```sql norun
SELECT nothing;
```

```text
 this is not compared
```

```sql session=A
SELECT zk_lock('d') > 0 AS locked;
```

```sql session=B server=one waits
SELECT zk_try_lock('d', '1 minute') AS locked;
```

```sql eventually
SELECT nextval('looks') > 2 AS often;
```

```text
 often
-------
 t
```

```sql session=A
SELECT zk_unlock('d');
```

```text session=B
 locked
--------
 f
```
END
close $file;
$nodes{one}->safe_psql('postgres', 'CREATE EXTENSION zklock; CREATE SEQUENCE looks');
is_deeply([ map { $_->{good} ? 1 : 0 } examples_of($file->filename, \%nodes, 'postgres') ],
	[ 0, 0, 1, 1, 1, 1, 1, 0 ], 'the wrong examples of a document are detected');
for my $wrong ("```text\n a\n```\n", "```text session=B\n a\n```\n", "```sql server=three\nSELECT 1\n```\n",
	"```sql\nSELECT 1\n", "```sql eventually\nSELECT 1;\n```\n")
{
	my $bad = File::Temp->new;
	print $bad $wrong;
	close $bad;
	ok(!eval { examples_of($bad->filename, \%nodes, 'postgres'); 1 }, 'an invalid block is an error')
	  or diag($wrong);
}

for my $document (
	qw(
	README.md
	doc/tutorial.md
	doc/interop.md
	doc/guide.md
	doc/compare.md
	doc/migration.md
	doc/zklock_advisory.md
	doc/monitoring.md
	doc/operations.md
	doc/reference.md
	doc/settings.md
	doc/troubleshooting.md
	doc/security.md
	), glob 'doc/recipes/*.md')
{
	my $dbname = lc($document =~ s{.*/|\.md$}{}gr);
	$dbname = "recipe_$dbname" if $document =~ m{/recipes/};
	for my $node (values %nodes)
	{
		$node->safe_psql('postgres', "CREATE DATABASE $dbname");
		$node->safe_psql($dbname, 'CREATE EXTENSION zklock');
	}
	run_document($document, \%nodes, $dbname);
	nothing_left($zkc, "$document: no node is left");
}
