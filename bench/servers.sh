# The private servers of a measurement, and the programs that zklock is compared
# with; sourced by scripts/bench and scripts/test after scripts/lib.sh. Owns: their
# configuration, and passing their addresses to bench/run.py.
# shellcheck shell=bash

# The Java virtual machine uses its default compilers, unlike in the tests, and has
# memory for a hundred thousand nodes.
BENCH_ZK_JAVA=(-XX:TieredStopAtLevel=4 -Xms512m -Xmx1g)
# The disk sync is ZooKeeper's default. Java takes the last value of an option.
BENCH_ZK_SYNC=(-Dzookeeper.forceSync=yes -Dzookeeper.preAllocSize=65536)
BENCH_CLASS_PATH=/usr/share/java/curator-recipes.jar:/usr/share/java/curator-framework.jar:/usr/share/java/slf4j-simple.jar
BENCH_SERVERS=(a b c plain)

# Starts one ZooKeeper server, which waits for its disk if BENCH_SYNC is "on",
# with its data in BENCH_DISK; PostgreSQL servers a, b and c with the extension
# preloaded, and plain without it.
bench_start_servers() {
	local name port java=("${BENCH_ZK_JAVA[@]}")
	[[ ${BENCH_SYNC:-off} == off ]] || java+=("${BENCH_ZK_SYNC[@]}")
	export BENCH_DISK=${BENCH_DISK:-$WORK}
	zk_start "$BENCH_DISK/bench_zk" "${java[@]}"
	export BENCH_ZK=$ZK_CONNECT BENCH_SOCKETS=$WORK BENCH_PORTS=
	for name in "${BENCH_SERVERS[@]}"; do
		port=$(free_port)
		bench_configuration "$name" | pg_start "$WORK/bench_$name" "$port"
		BENCH_PORTS+=" $name=$port"
		[[ $name == plain ]] ||
			psql -Xq -h "$WORK" -p "$port" -U postgres -d postgres -c 'CREATE EXTENSION zklock'
	done
}

# Stops the servers that bench_start_servers started, if any.
bench_stop_servers() {
	local name disk=${BENCH_DISK:-$WORK}
	for name in "${BENCH_SERVERS[@]}"; do
		[[ ! -e $WORK/bench_$name/postmaster.pid ]] ||
			"${AS_USER[@]}" pg_ctl -D "$WORK/bench_$name" -m fast -s -w stop
		rm -rf "$WORK/bench_$name"{,.log,.initdb}
	done
	[[ ! -e $disk/bench_zk/zk.pid ]] || zk_stop "$disk/bench_zk"
	rm -rf "$disk/bench_zk"{,.out}
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
		zklock.ensemble_timeout = '60s'
		zklock.stale_snapshot = off
	CONF
}

bench_build_peers() {
	export BENCH_PEERS=$WORK/bench_peers BENCH_CLASS_PATH
	"${AS_USER[@]}" mkdir "$BENCH_PEERS"
	"${AS_USER[@]}" gcc -O2 -Wall -Wextra -Wno-unused-parameter -Werror -DTHREADED -D_GNU_SOURCE \
		-o "$BENCH_PEERS/c_client" "$COPY"/bench/peers/c_client.c -l:libzookeeper_mt.so.2 -lpthread
	"${AS_USER[@]}" javac -nowarn -cp "$BENCH_CLASS_PATH" -d "$BENCH_PEERS" \
		"$COPY"/bench/peers/*.java
}

# Runs parts, given by name after the options of run.py.
bench_run() { "${AS_USER[@]}" /usr/bin/python3 "$COPY/bench/run.py" "$@"; }
