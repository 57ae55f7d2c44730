# ZkLock::Deadlock - sessions that wait for each other, for tests of deadlocks across
# servers.
#
# Owns: the sessions of a deadlock, and the assertions about its victim and the others.
#
#   my $d = ZkLock::Deadlock->new(a => $node_a, b => $node_b);
#   my $d = ZkLock::Deadlock->start([qw(a b)], zk => $zk, extra_conf => ...);   # as zklock_node();
#                                           # each server has a table t
#   my $s = $d->open('a');                  # a session in a transaction
#   $d->hold($s, "SELECT zk_lock('x')");    # must succeed
#   $d->hold($s, lock_row(1));              # a row of t
#   $d->wait_for($s, "SELECT zk_lock('y')");    # the statement waits
#   my $victim = $d->one_fails('a promise', qr/lock "y"/);
#   $d->all_succeed('a promise', $zkc);     # all other waiters, in any order; with a
#                                           # ZkClient no wait report may be left
#   wait_until_reported($zkc, 2);         # until two wait reports exist

package ZkLock::Deadlock;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use Time::HiRes qw(time);
use ZkLock::Cluster;
use ZkLock::Util qw(wait_until);

our @EXPORT_OK = qw(lock_row wait_reports wait_until_reported);

sub lock_row { return "UPDATE t SET v = v + 1 WHERE id = $_[0]" }

# Returns the names of the published wait reports: the ids of their sessions. The nodes of
# local waiters, which are no reports, have an @.
sub wait_reports { return grep { !/\@/ } $_[0]->children('/zklock/waiting') }

# Waits until exactly $count wait reports exist.
sub wait_until_reported
{
	my ($zkc, $count) = @_;
	wait_until("$count wait reports", sub { $count == wait_reports($zkc) },
		diag => sub { join "\n", 'sessions that have one (a wait for a session of the same server has none):', wait_reports($zkc) });
	return;
}

sub new
{
	my ($class, %nodes) = @_;
	return bless { nodes => \%nodes, waiting => [], all => [] }, $class;
}

sub start
{
	my ($class, $names, %opt) = @_;
	my %nodes = map { $_ => zklock_node($_, %opt) } @$names;
	$_->safe_psql('postgres', 'CREATE TABLE t AS SELECT g AS id, 0 AS v FROM generate_series(1, 9) g') for values %nodes;
	return $class->new(%nodes);
}

sub nodes { return values %{ $_[0]{nodes} } }

# Opens a session on one of the servers, in a transaction unless begin => 0, with these
# settings of zklock (set => { name => value }). Its ZooKeeper session is open already: a wait
# for the connection would look like a wait for a lock.
sub open
{
	my ($self, $name, %opt) = @_;
	my $s = $opt{set} ? session_with($self->{nodes}{$name}, %{ $opt{set} }) : session($self->{nodes}{$name});
	$s->query_ok("SELECT zk_lock_shared('warm'), zk_unlock_shared('warm')");
	$s->query_ok('BEGIN') if $opt{begin} // 1;
	push @{ $self->{all} }, $s;
	return $s;
}

sub hold
{
	my ($self, $s, $sql) = @_;
	$s->query_ok($sql);
	return $s;
}

# Sends a statement. Returns when its backend waits or the statement has ended: the
# victim may be chosen before this function looks.
sub wait_for
{
	my ($self, $s, $sql) = @_;
	$s->query_async($sql);
	wait_until('its backend to wait', sub { $s->finished || is_blocked($s) },
		pause => 0.05);
	push @{ $self->{waiting} }, $s;
	$self->{last} = time();
	return $s;
}

# Removes the sessions whose statement has ended from the waiters, and returns them.
sub take_finished
{
	my ($self) = @_;
	my @finished = grep { $_->finished } @{ $self->{waiting} };
	my %is = map { $_ => 1 } @finished;
	$self->{waiting} = [ grep { !$is{$_} } @{ $self->{waiting} } ];
	$_->wait_result for @finished;
	return @finished;
}

sub release
{
	my ($self, $s) = @_;
	$s->query('ROLLBACK');
	$s->query_ok('SELECT zk_unlock_all()');
	return;
}

# One assertion: exactly one waiter fails, with 40P01 and a DETAIL that matches all
# patterns. Its transaction ends, so other waiters may have succeeded already.
# Returns the victim.
sub one_fails
{
	my ($self, $name, @patterns) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @finished;

	# A waiter for a row of the victim continues at once, and may be seen first.
	wait_until('one waiter to fail', sub {
		push @finished, $self->take_finished;
		return grep { !$_->ok } @finished;
	}) or return;
	my $took = time() - $self->{last};
	my ($victim, @more) = grep { !$_->ok } @finished;
	my @wrong;
	push @wrong, map { 'another failed: ' . $_->error } @more;
	push @wrong, 'SQLSTATE ' . $victim->sqlstate
	  if $victim->sqlstate ne '40P01';
	push @wrong, map { "no match for $_" }
	  grep { $victim->error !~ $_ } qr/^HINT:  \S/m, @patterns;
	ok(!@wrong, $name)
	  || diag(join "\n", @wrong, map { $_->error } @finished);
	note(sprintf "%.2f s after the last edge\n%s", $took, $victim->error);
	$self->release($_) for @finished;
	return $victim;
}

# One assertion: all remaining waiters succeed, one after the other; each then
# releases its locks. With a ZkClient, waits until all wait reports are gone, because the
# end of the sessions would remove them.
sub all_succeed
{
	my ($self, $name, $zkc) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @wrong;
	while (@{ $self->{waiting} })
	{
		my @finished;
		wait_until('the next waiter to succeed',
			sub { @finished = $self->take_finished })
		  or last;
		push @wrong, map { $_->sqlstate . ': ' . $_->error }
		  grep { !$_->ok } @finished;
		$self->release($_) for @finished;
	}
	ok(!@wrong, $name) || diag(@wrong);
	wait_until_reported($zkc, 0) if $zkc;
	$self->close;
	return;
}

# One assertion: no waiter has ended when another deadlock, which began after all their waits, is found.
sub nobody_fails
{
	my ($self, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @waiting = @{ $self->{waiting} };
	my $other = ref($self)->new(%{ $self->{nodes} });
	my @pair = map { $other->open($_) } (sort keys %{ $self->{nodes} })[ 0, 1 ];
	$other->hold($pair[$_], "SELECT zk_xact_lock('nobody $_')") for 0, 1;
	$other->wait_for($pair[$_], 'SELECT zk_xact_lock(\'nobody ' . (1 - $_) . "')") for 0, 1;
	wait_until('the other deadlock to be found', sub { grep { $_->finished } @pair });
	my @ended = grep { $_->finished } @waiting;
	ok(!@ended, $name) || diag(map { 'the statement of process ' . $_->pid . " has ended:\n$_->{err}" } @ended);
	$other->close;
	return;
}

# Ends all sessions, including those with a running statement.
sub close
{
	my ($self) = @_;
	$_->finished ? $_->quit : $_->drop for @{ $self->{all} };
	$self->{all} = [];
	$self->{waiting} = [];
	return;
}

# Two assertions: one waiter fails, all others succeed. Returns the victim.
sub is_resolved
{
	my ($self, $name, @patterns) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $victim = $self->one_fails("$name: one fails", @patterns);
	$self->all_succeed("$name: all others succeed");
	return $victim;
}

1;
