# Every operation of every recipe meets every fault, once. The connection works again
# at once, so the call succeeds, unless the session was made to expire: then held locks
# are lost, which is reported as 40001. A session that holds a lock has exactly the nodes
# for it, and another server is refused; afterwards no node is left, while the backend
# is idle.
#
# A first run of a recipe without a fault shows its operations; then each is hit
# in a run of its own. Names are new in each run. Faults are those of
# ZkLock::FaultProxy. A fault that holds frames back does so until the client
# has asked what became of them.
#
# The second part loses an answer and then ends the call otherwise.

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use ZkLock::Check;
use ZkLock::Cluster;
use ZkLock::FaultProxy;
use ZkLock::ZkClient;
use ZkLock::ZkServer;

use constant FAULTS => qw(lose_request lose_answer cut_after swallow_request
  swallow_answer hold_request hold_answer expire);

# Hangs are what takes longer than this; nothing here is meant to.
use constant BOUND => 30;

my $zk = ZkLock::ZkServer->start(tick_time => 200);
my $zkc = ZkLock::ZkClient->new($zk->connect_string, timeout => 20);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = zklock_node('a', zk => $proxy, session_timeout => '2s');
my $other = zklock_node('b', zk => $zk);
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');
my $rival = session($other);
my $reader = session($node);
my $warm;    # a session of $node, kept while it is usable

# A session of $node whose ZooKeeper session lives and that holds nothing.
sub warm_session
{
	my $s = shift // session($node);
	$s->query('ROLLBACK; RESET ALL');
	$s->query("SELECT zk_try_lock('warm', '20s')") for 1 .. 2;
	$s->query_ok('SELECT zk_unlock_all()');
	return $s;
}

# The owner of nodes is in their names.
sub rivals_nodes
{
	my $id = $rival->query_ok(
		"SELECT zk_try_lock('rival'); SELECT session_id FROM zk_session()");
	my ($hex) = $id =~ /0x([0-9a-f]+)$/ or die "no session id: $id";
	my $digits = sprintf '%016s', $hex;
	$digits =~ s/^(.{8})(.{4})(.{4})$/$1-$2-$3/;
	return qr/^_c_$digits/;
}
my $rivals = rivals_nodes();

# Where the nodes of a lock are, and those of a semaphore.
sub parents
{
	my ($lock) = @_;
	my $pool = "/zklock/semaphores/$lock";
	return ("/zklock/locks/$lock", "$pool/leases", "$pool/locks");
}

# What the ensemble has below these locks, the rival's apart: "x=READ WRIT y=".
sub nodes
{
	my @found;
	for my $lock (@_)
	{
		my @kinds = map { /__(READ|WRIT)__/ ? $1 : /-(lease|lock)-/ ? $1 : $_ }
		  grep { $_ !~ $rivals } map { $zkc->children($_) } parents($lock);
		push @found, "$lock=" . join ' ', sort @kinds;
	}
	return join ', ', @found;
}

# The same from a list of kinds for each lock.
sub as_nodes
{
	my ($run, $kinds) = @_;
	my @kinds = ref $kinds ? @$kinds : ($kinds) x @{ $run->{locks} };
	return join ', ', map { "$_=" . shift @kinds } @{ $run->{locks} };
}

# Waits, and releases on what is held back as soon as it was asked for.
sub attend
{
	my ($run, $what, $condition) = @_;
	return wait_until(
		$what,
		sub {
			release_when_asked($run);
			$condition->();
		},
		timeout => BOUND,
		pause => 0.005,
		diag => sub { record_text() });
}

