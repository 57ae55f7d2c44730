# Runs the regression and isolation tests on a server whose backends are checked at run time:
# with the extension built with AddressSanitizer and UBSan, or under valgrind. Sourced by
# scripts/test, whose functions it uses. Owns: this server, and installing the plain
# extension again.
# shellcheck shell=bash disable=SC2034

# Builds and installs the sanitized extension, starts a server with the
# sanitizers' libraries and runs the tests on it.
check_backend_asan() {
	trap build_and_install EXIT
	make_copy clean >/dev/null
	make_copy -s all with_llvm=no \
		COPT='-O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined'
	as_root make -C "$COPY" --no-print-directory -s PG_CONFIG="$PG_CONFIG" \
		with_llvm=no install
	"${AS_USER[@]}" mkdir "$WORK/reports"
	"${AS_USER[@]}" gcc -shared -fPIC -Wl,-z,initfirst -o "$WORK/asan_first.so" \
		"$COPY/test/lib/asan_first.c"
	export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:log_path=$WORK/reports/asan
	export UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1:log_path=$WORK/reports/ubsan
	LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
	export LD_PRELOAD="$LD_PRELOAD $WORK/asan_first.so"
	start_watched 10s
	unset LD_PRELOAD
	test_watched
}

# The same with the plain extension and a server under valgrind. Only reports from the
# extension and the libraries it calls count: test/valgrind.supp suppresses PostgreSQL's own.
check_backend_valgrind() {
	"${AS_USER[@]}" mkdir "$WORK/reports"
	cat >"$WORK/postgres" <<-SH
		#!/bin/sh
		exec valgrind -q --trace-children=yes --num-callers=40 \\
			--error-limit=no --gen-suppressions=all \\
			--suppressions='$COPY/test/valgrind.supp' \\
			--log-file='$WORK/reports/%p' '$BINDIR/postgres' "\$@"
	SH
	chmod 755 "$WORK/postgres"
	PG_CTL_OPTIONS=(-p "$WORK/postgres" -t 300)
	start_watched 40s
	test_watched
}

# The timeouts are long because valgrind is slow.
start_watched() {
	local port
	zk_start "$WORK/zk_watched"
	port=$(free_port)
	pg_start "$WORK/pg_watched" "$port" <<-CONF
		shared_preload_libraries = 'zklock'
		zklock.connect_string = '$ZK_CONNECT'
		zklock.session_timeout = '$1'
		zklock.ensemble_timeout = '60s'
		max_prepared_transactions = 10
		jit = off
	CONF
	export PGHOST=$WORK PGPORT=$port PGUSER=postgres
}

# A report is a failure, even if all tests passed.
test_watched() {
	local status=0 reports
	"${AS_USER[@]}" prove --exec scripts/regress-tap regress isolation || status=$?
	"${AS_USER[@]}" pg_ctl -D "$WORK/pg_watched" -m fast -w -s stop || status=$?
	zk_stop "$WORK/zk_watched"
	mapfile -t reports < <(find "$WORK/reports" -type f -size +0)
	((${#reports[@]} == 0)) || {
		say "${#reports[@]} processes have reports:"
		cat "${reports[@]}" | head -n 400
		status=1
	}
	((status == 0)) || show "$WORK/pg_watched.log" tail 60
	return "$status"
}
