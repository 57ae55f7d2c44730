# ZkLock::Duel - everything that can happen between one of ours and one of theirs.
#
# Owns: the assertions about a SQL lock and another program's that must exclude
# each other: who holds, who waits, hand-over, giving up, and the loss of a
# session on either side.
#
#   my $duel = ZkLock::Duel->new(
#       what => "Curator's mutex",
#       lock => 'x', mode => 'exclusive',      # or shared, or permit
#       node_names => 'curator_mutex',
#       theirs => sub { $java->lock(mutex => '/zklock/locks/x') },
#       servers => [ $node_a, $node_b ], zk => $zk,
#       queue => sub { my ($n) = @_; ... },    # returns when there are so many
#       no_waiter_behind => 1);    # unless their waiters mind who comes after them
#   $duel->all;          # each of the following, which also can be called alone
#   $duel->they_hold; $duel->we_hold; $duel->transaction; $duel->abandoned_attempts;
#   $duel->their_loss; $duel->our_loss;

package ZkLock::Duel;

use strict;
use warnings;

use Test::More;
use ZkLock::Check qw(failed_with fails_with works zk_session_id);
use ZkLock::Cluster;

# What SQL calls a mode; a permit is of a semaphore of one.
my %calls = (
	exclusive => [ 'lock', 'unlock', '' ],
	shared => [ 'lock_shared', 'unlock_shared', '' ],
	permit => [ 'acquire', 'release', ', 1' ]);

sub new
{
	my ($class, %fields) = @_;
	my $self = bless {%fields}, $class;
	my ($take, $give, $size) = @{ $calls{ $self->{mode} } };
	my $arguments = "'$self->{lock}'$size";
	$self->{take} = "SELECT zk_$take($arguments)";
	$self->{try} = "SELECT zk_try_$take($arguments)";
	$self->{xact} = "SELECT zk_xact_$take($arguments)";
	$self->{give} = "SELECT zk_$give('$self->{lock}')";
	($self->{here}, $self->{there}) =
	  map { $self->our_session($_) } @{ $self->{servers} };
	($self->{rival}, $self->{second}) = map { $self->{theirs}->() } 1 .. 2;
	return $self;
}

# A session of ours that speaks their language.
sub our_session
{
	my ($self, $server, $timeout) = @_;
	my $session = session($server);
	$session->query_ok("SET zklock.node_names = '$self->{node_names}'");
	$session->query_ok("SET zklock.session_timeout = '$timeout'")
	  if $timeout;
	return $session;
}

sub all
{
	my ($self) = @_;
	$self->$_
	  for qw(they_hold we_hold transaction abandoned_attempts their_loss our_loss);
	$self->{queue}->(0);
	pass($self->about('nothing is left behind'));
	$_->quit for $self->{here}, $self->{there};
	$_->close for $self->{rival}, $self->{second};
	return;
}

# The name of an assertion.
sub about { return "$_[0]{what}: $_[1]" }

