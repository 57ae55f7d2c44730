# ZkLock::Tls - certificates for tests, and ZooKeeper servers that require them.
#
# Owns: a directory with certificate authorities and their certificates, created with
# openssl. The servers of a test trust the authority "ca" and no other.
#
#   my $tls = ZkLock::Tls->new(names => ['zk1']);  # names of the servers
#   my $zk = ZkLock::ZkServer->start(tls => $tls); # serves TLS on secure_port, too
#   $tls->path('client.crt');      # also client.key, ca.crt, server.pem
#   $tls->sign('stranger', by => 'rogue', names => [...]);
#   $tls->settings;                # of the sessions, with the certificate "client"
#
# require_tls() skips a file if the ZooKeeper client library that zklock is built with has no TLS.

package ZkLock::Tls;

use strict;
use warnings;

use Carp qw(croak);
use Exporter qw(import);
use File::Temp ();
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;
use ZkLock::Util qw(pg_config read_file write_file);

our @EXPORT = qw(require_tls);

sub require_tls
{
	plan skip_all => 'the ZooKeeper client library that zklock is built with has no TLS'
	  unless slurp_file(pg_config('pkglibdir') . '/zklock.so') =~ /\0zookeeper_init_ssl\0/;
	return;
}

sub new
{
	my ($class, %opt) = @_;
	my $tmp = File::Temp->newdir('tlsXXXXXX', TMPDIR => 1);
	my $self = bless { tmp => $tmp, dir => $tmp->dirname, owner => $$ }, $class;
	$self->authority($_) for qw(ca rogue);
	$self->sign('server', names => $opt{names} // []);
	$self->sign('client');
	return $self;
}

sub path { return "$_[0]{dir}/$_[1]" }

sub authority
{
	my ($self, $name) = @_;
	$self->openssl('req', '-x509', new_key($name), '-out', "$name.crt", '-subj',
		"/CN=$name", '-days', 2);
	return;
}

# Creates a certificate and a key without a passphrase, readable only by the owner, and
# name.pem with both, for ZooKeeper.
sub sign
{
	my ($self, $name, %opt) = @_;
	my $by = $opt{by} // 'ca';
	my @names = (map({ "DNS:$_" } @{ $opt{names} // [$name] }), 'IP:127.0.0.1');

	write_file($self->path('ext'), 'subjectAltName=' . join(',', @names) . "\n");
	$self->openssl('req', new_key($name), '-out', "$name.csr", '-subj', "/CN=$name");
	$self->openssl('x509', '-req', '-in', "$name.csr", '-out', "$name.crt", '-days', 2,
		'-CA', "$by.crt", '-CAkey', "$by.key", '-CAcreateserial', '-extfile', 'ext');
	write_file($self->path("$name.pem"), join '', map { read_file($self->path("$name.$_")) } qw(key crt));
	chmod 0600, map { $self->path("$name.$_") } qw(key pem);
	return;
}

sub new_key
{
	my ($name) = @_;
	return (qw(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout), "$name.key");
}

sub openssl
{
	my ($self, @arguments) = @_;
	my $log = $self->path('openssl.log');
	my $pid = fork() // croak "fork: $!";
	if ($pid == 0)
	{
		open(STDOUT, '>', $log) && open(STDERR, '>&', \*STDOUT) && chdir($self->{dir})
		  && exec 'openssl', @arguments;
		require POSIX;
		POSIX::_exit(127);
	}
	waitpid $pid, 0;
	croak "openssl @arguments:\n" . read_file($log) if $?;
	return;
}

sub settings
{
	my ($self) = @_;
	return {
		'zklock.tls_ca_file' => $self->path('ca.crt'),
		'zklock.tls_cert_file' => $self->path('client.crt'),
		'zklock.tls_key_file' => $self->path('client.key') };
}

# Returns the configuration of a ZooKeeper server for a port that requires certificates.
sub server_config
{
	my ($self, $port) = @_;
	return (
		secureClientPort => $port,
		secureClientPortAddress => '127.0.0.1',
		serverCnxnFactory => 'org.apache.zookeeper.server.NettyServerCnxnFactory',
		'ssl.keyStore.location' => $self->path('server.pem'),
		'ssl.keyStore.type' => 'PEM',
		'ssl.trustStore.location' => $self->path('ca.crt'),
		'ssl.trustStore.type' => 'PEM');
}

1;
