# ZkLock::Document - the examples of a document, run as they are printed.
#
# Owns: which code blocks of a Markdown file are run, in which session, and the
# comparison of their output with the document.
#
#   run_document('doc/guide.md', \%nodes, $dbname);
#   my $program = block_of('doc/interop.md', 'lock.py');
#
# The info string of a SQL block names the session and the server in which it runs (by
# default session "main" of server "one"):
#
#   ```sql                              run; must succeed, or show its error
#   ```sql session=B server=two         in another session
#   ```sql session=B server=two waits   sent; must wait
#   ```sql eventually                   repeated until it prints the text shown
#   ```sql norun                        not run, and the output below it not compared
#   ```text                             the output of the block directly before it
#   ```text session=B                   the output of the waiting statement, once it ends
#
# Blocks of other languages, and without a language, are not run. A block in an HTML
# comment is run but not shown: it prepares or cleans up.
#
#   my @sections = sections_of('doc/reference.md');
#   # each: level, heading, names (the `code` in the heading), text below it
#
# A block whose output is not shown must succeed. Results are compared line by line as
# psql aligns them, ignoring the width of columns. "…" in the document stands for any
# text in a line.

package ZkLock::Document;

use strict;
use warnings;

use Carp qw(croak);
use Exporter qw(import);
use Test::More;
use ZkLock::Cluster;
use ZkLock::Util qw(wait_until);

our @EXPORT = qw(run_document examples_of block_of same_result sections_of);

# One assertion for each example.
sub run_document
{
	my ($path, $nodes, $dbname) = @_;
	examples_of($path, $nodes, $dbname,
		sub { ok($_[0]{good}, $_[0]{name}) || diag($_[0]{diag}) });
	return;
}