# Assertions: we have got it, they have, and these still wait.
sub we_get
{
	my ($self, $session, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($session->wait_result, qr/^[1-9]\d*$/, $self->about($name))
	  or diag($session->error);
	return;
}

sub we_take
{
	my ($self, $session, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return $self->we_get($session->query_async($self->{take}), $name);
}

sub they_get
{
	my ($self, $rival, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($rival->wait_result, $self->about($name));
	return;
}

sub still_wait
{
	my ($self, $name, @waiting) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(!(grep { $_->finished } @waiting), $self->about($name));
	return;
}

sub they_hold
{
	my ($self) = @_;
	my ($rival, $second, $here) = @$self{qw(rival second here)};
	ok($rival->acquire(0), $self->about('they get what is free'));
	works($here, $self->{try}, 'f', $self->about('a try of ours is refused while they hold'));
	$self->{queue}->(1);
	$here->query_async($self->{take});
	$self->{queue}->(2);
	$second->acquire_async;
	$self->{queue}->(3);
	$self->still_wait('we wait for them, and another of them behind us',
		$here, $second);
	$rival->release;
	$self->we_get($here, 'we are next when they release');
	$self->{queue}->(2);
	$self->still_wait('and alone', $second);
	works($here, $self->{give}, 't', $self->about('we release'));
	$self->they_get($second, 'and another of them is next');
	$second->release;
	return;
}

sub we_hold
{
	my ($self) = @_;
	my ($rival, $here, $there) = @$self{qw(rival here there)};
	$self->we_take($here, 'we get what they released');
	$self->{queue}->(1);
	$rival->acquire_async;
	$self->{queue}->(2);
	my @behind = $self->{no_waiter_behind} ? () : ($there);
	$_->query_async($self->{take}) for @behind;
	$self->{queue}->(2 + @behind);
	$self->still_wait('they wait for us, and another server of ours behind them',
		$rival, @behind);
	$here->query_ok($self->{give});
	$self->they_get($rival, 'they are next when we release');
	$self->{queue}->(1 + @behind);
	$self->still_wait('and alone', @behind);
	$rival->release;
	for my $next (@behind)
	{
		$self->we_get($next, 'then our other server is next');
		$next->query_ok($self->{give});
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
		$self->we_get($here->query_async($self->{xact}), 'a transaction of ours has it');
		$rival->acquire_async;
		$self->{queue}->(2);
		$self->still_wait('they wait for its end', $rival);
		$here->query_ok($end);
		$self->they_get($rival, "they are next after $end");
		$rival->release;
	}
	return;
}

# Who gives up leaves nothing behind, and lets nobody in.
sub abandoned_attempts
{
	my ($self) = @_;
	my ($rival, $second, $here, $there) = @$self{qw(rival second here there)};
	$self->we_take($here, 'we hold it');
	ok(!$rival->acquire(0), $self->about('they try once, in vain'));
	$self->{queue}->(1);
	ok(!$rival->acquire(100), $self->about('or wait for some time, in vain'));
	$self->{queue}->(1);
	# In front of them if we may wait there, that is unless we share.
	my $behind = $self->{mode} eq 'shared';
	$rival->acquire_async if $behind;
	$self->{queue}->(2) if $behind;
	$there->query_async($self->{take});
	$self->{queue}->($behind ? 3 : 2);
	$rival->acquire_async unless $behind;
	$self->{queue}->(3);
	$there->cancel;
	failed_with($there, '57014',
		$self->about('a wait of ours beside them is cancelled'), hint => 0);
	$self->{queue}->(2);
	$self->still_wait('which lets them in no sooner', $rival);
	$here->query_ok($self->{give});
	$self->they_get($rival, 'than we release');
	fails_with($there, "SET lock_timeout = 100; $self->{take}", '55P03',
		$self->about('a wait of ours ends by time'), hint => 0);
	$there->query_ok('RESET lock_timeout');
	$self->{queue}->(1);
	$rival->release;
	return;
}

sub their_loss
{
	my ($self) = @_;
	my ($rival, $here) = @$self{qw(rival here)};
	ok($rival->acquire(0), $self->about('they hold it'));
	$here->query_async($self->{take});
	$self->{queue}->(2);
	$rival->expire;
	$self->we_get($here, 'we get it when their session is over');
	$rival->try('release');
	$rival->acquire_async;
	$self->{queue}->(2);
	$self->wait_watched($here) unless $self->{mode} eq 'permit';
	$rival->expire;
	$self->{queue}->(2);
	$self->still_wait('a session of theirs that waited starts again, in vain',
		$rival);
	$here->query_ok($self->{give});
	$self->they_get($rival, 'until we release');
	$rival->release;
	return;
}

# Waits until somebody else than this session watches a node of the lock. Before
# that a Java program that loses its session does not queue again: it looks for its
# node only when the one before it has gone.
sub wait_watched
{
	my ($self, $session) = @_;
	my $ours = zk_session_id($session);
	my $watches;
	return wait_until(
		'a watch of theirs',
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
	my $doomed = $self->our_session($server);
	$self->we_take($doomed, 'a session of ours holds it');
	$rival->acquire_async;
	$self->{queue}->(2);
	$doomed->terminate;
	$self->they_get($rival, 'they get it when our backend is terminated');
	$rival->release;

	my $stopped = $self->our_session($server, '1s');
	$self->we_take($stopped, 'another one holds it');
	$rival->acquire_async;
	$self->{queue}->(2);
	$stopped->pause;
	$self->they_get($rival, 'they get it when our backend is silent for too long');
	$stopped->resume;
	fails_with($stopped, 'SELECT 1', '40001',
		$self->about('which it learns when it goes on'));
	works($stopped, $self->{try}, 'f', $self->about('and has it no more'));
	$rival->release;
	$stopped->quit;
	return;
}

1;
