# ZkLock::Ways - the ways in which a wait ends before it is granted.
#
# Owns: what happens in each way, its SQLSTATE, and its message.
#
#   for my $way (ways($node))                      # those of the node's version of PostgreSQL
#   for my $way (ways($node, 'a cancel', ...))     # some of them, by name
#   wait_ends($way, $s, "SELECT zk_lock('x')", 'a promise');    # one assertion
#
# A way has
#   name
#   setting    the setting that ends the wait when its time is over, or that the way depends on
#   event      what happens to the session; without one, only time passes
#   sqlstate   of the statement, or 'lost': the backend ends
#   message    a pattern

package ZkLock::Ways;

use strict;
use warnings;

use Carp qw(croak);
use Exporter qw(import);
use ZkLock::Check;
use ZkLock::Cluster;

our @EXPORT = qw(ways wait_ends);

my @ways = (
	{
		name => 'lock_timeout',
		setting => 'lock_timeout',
		sqlstate => '55P03',
		message => qr/canceling statement due to lock timeout/
	},
	{
		name => 'statement_timeout',
		setting => 'statement_timeout',
		sqlstate => '57014',
		message => qr/canceling statement due to statement timeout/
	},
	{
		name => 'transaction_timeout',
		setting => 'transaction_timeout',
		since => 17,
		sqlstate => 'lost',
		message => qr/terminating connection due to transaction timeout/
	},
	{
		name => 'a cancel',
		event => sub { kill 'INT', $_[0]->pid },
		sqlstate => '57014',
		message => qr/canceling statement due to user request/
	},
	{
		name => 'a termination',
		event => sub { kill 'TERM', $_[0]->pid },
		sqlstate => 'lost',
		message => qr/due to administrator command/
	},
	{
		name => 'the loss of the client',
		setting => 'client_connection_check_interval',
		event => sub { $_[0]->drop },
		sqlstate => 'lost'
	},
	{
		name => 'a shutdown',
		for_all => 1,
		event => sub { $_[0]->node->stop('fast', fail_ok => 1) },
		sqlstate => 'lost'
	},
	{
		name => 'the end of the postmaster',
		for_all => 1,
		event => sub { $_[0]->node->kill9 },
		sqlstate => 'lost'
	});

sub ways
{
	my ($node, @names) = @_;
	my %by_name = map { $_->{name} => $_ } @ways;
	return grep { ($_->{since} // 0) <= $node->pg_version }
	  map { $by_name{$_} // croak "no way \"$_\"" } @names ? @names : map { $_->{name} } @ways;
}

# One assertion: the statement waits, and ends in this way. The event comes when
# $opt{blocked}->() has seen that it waits.
sub wait_ends
{
	my ($way, $s, $sql, $what, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$s->query_async($way->{setting} ? "SET LOCAL $way->{setting} = '100ms'\\; $sql" : $sql);
	if ($way->{event})
	{
		$opt{blocked}->() if $opt{blocked};
		wait_blocked($s);
		$way->{event}->($s);
	}
	return failed_with($s, $way->{sqlstate}, "$what: $way->{name} ends the wait", hint => 0, like => $way->{message});
}

1;
