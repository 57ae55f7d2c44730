# What doc/operations.md says of numbers, limits and counters is so: what servers
# grant and refuse, what a backend needs, and that what its queries and alert rules
# ask for exists.

use strict;
use warnings;

use File::Temp;
use JSON::PP ();
use Test::More;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::Document;
use ZkLock::Util qw(wait_until);
use ZkLock::ZkClient;
use ZkLock::ZkEnsemble;
use ZkLock::ZkServer;

use constant DOCUMENT => 'doc/operations.md';
use constant CONNECTIONS => 6;

# The words of an expression that are not its metrics.
my %WORDS = map { $_ => 1 } qw(up job zookeeper sum max increase absent or on by m h);

sub from_yaml
{
	my ($label) = @_;
	my $file = File::Temp->new;
	print $file block_of(DOCUMENT, $label);
	close $file;
	my $python = $ENV{ZKLOCK_PYTHON} // '/usr/bin/python3';
	my $code = 'import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)';
	open my $pipe, '-|', $python, '-c', $code, $file->filename or die "$python: $!";
	my $json = do { local $/; <$pipe> };
	close $pipe or die "$label: not YAML";
	return JSON::PP::decode_json($json);
}

# Metric => names of the alerts that ask for it.
sub metrics_of
{
	my ($label) = @_;
	my %asked;
	for my $rule (map { @{ $_->{rules} } } @{ from_yaml($label)->{groups} })
	{
		push @{ $asked{$_} }, $rule->{alert}
		  for grep { !$WORDS{$_} } $rule->{expr} =~ /([a-z_]+)/g;
	}
	return %asked;
}

