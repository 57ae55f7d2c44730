# After a crash the server closes the sessions of its former processes without credentials: no
# ensemble gets a password of the settings that the server has now. Otherwise the ensemble of a
# database with settings of its own, and the ensemble that the server used before, would get it
# in plain text.
#
# Promise: 3.4

use PostgreSQL::Test::Utils;
use ZkLock::Test;

# Longer than any wait of this test.
use constant LONG => '290s';

# Each ensemble is reached through a proxy that records all requests.
my %ensemble;
for my $name (qw(server tenant new))
{
	my ($zk, $zkc) = ZkLock::ZkServer->start(tick_time => 500)
	  ->with_client(timeout => 120);
	$ensemble{$name} = { zk => $zk, client => $zkc, proxy => ZkLock::FaultProxy->start(target => $zk) };
}
my %password = map { $_ => credentials_file("$_:secret", $_) } keys %ensemble;
my $node = zklock_node('node', zk => $ensemble{server}{proxy}, session_timeout => LONG,
	extra_conf => "restart_after_crash = on\nzklock.auth_file = '$password{server}'\nzklock.acl = creator\n");
$node->safe_psql('postgres', <<"SQL");
CREATE DATABASE tenant;
ALTER DATABASE tenant SET zklock.connect_string = '@{[ $ensemble{tenant}{proxy}->connect_string ]}';
ALTER DATABASE tenant SET zklock.auth_file = '$password{tenant}';
SQL
$node->safe_psql('tenant', 'CREATE EXTENSION zklock');

# Returns how many requests with this name an ensemble has got.
sub count { my ($name, $op) = @_; return scalar grep { $_->{op} eq $op } $ensemble{$name}{proxy}->record }

# A session that holds lock "x" in this ensemble.
sub holder
{
	my ($name, $dbname) = @_;
	my $s = session($node, dbname => $dbname);
	$s->query_ok("SELECT zk_lock('x')");
	is(count($name, 'auth'), 1, "a session with a password gives it to the ensemble: $name");
	$ensemble{$name}{proxy}->clear_record;
	return $s;
}

sub closed_without_password
{
	my ($name, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_zk_empty($ensemble{$name}{client}, '/zklock/locks/x');
	nothing_left($ensemble{$name}{client}, "$what: the session is closed");
	cmp_ok(count($name, 'closeSession'), '>=', 1, "$what: by the server");
	is(count($name, 'auth'), 0, "$what: the ensemble gets no password");
	return;
}

# A backend crashes, and with it the others.
{
	my ($tenants, $servers) = (holder('tenant', 'tenant'), holder('server'));
	my $log = -s $node->logfile;
	$tenants->kill9;
	closed_without_password('tenant', 'a database with an ensemble of its own');
	closed_without_password('server', q(the server's ensemble));
	wait_for_log($node, qr/closed 2 ZooKeeper sessions/, $log);
	$_->drop for $tenants, $servers;
	wait_for_sql($node, 'SELECT 1', '1');
}

# The server moves to another ensemble and another password, and has crashed before that.
{
	my $s = holder('server');
	$node->stop('immediate');
	$node->append_conf('postgresql.conf', "zklock.auth_file = '$password{new}'\n"
		  . "zklock.connect_string = '" . $ensemble{new}{proxy}->connect_string . "'\n");
	$node->start;
	closed_without_password('server', 'the former ensemble of a server');
	is(count('new', 'connect'), 0, 'the new ensemble is not asked to close sessions of the former one');
	$s->drop;
}
