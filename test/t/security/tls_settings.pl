# The settings for TLS exist if and only if the ZooKeeper client library supports TLS:
# otherwise a connection could appear to be encrypted.

use DynaLoader ();
use ZkLock::Test;

my @settings = map { "zklock.tls_$_" } qw(ca_file cert_file key_file);

# The symbols of zklock.so and of the client library that it loads.
my $library = pg_config('pkglibdir') . '/zklock.so';
my ($client) = `ldd '$library'` =~ /libzookeeper_st\S* => (\S+)/;
my $has_tls = grep { DynaLoader::dl_find_symbol(DynaLoader::dl_load_file($_), 'zookeeper_init_ssl') }
  grep { defined } $client;
note('client library: ' . ($client // 'linked in') . ($has_tls ? ' with' : ' without') . ' TLS');

my $zk = shared_zk();
my $node = shared_node('a', zk => $zk);
my $s = session($node);
$s->query_ok('SELECT state FROM zk_session()');
is($s->query(q(SELECT count(*) FROM pg_settings WHERE name ~ '^zklock\.tls')), $has_tls ? @settings : 0,
	'the settings for TLS exist if the client library has TLS');
for my $setting (@settings)
{
	if ($has_tls)
	{
		works($s, "SHOW $setting", '', "$setting is empty by default");
		fails_with($s, "SET $setting = '/etc/a,b'", '22023', "$setting accepts no comma", hint => 0,
			like => qr/^DETAIL:.*comma/m);
		fails_with($s, "SET $setting = E'/etc/a\\nb'", '22023', "$setting accepts no control character", hint => 0);
		works($s->reconnect($setting => '/etc/zk/é ß.pem'), "SHOW $setting", '/etc/zk/é ß.pem',
			"$setting accepts other characters of paths");
	}
	else
	{
		$s->query("SET $setting = '/etc/zk/x.pem'");
		is($s->sqlstate, '42602', "without TLS $setting cannot be set");
	}
}
