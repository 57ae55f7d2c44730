# The YAML of the manual, of the containers and of the workflow is valid, and has no field that its
# program lacks: those of CloudNativePG and Kubernetes as their schemas name them, for the
# kinds that we use. Nothing here runs them. Each command of the workflow is a script of this tree.

use JSON::PP;
use ZkLock::Test;

my $python = $ENV{ZKLOCK_PYTHON} // '/usr/bin/python3';

# The fields of what we use; {} is any value, '*' any name, a list the fields of each entry.
my %meta = (apiVersion => {}, kind => {}, metadata => { name => {} });
my %selector = (matchLabels => { '*' => {} });
my %probe = (exec => { command => {} });
my %container = (
	name => {}, image => {}, command => {},
	env => [ { name => {}, value => {} } ],
	ports => [ { containerPort => {} } ],
	readinessProbe => \%probe,
	resources => { requests => { memory => {} }, limits => { memory => {} } },
	volumeMounts => [ { name => {}, mountPath => {}, subPath => {} } ]);
my %claim = (metadata => { name => {} }, spec => { accessModes => {}, resources => { requests => { storage => {} } } });
my %affinity = (podAntiAffinity => { requiredDuringSchedulingIgnoredDuringExecution => [ { topologyKey => {}, labelSelector => \%selector } ] });
my %fields = (
	'postgresql.cnpg.io/v1 Cluster' => {
		%meta,
		spec => {
			instances => {}, imageName => {}, storage => { size => {} },
			postgresql => {
				extensions => [ { name => {}, image => { reference => {} } } ],
				shared_preload_libraries => {}, parameters => { '*' => {} } } } },
	'postgresql.cnpg.io/v1 Database' =>
	  { %meta, spec => { name => {}, owner => {}, cluster => { name => {} }, extensions => [ { name => {}, ensure => {} } ] } },
	'v1 Service' => {
		%meta,
		spec => { clusterIP => {}, publishNotReadyAddresses => {}, selector => { '*' => {} }, ports => [ { name => {}, port => {} } ] } },
	'policy/v1 PodDisruptionBudget' => { %meta, spec => { maxUnavailable => {}, selector => \%selector } },
	'apps/v1 StatefulSet' => {
		%meta,
		spec => {
			serviceName => {}, replicas => {}, podManagementPolicy => {}, selector => \%selector,
			template => { metadata => { labels => { '*' => {} } }, spec => { affinity => \%affinity, containers => [ \%container ] } },
			volumeClaimTemplates => [ \%claim ] } });

sub documents_of
{
	my ($path) = @_;
	open my $json, '-|', $python, '-c', 'import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout, default=str)', $path
	  or die "$python: $!";
	local $/ = undef;
	my $documents = eval { decode_json(<$json>) };
	close $json;
	ok($documents, "$path: valid YAML") || diag($@);
	return @{ $documents // [] };
}

# Returns the paths of the fields that are not known.
sub unknown
{
	my ($value, $known, $path) = @_;
	return map { unknown($_, $known->[0], $path) } @$value if ref $known eq 'ARRAY' && ref $value eq 'ARRAY';
	return () if !ref $value || !%$known;
	return $path if ref $value ne 'HASH';
	return map {
		my $below = $known->{$_} // $known->{'*'};
		$below ? unknown($value->{$_}, $below, "$path.$_") : "$path.$_"
	} sort keys %$value;
}

is_deeply([ unknown({ a => [ { b => 1, c => 1 } ], d => 1 }, { a => [ { b => {} } ], e => {} }, '') ], [ '.a.c', '.d' ],
	'unknown fields are found');

for my $path (glob 'doc/examples/*.yaml')
{
	for my $document (documents_of($path))
	{
		my $kind = "$document->{apiVersion} $document->{kind}";
		ok($fields{$kind}, "$path: $kind is a kind that is checked") || next;
		is_deeply([ unknown($document, $fields{$kind}, '') ], [], "$path: $kind has known fields only");
	}
}

my ($ensemble) = grep { $_->{kind} eq 'StatefulSet' } documents_of('doc/examples/zklock-ensemble.yaml');
my ($cluster) = grep { $_->{kind} eq 'Cluster' } documents_of('doc/examples/zklock-cluster.yaml');
is($cluster->{spec}{postgresql}{parameters}{'zklock.connect_string'},
	join(',', map { "$ensemble->{metadata}{name}-$_.$ensemble->{spec}{serviceName}:2181" } 0 .. $ensemble->{spec}{replicas} - 1),
	'the connect string of the cluster names the servers of the ensemble');

my ($compose) = documents_of('compose.yaml');
is_deeply([ sort keys %{ $compose->{services} } ], [qw(one two zk)], 'compose.yaml has the services of the README');

for my $path (glob '.github/workflows/*.yml')
{
	my ($workflow) = documents_of($path);
	my @runs = grep { defined } map { $_->{run} } map { @{ $_->{steps} } } values %{ $workflow->{jobs} };
	my @commands = grep { m{^(?:sh )?scripts/} } @runs;
	cmp_ok(scalar @commands, '>', 2, "$path: has commands");
	my ($script) = read_file('scripts/test') =~ /^part_command\(\) \{\n(.*?)^\}/ms;
	for my $command (@commands)
	{
		my ($name, @parts) = split ' ', $command;
		ok(-x $name, "$path: $name is a script");
		is(join(' ', grep { $script !~ /[\t |]\Q$_\E(?: \||\))/ } @parts), '', "$path: $command has known parts");
	}
}
