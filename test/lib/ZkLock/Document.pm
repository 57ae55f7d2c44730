# ZkLock::Document - the examples of a document, run as they are printed.
#
# Owns: which code blocks of a Markdown file are run, where, and how what they
# print is compared with what the document shows.
#
#   run_document('doc/cookbook.md', \%nodes, $dbname);
#   my $program = block_of('doc/interop.md', 'lock.py');
#
# A block of SQL is run in the session that its info string names, on the server
# it names (by default session "main" of server "one"):
#
#   ```sql                              run; must succeed, or show its error
#   ```sql session=B server=two         in another session
#   ```sql session=B server=two waits   sent; must come to wait
#   ```sql eventually                   run again and again until it prints what is shown
#   ```sql norun                        not run, nor what follows it compared
#   ```text                             what the block right before it printed
#   ```text session=B                   what the waiting statement printed in the end
#
# Other languages, and blocks without one, are for the eye. A block in an HTML comment is run
# and not shown, for what only prepares or tidies up.
#
#   my @sections = sections_of('doc/reference.md');
#   # each: level, heading, names (what the heading has as `code`), text below it
#
# What prints and is not shown need not be known, but has to succeed. Results are
# compared line by line as psql aligns them, without regard to the width of
# columns. "…" in the document stands for anything in a line.

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

# Runs the examples, and reports for each what it promises and whether that holds; also
# to $each, as soon as it is known.
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
		$self->ends($s, { line => 'end' }, "session $name is through") if $s->is_busy;
		$s->quit;
	}
	return @{ $self->{examples} };
}

sub run_block
{
	my ($self, $block, $shown) = @_;
	croak "$self->{path} line $block->{line}: the result of what?"
	  if $block->{language} eq 'text' && !$block->{session};
	my $s = $self->session_of($block);
	if ($block->{language} eq 'text')
	{
		$self->shows($s, $block, 'what the wait ends with');
		return;
	}
	croak "$self->{path} line $block->{line}: until what?" if $block->{eventually} && !$shown;
	$self->ends($s, $block, 'the wait before it is over') if $s->is_busy;
	if ($block->{eventually})
	{
		$self->comes_to_show($s, $block, $shown);
		return;
	}
	$s->query_async($block->{text});
	if ($block->{waits})
	{
		croak "$self->{path} line $block->{line}: shows what is yet waited for" if $shown;
		$self->waits($s, $block);
	}
	elsif ($shown)
	{
		$self->shows($s, $shown, 'prints what is shown');
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
	croak "$where: nothing was asked in session $name"
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

# Waits for a lock, or sleeps.
sub waits
{
	my ($self, $s, $block) = @_;
	wait_for_sql($s->node, "SELECT state = 'active' AND wait_event_type IN ('Lock', 'Extension', 'Timeout') "
		  . 'FROM pg_stat_activity WHERE pid = ' . $s->pid, 't');
	$self->note_example($block, 1, 'waits');
	return;
}

# Every statement of the block: psql goes on after an error.
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

# For what takes a moment to be seen: a reload, a request of another session.
sub comes_to_show
{
	my ($self, $s, $block, $shown) = @_;
	my $printed = '';
	my $good = eval {
		wait_until(
			'what is shown',
			sub {
				my ($out, $err) = $s->query($block->{text});
				$printed = "$out\n$err";
				return same_result($printed, $shown->{text});
			});
	};
	$self->note_example($shown, $good, 'comes to print what is shown',
		"printed:\n$printed\nshown:\n$shown->{text}");
	return;
}

# The text of the one block whose info string has this word.
sub block_of
{
	my ($path, $word) = @_;
	my @found = grep { $_->{$word} } read_blocks($path);
	croak "$path: not one block $word" if @found != 1;
	return $found[0]{text};
}

# All blocks, in order: language, text, line, and what the info string says. A block of a
# list item is indented; its text here is not.
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

# The headings with what stands below them, up to the next heading of any level.
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

# Without rulers, empty lines, the width of columns, and where psql read it.
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