# Runs the examples. Returns for each example a name and whether it holds, and passes
# each result to $each immediately.
sub examples_of
{
	my ($path, $nodes, $dbname, $each) = @_;
	my @blocks = grep { $_->{language} =~ /^(?:sql|text)$/ } read_blocks($path);
	my $self = bless { path => $path, nodes => $nodes, dbname => $dbname,
		sessions => {}, examples => [], each => $each // sub { } }, __PACKAGE__;
	while (my $block = shift @blocks)
	{
		my $follows = @blocks && $blocks[0]{language} eq 'text' && !$blocks[0]{session};
		my $shown = $follows ? shift @blocks : undef;
		$self->run_block($block, $shown) unless $block->{norun};
	}
	for my $name (sort keys %{ $self->{sessions} })
	{
		my $s = $self->{sessions}{$name};
		$self->ends($s, { line => 'end' }, "session $name ends") if $s->is_busy;
		$s->quit;
	}
	return @{ $self->{examples} };
}

sub run_block
{
	my ($self, $block, $shown) = @_;
	croak "$self->{path} line $block->{line}: no statement precedes this result"
	  if $block->{language} eq 'text' && !$block->{session};
	my $s = $self->session_of($block);
	if ($block->{language} eq 'text')
	{
		$self->shows($s, $block, 'the wait ends with the output shown');
		return;
	}
	croak "$self->{path} line $block->{line}: eventually, but no output shown" if $block->{eventually} && !$shown;
	$self->ends($s, $block, 'the previous wait ends') if $s->is_busy;
	if ($block->{eventually})
	{
		$self->comes_to_show($s, $block, $shown);
		return;
	}
	$s->query_async($block->{text});
	if ($block->{waits})
	{
		croak "$self->{path} line $block->{line}: output of a statement that waits" if $shown;
		$self->waits($s, $block);
	}
	elsif ($shown)
	{
		$self->shows($s, $shown, 'prints the output shown');
	}
	else
	{
		$self->ends($s, $block, 'succeeds');
	}
	return;
}

sub session_of
{
	my ($self, $block) = @_;
	my $name = $block->{session} // 'main';
	my $where = "$self->{path} line $block->{line}";
	my $server = $block->{server} // $self->{servers}{$name} // 'one';
	croak "$where: session $name is on server $self->{servers}{$name}"
	  if $server ne ($self->{servers}{$name} // $server);
	croak "$where: there is no server $server" unless $self->{nodes}{$server};
	croak "$where: no statement was run in session $name"
	  if $block->{language} eq 'text' && !$self->{servers}{$name};
	$self->{servers}{$name} = $server;
	return $self->{sessions}{$name} //= do
	{
		my $s = session($self->{nodes}{$server}, dbname => $self->{dbname},
			application_name => $name);
		$s->query("\\pset format aligned\n\\pset tuples_only off\n\\pset footer off");
		$s;
	};
}

sub note_example
{
	my ($self, $block, $good, $what, $diag) = @_;
	my %example = (good => $good, name => "$self->{path} line $block->{line}: $what", diag => $diag);
	push @{ $self->{examples} }, \%example;
	$self->{each}->(\%example);
	return;
}

# Waits until the statement waits for a lock, or sleeps. The wait event type Extension
# also stands for a wait for the connection.
sub waits
{
	my ($self, $s, $block) = @_;
	my $good = $s->node->poll_query_until($self->{dbname}, "SELECT state = 'active' "
		  . "AND (wait_event_type IN ('Lock', 'Timeout') OR EXISTS (SELECT FROM zk_blocking(pid))) "
		  . 'FROM pg_stat_activity WHERE pid = ' . $s->pid);
	$self->note_example($block, $good, 'waits');
	return;
}

# Checks every statement of the block: psql continues after an error.
sub ends
{
	my ($self, $s, $block, $what) = @_;
	$s->wait_result;
	$self->note_example($block, $s->ok && $s->error !~ /^\S*\s*(?:ERROR|FATAL):/m, $what,
		$s->error);
	return;
}

sub shows
{
	my ($self, $s, $block, $what) = @_;
	my ($out, $err) = $s->wait_result;
	$self->note_example($block, same_result("$out\n$err", $block->{text}), $what,
		"printed:\n$out\n$err\nshown:\n$block->{text}");
	return;
}

# For effects that are visible with a delay: a reload, a request of another session.
sub comes_to_show
{
	my ($self, $s, $block, $shown) = @_;
	my $printed = '';
	my $good = eval {
		wait_until(
			'the output shown',
			sub {
				my ($out, $err) = $s->query($block->{text});
				$printed = "$out\n$err";
				return same_result($printed, $shown->{text});
			});
	};
	$self->note_example($shown, $good, 'eventually prints the output shown',
		"printed:\n$printed\nshown:\n$shown->{text}");
	return;
}

# Returns the text of the one block whose info string has this word.
sub block_of
{
	my ($path, $word) = @_;
	my @found = grep { $_->{$word} } read_blocks($path);
	croak "$path: not one block $word" if @found != 1;
	return $found[0]{text};
}

# Returns all blocks, in order: language, text, line, and the words of the info string.
# The indentation of a block in a list item is removed.
sub read_blocks
{
	my ($path) = @_;
	open my $fh, '<:raw', $path or die "$path: $!";
	my (@blocks, $open, $indent);
	while (my $line = <$fh>)
	{
		if ($open && $line =~ /^\s*```\s*$/)
		{
			push @blocks, $open;
			undef $open;
		}
		elsif ($open)
		{
			$open->{text} .= $line =~ s/^$indent//r;
		}
		elsif ($line =~ /^(\s*)```(\S*)\s*(.*?)\s*$/)
		{
			my %info = map { /^(\w+)=(.*)$/ ? ($1 => $2) : ($_ => 1) } split ' ', $3;
			$indent = $1;
			$open = { %info, language => $2, text => '', line => $. };
		}
	}
	die "$path: a code block is not closed" if $open;
	return @blocks;
}

# Returns the headings with the text below them, up to the next heading of any level.
sub sections_of
{
	my ($path) = @_;
	open my $fh, '<:raw', $path or die "$path: $!";
	my @sections = ({ level => 0, heading => '', names => [], text => '' });
	my $in_block;
	while (my $line = <$fh>)
	{
		$in_block = !$in_block if $line =~ /^\s*```/;
		my ($marks, $heading) = $in_block ? () : $line =~ /^(#+) (.*?)\s*$/;
		if ($marks)
		{
			push @sections, { level => length $marks, heading => $heading, text => '',
				names => [ $heading =~ /`([^`]+)`/g ] };
			next;
		}
		$sections[-1]{text} .= $line;
	}
	shift @sections;
	return @sections;
}

# Returns the lines without rulers, empty lines, column widths, and psql's line numbers.
sub lines_of
{
	my ($text) = @_;
	my @lines;
	for my $line (split /\n/, $text)
	{
		$line =~ s/^psql:\S+ //;
		$line =~ s/\s+/ /g;
		$line =~ s/^ | $//g;
		push @lines, $line unless $line =~ /^(?:-[-+]*)?$/;
	}
	return @lines;
}

sub same_result
{
	my ($printed, $shown) = @_;
	my @printed = lines_of($printed);
	my @shown = lines_of($shown);
	return 0 unless @printed == @shown;
	for my $i (0 .. $#shown)
	{
		my $pattern = join '.*', map { quotemeta } split /\xe2\x80\xa6/, $shown[$i], -1;
		return 0 unless $printed[$i] =~ /^$pattern$/;
	}
	return 1;
}

1;
