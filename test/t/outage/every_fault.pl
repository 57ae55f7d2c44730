# Each fault hits each operation of each recipe once. The connection works again at once,
# so the call succeeds. If the fault expires the session, held locks are lost, which is
# reported as 40001. A session that holds a lock has exactly the nodes for it, and
# another server is refused. Afterwards no node is left, while the backend is idle.
# A first run of a recipe without a fault records its operations. Then each operation is
# hit in a run of its own, with new names. The faults are those of ZkLock::FaultProxy.
# A fault that holds frames back releases them when the client has sent its keepalive
# read, or, after an exit, never.
# The second part loses an answer and then ends the call in another way.
# Nightly: the full matrix of faults takes minutes; test/unit/test_faults.c has the same for the recipe layer.
#
# Promises: 1.1, 4.2, 5.3

use ZkLock::Test;

use constant FAULTS => qw(lose_request lose_answer cut_after swallow_request
  swallow_answer hold_request hold_answer expire);

# A step that takes longer than this many seconds hangs.
use constant BOUND => 30;

my ($zk, $zkc) = shared_zk_and_client(timeout => 20);
my $proxy = ZkLock::FaultProxy->start(target => $zk);
my $node = shared_node('a', zk => $proxy, session_timeout => '2s');
my $other = shared_node('b', zk => $zk);
$node->safe_psql('postgres', 'CREATE TABLE t (v text)');
my $rival = session($other);
my $reader = session($node);
my $warm;    # a session of $node, kept while it is usable

# A session of $node with a live ZooKeeper session and without locks.
sub warm_session
{
	my $s = shift // session($node);
	$s->query('ROLLBACK; RESET ALL');
	$s->query("SELECT zk_try_lock('warm', '20s')") for 1 .. 2;
	$s->query_ok('SELECT zk_unlock_all()');
	return $s;
}

# Returns a pattern of the rival's nodes: their names contain its session id.
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

# Returns the parents of the nodes of a lock, and of a semaphore.
sub parents
{
	my ($lock) = @_;
	my $pool = "/zklock/semaphores/$lock";
	return ("/zklock/locks/$lock", "$pool/leases", "$pool/locks");
}

# Returns the nodes of these locks without those of the rival: "x=READ WRIT, y=".
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

# Returns the same text for a list of kinds for each lock.
sub as_nodes
{
	my ($run, $kinds) = @_;
	my @kinds = ref $kinds ? @$kinds : ($kinds) x @{ $run->{locks} };
	return join ', ', map { "$_=" . shift @kinds } @{ $run->{locks} };
}

# Waits for the condition, and releases held frames as soon as the client has asked for
# them.
sub wait_in_run
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
	my ($run, $expected) = @_;
	my $found;
	eval {
		wait_in_run($run, "nodes $expected",
			sub { $found = nodes(@{ $run->{locks} }); $found eq $expected });
	} or wrong($run, "nodes are $found, not $expected");
	return;
}

sub wrong
{
	my ($run, $text) = @_;
	push @{ $run->{wrong} }, $text;
	return;
}

# Checks that zk_held_locks agrees with the nodes, and that the rival is refused.
sub holds_agree
{
	my ($run, $s) = @_;
	my $answer;
	my $reported = sub {
		return $s->query(<<"SQL") . $s->error;
SELECT coalesce(string_agg(name || '=' || mode, ', ' ORDER BY name), '')
FROM (SELECT name, min(mode) AS mode FROM zk_held_locks
	  WHERE state = 'held' AND name LIKE '$run->{name}%' GROUP BY name) h
SQL
	};
	my $found;
	eval {
		wait_in_run($run, 'holds to agree with nodes',
			sub {
				$answer = $reported->();
				$found = nodes(@{ $run->{locks} });
				my @held = grep { !/=$/ } split /, /, $found;
				s/=.*WRIT/=exclusive/ || s/=READ/=shared/ || s/=lease/=permit/ for @held;
				$answer eq join ', ', @held;
			});
	} or return wrong($run, "zk_held_locks reports $answer, nodes are $found");
	return if $run->{recipe}{rival_holds};
	for my $hold (split /, /, $answer)
	{
		my ($lock, $mode) = split /=/, $hold;
		my $attempt = {
			exclusive => "zk_try_lock_shared('$lock')",
			shared => "zk_try_lock('$lock')",
			permit => "zk_try_acquire_permit('$lock', 1)"
		}->{$mode};
		my $result = $rival->query("SELECT $attempt");
		wrong($run, "$hold is held, and $attempt of another server gives $result")
		  if $result ne 'f';
		$rival->query('SELECT zk_unlock_all()') if $result ne 'f';
	}
	return;
}

