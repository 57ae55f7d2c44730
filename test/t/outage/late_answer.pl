# The answer to a create comes late. Before it comes, another client removes the node, and
# another session gets the lock. No connection is lost.
#
# Promises: 1.1, 5.4

use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my $proxy = ZkLock::FaultProxy->start(target => $zk);
# Neither the connection (2T/3) nor the call (ensemble_timeout) ends before the answer comes.
my ($here, $there) = map { shared_node($_->[0], zk => $_->[1], set => { 'zklock.ensemble_timeout' => '2min' }) }
  [ here => $proxy ], [ there => $zk ];
my ($s, $t) = (session($here), session($there));
$s->query_ok("SELECT zk_lock('first'), zk_unlock('first')");
# No container, which the server would remove before the create that is held.
$zkc->create('/zklock/locks/late');

$proxy->arm(fault => 'hold_answer', op => 'create2', path => '/late/');
$s->query_ok('BEGIN');
$s->query_async("SELECT zk_xact_lock('late')");
wait_zk_children($zkc, '/zklock/locks/late', 1);
select undef, undef, undef, 10.2;    # T/6, after which an answer is late, is 10 s
$zkc->delete((queue_of($zkc, 'late'))[0]);
$t->query_ok('BEGIN');
my $later = $t->query_ok("SELECT zk_xact_lock('late')");
ok($later > 0, "the second session has the lock: $later");
$proxy->release;
wait_zk_children($zkc, '/zklock/locks/late', 2);
ok(!$s->finished, 'the first session queues again, behind the second one');
$t->query_ok('COMMIT');
cmp_ok($s->wait_result, '>', $later, 'the token of the session that queues again is greater');
$s->query_ok('COMMIT');
$proxy->disarm;
$zkc->delete('/zklock/locks/late');
