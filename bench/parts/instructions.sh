# Counts instructions; sourced by scripts/bench and scripts/test. Owns: the servers
# whose processes run under callgrind. The counts do not depend on time, so they are
# the same on an idle and on a busy machine.
# shellcheck shell=bash disable=SC2034

# A session that calls pg_my_temp_schema() writes its counts so far, and starts to
# count again.
#
# The C library chooses its code by the processor, and PostgreSQL's code differs between
# versions, so a record is valid for one set of versions.
instructions_start() {
	export BENCH_CALLGRIND=$WORK/callgrind BENCH_PEERS='' BENCH_CLASS_PATH
	"${AS_USER[@]}" mkdir "$BENCH_CALLGRIND"
	cat >"$WORK/postgres" <<-SH
		#!/bin/sh
		exec valgrind -q --tool=callgrind --trace-children=yes --separate-threads=yes \\
			--dump-before=pg_my_temp_schema --callgrind-out-file='$BENCH_CALLGRIND/%p' '$BINDIR/postgres' "\$@"
	SH
	chmod 755 "$WORK/postgres"
	PG_CTL_OPTIONS=(-p "$WORK/postgres" -t 300)
	bench_stop_servers
	BENCH_SERVERS=(a plain)
	bench_start_servers
}

bench_instructions() {
	instructions_start
	"${AS_USER[@]}" /usr/bin/python3 "$COPY/bench/instructions.py" "$1" \
		"$([[ -n $QUICK ]] && echo 1 || echo 9)"
}
