# ZkLock::Installation - a PostgreSQL installation whose extension scripts and
# library may be changed.
#
# Owns: a tree that looks like the installed server and shares its files, except for
# the extension directory, with copies of plpgsql, zklock and zklock_advisory, and zklock's
# library.
# PostgreSQL finds its files relative to its programs, so the tree can be anywhere.
#
#   my $installation = ZkLock::Installation->new($directory);
#   my $node = PostgreSQL::Test::Cluster->new('a',
#       install_path => $installation->path);
#   $installation->write('zklock--0.9--0.10.sql', $text);
#   $installation->replace_library;     # with another file of the same content
#   my $sql = $installation->make_installable('zklock--0.9.sql');
#
# With build => $directory it has the library and the scripts that were built there, and links to
# all other extensions.

package ZkLock::Installation;

use strict;
use warnings;

use File::Basename qw(basename dirname);
use File::Copy qw(cp);
use File::Path qw(make_path);
use ZkLock::Util qw(pg_config write_file);

# These programs find files relative to their own path, so they are copies; all others
# are links.
my @PROGRAMS = qw(postgres initdb pg_ctl pg_config);

sub new
{
	my ($class, $dir, %opt) = @_;
	my %installed = map { $_ => pg_config($_) } qw(bindir sharedir pkglibdir);
	my $self = bless {
		path => dirname("$dir$installed{bindir}"),
		scripts => "$dir$installed{sharedir}/extension",
		library => "$dir$installed{pkglibdir}/zklock.so",
	}, $class;

	make_path("$dir$installed{bindir}", $self->{scripts},
		"$dir$installed{pkglibdir}");
	link_all("$installed{bindir}", "$dir$installed{bindir}", @PROGRAMS);
	for my $program (@PROGRAMS)
	{
		cp("$installed{bindir}/$program", "$dir$installed{bindir}/$program")
		  or die "$program: $!\n";
		chmod 0755, "$dir$installed{bindir}/$program";
	}
	link_all($installed{sharedir}, "$dir$installed{sharedir}", 'extension');
	link_all($installed{pkglibdir}, "$dir$installed{pkglibdir}", 'zklock.so');
	my $headers = pg_config('includedir-server');
	make_path(dirname("$dir$headers"));
	symlink $headers, "$dir$headers" or die "$dir$headers: $!\n";
	my $library = $opt{build} // $installed{pkglibdir};
	cp("$library/zklock.so", $self->{library}) or die "$library: $!\n";
	my @zklock = $opt{build} ? ("$opt{build}/sql/zklock", "$opt{build}/zklock")
	  : "$installed{sharedir}/extension/zklock";
	for my $file (map { glob "$_*.{control,sql}" } "$installed{sharedir}/extension/plpgsql", @zklock)
	{
		# An earlier installation may have left scripts that the sources no longer have.
		next if !$opt{build} && $file =~ m{/(zklock[^/]*\.sql)$} && !-e "sql/$1";
		cp($file, $self->{scripts}) or die "$file: $!\n";
	}
	link_all("$installed{sharedir}/extension", $self->{scripts}, grep { /^(?:plpgsql|zklock)/ }
		map { basename($_) } glob "$installed{sharedir}/extension/*")
	  if $opt{build};
	return $self;
}

# The install_path of PostgreSQL::Test::Cluster.
sub path { return $_[0]{path} }

# Returns the names of an extension's scripts.
sub scripts
{
	my ($self, $extension) = @_;
	my @names = map { basename($_) } glob "$self->{scripts}/$extension--*.sql";
	return @names;
}

sub read
{
	my ($self, $name) = @_;
	open my $file, '<', "$self->{scripts}/$name" or die "$name: $!\n";
	local $/ = undef;
	return scalar <$file>;
}

sub write
{
	my ($self, $name, $text) = @_;
	return write_file("$self->{scripts}/$name", $text);
}

# CREATE EXTENSION fails if the library has no function of the name that a script gives. Lets an
# earlier script name another one instead, and returns SQL that puts the names back after CREATE
# EXTENSION: then the objects are those that the script made with the library of its version.
sub make_installable
{
	my ($self, $name) = @_;
	my %there = map { $_ => 1 } `nm -D --defined-only $self->{library}` =~ /^\S+ T (\w+)$/mg;
	my ($instead, $back, $script) = ('zklock_stat_reset', '', $self->read($name));
	while ($script =~ /^CREATE FUNCTION (\w+)\((?:(?!^CREATE).)*?AS 'MODULE_PATHNAME', '\K(\w+)(?=')/msg)
	{
		next if $there{$2};
		$back .= "UPDATE pg_proc SET prosrc = '$2' WHERE proname = '$1' AND prosrc = '$instead';\n";
		substr $script, $-[2], length $2, $instead;
	}
	$self->write($name, $script);
	return $back;
}

# Removes zklock's library, control files and scripts.
sub remove_zklock
{
	my ($self) = @_;
	for my $file ($self->{library}, glob "$self->{scripts}/zklock*")
	{
		unlink $file or die "$file: $!\n";
	}
	return;
}

# Replaces the library as "make install" and packages do: a new file gets the name of
# the old file.
sub replace_library { return $_[0]->take_library_of($_[0]) }

# Replaces the library with that of another installation, or with its own.
sub take_library_of
{
	my ($self, $other) = @_;
	my $new = "$self->{library}.new";
	cp($other->{library}, $new) or die "$new: $!\n";
	rename $new, $self->{library} or die "$self->{library}: $!\n";
	return;
}

# Takes the library, the control files and the scripts of another installation.
sub take_zklock_of
{
	my ($self, $other) = @_;
	$self->take_library_of($other);
	for my $file (glob "$other->{scripts}/zklock*")
	{
		cp($file, $self->{scripts}) or die "$file: $!\n";
	}
	return;
}

sub link_all
{
	my ($from, $to, @except) = @_;
	my %except = map { $_ => 1 } @except;
	for my $entry (grep { !$except{$_} } map { basename($_) } glob "$from/*")
	{
		symlink "$from/$entry", "$to/$entry" or die "$entry: $!\n";
	}
	return;
}

1;
