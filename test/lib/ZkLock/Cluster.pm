# ZkLock::Cluster - PostgreSQL servers with the extension, for TAP tests.
#
# Owns: the settings of a test server, and waiting for states of servers and of
# the ensemble. The servers are PostgreSQL::Test::Cluster nodes.
#
#   my $node = zklock_node('a', zk => $zk->connect_string);
#   my $s = session($node);                  # and session_with(), connected_session()
#   wait_for_sql($node, "SELECT count(*) FROM zk_locks", '2');
#   wait_zk_children($zkc, '/zklock/locks/x', 2);
#   wait_blocked($s);

package ZkLock::Cluster;

use strict;
use warnings;

use Carp qw(croak);
use Exporter qw(import);
use File::Basename qw(dirname);
use File::Temp ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ZkLock::Session;
use ZkLock::Util qw(wait_until log_tail write_file);

our @EXPORT = qw(zklock_node session session_with connected_session rows_with credentials_file wait_for_sql
  wait_zk_children wait_queued_or_ended wait_zk_empty wait_until wait_blocked wait_blocked_locally wait_asleep
  wait_for_standby is_blocked wait_for_log server_log require_standby lock_nodes foreign_node
  shim_library);

# Since version 17, PostgreSQL's library copies a server's data from $INITDB_TEMPLATE, if its
# options are the defaults; this does the same for older versions.
{
	no warnings 'redefine';
	my $original = \&PostgreSQL::Test::Utils::system_or_bail;
	*PostgreSQL::Test::Utils::system_or_bail = sub {
		my @command = @_;
		@command = ('cp', '-RPp', $ENV{INITDB_TEMPLATE}, $command[2])
		  if $ENV{INITDB_TEMPLATE} && "@command" =~ /^initdb -D \S+ -A trust -N$/;
		return $original->(@command);
	};
}

