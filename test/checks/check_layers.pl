#!/usr/bin/perl
# scripts/check-layers finds each violation in a small tree of its own, and reports none in the
# tree without violations.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use FindBin;
use Test::More;

my $check = abs_path("$FindBin::Bin/../../scripts/check-layers");
my %good = (
	'src/compat.h' => "#if PG_VERSION_NUM < 170000\n#endif\n",
	'src/zklock.c' => qq(#include "recipe/recipe.h"\n#include "backend/base/names.h"\n),
	'src/sql/functions.c' => calling('sql', 'backend_base'),
	'src/backend/base/names.h' => qq(#include "recipe/recipe.h"\n#include "compat.h"\n),
	'src/backend/base/holds.c' => calling('backend_base', 'recipe_lock'),
	'src/recipe/recipe.h' => '',
	'src/recipe/engine.h' => '',
	'src/recipe/deadlock/detector.h' => qq(#include "recipe/recipe.h"\n#include "recipe/queue/node_names.h"\n),
	'src/recipe/deadlock/detector.c' => calling('zkl_detector', 'zkl_batch'),
	'src/recipe/queue/node_names.h' => '',
	'src/recipe/queue/queue.h' => '',
	'src/recipe/session/batch.c' => calling('zkl_batch'),
	'src/recipe/lock/lock.h' => qq(#include "internal.h"\n#include "recipe/zookeeper/client.h"\n),
	'src/recipe/lock/internal.h' => qq(#include "../recipe.h"\n#include <string.h>\n),
	'src/recipe/lock/lock.c' => calling('recipe_lock', 'recipe_zookeeper'),
	'src/recipe/zookeeper/client.h' => '',
	'src/recipe/zookeeper/zk_library.h' => "#include <zookeeper/zookeeper.h>\n",
	'src/recipe/zookeeper/zk_client.c' => calling('recipe_zookeeper'));

is(complaints(), '', 'a tree without violations has no complaint');

# Includes.
complains('src/recipe/zookeeper/client.h', '#include "recipe/lock/lock.h"', qr/client\.h includes \S+lock\.h, which is above/);
complains('src/recipe/lock/lock.h', '#include "backend/base/names.h"', qr/lock\.h includes \S+names\.h, which is above/);
complains('src/recipe/lock/lock.h', '#include "../../backend/base/names.h"',
	qr{lock\.h includes src/backend/base/names\.h, which is above});
complains('src/recipe/lock/lock.h', '#include "compat.h"', qr/lock\.h includes \S+compat\.h, which is above/);
complains('src/recipe/lock/lock.h', '#include "recipe/zookeeper/zk_library.h"', qr/zk_library\.h, which is private to/);
complains('src/recipe/lock/lock.h', '#include <zookeeper/zookeeper.h>', qr/lock\.h includes \S+ of the client library/);
complains('src/recipe/lock/lock.h', '#  include "miscadmin.h"', qr/lock\.h includes miscadmin\.h of PostgreSQL/);
complains('src/recipe/lock/lock.h', '#include <utils/memutils.h>', qr/lock\.h includes \S+ of PostgreSQL/);
complains('src/backend/base/names.h', '#include "recipe/lock/lock.h"', qr/names\.h includes \S+lock\.h, but/);
complains('src/zklock.c', '#include "recipe/lock/lock.h"', qr/zklock\.c includes \S+lock\.h, but/);
complains('src/backend/base/names.h', '#if PG_VERSION_NUM < 170000', qr/names\.h knows PG_VERSION_NUM/);

# Calls.
complains('src/recipe/lock/lock.c', 'void recipe_lock_too(void) { backend_base(); }', qr/lock\.c uses backend_base of .*above/);
complains('src/recipe/zookeeper/zk_client.c', 'extern int recipe_lock_variable; int *p = &recipe_lock_variable;',
	qr/zk_client\.c uses recipe_lock_variable of .*above/);

complains('src/recipe/lock/lock.c', 'void zkl__on_anything(void) { backend_base(); }', qr/lock\.c uses backend_base of .*above/);
complains('src/recipe/zookeeper/zk_client.c', 'void client(void) { recipe_lock(); }', qr/zk_client\.c uses recipe_lock of .*above/);
like(complaints('src/recipe/engine.c' => calling('zkl__on_event'), 'src/recipe/lock/lock.c' => calling('recipe_lock', 'zkl__on_event')),
	qr/lock\.c uses zkl__on_event of .*above/, 'no name exempts a call from below');

# The deadlock folder uses what is public of the layer.
complains('src/recipe/deadlock/detector.h', '#include "recipe/engine.h"', qr/detector\.h includes \S+engine\.h, which src\S+ may not/);
complains('src/recipe/deadlock/detector.h', '#include "recipe/queue/queue.h"', qr/detector\.h includes \S+queue\.h, which src\S+ may not/);
like(complaints('src/recipe/engine.c' => calling('zkl__enter'), 'src/recipe/deadlock/detector.c' => calling('zkl_detector', 'zkl__enter')),
	qr/^\S+detector\.c uses zkl__enter of \S+, which is private to the layers below$/, 'no function of the layers below is called');

# Circles of calls.
my %two = ('src/recipe/lock/request.c' => calling('recipe_request', 'recipe_lock'),
	'src/recipe/lock/lock.c' => calling('recipe_lock', 'recipe_request'));
my %three = (%two, 'src/recipe/lock/request.c' => calling('recipe_request', 'recipe_grant'),
	'src/recipe/lock/grant.c' => calling('recipe_grant', 'recipe_lock'));
like(complaints(%two), qr{^these files call each other in a circle: src/recipe/lock/lock\.c src/recipe/lock/request\.c$},
	'two files that call each other are reported');
like(complaints(%three), qr{in a circle: \S+grant\.c \S+lock\.c \S+request\.c$}, 'a circle of three files is reported');

# Lists of files.
my %list = ('src/recipe/lock/lock.h' => "/*\n *\t\trequest.c\tone request\n *\t\tlock.c\t\tone lock\n */\n");
my %calls = (%list, 'src/recipe/lock/request.c' => calling('recipe_request', 'recipe_lock'));
is(complaints(%calls), '', 'a file may call one that is below it in the list of the header');
like(complaints(%list, 'src/recipe/lock/request.c' => calling('recipe_request'), 'src/recipe/lock/lock.c' => calling('recipe_lock', 'recipe_request')),
	qr{^src/recipe/lock/lock\.h lists \S+lock\.c below \S+request\.c, which it calls$}, 'a file that calls one above it in the list is reported');
like(complaints(%list), qr{^src/recipe/lock/lock\.h lists \S+request\.c, which does not exist$}, 'a file in the list that does not exist is reported');

# Names.
my %same = map { ($_ => $good{$_} . "static void\nsame(void)\n{\n}\n") } qw(src/recipe/lock/lock.c src/recipe/zookeeper/zk_client.c);
like(complaints(%same), qr/^same is the name of functions in \S+lock\.c and \S+zk_client\.c$/, 'two functions with one name are reported');

# Lengths.
complains('src/recipe/lock/lock.h', "\n" x 600, qr/lock\.h has [67]\d\d lines/);
complains('src/recipe/lock/lock.c', function_of(61), qr/lock\.c:\d+: a function of more than 60 lines/);
unlike(complaints('src/recipe/lock/lock.c' => $good{'src/recipe/lock/lock.c'} . function_of(60)), qr/a function of/,
	'a function may have 60 lines');
like(complaints(map { ("src/recipe/lock/f$_.c" => '') } 1 .. 12), qr{src/recipe/lock has 13 files}, 'a folder with 13 files is reported');
done_testing();

# A file with a function and a variable named after its layer, which calls another one.
sub calling
{
	my ($name, $called) = @_;
	return "int ${name}_variable = 1;\nvoid $name(void)\n{\n" . ($called ? "$called();\n" : '') . "}\n";
}

sub function_of
{
	my ($lines) = @_;
	return "void\nlong_one(void)\n{\n" . "\n" x ($lines - 2) . "}\n";
}

sub complains
{
	my ($file, $addition, $expected) = @_;
	my ($first) = $addition =~ /\A(.*)/;
	like(complaints($file => "$good{$file}$addition\n"), $expected, "$file: " . ($first || 'empty lines'));
	return;
}

# Returns the output of the check for the good tree with these files.
sub complaints
{
	my %files = (%good, @_);
	my $dir = tempdir(CLEANUP => 1);
	foreach my $name (sort keys %files)
	{
		make_path(dirname("$dir/$name"));
		open my $out, '>', "$dir/$name" or die "$name: $!\n";
		print $out $files{$name};
		close $out or die "$name: $!\n";
		compile("$dir/$name", $files{$name}) if $name =~ /\.c$/;
	}
	my $output = qx(cd '$dir' && '$check' 2>&1);
	die "the check ended with $?: $output" if $? != ($output eq '' ? 0 : 256);
	return $output;
}

# Compiles a file without its includes, whose headers need not exist.
sub compile
{
	my ($file, $text) = @_;
	open my $cc, '|-', qw(cc -w -std=gnu11 -Wno-implicit-function-declaration -x c -c - -o), $file =~ s/c$/o/r
	  or die "cc: $!\n";
	print $cc $text =~ s/^#.*//mgr;
	close $cc or die "$file does not compile\n";
	return;
}
