# The libraries of clients/ when the network between program and server drops all packets: a
# check of the lock fails, and a leader steps down and stops. A client whose driver is not
# installed is skipped.

use ZkLock::Clients;
use ZkLock::PrivateNetwork;
use ZkLock::Test;

my $servers = ZkLock::Clients->start;
my $port = $servers->{one}->port;

sub check_cut_check
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "watch:$client->{name}");
	my $run = $servers->run($client, 'one', 'watch', $lock);
	$run->wait_log(qr/holds/);
	drop_packets($port);
	is($run->wait, "holds $lock\nfailed: LockLost\n", "$name: a check reports that the server is cut off");
	pass_packets();
	return;
}

sub check_cut_leader
{
	my ($client) = @_;
	my ($name, $lock) = ($client->{name}, "lead:$client->{name}");
	my $run = $servers->run($client, 'one', 'lead', $lock, 'leader', 0.01);
	$servers->wait_work_of('leader', $run);
	drop_packets($port);
	$run->wait_log(qr/not the leader/);
	pass("$name: a leader that is cut off steps down");
	is($run->signal('TERM')->wait =~ /^stopped$/m, 1, "$name: a leader that is cut off stops at SIGTERM");
	pass_packets();
	$servers->work_done;

	$run = $servers->run($client, 'one', 'lead', $lock, 'leader', 0.01);
	$servers->wait_work_of('leader', $run);
	drop_packets($port);
	is($run->signal('TERM')->wait =~ /^stopped$/m, 1, "$name: a leader that is cut off stops at SIGTERM");
	pass_packets();
	$servers->work_done;
	return;
}

for my $client ($servers->clients(5))
{
	check_cut_check($client);
	# psycopg 3 runs the same code. JDBC leaves it to the operating system when another statement
	# gives the connection up.
	check_cut_leader($client) if $client->{name} eq 'psycopg2';
	nothing_left($servers->{zkc}, "$client->{name}: no node is left");
}
