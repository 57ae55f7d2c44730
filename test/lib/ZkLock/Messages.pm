# ZkLock::Messages - every message in the C source, with its SQLSTATE.
#
# Owns: how messages are written in src/sql and src/backend. Reads the source as text,
# including code that the build on this machine leaves out.
#
#   my %states_of = messages_of_source('src');   # text => [ SQLSTATEs ]
#   my @texts = errors_without_hint('src');
#
# In the texts "…" stands for a value that the format fills in.

package ZkLock::Messages;

use strict;
use warnings;

use Exporter qw(import);
use ZkLock::Util qw(pg_config read_file);

our @EXPORT = qw(errors_without_hint messages_of_source);

my $DOTS = "\xe2\x80\xa6";

my $STRING = qr/"(?:[^"\\]|\\.)*"/s;

# From a parenthesis to the one that closes it.
my $PARENTHESES = qr/(?<nest>\((?:[^()"']++|$STRING|'(?:[^'\\]|\\.)'|(?&nest))*\))/s;

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
	}
	return map { $_ => states_of($found{$_}, $state_of) } keys %found;
}

# Returns the texts of the errors that have no HINT.
sub errors_without_hint
{
	my ($dir) = @_;
	my %texts;
	for my $source (map { source_of($_) } glob "$dir/*.c $dir/sql/*.c $dir/backend/*/*.c")
	{
		while ($source =~ /\bereport$PARENTHESES/g)
		{
			my $report = $+{nest};
			next if $report !~ /^\((?:ERROR|FATAL)\b/ || $report =~ /\berrhint/;
			$texts{ text_of($1) } = 1 while $report =~ /\berrmsg\(\s*($STRING)/g;
		}
	}
	return keys %texts;
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

sub states_of
{
	my ($codes, $state_of) = @_;
	return [ sort map { $state_of->{$_} // die "no SQLSTATE for $_" } keys %$codes ];
}

# Returns PostgreSQL's own table.
sub sqlstates
{
	my %state_of;
	for my $line (split /\n/, read_file(pg_config('includedir-server') . '/utils/errcodes.h'))
	{
		my ($name, $state) = $line =~ /^#define ERRCODE_(\w+) MAKE_SQLSTATE\((.*)\)/ or next;
		$state_of{$name} = $state =~ s/[^0-9A-Z]//gr;
	}
	return \%state_of;
}

1;
