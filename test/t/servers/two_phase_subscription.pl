# A subscription with two_phase = on prepares the transactions that it applies. If a trigger of a
# table of the subscriber has acquired a lock, that fails, and the subscription stops. The HINT
# names what helps, and both ways help.
#
# Promise: 3.6

use PostgreSQL::Test::Utils;
use ZkLock::Test;

my $zk = ZkLock::ZkServer->start(tick_time => 500);
my ($publisher, $subscriber) = map {
	zklock_node($_, zk => $zk, init => [ allows_streaming => 'logical' ],
		extra_conf => "wal_retrieve_retry_interval = 200ms\n")
} qw(publisher subscriber);
$_->safe_psql('postgres', 'CREATE TABLE orders (id int PRIMARY KEY)') for $publisher, $subscriber;
$publisher->safe_psql('postgres', 'CREATE PUBLICATION orders FOR TABLE orders');
$subscriber->safe_psql('postgres', <<'SQL');
CREATE FUNCTION lock_order() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM public.zk_xact_lock('order'); RETURN NEW; END $$;
CREATE TRIGGER lock_order BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION lock_order();
ALTER TABLE orders ENABLE ALWAYS TRIGGER lock_order;
SQL

sub subscribe
{
	my ($two_phase) = @_;
	$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION orders CONNECTION \$\$" . $publisher->connstr('postgres')
		  . "\$\$ PUBLICATION orders WITH (two_phase = $two_phase, copy_data = off)");
	wait_for_sql($subscriber, 'SELECT subtwophasestate FROM pg_subscription', $two_phase eq 'on' ? 'e' : 'd');
	return;
}

sub prepare
{
	my ($id) = @_;
	$publisher->safe_psql('postgres', "BEGIN; INSERT INTO orders VALUES ($id); PREPARE TRANSACTION 'order $id'");
	return;
}

subscribe('on');
my $log = -s $subscriber->logfile;
prepare(1);
wait_for_log($subscriber, qr/ERROR:  cannot PREPARE a transaction that has acquired lock "order"/, $log);
like(slurp_file($subscriber->logfile), qr/HINT:  Create the subscription with two_phase = off, or acquire no locks in triggers/,
	'the apply worker names what helps');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'), '0', 'the transaction is not prepared');

# No lock in the trigger.
$subscriber->safe_psql('postgres', 'ALTER TABLE orders DISABLE TRIGGER lock_order');
wait_for_sql($subscriber, 'SELECT count(*) FROM pg_prepared_xacts', '1');
$publisher->safe_psql('postgres', "COMMIT PREPARED 'order 1'");
wait_for_sql($subscriber, 'SELECT count(*) FROM orders', '1');
pass('without the lock in the trigger, the subscription goes on');

# Without two_phase.
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION orders');
$subscriber->safe_psql('postgres', 'ALTER TABLE orders ENABLE ALWAYS TRIGGER lock_order');
subscribe('off');
my $acquired = $subscriber->safe_psql('postgres', 'SELECT acquisitions FROM zk_stat');
prepare(2);
$publisher->safe_psql('postgres', "COMMIT PREPARED 'order 2'");
wait_for_sql($subscriber, 'SELECT count(*) FROM orders', '2');
cmp_ok($subscriber->safe_psql('postgres', 'SELECT acquisitions FROM zk_stat'), '>', $acquired,
	'with two_phase = off the trigger acquires the lock, and the transaction is applied');

# Other sessions have a way that an apply worker has not.
my $s = session($subscriber);
fails_with($s, "BEGIN; SELECT zk_xact_lock('x'); PREPARE TRANSACTION 'x'", '0A000', 'other sessions get their own HINT',
	like => qr/HINT:  Acquire it at session level/);
$s->quit;
