# Many sessions without SQL, on an ensemble of three servers; sourced by scripts/bench.
# Owns: building the program with the sessions. bench/scale/scale.py measures.
# shellcheck shell=bash disable=SC2034

SCALE_ROUNDS=3

bench_scale() {
	export BENCH_SESSIONS=$WORK/scale_sessions BENCH_LOAD
	BENCH_LOAD=$(cut -d ' ' -f 1 /proc/loadavg)
	"${AS_USER[@]}" gcc -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror \
		-I"$COPY/src" -o "$BENCH_SESSIONS" \
		"$COPY/bench/scale/sessions.c" "$COPY"/src/recipe/*.c "$COPY"/src/recipe/*/*.c \
		-l:libzookeeper_st.so.2 -lpthread
	"${AS_USER[@]}" /usr/bin/python3 "$COPY/bench/scale/scale.py" "$1" \
		"$SCALE_ROUNDS" ${QUICK:+quick}
}
