# ZkLock::NoHang - ends backends that are in any state of communication with an
# ensemble that has stopped answering.
#
# Owns: the moments, and the time limit.
# The caller makes the ensemble stop answering.
#
#   no_hang('a silent server', $node, $zkc, sub { $zk->pause }, sub { $zk->resume });
#
# The session timeout must be longer than any wait here: a session that times out would
# end a wait as well.

package ZkLock::NoHang;

use strict;
use warnings;
no warnings 'redundant';    # not every statement names its lock

use Exporter qw(import);
use Test::More;
use Time::HiRes qw(time);
use ZkLock::Cluster;
use ZkLock::Util;
use ZkLock::Ways;

our @EXPORT = qw(no_hang stale_commit SESSION_TIMEOUT);

# The client library drops a silent connection after two thirds of this time.
use constant SESSION_TIMEOUT => '45s';

# In seconds. A statement ends within one second, and closing a session takes at most
# two; the rest is for a busy machine. The timeouts of the client library are longer.
use constant LIMIT => 20;

# Each moment has a statement to prepare while the ensemble answers, and a statement to
# run. If the moment is early, the statement runs before the ensemble stops answering;
# if it is idle, no statement runs.
my %moments = (
	connecting => { run => "SELECT zk_lock('%s')" },
	locking => {
		prepare => "SELECT zk_try_lock('warm-%s')",
		run => "SELECT zk_lock('%s')"
	},
	'locking several' => {
		prepare => "SELECT zk_try_lock('warm-%s')",
		run => "SELECT zk_xact_lock_many(ARRAY['%s', '%1\$s-2'])"
	},
	upgrading => {
		prepare => "SELECT zk_lock_shared('%s')",
		run => "SELECT zk_lock('%s')"
	},
	waiting => {
		prepare => "SELECT zk_try_lock('warm-%s')",
		run => "SELECT zk_lock('%s')",
		early => 1
	},
	'commit check' => {
		prepare =>
		  "SET zklock.commit_check = always; BEGIN; SELECT zk_xact_lock('%s')",
		run => 'COMMIT'
	},
	'holding, idle' => { prepare => "SELECT zk_lock('%s')", idle => 1 },
	'holding in a transaction, idle' =>
	  { prepare => "BEGIN; SELECT zk_xact_lock('%s')", idle => 1 });

# Tests each way to end with backends at all moments at once. Moments at which a backend
# does not depend on the ensemble can be left out.
sub no_hang
{
	my ($what, $node, $zkc, $break, $heal, @left_out) = @_;
	my %tested = %moments;
	delete @tested{@left_out};
	for my $way (ways($node, 'a cancel', 'statement_timeout', 'a termination', 'a shutdown'))
	{
		my $end = $way->{name};
		my $ends_all = $way->{sqlstate} eq 'lost';
		my %at = map { $_ => prepared($node, $zkc, $_, $way) }
		  grep { $ends_all || !$tested{$_}{idle} } keys %tested;
		$break->();
		run($_) for grep { !$_->{moment}{early} } values %at;
		wait_running($node, values %at) if $way->{event};

		my $began = time();
		$way->{event}->($_) for !$way->{event} ? () : $way->{for_all} ? (values %at)[0] : values %at;
		my $took = wait_ended($began, $ends_all, %at);
		for my $moment (sort keys %at)
		{
			my $s = $at{$moment};
			my $good = defined $took->{$moment}
			  && ($ends_all || $s->sqlstate eq $way->{sqlstate});
			ok($good, "$what, $moment, $end: it ends")
			  || diag($s->sqlstate . ' ' . $s->error);
		}
		note(join ', ', "$what, $end",
			map { sprintf '%s: %.1f s', $_, $took->{$_} // -1 } sort keys %at);
		$heal->();
		$_->drop for values %at;
		$node->start if $way->{for_all};
	}
	return;
}

my $sessions = 0;

# Returns a session just before the moment, or at the moment if that is early.
sub prepared
{
	my ($node, $zkc, $name, $way) = @_;
	my $moment = $moments{$name};
	my $lock = 'moment-' . ++$sessions;
	my $s = session_with($node, ensemble_timeout => '10min');
	$s->query_ok(sprintf $moment->{prepare}, $lock) if $moment->{prepare};
	$s->query_ok("SET $way->{setting} = '1s'") if $way->{setting};
	$s->{moment} = { %$moment, lock => $lock };
	if ($moment->{early})
	{
		foreign_node($zkc, "/zklock/locks/$lock", 'WRIT');
		run($s);
		wait_queued_or_ended($zkc, "/zklock/locks/$lock", $s);
	}
	return $s;
}

sub run
{
	my ($s) = @_;
	$s->query_async(sprintf $s->{moment}{run}, $s->{moment}{lock})
	  unless $s->{moment}{idle};
	return;
}

sub wait_running
{
	my ($node, @sessions) = @_;
	my @running = grep { !$_->{moment}{idle} } @sessions;
	my $pids = join ',', map { $_->pid } @running;
	return wait_for_sql($node,
		"SELECT count(*) FROM pg_stat_activity WHERE pid IN ($pids) AND state = 'active'",
		scalar @running);
}

# Returns the time in which each statement, or backend, ended. Those that did not end
# within the limit are missing.
sub wait_ended
{
	my ($began, $ends_all, %at) = @_;
	my %took;
	eval {
		wait_until(
			'the end',
			sub {
				for my $moment (grep { !defined $took{$_} } keys %at)
				{
					my $s = $at{$moment};
					next
					  if $ends_all ? kill(0, $s->pid) : !$s->finished;
					$took{$moment} = time() - $began;
					$s->wait_result unless $ends_all;
				}
				return keys %took == keys %at;
			},
			timeout => LIMIT);
	};
	return { map { $took{$_} <= LIMIT ? ($_ => $took{$_}) : () } keys %took };
}

# Two assertions: a commit without a lease is refused, and within the time limit.
sub stale_commit
{
	my ($what, $node, $break, $heal) = @_;
	my $s = session($node);
	$s->reconnect('zklock.session_timeout' => '6s');
	$s->query_ok('BEGIN');
	$s->query_ok("SELECT zk_xact_lock('stale-' || pg_backend_pid())");
	$s->query_ok('CREATE TEMP TABLE nothing ()');
	$break->();
	# On a slow machine the session is lost first.
	wait_until('the lease to end',
		sub {
			my $ended = $s->query("SELECT lease_remaining = interval '0' FROM zk_session()");
			return !$s->ok || $ended eq 't';
		});
	my $began = time();
	$s->query('COMMIT', timeout => LIMIT) if $s->ok;
	my $took = time() - $began;
	is($s->sqlstate, '40001', "$what: a commit without a lease is refused")
	  || diag($s->error);
	cmp_ok($took, '<', LIMIT, "$what: the refusal comes within the time limit");
	note(sprintf '%s: refused after %.1f s', $what, $took);
	$heal->();
	$s->quit;
	return;
}

1;