sub release_when_asked
{
	my ($run) = @_;
	return if $run->{released} || ($run->{fault} // '') !~ /^hold/;
	return unless $proxy->hits > $run->{hits};
	my $is_end = $run->{rule}{op} eq 'closeSession';
	return unless $is_end
	  || grep { $_->{op} eq 'getData' && "@{ $_->{paths} }" eq '/zklock' }
	  $proxy->record;
	$proxy->release;
	$run->{released} = 1;
	return;
}

sub was_hit { return $proxy->hits > $_[0]{hits} }
sub is_expired { return ($_[0]{fault} // '') eq 'expire' && was_hit($_[0]) }

sub record_text
{
	return join "\n", map {
		    "$_->{connection}: $_->{op} @{ $_->{paths} } "
		  . ($_->{error} // 'unanswered')
		  . ($_->{fault} && " <- $_->{fault}")
	} grep { $_->{op} ne 'ping' } $proxy->record;
}

sub nodes_become
{
	my ($run, $wanted) = @_;
	my $seen;
	eval {
		attend($run, "nodes $wanted",
			sub { $seen = nodes(@{ $run->{locks} }); $seen eq $wanted });
	} or wrong($run, "nodes are $seen, not $wanted");
	return;
}

sub wrong
{
	my ($run, $text) = @_;
	push @{ $run->{wrong} }, $text;
	return;
}

# What the session says it holds agrees with the nodes, and the rival gets
# nothing of it.
sub holds_agree
{
	my ($run, $s) = @_;
	my $answer;
	my $told = sub {
		return $s->query(<<"SQL") . $s->error;
SELECT coalesce(string_agg(name || '=' || mode, ', ' ORDER BY name), '')
FROM (SELECT name, min(mode) AS mode FROM zk_held_locks
	  WHERE state = 'held' AND name LIKE '$run->{name}%' GROUP BY name) h
SQL
	};
	my $seen;
	eval {
		attend($run, 'holds to agree with nodes',
			sub {
				$answer = $told->();
				$seen = nodes(@{ $run->{locks} });
				my @held = grep { !/=$/ } split /, /, $seen;
				s/=.*WRIT/=exclusive/ || s/=READ/=shared/ || s/=lease/=permit/ for @held;
				$answer eq join ', ', @held;
			});
	} or return wrong($run, "told to hold $answer, nodes are $seen");
	return if $run->{recipe}{rival_holds};
	for my $hold (split /, /, $answer)
	{
		my ($lock, $mode) = split /=/, $hold;
		my $try = {
			exclusive => "zk_try_lock_shared('$lock')",
			shared => "zk_try_lock('$lock')",
			permit => "zk_try_acquire('$lock', 1)"
		}->{$mode};
		my $got = $rival->query("SELECT $try");
		wrong($run, "$hold is held, and $try of another server gives $got")
		  if $got ne 'f';
		$rival->query('SELECT zk_unlock_all()') if $got ne 'f';
	}
	return;
}

# One statement and what must be true after it. False ends the run early.
sub take_step
{
	my ($run, $s, $step) = @_;
	my ($sql, $kinds, %opt) = @$step;
	$sql =~ s/\bL(\d*)\b/$run->{name}$1/g;
	$s->query_async($sql);
	$opt{meanwhile}->($run, $s) if $opt{meanwhile};
	attend($run, "the end of: $sql", sub { $s->finished });
	my $answer = $s->wait_result;
	my $state = $s->sqlstate;
	my $good = $s->ok;
	my $expired = is_expired($run);
	my $allowed = $opt{fails} // '00000';
	wrong($run, "$sql: $state $answer " . $s->error)
	  unless $state eq $allowed || $expired && $state eq '40001';

	# A session that looked before may have got the error of the loss.
	wrong($run, "$sql: $answer") if $good && $answer =~ /^f/m && !$expired;

	# A release goes on by itself, and may meet its fault only now.
	$kinds = $run->{recipe}{is_transaction} ? '' : $run->{kinds} unless $good;
	attend($run, 'the nodes or the fault', sub {
			my $as_wanted = nodes(@{ $run->{locks} }) eq as_nodes($run, $kinds);
			$expired ||= is_expired($run);
			return $expired || $as_wanted;
		}) if ($run->{fault} // '') eq 'expire';
	if ($expired)
	{
		holds_agree($run, $s) unless $run->{recipe}{is_transaction};
		nodes_become($run, as_nodes($run, '')) if $state eq '40001';
	}
	else
	{
		nodes_become($run, as_nodes($run, $kinds));
		holds_agree($run, $s) if $good;
		$run->{kinds} = $kinds;
	}
	$run->{committed} = $good if $sql eq 'COMMIT';
	return $run->{good} = $good;
}

# Runs a recipe, with a fault if a rule is given, and returns what was wrong.
my $runs = 0;

sub run_recipe
{
	my ($recipe, $rule) = @_;
	my $name = 'r' . ++$runs . 'r';
	my $run = {
		recipe => $recipe,
		name => $name,
		locks => [ map { "$name$_" } @{ $recipe->{locks} // [''] } ],
		kinds => '',
		wrong => [],
		hits => $proxy->hits,
		rule => $rule,
		fault => $rule && $rule->{fault}
	};
	for my $lock ($recipe->{new_name} ? () : @{ $run->{locks} })
	{
		my ($path, @semaphore) = parents($lock);
		$zkc->create($path, container => 1);
		$zkc->create("/zklock/semaphores/$lock", container => 1, data => '1', makepath => 1);
		$zkc->create($_, container => 1) for @semaphore;
	}
	eval { play($run) } or wrong($run, "died: $@");
	$proxy->disarm->release;
	undef $warm if @{ $run->{wrong} };
	$rival->query("SELECT zk_unlock_all(); SELECT zk_try_lock('rival')");
	return $run;
}

sub play
{
	my ($run) = @_;
	my ($recipe, $rule) = @$run{qw(recipe rule)};
	my $s = $recipe->{ends} ? warm_session() : ($warm = warm_session($warm));

	# What a slow machine asks in the first run, because its lease is over, later
	# runs need not ask.
	$s->query_ok('SET zklock.commit_check = off') unless $rule;
	$s->query_ok($recipe->{settings}) if $recipe->{settings};
	my $call = $recipe->{is_semaphore} ? "zk_acquire('L', 1)" : "zk_lock('L')";
	$rival->query_ok("SELECT $call" =~ s/\bL\b/$run->{name}/r)
	  if $recipe->{rival_holds} || $recipe->{rival_first};
	$proxy->disarm->clear_record;
	$proxy->arm(%$rule,
		path => $rule->{op} eq 'closeSession' ? undef : "/$run->{name}")
	  if $rule;

	for my $step (@{ $recipe->{steps} })
	{
		take_step($run, $s, $step) or last;
	}
	if ($recipe->{ends})
	{
		my $pid = $s->pid;
		$s->quit;
		attend($run, 'the end of the backend', sub { !kill 0, $pid });
	}
	elsif (!$run->{good})
	{
		$s->query('ROLLBACK');
		$s->query('SELECT zk_unlock_all()') for 1 .. 2;
	}
	nodes_become($run, as_nodes($run, ''));
	attend($run, 'the fault', sub { was_hit($run) })
	  if $rule && $run->{good} && !$recipe->{may_miss};
	attend($run, 'the release', sub { $run->{released} })
	  if ($run->{fault} // '') =~ /^hold/ && was_hit($run);
	nodes_become($run, as_nodes($run, ''));
	if (exists $run->{committed})
	{
		my $rows =
		  $reader->query("SELECT count(*) FROM t WHERE v = '$run->{name}'");
		wrong($run, "$rows rows after COMMIT")
		  if $rows != ($run->{committed} ? 1 : 0);
	}
	return 1;
}

# Waits until the session waits behind the rival, whose node it has read, and the
# fault, if it belongs to that part, has struck; then the rival leaves.
sub rival_leaves
{
	my ($run, $s) = @_;
	attend($run, 'the waiter', sub {
			nodes(@{ $run->{locks} }) =~ /WRIT|lock/
			  && ($run->{rule} && was_hit($run)
				|| grep { $_->{op} eq 'getData' && defined $_->{answered}
					  && "@{ $_->{paths} }" =~ m{/$run->{name}/(?:leases/)?_c_} } $proxy->record);
	});
	$rival->query_ok('SELECT zk_unlock_all()');
	return;
}

# Over a lock that has been held for a second: only a slow machine shows it. (In the
# queue of a semaphore the own node is always watched.)
sub watches_own
{
	my ($request) = @_;
	my ($child) = "@{ $request->{paths} }" =~ m{([^/]*)$};
	return $request->{op} eq 'getData'
	  && $request->{watch}
	  && $child =~ /^_c_/
	  && $child !~ $rivals;
}

my @recipes = (
	'a try of a new name' => {
		new_name => 1,
		steps => [
			[ "SELECT zk_try_lock('L')", 'WRIT' ],
			[ "SELECT zk_unlock('L')", '' ]
		]
	},
	'a shared lock' => {
		steps => [
			[ "SELECT zk_lock_shared('L')", 'READ' ],
			[ "SELECT zk_unlock_shared('L')", '' ]
		]
	},
	'an upgrade' => {
		steps => [
			[ "SELECT zk_lock_shared('L')", 'READ' ],
			[ "SELECT zk_lock('L')", 'READ WRIT' ],
			[ "SELECT zk_unlock('L')", 'READ' ],
			[ "SELECT zk_unlock_shared('L')", '' ]
		]
	},
	'a downgrade' => {
		steps => [
			[ "SELECT zk_lock('L')", 'WRIT' ],
			[ "SELECT zk_lock_shared('L')", 'WRIT' ],
			[ "SELECT zk_unlock('L')", 'READ' ],
			[ "SELECT zk_unlock_shared('L')", '' ]
		]
	},
	'two names' => {
		locks => [ 1, 2 ],
		steps => [
			[ "SELECT zk_lock(ARRAY['L1', 'L2'])", 'WRIT' ],
			[ "SELECT zk_unlock(ARRAY['L1', 'L2'])", '' ]
		]
	},
	'a wait' => {
		rival_first => 1,
		steps => [
			[ "SELECT zk_lock('L')", 'WRIT', meanwhile => \&rival_leaves ],
			[ "SELECT zk_unlock('L')", '' ]
		]
	},
	'a wait ended by lock_timeout' => {
		rival_holds => 1,
		may_miss => 1,
		settings => "SET lock_timeout = '400ms'",
		steps => [ [ "SELECT zk_lock('L')", '', fails => '55P03' ] ]
	},
	'a commit' => {
		is_transaction => 1,
		settings => 'SET zklock.commit_check = always',
		steps => [
			[ "BEGIN; SELECT zk_xact_lock('L')", 'WRIT' ],
			[ "INSERT INTO t VALUES ('L')", 'WRIT' ],
			[ 'COMMIT', '' ]
		]
	},
	'a permit of a new semaphore' => {
		new_name => 1,
		steps => [
			[ "SELECT zk_acquire('L', 1)", 'lease' ],
			[ "SELECT zk_release('L')", '' ]
		]
	},
	'a permit' => {
		steps => [
			[ "SELECT zk_acquire('L', 1)", 'lease' ],
			[ "SELECT zk_release('L')", '' ]
		]
	},
	'a wait for a permit' => {
		is_semaphore => 1,
		rival_first => 1,
		steps => [
			[ "SELECT zk_acquire('L', 1)", 'lease', meanwhile => \&rival_leaves ],
			[ "SELECT zk_release('L')", '' ]
		]
	},
	'an exit' => {
		ends => 1,
		steps => [ [ "SELECT zk_lock('L')", 'WRIT' ] ]
	});

while (my ($title, $recipe) = splice @recipes, 0, 2)
{
	my $clean = run_recipe($recipe);
	my @ops = map { $_->{op} }
	  grep { $recipe->{is_semaphore} || !watches_own($_) }
	  grep { "@{ $_->{paths} }" =~ /$clean->{name}/
		  || $recipe->{ends} && $_->{op} eq 'closeSession' } $proxy->record;
	ok(!@{ $clean->{wrong} } && @ops, "$title: @ops")
	  || diag(join "\n", @{ $clean->{wrong} }, record_text());
	my %nth;
	for my $op (@ops)
	{
		$nth{$op}++;
		for my $fault (FAULTS)
		{
			my $run = run_recipe($recipe,
				{ fault => $fault, op => $op, nth => $nth{$op} });
			ok(!@{ $run->{wrong} }, "$title: $fault at $op $nth{$op}")
			  || diag(join "\n", @{ $run->{wrong} }, record_text());
		}
	}
}

# What becomes of a call whose answer was lost: it ends otherwise while the way
# is down, or in an error after it, or the next answer is lost, too. The release
# is followed by a lock of the same name, which has to wait for it.
my %calls = (
	create2 => "SELECT zk_xact_lock('L')",
	multi => "SELECT zk_xact_lock(ARRAY['L1', 'L2'])",
	delete => "SELECT zk_unlock('L'); SELECT zk_xact_lock('L')");
my %ends = (
	'a cancel' => { down => 1, state => '57014', act => sub { $_[0]->cancel } },
	'statement_timeout' => { down => 1, state => '57014',
		settings => "SET statement_timeout = '500ms'" },
	'lock_timeout' => { down => 1, state => '55P03',
		settings => "SET lock_timeout = '500ms'" },
	'an error' => { state => '22012', then => '; SELECT 1 / 0' },
	'terminate' =>
	  { down => 1, state => 'lost', act => sub { $_[0]->terminate } },
	'a second loss' => { state => '00000', again => 1 });

sub lose_answer
{
	my ($op, $end) = @_;
	my $run = { name => 'q' . ++$runs . 'q', wrong => [], recipe => {} };
	$run->{locks} =
	  [ map { "$run->{name}$_" } $op eq 'multi' ? (1, 2) : ('') ];
	(my $sql = "BEGIN; $calls{$op}" . ($end->{then} // '')) =~
	  s/\bL(\d*)\b/$run->{name}$1/g;
	my $s = $warm = warm_session($warm);
	$zkc->create("/zklock/locks/$_", container => 1) for @{ $run->{locks} };
	$s->query_ok("SELECT zk_lock('$run->{name}')") if $op eq 'delete';
	$s->query_ok($end->{settings}) if $end->{settings};

	$run->{hits} = $proxy->hits;
	my %rule = (fault => 'lose_answer', path => "/$run->{name}");
	$proxy->disarm->clear_record->arm(%rule, op => $op, down => $end->{down});
	$proxy->arm(%rule, op => $op eq 'delete' ? 'delete' : 'sync')
	  if $end->{again};
	$s->query_async($sql);
	attend($run, 'the fault', sub { was_hit($run) }) unless $end->{settings};
	$end->{act}->($s) if $end->{act};
	attend($run, "the end of: $sql", sub { $s->finished });
	my $answer = $s->wait_result;
	wrong($run, 'SQLSTATE ' . $s->sqlstate . " $answer " . $s->error)
	  if $s->sqlstate ne $end->{state};
	if ($end->{state} eq 'lost')
	{
		attend($run, 'the end of the backend', sub { !kill 0, $s->pid });
		undef $warm;
	}
	$proxy->up;
	if ($s->ok)
	{
		nodes_become($run, as_nodes($run, 'WRIT'));
		holds_agree($run, $s);
		wrong($run, 'one fault only') if $proxy->hits != $run->{hits} + 2;
		$s->query('ROLLBACK');
	}
	nodes_become($run, as_nodes($run, ''));
	return $run;
}

for my $op (sort keys %calls)
{
	for my $how (sort keys %ends)
	{
		my $run;
		eval { $run = lose_answer($op, $ends{$how}) }
		  or $run = { wrong => ["died: $@"] };
		ok(!@{ $run->{wrong} }, "the lost answer of $op, then $how")
		  || diag(join "\n", @{ $run->{wrong} }, record_text());
		undef $warm if @{ $run->{wrong} };
		$proxy->up->disarm;
	}
}

unlike(slurp_file($_->logfile), qr/PANIC|terminated by signal/,
	'no backend has crashed')
  for $node, $other;
$_->quit for grep { defined } $warm, $rival, $reader;
$zkc->close;
$_->stop for $node, $other;
$proxy->stop;
$zk->stop;
done_testing();
