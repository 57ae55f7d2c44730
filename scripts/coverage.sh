# Reports which lines of src/ the tests reach: builds with gcov, collects with lcov. Sourced
# by scripts/test, whose functions it uses. Owns: the
# instrumented build, and the report in COVERAGE_DIR.
#
# A process writes its counts when it calls exit(). A process that is killed, or ended by an
# immediate shutdown, is not counted.
# shellcheck shell=bash disable=SC2034

COVERAGE_FLAGS='--coverage -O0 -fprofile-update=atomic'

# These parts use one build, and shut their processes down.
COVERAGE_PARTS=(unit regress isolation pgtap t)

# Replaces the plain build.
build_for_coverage() {
	make_copy clean >/dev/null
	make_copy -s all with_llvm=no COPT="$COVERAGE_FLAGS"
	as_root make -C "$COPY" --no-print-directory -s PG_CONFIG="$PG_CONFIG" \
		with_llvm=no install
}

# Prints lines and branches of src/ by file, and writes HTML pages.
report_coverage() {
	local info=$COVERAGE_DIR/zklock.info lcov=(lcov --quiet --rc lcov_branch_coverage=1)
	mkdir -p "$COVERAGE_DIR"
	"${lcov[@]}" --capture --directory "$COPY" --output-file "$WORK/all.info"
	"${lcov[@]}" --extract "$WORK/all.info" "$COPY/src/*" --output-file "$info"
	genhtml --quiet --branch-coverage --prefix "$COPY" --output-directory \
		"$COVERAGE_DIR" "$info"
	lcov --rc lcov_branch_coverage=1 --list "$info" | sed "s|$COPY/||"
	say "The report is $COVERAGE_DIR/index.html"
}
