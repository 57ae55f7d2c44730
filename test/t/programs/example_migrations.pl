# doc/examples/migrations.py, which four replicas run at once: one migrates, all end well, and the
# others find nothing to do. If the replica that migrates is killed, or loses the lock, another
# one goes on. A session of a second server holds them up until all of them wait.
#
# Promises: 1.1, 3.3, 5.2

use ZkLock::Clients;
use ZkLock::Test;

plan skip_all => 'psycopg is not installed' unless has_psycopg();

use constant LOCK => 'shop:migrations';

my ($zk, $zkc) = shared_zk_and_client();
my ($one, $two) = map { shared_node($_, zk => $zk) } qw(one two);
my $other = session($two);
my $sessions = 'FROM pg_stat_activity WHERE application_name LIKE';

# Starts four replicas, which run when all of them wait.
sub start_replicas
{
	my ($case) = @_;
	$other->query_ok("SELECT zk_lock('${\LOCK}')");
	my @replicas = map {
		run_example('migrations.py', "$case$_", sprintf 'host=%s port=%d dbname=postgres application_name=%s', $one->host, $one->port, "$case$_")
	} 1 .. 4;
	wait_for_sql($one, "SELECT count(*) $sessions '$case%' AND query LIKE 'CALL%' AND wait_event_type IN ('Lock', 'Extension')", '4',
		diag => sub { join '', map { $_->log } @replicas });
	$other->query_ok("SELECT zk_unlock('${\LOCK}')");
	return @replicas;
}

sub all_end_well
{
	my ($case, @replicas) = @_;
	my @outputs = sort map { my $output = $_->wait; $? == 0 ? $output : "status $?: $output" } @replicas;
	is_deeply([ grep { /\Anothing to do\n\z/ } @outputs ], [ ("nothing to do\n") x (@replicas - 1) ],
		"$case: all replicas but one end well, and find nothing to do");
	is($one->safe_psql('postgres', q(SELECT string_agg(version::text, ' ' ORDER BY version) FROM schema_version)), '1 2 3',
		"$case: each migration is recorded once");
	is($one->safe_psql('postgres', q(SELECT indisvalid FROM pg_index WHERE indexrelid = 'customers_email'::regclass)), 't',
		"$case: the index is valid");
	nothing_left($zkc, "$case: no node is left");
	return (grep { !/\Anothing/ } @outputs)[0];
}

is(all_end_well('undisturbed', start_replicas('u')), "migration 1: done\nmigration 2: done\nmigration 3: done\n",
	'undisturbed: one of four replicas runs all migrations');

# Returns the replica that builds the index, which waits for an open transaction.
sub builder
{
	my ($case, @replicas) = @_;
	wait_for_sql($one, "SELECT count(*) $sessions '$case%' AND query LIKE 'CREATE INDEX%' AND wait_event_type = 'Lock'", '1',
		diag => sub { join '', map { $_->log } @replicas });
	my $name = $one->safe_psql('postgres', "SELECT application_name $sessions '$case%' AND query LIKE 'CREATE INDEX%'");
	return (grep { $_->{name} eq $name } @replicas)[0];
}

for my $case (qw(killed lost))
{
	$one->safe_psql('postgres', <<'SQL');
DELETE FROM schema_version WHERE version > 1;
TRUNCATE customers;
DROP INDEX customers_email;
ALTER TABLE customers DROP COLUMN since;
SQL
	my $writer = session($one);
	$writer->query_ok('BEGIN');
	$writer->query_ok(q(INSERT INTO customers VALUES (1, 'a@example.org')));
	my @replicas = start_replicas($case);
	my $builder = builder($case, @replicas);
	my @rest = grep { $_ != $builder } @replicas;
	if ($case eq 'killed')
	{
		$builder->signal('KILL')->wait;
		wait_for_sql($one, "SELECT count(*) $sessions '$builder->{name}'", '0');
	}
	else
	{
		lose_lock($zk, $zkc, LOCK, $one->safe_psql('postgres', "SELECT session_id FROM zk_locks_of('${\LOCK}') WHERE granted"));
	}
	$writer->query_ok('COMMIT');
	is(all_end_well($case, @rest), "migration 2: done\nmigration 3: done\n", "$case: another replica goes on");
	next if $case eq 'killed';
	like($builder->wait, qr/LockLost/, "$case: the replica that lost the lock reports that");
	isnt($?, 0, "$case: the replica that lost the lock fails");
}
