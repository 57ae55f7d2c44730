# A PostgreSQL with assertions, for the scripts that test with it; sourced by scripts/test.
# Owns: building it from Debian's source package, once, in a directory that outlives the run:
# postgresql-MAJOR-assertions below /var/cache/zklock, or ZKLOCK_CHROOTS. Nothing of it is
# installed in the system; the extension is installed in that directory.
# shellcheck shell=bash disable=SC2034

ASSERTION_PACKAGES=(bison flex libicu-dev libssl-dev zlib1g-dev pkg-config dpkg-dev)

# Sets PG_CONFIG. Only one run at a time uses the directory.
use_assertions() {
	local cache=${ZKLOCK_CHROOTS:-/var/cache/zklock} dir
	dir=$cache/postgresql-$PG_MAJOR-assertions
	as_root mkdir -p "$cache"
	exec {ASSERTIONS_LOCK}>"$cache/assertions.lock"
	flock "$ASSERTIONS_LOCK"
	if [[ ! -x $dir/bin/pg_config ]]; then
		install_missing "${ASSERTION_PACKAGES[@]}"
		say "Building PostgreSQL $PG_MAJOR with assertions, once; this takes some minutes"
		build_with_assertions "$dir" >"$WORK/assertions.log" 2>&1 || {
			tail -n 30 "$WORK/assertions.log" >&2
			as_root rm -rf "$dir"
			die "NO SOURCE: PostgreSQL $PG_MAJOR with assertions could not be built"
		}
	fi
	# pgTAP is SQL.
	if [[ " ${PARTS[*]} " == *" pgtap "* ]]; then
		as_root cp /usr/share/postgresql/"$PG_MAJOR"/extension/pgtap* \
			"$("$dir/bin/pg_config" --sharedir)/extension/"
	fi
	PG_CONFIG=$dir/bin/pg_config
}

# Debian's packages have the same optional parts, as far as a test needs them.
build_with_assertions() {
	local dir=$1 build=$WORK/assertions
	mkdir "$build"
	cd "$build" || return
	extract_source "postgresql-$PG_MAJOR"
	./configure --prefix="$dir" --enable-cassert --enable-debug --enable-tap-tests \
		--without-readline --with-icu --with-ssl=openssl CFLAGS=-O1
	make -s -j "$(nproc)" install
	make -s -j "$(nproc)" -C contrib install
	cd / || return
	rm -rf "$build"
}
