# ZkLock::Check - assertions and observations that many tests share.
#
# Owns: assertions about errors, and observations of a backend's ZooKeeper session
# and of the nodes that are left in the ensemble.
#
#   fails_with($s, "SELECT zk_lock('x')", '08006', 'a promise');
#   works($s, "SELECT zk_lock('x')", qr/^\d+$/, 'a promise');
#   nothing_left($zkc, 'a promise');
#   wait_state($s, 'connected');
#   queue_of($zkc, 'x');        # full paths, in the order of their numbers
#   requests_of($zk, $zk_session_id);
#   lose_lock($zk, $zkc, 'x', $zk_session_id);

package ZkLock::Check;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use ZkLock::Util qw(wait_until);

our @EXPORT = qw(fails_with failed_with commit_refused works nothing_left wait_state
  queue_of requests_of zk_session_id wait_proven wait_watched lose_lock);

# One assertion: the statement fails with this SQLSTATE, has a HINT (unless
# hint => 0), and its error matches $opt{like}.
sub fails_with
{
	my ($session, $sql, $sqlstate, $name, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$session->query_async($sql);
	return failed_with($session, $sqlstate, $name, %opt);
}

# The same assertion about a statement that was sent before.
sub failed_with
{
	my ($session, $sqlstate, $name, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $answer = $session->wait_result;
	my $error = $session->error;
	my @wrong;
	push @wrong, 'SQLSTATE ' . $session->sqlstate . " instead of $sqlstate"
	  if $session->sqlstate ne $sqlstate;
	push @wrong, 'no HINT' if ($opt{hint} // 1) && $error !~ /^HINT:  \S/m;
	push @wrong, "does not match $opt{like}"
	  if $opt{like} && $error !~ $opt{like};
	push @wrong, "matches $opt{unlike}"
	  if $opt{unlike} && $error =~ $opt{unlike};
	return ok(!@wrong, $name)
	  || diag(join "\n", @wrong, "answer: $answer", "error: $error");
}

# One assertion: COMMIT fails with 40001, no matter when the loss is detected, and ends
# the transaction.
sub commit_refused
{
	my ($session, $name, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return fails_with($session, 'COMMIT', '40001', $name, %opt);
}

# One assertion: the statement succeeds, and its answer equals or matches $expected.
sub works
{
	my ($session, $sql, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $answer = $session->query($sql);
	my $good = $session->ok
	  && (ref $expected ? $answer =~ $expected : $answer eq $expected);
	return ok($good, $name)
	  || diag("expected: $expected", "\nanswer: $answer\nerror: "
		  . $session->error);
}

# One assertion: no contender is left below any lock or semaphore. A node that only the
# expiry of a session removes may stay until the timeout.
sub nothing_left
{
	my ($zkc, $name, %opt) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @left;
	my $gone = eval {
		wait_until(
			'the contenders to go',
			sub { @left = contenders($zkc, $opt{root} // '/zklock'); !@left },
			timeout => $opt{timeout});
	};
	return ok($gone, $name) || diag("left: @left\n$@");
}

# Returns the paths below which nodes of locks and permits are.
sub parents
{
	my ($zkc, $root) = @_;
	return ((map { "$root/locks/$_" } $zkc->children("$root/locks")),
		map { ($_, "$_/locks", "$_/leases") }
		map { "$root/semaphores/$_" } $zkc->children("$root/semaphores"));
}

# Returns the ephemeral nodes of other sessions that look like contenders or permits.
sub contenders
{
	my ($zkc, $root) = @_;
	my @found;
	for my $parent (parents($zkc, $root))
	{
		for my $child ($zkc->children($parent))
		{
			next
			  unless $child =~
			  /(?:lock-|__WRIT__|__READ__|lock__|lease-)-?\d+$|^[0-9a-f]{32}$/;
			my $stat = $zkc->exists("$parent/$child") or next;
			push @found, "$parent/$child"
			  unless $stat->{ephemeralOwner} eq '0x0'
			  || $stat->{ephemeralOwner} eq $zkc->session_id;
		}
	}
	return @found;
}

# Waits until zk_session(), in this session, returns the state.
sub wait_state
{
	my ($session, $state) = @_;
	my $seen;
	return wait_until(
		"state $state",
		sub {
			$seen = $session->query('SELECT state FROM zk_session()');
			return ($seen // '') eq $state;
		},
		diag => sub { "last seen: $seen " . $session->error });
}

# Returns the full paths of the nodes below a lock, ordered by number.
sub queue_of
{
	my ($zkc, $lock, $root) = @_;
	my $path = ($root // '/zklock') . "/locks/$lock";
	my %number = map { /(\d{10})$/ ? ("$path/$_" => $1) : () }
	  $zkc->children($path);
	my @nodes =
	  sort { $number{$a} <=> $number{$b} || $a cmp $b } keys %number;
	return @nodes;
}

# Returns the id of a ZooKeeper session as ZooKeeper's command "cons" prints it.
sub zk_session_id
{
	my ($session) = @_;
	return $session->query_ok('SELECT session_id FROM zk_session()');
}

# Waits until a holder's next proof is confirmed. From then on, what it holds can be
# trusted for longer than its lease lasts.
sub wait_proven
{
	my ($session) = @_;
	my $lease = sub {
		return $session->query_ok('SELECT extract(epoch FROM lease_remaining) FROM zk_session()');
	};
	my $last = $lease->();
	return wait_until('a proof',
		sub {
			my $now = $lease->();
			my $renewed = $now > $last;
			$last = $now;
			return $renewed;
		});
}

# Returns the number of the last request of a session that is connected to this
# server. The client numbers its requests, and pings have no number: the difference
# of two results is the number of requests in between.
sub requests_of
{
	my ($zk, $id) = @_;
	my ($last, $n) = last_request($zk, $id);
	return $n;
}

# Returns the kind and the number of the last request, or nothing. A ping is a kind, too.
sub last_request
{
	my ($zk, $id) = @_;
	my $connections = $zk->four_letter('cons') // '';
	return $connections =~ /sid=$id\b.*?lop=(\w+).*?lcxid=0x([0-9a-f]+)/ ? ($1, hex $2) : ();
}

# Waits until a client that is connected to this server watches a node of the lock, as
# a holder does.
sub wait_watched
{
	my ($zk, $lock) = @_;
	return wait_until("the watch of lock $lock",
		sub { ($zk->four_letter('wchp') // '') =~ m{^/zklock/locks/\Q$lock\E/}m });
}

# Deletes the nodes of a lock. Returns when its holder, with this ZooKeeper session,
# has reacted: the holder reads its node when its watch fires, and deletes it under its name
# when it has processed the answer. The server shows an operation that fails as "NA". A later
# proof may hide the delete, but not two of them.
sub lose_lock
{
	my ($zk, $zkc, $lock, $id) = @_;
	my $before;
	wait_watched($zk, $lock);
	wait_until('the number of requests', sub { defined($before = requests_of($zk, $id)) }, fatal => 1);
	$zkc->delete($_) for queue_of($zkc, $lock);
	return wait_until('the holder to react to the loss',
		sub {
			my ($last, $n) = last_request($zk, $id) or return;
			return $n > $before && ($last eq 'NA' || $n > $before + 3);
		});
}

1;
