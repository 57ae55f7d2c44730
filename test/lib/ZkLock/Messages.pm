# ZkLock::Messages - every message in the C source, with its SQLSTATE.
#
# Owns: how messages are written in src/sql and src/backend. Reads the source as text,
# including code that the build on this machine leaves out.
#
#   my %states_of = messages_of_source('src');   # text => [ SQLSTATEs ]
#   my @reasons = reasons_in_source('src');      # texts that are filled in for "…"
#   my @operations = operations_in_source('src');    # texts behind "could not"
#
# In the texts "…" stands for a value that the format fills in.

package ZkLock::Messages;

use strict;
use warnings;

use Exporter qw(import);
use ZkLock::Util qw(read_file);

our @EXPORT = qw(messages_of_source operations_in_source reasons_in_source);

my $DOTS = "\xe2\x80\xa6";

my $STRING = qr/"(?:[^"\\]|\\.)*"/s;

# From a parenthesis to the one that closes it.
my $PARENTHESES = qr/(?<nest>\((?:[^()"']++|$STRING|'(?:[^'\\]|\\.)'|(?&nest))*\))/s;

# A message that replaces a message of PostgreSQL keeps its SQLSTATE.
my %REPLACES = (qr/^terminating connection / => '57P01');

sub messages_of_source
{
	my ($dir) = @_;
	my $state_of = sqlstates();
	my %found;
	for my $file (sort glob "$dir/*.c $dir/sql/*.c $dir/backend/*/*.c")
	{
		my $source = source_of($file);
		my @tables = tables_of($source);
		while ($source =~ /\bereport$PARENTHESES/g)
		{
			add_report(\%found, $+{nest}, \@tables);
		}
		while ($source =~ /->message\s*=\s*psprintf$PARENTHESES/g)
		{
			add_replacement(\%found, $_) for strings_in($+{nest});
		}
	}
	return map { $_ => states_of($_, $found{$_}, $state_of) } keys %found;
}

# Returns the string arguments of the functions that report errors.
sub reasons_in_source
{
	my ($dir) = @_;
	my %reasons;
	for my $file (glob "$dir/*.c $dir/sql/*.c $dir/backend/*/*.c")
	{
		my $source = source_of($file);
		$reasons{ text_of($1) } = 1 while $source =~ /\b\w+_error\((?:[^()";]+,\s*)?($STRING)\)/g;
	}
	my @reasons = sort keys %reasons;
	return @reasons;
}

# Returns the formats of all actions.
sub operations_in_source
{
	my ($dir) = @_;
	my %operations;
	for my $file (glob "$dir/sql/*.c $dir/backend/*/*.[ch]")
	{
		my $source = read_file($file);
		$operations{ text_of($1) } = 1 while $source =~ /\bZklockAction\b[^;{"]*\{\s*(?:\.format = )?($STRING)/g;
	}
	my @operations = sort keys %operations;
	return @operations;
}

# Returns the source without comments, with string macros expanded and adjacent strings
# joined.
sub source_of
{
	my ($file) = @_;
	my $source = read_file($file);
	$source =~ s{($STRING)|/\*.*?\*/}{$1 // ' '}ges;
	my %macro;
	$macro{$1} = $2 while $source =~ /^#define (\w+) ($STRING)$/mg;
	$source =~ s/^#define .*$//mg;
	$source =~ s/($STRING)|\b(\w+)\b/$1 \/\/ $macro{$2} \/\/ $2/ge;
	$source =~ s/\bINT64_FORMAT\b/"%d"/g;
	1 while $source =~ s/($STRING)\s+($STRING)/substr($1, 0, -1) . substr($2, 1)/ge;
	return $source;
}

# Returns the entries of tables that begin with a SQLSTATE and a text.
sub tables_of
{
	my ($source) = @_;
	my @entries;
	push @entries, [ $1, $2 ] while $source =~ /\{\s*ERRCODE_(\w+),\s*($STRING)/g;
	return @entries;
}

sub strings_in { return map { text_of($_) } $_[0] =~ /($STRING)/g }

sub text_of
{
	my ($literal) = @_;
	my $text = substr $literal, 1, -1;
	$text =~ s/\\(.)/$1/g;
	$text =~ s/%(?:l*[ds]|[ds])/$DOTS/g;
	return $text;
}

# Adds the texts of a report: one for each table entry if the text comes from a table.
sub add_report
{
	my ($found, $report, $tables) = @_;
	my ($code) = $report =~ /\berrcode$PARENTHESES/ ? $+{nest} : '';
	my @codes = $code =~ /\bERRCODE_(\w+)/g;
	my @texts;
	while ($report =~ /\berrmsg$PARENTHESES/g)
	{
		my $arguments = $+{nest};
		my ($format) = $arguments =~ /^\(\s*($STRING)/;
		push @texts, $format && text_of($format);
	}
	while ($report =~ /\berrmsg_plural\(\s*($STRING),\s*($STRING)/g)
	{
		push @texts, text_of($1), text_of($2);
	}
	if ($code eq '' || @codes)
	{
		for my $text (@texts)
		{
			$found->{$text}{$_} = 1 for @codes ? @codes : 'SUCCESSFUL_COMPLETION';
		}
		return;
	}
	for my $entry (@$tables)
	{
		my ($entry_code, $literal) = @$entry;
		for my $text (@texts)
		{
			my $whole = $text // $DOTS;
			my $words = text_of($literal);
			$whole =~ s/\Q$DOTS\E$/$words/;
			$found->{$whole}{$entry_code} = 1;
		}
	}
	return;
}

sub add_replacement
{
	my ($found, $text) = @_;
	$found->{$text} //= {};
	return;
}

sub states_of
{
	my ($text, $codes, $state_of) = @_;
	my @states = map { $state_of->{$_} // die "no SQLSTATE for $_" } keys %$codes;
	for my $pattern (keys %REPLACES)
	{
		push @states, $REPLACES{$pattern} if !@states && $text =~ $pattern;
	}
	return [ sort @states ];
}

# Returns PostgreSQL's own table.
sub sqlstates
{
	my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
	chomp(my $include = `$pg_config --includedir-server`);
	my %state_of;
	for my $line (split /\n/, read_file("$include/utils/errcodes.h"))
	{
		my ($name, $state) = $line =~ /^#define ERRCODE_(\w+) MAKE_SQLSTATE\((.*)\)/ or next;
		$state_of{$name} = $state =~ s/[^0-9A-Z]//gr;
	}
	return \%state_of;
}

1;
