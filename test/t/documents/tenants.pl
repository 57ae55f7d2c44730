# The manual's block for separate tenants, run as it is printed on two servers: the sessions of a
# tenant exclude each other on both servers and nobody else's, and only the tenant's application
# can lock.
#
# Promise: 1.1

use ZkLock::Document qw(block_of);
use ZkLock::Test;

my ($zk, $zkc) = shared_zk_and_client();
my %nodes = map { $_ => shared_node($_, zk => $zk) } qw(one two);
my $block = block_of('doc/security.md', 'tenants');
for my $node (values %nodes)
{
	for my $tenant (qw(shop blog))
	{
		$node->safe_psql('postgres', "CREATE ROLE ${tenant}_app LOGIN; CREATE ROLE ${tenant}_intern LOGIN; CREATE DATABASE $tenant");
		$node->safe_psql($tenant, $block =~ s/shop/$tenant/gr);
	}
}

my $lock = "SELECT zk.zk_try_xact_lock('orders')";
my %sessions;
for (['one', 'shop'], [ 'two', 'shop' ], [ 'two', 'blog' ])
{
	my ($server, $tenant) = @$_;
	$sessions{"$server $tenant"} = session($nodes{$server}, dbname => $tenant, user => "${tenant}_app");
}
my $holder = $sessions{'one shop'};
$holder->query_ok('BEGIN');
works($holder, $lock, 't', 'the application of a tenant locks');
works($sessions{'two shop'}, $lock, 'f', 'its session on another server is excluded');
works($sessions{'two blog'}, $lock, 't', 'another tenant has a lock of this name to itself');
like(join("\n", lock_nodes($zkc, '/zklock-shop')), qr{\A/zklock-shop/locks/orders/\S+\z}, 'the lock is below the root of the tenant');
fails_with(session($nodes{one}, dbname => 'shop', user => 'shop_intern'), $lock, '42501', 'another role of the tenant cannot lock', hint => 0);
fails_with($sessions{'two shop'}, "SELECT zk.zk_revoke('orders')", '42501', 'the application cannot revoke', hint => 0);
fails_with($sessions{'two blog'}, "SET zklock.root = '/zklock-shop'", '42501', 'a tenant cannot leave its root', hint => 0);
$holder->query_ok('COMMIT');
works($sessions{'two shop'}, $lock, 't', 'the lock is free after the commit');
$_->quit for values %sessions;
nothing_left($zkc, "nothing is left below $_", root => $_) for qw(/zklock-shop /zklock-blog);
