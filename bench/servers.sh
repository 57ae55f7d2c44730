# The private servers of a measurement, and the programs that are measured
# against; sourced by scripts/bench and scripts/test after scripts/lib.sh. Owns:
# their configuration, and telling bench/run.py where they are.
# shellcheck shell=bash

# The virtual machine as it comes, not the quick starter of the tests: it has
# its second compiler, and space for a hundred thousand nodes.
BENCH_ZK_JAVA=(-XX:TieredStopAtLevel=4 -Xms512m -Xmx1g)
BENCH_CLASS_PATH=/usr/share/java/curator-recipes.jar:/usr/share/java/curator-framework.jar:/usr/share/java/slf4j-simple.jar

# One ZooKeeper server; PostgreSQL servers a, b and c with the extension
# preloaded, and plain, which has never heard of it.
bench_start_servers() {
	local name port
	zk_start "$WORK/bench_zk" "${BENCH_ZK_JAVA[@]}"
	export BENCH_ZK=$ZK_CONNECT BENCH_SOCKETS=$WORK BENCH_PORTS=
	for name in a b c plain; do
		port=$(free_port)
		bench_configuration "$name" | pg_start "$WORK/bench_$name" "$port"
		BENCH_PORTS+=" $name=$port"
		[[ $name == plain ]] || psql -Xq -h "$WORK" -p "$port" -U postgres \
			-d postgres -c 'CREATE EXTENSION zklock'
	done
}

# Those that were started before, if any.
bench_stop_servers() {
	local name
	for name in a b c plain; do
		[[ ! -e $WORK/bench_$name/postmaster.pid ]] ||
			"${AS_USER[@]}" pg_ctl -D "$WORK/bench_$name" -m fast -s -w stop
	done
	[[ ! -e $WORK/bench_zk/zk.pid ]] || zk_stop "$WORK/bench_zk"
	rm -rf "$WORK"/bench_{zk,a,b,c,plain}*
}

bench_configuration() {
	cat <<-CONF
		max_connections = 1100
		shared_buffers = '256MB'
		autovacuum = off
		max_wal_size = '4GB'
		checkpoint_timeout = '1h'
	CONF
	[[ $1 != plain ]] || return 0
	cat <<-CONF
		shared_preload_libraries = 'zklock'
		zklock.connect_string = '$BENCH_ZK'
		zklock.connect_timeout = '60s'
		zklock.stale_snapshot = off
	CONF
}

bench_build_peers() {
	export BENCH_PEERS=$WORK/bench_peers BENCH_CLASS_PATH
	"${AS_USER[@]}" mkdir "$BENCH_PEERS"
	"${AS_USER[@]}" gcc -O2 -Wall -Wextra -Wno-unused-parameter -Werror -DTHREADED -D_GNU_SOURCE \
		-o "$BENCH_PEERS/c_client" "$COPY"/bench/peers/c_client.c -lzookeeper_mt -lpthread
	"${AS_USER[@]}" javac -nowarn -cp "$BENCH_CLASS_PATH" -d "$BENCH_PEERS" \
		"$COPY"/bench/peers/*.java
}

# Runs parts, given by name after the options of run.py.
bench_run() { "${AS_USER[@]}" /usr/bin/python3 "$COPY/bench/run.py" "$@"; }
