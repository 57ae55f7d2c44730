# ZkLock::Duel - tests of a SQL lock against a lock of another program.
#
# Owns: the assertions about two locks that must exclude each other: acquisition,
# waiting, hand-over, abandoned attempts, and the loss of a session on either side.
# "We" are sessions of SQL servers, "they" clients of the other program.
#
#   my $duel = ZkLock::Duel->new(
#       what => "Curator's mutex",
#       lock => 'x', mode => 'exclusive',      # or shared, or permit
#       node_names => 'curator_mutex',
#       theirs => sub { $java->lock(mutex => '/zklock/locks/x') },
#       servers => [ $node_a, $node_b ], zk => $zk,
#       queue => sub { my ($n) = @_; ... },    # waits until the queue has $n nodes
#       no_waiter_behind => 1);    # if their waiters also wait for later waiters
#   $duel->all;          # all of the following, which can also be called alone
#   $duel->they_hold; $duel->we_hold; $duel->transaction; $duel->abandoned_attempts;
#   $duel->their_loss; $duel->our_loss;

package ZkLock::Duel;

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(failed_with fails_with works zk_session_id);
use ZkLock::Cluster;
use ZkLock::ZkClient;

# The SQL functions of each mode; a permit is the only one of its semaphore.
my %calls = (
	exclusive => [ 'lock', 'unlock', '' ],
	shared => [ 'lock_shared', 'unlock_shared', '' ],
	permit => [ 'acquire_permit', 'release_permit', ', 1' ]);

sub new
{
	my ($class, %fields) = @_;
	my $self = bless {%fields}, $class;
	my ($acquire, $release, $capacity) = @{ $calls{ $self->{mode} } };
	my $arguments = "'$self->{lock}'$capacity";
	$self->{acquire} = "SELECT zk_$acquire($arguments)";
	$self->{try} = "SELECT zk_try_$acquire($arguments)";
	$self->{xact} = "SELECT zk_xact_$acquire($arguments)";
	$self->{release} = "SELECT zk_$release('$self->{lock}')";
	($self->{here}, $self->{there}) =
	  map { $self->our_session($_) } @{ $self->{servers} };
	($self->{rival}, $self->{second}) = map { $self->{theirs}->() } 1 .. 2;
	return $self;
}

# Opens a session of ours that uses their lock recipe.
sub our_session
{
	my ($self, $server) = @_;
	return session_with($server, node_names => $self->{node_names});
}

sub all
{
	my ($self) = @_;
	$self->$_
	  for qw(they_hold we_hold transaction abandoned_attempts their_loss our_loss);
	$self->{queue}->(0);
	pass($self->label('no node is left'));
	$_->quit for $self->{here}, $self->{there};
	$_->close for $self->{rival}, $self->{second};
	return;
}

# Returns the name of an assertion.
sub label { return "$_[0]{what}: $_[1]" }

