# ZkLock::Deadlock - what tests of deadlocks across servers share.
#
# Owns: running sessions into each other, and the judgement of what comes of it.
#
#   my $d = ZkLock::Deadlock->new(a => $node_a, b => $node_b);
#   my $s = $d->open('a');                  # a session in a transaction
#   $d->hold($s, "SELECT zk_lock('x')");    # must succeed
#   $d->wait_for($s, "SELECT zk_lock('y')");    # blocks; does not return
#   my $victim = $d->one_fails('a promise', qr/lock "y"/);
#   $d->all_succeed('a promise');             # the rest, in any order
#   wait_until_reported($zkc, qr/\.w\./, 2);          # until so many waits are published

package ZkLock::Deadlock;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use Time::HiRes qw(time);
use ZkLock::Cluster;
use ZkLock::Util qw(wait_until);

our @EXPORT_OK = qw(wait_reports wait_until_reported);

# The names of the published waits.
sub wait_reports { return $_[0]->children('/zklock/waits') }

# Waits until so many waits like this are published.
sub wait_until_reported
{
	my ($zkc, $pattern, $count) = @_;
	wait_until("$count told waits like $pattern",
		sub { $count == grep { /$pattern/ } wait_reports($zkc) },
		diag => sub { join "\n", wait_reports($zkc) });
	return;
}

sub new
{
	my ($class, %nodes) = @_;
	return bless { nodes => \%nodes, waiting => [], all => [] }, $class;
}

# A new session on one of the servers, in a transaction unless begin => 0. Its
# ZooKeeper session is open: waiting for that would look like waiting for a lock.
sub open
{
	my ($self, $name, %opt) = @_;
	my $s = session($self->{nodes}{$name});
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

# Sends a statement and returns when its backend waits, or has ended the wait: who
# gives way may be found before anybody has looked.
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

# Takes those whose statement has ended out of the waiting ones.
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

# One assertion: of those who wait one fails, with 40P01 and a DETAIL that matches
# all patterns. Its transaction has then ended, so others may have gone on already.
# Returns it.
sub one_fails
{
	my ($self, $name, @patterns) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @finished;

	# Who waits for its row goes on at once, and may be heard before it.
	wait_until('one to give way', sub {
		push @finished, $self->take_finished;
		return grep { !$_->ok } @finished;
	});
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

# One assertion: all who still wait get what they want, one after the other, each
# letting go then.
sub all_succeed
{
	my ($self, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @wrong;
	while (@{ $self->{waiting} })
	{
		my @who;
		wait_until('the next one to go on',
			sub { @who = $self->take_finished });
		push @wrong, map { $_->sqlstate . ': ' . $_->error }
		  grep { !$_->ok } @who;
		$self->release($_) for @who;
	}
	ok(!@wrong, $name) || diag(@wrong);
	$self->close;
	return;
}

# Ends all sessions, whatever they do.
sub close
{
	my ($self) = @_;
	$_->finished ? $_->quit : $_->drop for @{ $self->{all} };
	$self->{all} = [];
	$self->{waiting} = [];
	return;
}

# Both: one gives way, all others go on.
sub is_resolved
{
	my ($self, $name, @patterns) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $victim = $self->one_fails("$name: one gives way", @patterns);
	$self->all_succeed("$name: all others go on");
	return $victim;
}

1;