sub mntr
{
	my ($zk) = @_;
	return { ($zk->four_letter('mntr') // '') =~ /^zk_(\w+)\t(.*)$/mg };
}

# The servers' counters are what the rules ask for.
{
	my $ensemble = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
	my %told = map { %{ mntr($_) } } $ensemble->members;
	my %asked = metrics_of('zookeeper-rules');
	cmp_ok(scalar(keys %asked), '>=', 10, 'there are rules about the ensemble');
	is_deeply([ grep { !defined $told{$_} } sort keys %asked ],
		[], 'the servers tell all that they ask for');
	is($told{synced_followers}, 2, 'and what a rule expects of three servers');
	my $zkc = ZkLock::ZkClient->new($ensemble->leader->connect_string, timeout => 2);
	$zkc->drop;
	ok(wait_until('an expired session',
			sub { mntr($ensemble->leader)->{stale_sessions_expired} > 0 }),
		'a session that expires is counted by the leader');
	$ensemble->stop;
}

# Defaults: two to twenty ticks, and a limit to the connections of one address.
my $zk = ZkLock::ZkServer->start(
	tick_time => 2000,
	config => { maxClientCnxns => CONNECTIONS });
my $node = zklock_node('a', zk => $zk, session_timeout => '10s', preload => 1);

for ([ '1s', '00:00:04' ], [ '10s', '00:00:10' ], [ '2min', '00:00:40' ])
{
	my ($asked, $granted) = @$_;
	my $s = session($node);
	$s->query_ok("SET zklock.session_timeout = '$asked'; SELECT zk_lock('asked')");
	works($s, 'SELECT session_timeout FROM zk_session()', $granted,
		"who asks for $asked is granted $granted with a tick of 2 s");
	$s->quit;
}

# Every look at the server is a connection, too.
{
	my @in = map { session($node) } 1 .. CONNECTIONS;
	my $rejected = mntr($zk)->{connection_rejected};
	$_->query_ok("SELECT zk_lock('own-' || pg_backend_pid())") for @in;
	my $out = session($node);
	$out->query_ok("SET zklock.connect_timeout = '300ms'");
	fails_with($out, "SELECT zk_lock('one more')", '08001',
		'one connection more than maxClientCnxns is told that there is none');
	works($in[0], "SELECT count(*) FROM zk_locks WHERE name LIKE 'own-%'", CONNECTIONS,
		'while the others go on');
	$in[-1]->quit;
	ok(wait_until('a place', sub { $out->query("SELECT zk_try_lock('one more')") eq 't' }),
		'it gets in when another one leaves');
	$in[-2]->quit;
	ok(wait_until('the counter', sub { (mntr($zk)->{connection_rejected} // 0) > $rejected }),
		'the server counts whom it turned away');
	$_->quit for @in, $out;
}

# What a backend needs, and the size of a lock.
{
	my $s = session($node);
	my $tasks = sub { return scalar(() = glob '/proc/' . $s->pid . '/task/*') };
	my $entries = 'SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() '
	  . "AND locktype IN ('advisory', 'userlock')";
	is($tasks->(), 1, 'a backend without locks has one thread');
	$s->query_ok('SELECT zk_lock(1)');
	is($tasks->(), 1 + 3, 'with a session three more');
	works($s, $entries, 2, 'and one entry in the lock table, and one for the lock');
	$s->query_ok("SELECT zk_acquire('permits', 2)");
	works($s, $entries, 2, 'a permit has none');
	my $before = mntr($zk)->{approximate_data_size};
	$s->query_ok('SELECT count(zk_lock(n)) FROM generate_series(2, 101) AS n');
	works($s, $entries, 102, 'each lock has one');
	cmp_ok(mntr($zk)->{approximate_data_size} - $before,
		'<', 100 * 1000, 'a lock is less than 1 kB in the ensemble');
	$s->quit;
}

# Watches: of a held lock, which is watched after a second, and of a long wait.
{
	my $zkc = ZkLock::ZkClient->new($zk->connect_string);
	my $s = session($node);
	my $holder = foreign_node($zkc, '/zklock/locks/theirs', 'WRIT');
	$s->query_ok("SELECT zk_lock('mine')");
	ok(wait_until('a watch', sub { mntr($zk)->{watch_count} > 0 }), 'a held lock is watched');
	$s->query_async("SELECT zk_lock('theirs')");
	wait_until('the tale of a long wait', sub { scalar $zkc->children('/zklock/waits') });
	my %told = %{ mntr($zk) };
	cmp_ok($told{watch_count}, '<=', 2 * $told{ephemerals_count},
		'there are no more than two watches for each ephemeral znode');
	$zkc->delete($holder);
	$s->wait_result;
	$s->quit;
	$zkc->close;
}

# The queries for postgres_exporter, and the rules that use what they tell.
{
	my $queries = from_yaml('postgres-queries');
	my %told;
	my $s = session($node);
	$s->query_ok("SELECT zk_lock('seen'); CREATE ROLE exporter LOGIN IN ROLE pg_monitor");
	my $exporter = session($node, user => 'exporter');
	$exporter->query('\x on');
	$exporter->query_ok('SELECT count(*) FROM zk_locks');
	for my $name (sort keys %$queries)
	{
		my ($query, $metrics) = @{ $queries->{$name} }{qw(query metrics)};
		my %row = map { split /\|/, $_, 2 } split /\n/, $exporter->query($query);
		my @metrics = map { keys %$_ } @$metrics;
		ok($exporter->ok, "$name: the query works for a role that may monitor")
		  || diag($exporter->error);
		is_deeply([ sort keys %row ], [ sort @metrics ], "$name: its columns are the metrics");
		is(join(' ', grep { ($row{$_} // '') !~ /^\d+(?:\.\d+)?$/ } @metrics),
			'', "$name: all are numbers");
		$told{"${name}_$_"} = $row{$_} for keys %row;
	}
	is($told{zklock_queues_holders}, 1, 'a lock that is held is counted');
	cmp_ok($told{zklock_stat_acquisitions}, '>=', 100, 'as are those of all backends before');
	is($told{zklock_session_connected}, 1, 'and the ensemble is there');
	my %asked = metrics_of('postgres-rules');
	cmp_ok(scalar(keys %asked), '>=', 5, 'there are rules about them');
	is_deeply([ grep { !defined $told{$_} } sort keys %asked ],
		[], 'the queries tell all that they ask for');
	$_->quit for $s, $exporter;
}

# Other credentials need another root.
{
	my $dir = PostgreSQL::Test::Utils::tempdir();
	for my $user (qw(old new))
	{
		open my $fh, '>', "$dir/$user" or die "$dir/$user: $!";
		print $fh "digest $user:secret\n";
		close $fh;
		chmod 0600, "$dir/$user" or die "$dir/$user: $!";
	}
	my ($old, $new) = map { session($node) } 1, 2;
	$_->query_ok("SET zklock.acl = creator; SET zklock.root = '/first'") for $old, $new;
	$old->query_ok("SET zklock.auth_file = '$dir/old'");
	$new->query_ok("SET zklock.auth_file = '$dir/new'");
	works($old, "SELECT zk_try_lock('a'), zk_unlock('a')", 't|t', 'credentials make their root');
	fails_with($new, "SELECT zk_lock('b')", '42501', 'others are refused there');
	$new->query_ok("SET zklock.root = '/second'");
	works($new, "SELECT zk_try_lock('b'), zk_unlock('b')", 't|t', 'but can have one of their own');
	$_->quit for $old, $new;
}

my $zkc = ZkLock::ZkClient->new($zk->connect_string);
nothing_left($zkc, 'nothing is left', root => $_) for qw(/zklock /first /second);
$zkc->close;
$node->stop;
$zk->stop;
done_testing();
