# The files of the container image that has nothing else: packaging/Containerfile installs them with
# one command. Their library needs no library but the C library, and a PostgreSQL without zklock uses them
# where they are, from version 18 on.
#
# Tags: edges

use File::Path qw(make_path);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ZkLock::Installation;
use ZkLock::Test;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $image = "$dir/image";
my $library = "$image/lib/zklock.so";
my $pg_config = $ENV{PG_CONFIG} // 'pg_config';

make_image();
is_deeply([ files("$image/lib"), files("$image/share/extension") ],
	[ 'zklock.so', sort(glob('*.control'), map { s{.*/}{}r } glob 'sql/*.sql') ],
	'the image has the library, the control files and the scripts');
is_deeply([ grep { !/^(?:lib[cm]|ld-linux[-\w]*)\.so/ } output_of("readelf --dynamic $library") =~ /\(NEEDED\).*\[(.*)\]/g ],
	[], 'the library needs no library but the C library');
is_deeply([ output_of("nm --dynamic --defined-only $library") =~ / (zoo_\w+|zookeeper_\w+)$/mg ],
	[], 'the library shows no function of the client library');
use_image() if output_of("$pg_config --version") =~ /(\d+)/ && $1 >= 18;

# Runs the command in a copy of the tree, whose object files need not be compiled again, and moves
# the files where the image has them.
sub make_image
{
	my ($options) = read_file('packaging/Containerfile') =~ m{^RUN make -j "\$\(nproc\)" install DESTDIR=/files (.*)$}m;
	my ($sharedir, $pkglibdir) = map { output_of("$pg_config --$_") =~ s/\n//r } qw(sharedir pkglibdir);
	make_path("$dir/tree", "$image/share");
	system_or_bail("cp -a src sql test Makefile *.control $dir/tree && rm -f $dir/tree/zklock.so");
	system_or_bail("make -s -C $dir/tree PG_CONFIG=$pg_config install DESTDIR=$dir/files $options");
	system_or_bail('mv', "$dir/files$pkglibdir", "$image/lib");
	system_or_bail('mv', "$dir/files$sharedir/extension", "$image/share/extension");
	return;
}

# Starts a server in whose installation zklock is not.
sub use_image
{
	my $installation = ZkLock::Installation->new("$dir/server");
	$installation->remove_zklock;
	my $zk = ZkLock::ZkServer->start(tick_time => 500);
	my $node = PostgreSQL::Test::Cluster->new('image', install_path => $installation->path);
	$node->init;
	$node->append_conf('postgresql.conf', <<"CONF");
extension_control_path = '$image/share:\$system'
dynamic_library_path = '$image/lib:\$libdir'
shared_preload_libraries = 'zklock'
zklock.connect_string = '${\$zk->connect_string}'
CONF
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION zklock; CREATE EXTENSION zklock_advisory');
	my $s = session($node);
	works($s, "SELECT zk_lock('x') > 0", 't', 'a server with the paths of the image locks');
	works($s, 'SELECT zklock_advisory.pg_try_advisory_lock(1)', 't', 'the paths of the image have the names of PostgreSQL too');
	like(read_file('/proc/' . $s->pid . '/maps'), qr{ \Q$library\E$}m, 'the server has the library of the image');
	$s->quit;
	$node->stop;
	$zk->stop;
	return;
}

sub files
{
	my ($path) = @_;
	my @names = map { s{.*/}{}r } glob "$path/*";
	return sort @names;
}

sub output_of
{
	my ($command) = @_;
	my $output = qx($command);
	die "$command ended with $?\n" if $? != 0;
	return $output;
}