# Runs one statement and checks the state after it. False ends the run early.
sub take_step
{
	my ($run, $s, $step) = @_;
	my ($sql, $kinds, %opt) = @$step;
	$sql =~ s/\bL(\d*)\b/$run->{name}$1/g;
	$s->query_async($sql);
	$opt{meanwhile}->($run, $s) if $opt{meanwhile};
	wait_in_run($run, "the end of: $sql", sub { $s->finished });
	my $answer = $s->wait_result;
	my $state = $s->sqlstate;
	my $good = $s->ok;
	my $expired = is_expired($run);
	my $allowed = $opt{fails} // '00000';
	wrong($run, "$sql: $state $answer " . $s->error)
	  unless $state eq $allowed || $expired && $state eq '40001';

	# An earlier statement may have reported the loss.
	wrong($run, "$sql: $answer") if $good && $answer =~ /^f/m && !$expired;

	# The release is sent asynchronously, so its fault may happen only now.
	$kinds = $run->{recipe}{is_transaction} ? '' : $run->{kinds} unless $good;
	wait_in_run($run, 'the nodes or the fault', sub {
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

# Runs a recipe, with a fault if a rule is given, and returns the run with its errors.
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
	eval { run_steps($run) } or wrong($run, "died: $@");
	$proxy->disarm->release;
	undef $warm if @{ $run->{wrong} };
	$rival->query("SELECT zk_unlock_all(); SELECT zk_try_lock('rival')");
	return $run;
}

sub run_steps
{
	my ($run) = @_;
	my ($recipe, $rule) = @$run{qw(recipe rule)};
	my $s = $recipe->{ends} ? warm_session() : ($warm = warm_session($warm));

	# On a slow machine the lease may end in the first run. Its check would not be sent
	# in later runs.
	$s->query_ok('SET zklock.commit_check = off') unless $rule;
	$s->query_ok($recipe->{settings}) if $recipe->{settings};
	my $call = $recipe->{is_semaphore} ? "zk_acquire_permit('L', 1)" : "zk_lock('L')";
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
		wait_in_run($run, 'the end of the backend', sub { !kill 0, $pid });
	}
	elsif (!$run->{good})
	{
		$s->query('ROLLBACK');
		$s->query('SELECT zk_unlock_all()') for 1 .. 2;
	}
	nodes_become($run, as_nodes($run, ''));
	wait_in_run($run, 'the fault', sub { was_hit($run) })
	  if $rule && $run->{good} && !$recipe->{may_miss};
	wait_in_run($run, 'the release', sub { $run->{released} })
	  if ($run->{fault} // '') =~ /^hold/ && was_hit($run) && !$recipe->{ends};
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

# Waits until the session has read the rival's node, or until the fault has hit, and then
# releases the rival's lock.
sub release_by_rival
{
	my ($run, $s) = @_;
	wait_in_run($run, 'the waiter', sub {
			nodes(@{ $run->{locks} }) =~ /WRIT|lock/
			  && ($run->{rule} && was_hit($run)
				|| grep { $_->{op} eq 'getData' && defined $_->{answered}
					  && "@{ $_->{paths} }" =~ m{/$run->{name}/(?:leases/)?_c_} } $proxy->record);
	});
	$rival->query_ok('SELECT zk_unlock_all()');
	return;
}

# Is this the hold watch of a lock that has been held for a second? Only a slow machine
# sets it. (In the queue of a semaphore the session always watches its own node.)
sub is_hold_watch
{
	my ($request) = @_;
	my ($child) = "@{ $request->{paths} }" =~ m{([^/]*)$};
	return $request->{op} eq 'getData'
	  && $request->{watch}
	  && $child =~ /^_c_/
	  && $child !~ $rivals;
}

my @recipes = (
	'an attempt at a new name' => {
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
			[ "SELECT zk_lock_many(ARRAY['L1', 'L2'])", 'WRIT' ],
			[ "SELECT zk_unlock_many(ARRAY['L1', 'L2'])", '' ]
		]
	},
	'a wait' => {
		rival_first => 1,
		steps => [
			[ "SELECT zk_lock('L')", 'WRIT', meanwhile => \&release_by_rival ],
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
			[ "SELECT zk_acquire_permit('L', 1)", 'lease' ],
			[ "SELECT zk_release_permit('L')", '' ]
		]
	},
	'a permit' => {
		steps => [
			[ "SELECT zk_acquire_permit('L', 1)", 'lease' ],
			[ "SELECT zk_release_permit('L')", '' ]
		]
	},
	'a wait for a permit' => {
		is_semaphore => 1,
		rival_first => 1,
		steps => [
			[ "SELECT zk_acquire_permit('L', 1)", 'lease', meanwhile => \&release_by_rival ],
			[ "SELECT zk_release_permit('L')", '' ]
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
	  grep { $recipe->{is_semaphore} || !is_hold_watch($_) }
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

# Calls whose answer was lost: the call is ended while the proxy is down, or its statement
# fails afterwards, or the next answer is lost, too. The release is followed by a lock of
# the same name, which has to wait for the delete.
my %calls = (
	create2 => "SELECT zk_xact_lock('L')",
	multi => "SELECT zk_xact_lock_many(ARRAY['L1', 'L2'])",
	delete => "SELECT zk_unlock('L'); SELECT zk_xact_lock('L')");
my %ends = (
	'a cancel' => { down => 1, state => '57014', act => sub { $_[0]->cancel } },
	'statement_timeout' => { down => 1, state => '57014',
		settings => "SET statement_timeout = '500ms'" },
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
	$sql =~ s/(?=SELECT zk_xact)/$end->{settings}; / if $end->{settings};

	$run->{hits} = $proxy->hits;
	my %rule = (fault => 'lose_answer', path => "/$run->{name}");
	$proxy->disarm->clear_record->arm(%rule, op => $op, down => $end->{down});
	$proxy->arm(%rule, op => $op eq 'delete' ? 'delete' : 'getData')
	  if $end->{again};
	$s->query_async($sql);
	wait_in_run($run, 'the fault', sub { was_hit($run) }) unless $end->{settings};
	$end->{act}->($s) if $end->{act};
	wait_in_run($run, "the end of: $sql", sub { $s->finished });
	my $answer = $s->wait_result;
	wrong($run, 'SQLSTATE ' . $s->sqlstate . " $answer " . $s->error)
	  if $s->sqlstate ne $end->{state};
	if ($end->{state} eq 'lost')
	{
		wait_in_run($run, 'the end of the backend', sub { !kill 0, $s->pid });
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