# Creates and starts a server with the extension in database postgres. Options:
#   zk                connect string, or an object that has one
#   proxy             a ZkLock::Proxy to connect through instead
#   session_timeout   default 60s, which no starvation reaches; a test about loss has its own
#   extra_conf        text appended to postgresql.conf
#   init              options of PostgreSQL::Test::Cluster->init, as a list
#   extension         0: do not create the extension
#   install_path      the path of a ZkLock::Installation
sub zklock_node
{
	my ($name, %opt) = @_;
	my $to = $opt{proxy} // $opt{zk} // croak 'neither zk nor proxy given';
	$to = $to->connect_string if ref $to;
	my $timeout = $opt{session_timeout} // '60s';

	my $node = PostgreSQL::Test::Cluster->new($name,
		$opt{install_path} ? (install_path => $opt{install_path}) : ());
	$node->init(@{ $opt{init} // [] });
	$node->append_conf('postgresql.conf', <<"CONF");
shared_preload_libraries = 'zklock'
zklock.connect_string = '$to'
zklock.session_timeout = '$timeout'
max_connections = 50
max_prepared_transactions = 10
CONF
	$node->append_conf('postgresql.conf', $opt{extra_conf})
	  if defined $opt{extra_conf};
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION zklock')
	  if $opt{extension} // 1;
	return $node;
}

# A ZkLock::Session. Options: dbname, user, application_name.
sub session
{
	my ($node, %opt) = @_;
	my $dbname = delete $opt{dbname} // 'postgres';
	return ZkLock::Session->new($node, $dbname, %opt);
}

# A session with these settings of zklock, by name.
sub session_with
{
	my ($node, %settings) = @_;
	return session($node)->reconnect(map { ("zklock.$_" => $settings{$_}) } keys %settings);
}

# The same with an open ZooKeeper session, and without locks.
sub connected_session
{
	my ($node, %settings) = @_;
	my $s = session_with($node, %settings);
	$s->query_ok("SELECT zk_lock('warm-up-' || pg_backend_pid()), zk_unlock_all()");
	return $s;
}

# The number of rows of table t with this value.
sub rows_with
{
	my ($node, $value) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM t WHERE v = '$value'");
}

# Creates a file for zklock.auth_file.
sub credentials_file
{
	my ($credentials, $name) = @_;
	my $path = PostgreSQL::Test::Utils::tempdir() . '/' . ($name // 'credentials');
	write_file($path, "digest $credentials\n");
	chmod 0600, $path or croak "$path: $!";
	return $path;
}

# Builds a library of SQL functions in test/shim, and returns its path, which the server can read.
my @shims;

sub shim_library
{
	my ($node, $name) = @_;
	my $source = dirname(__FILE__) . "/../../shim/$name.c";
	push @shims, my $dir = File::Temp->newdir('shimXXXXXX', TMPDIR => 1);
	chmod 0755, $dir->dirname;
	system($ENV{CC} // 'cc', qw(-Wall -D_GNU_SOURCE -fPIC -shared -pthread -I), $node->config_data('--includedir-server'),
		'-o', "$dir/$name.so", $source) == 0
	  or croak "$source does not compile";
	return "$dir/$name.so";
}

# Waits until a query prints the expected text (default t). Each execution uses a
# new connection; an error counts as a different answer. Option or => code: the wait
# also ends when the code returns true.
sub wait_for_sql
{
	my ($node, $sql, $expected, %opt) = @_;
	$expected //= 't';
	my $last = '';
	my $or = delete $opt{or} // sub { 0 };
	return wait_until(
		"'$expected' from: $sql",
		sub {
			my ($out, $err) = output_of($node, $sql);
			$last = "$out$err";
			return $out eq $expected || $or->();
		},
		pause => 0.05,
		%opt,
		diag => sub { "last answer: $last\n" . server_log($node) });
}

# Returns the output of a query and its messages. A server that starts or stops can end the
# connection before psql has read the query; then IPC::Run dies, which is an error as any other.
sub output_of
{
	my ($node, $sql) = @_;
	local $ENV{PGOPTIONS} = '-c log_statement=none';
	my (undef, $out, $err) = eval { $node->psql('postgres', $sql) };
	return ($out // '', $err // $@);
}

# Waits until a node has exactly $count children: the holders and waiters of a
# lock. Returns their names.
sub wait_zk_children
{
	my ($zkc, $path, $count, %opt) = @_;
	my @children;
	wait_until(
		"$count children of $path",
		sub { @children = $zkc->children($path); @children == $count },
		%opt,
		diag => sub { "last seen: @children" });
	return @children;
}

# Waits until a holder and this waiter are in the queue. A waiter that has ended is not
# there: the holder's session, or a timeout, may be short. Dies if the waiter is granted
# the lock while the holder is there.
sub wait_queued_or_ended
{
	my ($zkc, $path, $waiter) = @_;
	my ($granted, $queued);
	wait_until("two children of $path, or the end of the wait",
		sub {
			$granted = $waiter->succeeded;
			$queued = 2 == $zkc->children($path);
			return $queued || $waiter->finished;
		});
	croak "two sessions hold the lock $path" if $granted && $queued;
	return 1;
}

# Waits until a lock's znode is gone or has no children.
sub wait_zk_empty
{
	my ($zkc, $path, %opt) = @_;
	return wait_zk_children($zkc, $path, 0, %opt);
}

# Returns the paths of all nodes of holders and waiters below a root.
sub lock_nodes
{
	my ($zkc, $root) = @_;
	my $locks = ($root // '/zklock') . '/locks';
	return grep { m{^\Q$locks\E/[^/]+/} } $zkc->tree($locks);
}

# Creates a node below a lock's znode as Curator's InterProcessReadWriteLock
# does, for READ or WRIT. A missing parent is created as a persistent node.
# Returns the path of the node, which ends with the client's session.
my $foreign_nodes = 0;

sub foreign_node
{
	my ($zkc, $lock_path, $kind) = @_;
	my $guid = sprintf '%08x-aaaa-4bbb-8ccc-%012x', $$, ++$foreign_nodes;
	return $zkc->create("$lock_path/_c_$guid-__${kind}__",
		data => '127.0.0.1', ephemeral => 1, sequence => 1, makepath => 1);
}

# Waits until the backend of a session waits for a local lock (wait event type
# Lock) or for an ensemble lock (Extension).
sub wait_blocked
{
	my ($session, %opt) = @_;
	return wait_for_sql($session->node, blocked_query($session), 't', %opt);
}

# Waits until a session waits for another session of its server.
sub wait_blocked_locally { my ($session, %opt) = @_; return wait_for_event($session, 'wait_event_type', 'Lock', %opt) }

# Waits until a session runs pg_sleep().
sub wait_asleep { return wait_for_event($_[0], 'wait_event', 'PgSleep') }

# Waits until a commit waits for its standby; see require_standby().
sub wait_for_standby { return wait_for_event($_[0], 'wait_event', 'SyncRep') }

sub wait_for_event
{
	my ($session, $column, $event, %opt) = @_;
	return wait_for_sql($session->node,
		"SELECT $column FROM pg_stat_activity WHERE pid = " . $session->pid, $event, %opt);
}

# Returns whether the backend of a session waits, as in wait_blocked().
sub is_blocked
{
	my ($session) = @_;
	my ($out) = output_of($session->node, blocked_query($session));
	return $out eq 't';
}

sub blocked_query
{
	my ($session) = @_;
	my $pid = $session->pid;
	return "SELECT wait_event_type IN ('Lock', 'Extension') "
	  . "AND state = 'active' FROM pg_stat_activity WHERE pid = $pid";
}

# Makes commits wait for a standby that does not exist. They do so when the checkpointer
# has published the setting: a session commits until one of its commits waits.
sub require_standby
{
	my ($node) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
	$node->reload;
	my $probe = session($node);
	$probe->query_ok('SET synchronous_commit = on');
	$probe->query_async(<<'SQL');
DO $$
BEGIN
	LOOP
		PERFORM pg_logical_emit_message(true, '', '');
		COMMIT;
	END LOOP;
END $$
SQL
	wait_for_standby($probe);
	$probe->terminate->wait_result;
	return;
}

# Waits until the server log, from $offset on, matches, and returns the size of the
# log. -s on the log file gives a starting offset.
sub wait_for_log
{
	my ($node, $pattern, $offset, %opt) = @_;
	my $text = '';
	wait_until(
		"$pattern in the server log",
		sub {
			$text = slurp_file($node->logfile, $offset // 0);
			return $text =~ $pattern;
		},
		%opt,
		diag => sub { server_log($node) });
	return -s $node->logfile;
}

# Returns the end of a server's log, for messages.
sub server_log
{
	my ($node, $lines) = @_;
	return log_tail($node->logfile, $lines // 40);
}

1;