# Assertions: our session acquired the lock; theirs did; these still wait.
sub we_get
{
	my ($self, $session, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $token = $self->{mode} eq 'permit' ? qr/^$/ : qr/^[1-9]\d*$/;
	my $answer = $session->wait_result;
	ok($session->ok && $answer =~ $token, $self->label($name))
	  or diag($session->error);
	return;
}

sub we_acquire
{
	my ($self, $session, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $self->we_get($session->query_async($self->{acquire}), $name);
}

sub they_get
{
	my ($self, $rival, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($rival->wait_result, $self->label($name));
	return;
}

sub still_wait
{
	my ($self, $name, @waiting) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(!(grep { $_->finished } @waiting), $self->label($name));
	return;
}

sub they_hold
{
	my ($self) = @_;
	my ($rival, $second, $here) = @$self{qw(rival second here)};
	ok($rival->acquire(0), $self->label('they acquire a free lock'));
	works($here, $self->{try}, 'f', $self->label('our non-blocking attempt fails while they hold the lock'));
	$self->{queue}->(1);
	$here->query_async($self->{acquire});
	$self->{queue}->(2);
	$second->acquire_async;
	$self->{queue}->(3);
	$self->still_wait('we wait for them, and their second client waits behind us',
		$here, $second);
	$rival->release;
	$self->we_get($here, 'we acquire the lock when they release it');
	$self->{queue}->(2);
	$self->still_wait('their second client still waits for us', $second);
	works($here, $self->{release}, 't', $self->label('we release'));
	$self->they_get($second, 'then their second client acquires the lock');
	$second->release;
	return;
}

sub we_hold
{
	my ($self) = @_;
	my ($rival, $here, $there) = @$self{qw(rival here there)};
	$self->we_acquire($here, 'we acquire the lock after their release');
	$self->{queue}->(1);
	$rival->acquire_async;
	$self->{queue}->(2);
	my @behind = $self->{no_waiter_behind} ? () : ($there);
	$_->query_async($self->{acquire}) for @behind;
	$self->{queue}->(2 + @behind);
	$self->still_wait('they wait for us, and our second server waits behind them',
		$rival, @behind);
	$here->query_ok($self->{release});
	$self->they_get($rival, 'they acquire the lock when we release it');
	$self->{queue}->(1 + @behind);
	$self->still_wait('our second server still waits for them', @behind);
	$rival->release;
	for my $next (@behind)
	{
		$self->we_get($next, 'then our second server acquires the lock');
		$next->query_ok($self->{release});
	}
	return;
}

sub transaction
{
	my ($self) = @_;
	my ($rival, $here) = @$self{qw(rival here)};
	for my $end (qw(COMMIT ROLLBACK))
	{
		$here->query_ok('BEGIN');
		$self->we_get($here->query_async($self->{xact}), 'our transaction acquires the lock');
		$rival->acquire_async;
		$self->{queue}->(2);
		$self->still_wait('they wait for the end of our transaction', $rival);
		$here->query_ok($end);
		$self->they_get($rival, "they acquire the lock after $end");
		$rival->release;
	}
	return;
}

# An abandoned attempt leaves no node, and grants the lock to no other waiter.
sub abandoned_attempts
{
	my ($self) = @_;
	my ($rival, $second, $here, $there) = @$self{qw(rival second here there)};
	$self->we_acquire($here, 'we hold the lock');
	ok(!$rival->acquire(0), $self->label('their non-blocking attempt fails'));
	$self->{queue}->(1);
	ok(!$rival->acquire(100), $self->label('their timed attempt fails'));
	$self->{queue}->(1);
	# Our waiter is ahead of theirs, except in shared mode.
	my $behind = $self->{mode} eq 'shared';
	$rival->acquire_async if $behind;
	$self->{queue}->(2) if $behind;
	$there->query_async($self->{acquire});
	$self->{queue}->($behind ? 3 : 2);
	$rival->acquire_async unless $behind;
	$self->{queue}->(3);
	$there->cancel;
	failed_with($there, '57014',
		$self->label('our wait next to theirs is cancelled'), hint => 0);
	$self->{queue}->(2);
	$self->still_wait('they still wait after our cancel', $rival);
	$here->query_ok($self->{release});
	$self->they_get($rival, 'they acquire the lock once we release it');
	fails_with($there, "SET lock_timeout = 100; $self->{acquire}", '55P03',
		$self->label('our wait ends at its lock_timeout'), hint => 0);
	$there->query_ok('RESET lock_timeout');
	$self->{queue}->(1);
	$rival->release;
	return;
}

sub their_loss
{
	my ($self) = @_;
	my ($rival, $here) = @$self{qw(rival here)};
	ok($rival->acquire(0), $self->label('they hold the lock'));
	$here->query_async($self->{acquire});
	$self->{queue}->(2);
	$rival->expire;
	$self->we_get($here, 'we acquire the lock when their session expires');
	$rival->try('release');
	$rival->acquire_async;
	$self->{queue}->(2);
	$self->wait_watched($here) unless $self->{mode} eq 'permit';
	$rival->expire;
	$self->{queue}->(2);
	$self->still_wait('their waiter queues again after its session expired, and waits',
		$rival);
	$here->query_ok($self->{release});
	$self->they_get($rival, 'their waiter acquires the lock when we release it');
	$rival->release;
	return;
}

# Waits until another session than this one watches a node of the lock. Before that
# watch, a Java program that loses its session does not queue again: it looks for its
# node only when its predecessor is gone.
sub wait_watched
{
	my ($self, $session) = @_;
	my $ours = zk_session_id($session);
	my $watches;
	return wait_until(
		'their watch',
		sub {
			$watches = $self->{zk}->four_letter('wchp') // '';
			my ($found) = $watches =~
			  m{^/zklock/locks/\Q$self->{lock}\E/.*\n((?:\t.*\n)*)}m;
			return grep { $_ ne $ours } ($found // '') =~ /(0x\w+)/g;
		},
		diag => sub { "not $ours: $watches" });
}

sub our_loss
{
	my ($self) = @_;
	my $rival = $self->{rival};
	my $server = $self->{servers}[0];
	my $terminated = $self->our_session($server);
	$self->we_acquire($terminated, 'our session holds the lock');
	$rival->acquire_async;
	$self->{queue}->(2);
	$terminated->terminate;
	$self->they_get($rival, 'they acquire the lock when our backend is terminated');
	$rival->release;

	my $stopped = $self->our_session($server);
	$self->we_acquire($stopped, 'our next session holds the lock');
	my $id = zk_session_id($stopped);
	$rival->acquire_async;
	$stopped->pause;
	my $zkc = ZkLock::ZkClient->new($self->{zk}->connect_string);
	$zkc->end_session($id);
	$zkc->close;
	$self->they_get($rival, 'they acquire the lock when our stopped backend loses its session');
	$stopped->resume;
	fails_with($stopped, 'SELECT pg_sleep(600)', '40001',
		$self->label('the backend reports the loss when it continues'));
	works($stopped, $self->{try}, 'f', $self->label('the backend does not hold the lock any more'));
	$rival->release;
	$stopped->quit;
	return;
}

1;
