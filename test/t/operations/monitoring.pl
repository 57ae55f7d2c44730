# The files of doc/monitoring work: sql_exporter runs the queries as a monitoring role,
# Prometheus evaluates the rules and the dashboard's expressions with data, and the
# ZooKeeper metrics of the rules exist.

use File::Copy qw(copy);
use HTTP::Tiny;
use IPC::Run ();
use JSON::PP ();
use ZkLock::Document;
use ZkLock::Test;

use constant DIR => 'doc/monitoring';

# Words in expressions that are not metrics.
my %WORDS = map { $_ => 1 } qw(up job zookeeper sum max increase absent or on by m h);

my $http = HTTP::Tiny->new(timeout => 30);
my $tmp = PostgreSQL::Test::Utils::tempdir();

sub fetch
{
	my ($url, $form) = @_;
	my $answer = $form ? $http->post_form($url, $form) : $http->get($url);
	return $answer->{success} ? $answer->{content} : undef;
}

sub promtool
{
	my ($dir, @arguments) = @_;
	my $out = '';
	my $ok = IPC::Run::run([ 'promtool', @arguments ], '>&', \$out, init => sub { chdir $dir });
	diag($out) unless $ok;
	return $ok;
}

# Returns the counters of a ZooKeeper server under the names of its Prometheus provider:
# x_sum and x_count for sum_x and cnt_x.
sub counters_of
{
	my ($zk) = @_;
	my %counters = ($zk->four_letter('mntr') // '') =~ /^zk_(\w+)\t(.*)$/mg;
	for (keys %counters)
	{
		$counters{"${2}_$1"} = $counters{$_} if /^(sum)_(.*)$/;
		$counters{"${1}_count"} = $counters{$_} if /^cnt_(.*)$/;
	}
	return \%counters;
}

ok(promtool(DIR, 'check', 'rules', "$_.rules.yml"), "$_.rules.yml is valid") for qw(zklock zookeeper);
copy($_, $tmp) or die "$_: $!" for 'test/monitoring/alerts.yml', DIR . '/zklock.rules.yml';
ok(promtool($tmp, 'test', 'rules', 'alerts.yml'), 'the alerts fire, also around a slow scrape');

my $ensemble = ZkLock::ZkEnsemble->start(size => 3, tick_time => 500);
{
	my %counted = map { %{ counters_of($_) } } $ensemble->members;
	my %used;
	for my $expr (read_file(DIR . '/zookeeper.rules.yml') =~ /expr: (.*)/g)
	{
		$used{$_} = 1 for grep { !$WORDS{$_} } $expr =~ /([a-z_]+)/g;
	}
	cmp_ok(scalar(keys %used), '>=', 10, 'the rules use metrics of the ensemble');
	is_deeply([ grep { !defined $counted{$_} } sort keys %used ],
		[], 'the servers have all metrics of the rules');
	is($counted{synced_followers}, 2, 'synced_followers has the value that a rule expects of three servers');
	my $zkc = ZkLock::ZkClient->new($ensemble->leader->connect_string, timeout => 2);
	$zkc->drop;
	ok(wait_until('an expired session',
			sub { counters_of($ensemble->leader)->{stale_sessions_expired} > 0 }),
		'the leader counts an expired session');
}

# The exporter, with the configuration of the document except for addresses and intervals.
my $node = zklock_node('a', zk => $ensemble->connect_string,
	extra_conf => "listen_addresses = '127.0.0.1'\n");
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE exporter LOGIN IN ROLE pg_monitor;
ALTER ROLE exporter SET zklock.ensemble_timeout = '2s';
CREATE ROLE locker ROLE exporter;
SQL
$node->safe_psql('postgres', block_of('doc/security.md', 'hardening'));
my $config = read_file(DIR . '/sql_exporter.yml');
my $url = 'postgres://exporter@127.0.0.1:' . $node->port . '/postgres?sslmode=disable';
$config =~ s{^ *- 'postgres://exporter\@db2.*\n}{}mg;
$config =~ s{postgres://exporter\@db1[^']*}{$url}g;
$config =~ s/interval: '\d+s'/interval: '1s'/g;
write_file("$tmp/sql_exporter.yml", $config);
my $port = free_port();
my $exporter = spawn([ 'prometheus-sql-exporter', '-config.file', "$tmp/sql_exporter.yml",
		'-web.listen-address', "127.0.0.1:$port" ],
	log => "$tmp/sql_exporter.log");

sub metrics
{
	my %metrics;
	for (split /\n/, fetch("http://127.0.0.1:$port/metrics") // '')
	{
		my ($name, $labels, $value) = /^(sql_zklock_\w+|sql_exporter_last_scrape_failed)\{(.*)\} (\S+)$/ or next;
		my ($which) = $labels =~ /(?:col|query)="(\w+)"/;
		$metrics{"$name/$which"} = $value;
	}
	return \%metrics;
}

sub metric_becomes
{
	my ($name, $value, $what) = @_;
	my $seen;
	ok(eval { wait_until($name, sub { $seen = metrics()->{$name}; ($seen // '') eq $value }) }, $what)
	  || diag("$name is " . ($seen // 'missing') . "\n" . log_tail("$tmp/sql_exporter.log"));
	return;
}

my $s = session($node);
$s->query_ok("SELECT zk_lock('seen'), zk_lock('monitoring:another server')");
metric_becomes('sql_zklock_queues/holders', 1, 'a held lock is counted, and the lock of a probe is not');
metric_becomes('sql_zklock_probe/acquired', 1, 'the probe acquires its lock');
{
	my (%configured, @missing, @failed);
	while ($config =~ /- name: (zklock_\w+)\n(?:(?! +- name:).*\n)*? +values: \[([^\]]*)\]/g)
	{
		my ($query, $values) = ($1, $2);
		$configured{"sql_$query/$_"} = 1 for split /[,\s]+/, $values;
	}
	cmp_ok(scalar(keys %configured), '>', 15, 'the configuration has metrics');
	# Each query runs at its own time.
	eval { wait_until('every metric', sub {
		my $metrics = metrics();
		@missing = grep { !defined $metrics->{$_} } sort keys %configured;
		@failed = grep { m{last_scrape_failed/} && $metrics->{$_} } sort keys %$metrics;
		!@missing && !@failed;
	}) };
	is_deeply(\@missing, [], 'the exporter has all configured metrics');
	is_deeply(\@failed, [], 'every query works for a monitoring role');
}

# Prometheus with the rules and the exporter.
my $web = free_port();
my $dir = Cwd::getcwd() . '/' . DIR;
write_file("$tmp/prometheus.yml", <<"YAML");
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ['$dir/*.rules.yml']
scrape_configs:
  - {job_name: sql_exporter, static_configs: [{targets: ['127.0.0.1:$port']}]}
YAML
my $prometheus = spawn([ 'prometheus', "--config.file=$tmp/prometheus.yml",
		"--storage.tsdb.path=$tmp/tsdb", "--web.listen-address=127.0.0.1:$web" ],
	log => "$tmp/prometheus.log");

sub api
{
	my ($path, $form) = @_;
	my $answer = fetch("http://127.0.0.1:$web/api/v1/$path", $form) or return;
	return JSON::PP::decode_json($answer)->{data};
}

my @panels = @{ JSON::PP::decode_json(read_file(DIR . '/grafana.json'))->{panels} };
cmp_ok(scalar @panels, '>=', 9, 'the dashboard has panels');
for my $panel (@panels)
{
	for my $expr (map { $_->{expr} } @{ $panel->{targets} })
	{
		# Without waits there is no average wait.
		my $what = $expr =~ m{/ ignoring} ? 'a result' : 'data';
		ok( eval {
				wait_until($expr,
					sub {
						my $data = api('query', { query => $expr }) or return;
						return $what ne 'data' || @{ $data->{result} };
					});
			},
			"$panel->{title}: $what");
	}
}

sub states_of_rules
{
	my %state;
	for my $rule (map { @{ $_->{rules} } } @{ (api('rules') // {})->{groups} // [] })
	{
		$state{ $rule->{name} } = $rule->{health} eq 'ok' ? $rule->{state} : $rule->{lastError};
	}
	return \%state;
}

ok(wait_until('the rules', sub { (states_of_rules()->{ZklockNoLocks} // '') eq 'inactive' }),
	'no alert fires in normal operation');
is_deeply([ grep { /^Zklock/ && states_of_rules()->{$_} !~ /^(?:inactive|pending|firing)$/ } keys %{ states_of_rules() } ],
	[], 'Prometheus evaluates the rules');

# The ensemble is down: the exporter shows old values, and the failed query is the only sign.
$_->stop for $ensemble->members;
metric_becomes('sql_exporter_last_scrape_failed/zklock_probe', 1, 'the probe fails in an outage');
is(metrics()->{'sql_zklock_queues/holders'}, 1, 'the exporter repeats the last values in an outage');
ok(wait_until('the alert', sub { states_of_rules()->{ZklockNoLocks} =~ /^(?:pending|firing)$/ }),
	'the alert fires on the failed probe');

end_process($_, 'TERM') for $prometheus, $exporter;
