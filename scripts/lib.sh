# Functions that the scripts share; sourced, not run. Owns: finding pg_config,
# installing missing packages, building in a temporary copy, running commands as an
# unprivileged user, and private ZooKeeper and PostgreSQL servers. Servers write
# their pid to a file in their directory; only these servers are ever stopped.
#
# A script sources this, calls make_work_dir, and has a trap that calls
# remove_work_dir. Sets ROOT (the checkout), WORK (the temporary directory),
# COPY (the copy of the checkout), PG_CONFIG, BINDIR, AS_USER (a command prefix).
# shellcheck shell=bash disable=SC2034

# Prints the PostgreSQL version of this release of Debian; ZKLOCK_PG_MAJOR overrides it.
default_pg_major() {
	# shellcheck source=/dev/null
	case $(. /etc/os-release && echo "${VERSION_CODENAME:-}") in
		trixie) echo 17 ;;
		forky) echo 18 ;;
		*) echo 15 ;;
	esac
}

PG_MAJOR=${ZKLOCK_PG_MAJOR:-$(default_pg_major)}
BUILD_PACKAGES=(gcc libc6-dev make perl libzookeeper-st-dev libzookeeper-java
	default-jre-headless)
if [[ -z ${PG_CONFIG:-} ]]; then
	BUILD_PACKAGES+=("postgresql-$PG_MAJOR" "postgresql-server-dev-$PG_MAJOR")
fi

# Prints the further packages that a part of scripts/test needs.
packages_for() {
	case $1 in
		build) echo clang ;;
		asan | tsan | fuzz) echo clang libclang-rt-dev ;;
		model) echo spin ;;
		defects) echo spin libipc-run-perl python3-kazoo ;;
		pgtap) echo libtap-parser-sourcehandler-pgtap-perl ;;
		chaos) echo procps libipc-run-perl python3-kazoo python3-psycopg2 python3-matplotlib socat iproute2 ;;
		edges) echo procps gdb libipc-run-perl python3-kazoo python3-psycopg2 socat iproute2 bzip2 ;;
		t | long) echo procps gdb clang libclang-rt-dev libipc-run-perl python3-kazoo python3-psycopg2 python3-yaml python3-pip python3-setuptools python3-wheel libcurator-recipes-java default-jdk-headless socat iproute2 openssl bzip2 pgbouncer stunnel4 prometheus prometheus-sql-exporter ;;
		patroni) echo libipc-run-perl python3-kazoo patroni ;;
		earlier) echo git libipc-run-perl python3-kazoo python3-psycopg2 ;;
		bench) echo libzookeeper-mt2 libcurator-recipes-java default-jdk-headless python3-kazoo python3-psycopg2 python3-matplotlib ;;
		valgrind | backend-valgrind) echo valgrind ;;
		instructions) echo valgrind python3-psycopg2 ;;
		style) echo patch pg-bsd-indent shellcheck libperl-critic-perl pyflakes3 ;;
	esac
}

VERSION_0_9=49f453141e65dbe25b301bb3337db7f68f3e1562
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
AS_USER=()
PG_CTL_OPTIONS=()
WORK=

say() { printf '%s\n' "$*"; }

die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# Runs a command as root.
as_root() {
	if ((EUID == 0)); then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "needs root or sudo for: $*"
	fi
}

# Calls a command until it succeeds, for at most the seconds given.
wait_for() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		((SECONDS < deadline)) || return 1
		sleep 0.05
	done
}

# Prints the packages among the arguments that are not installed.
missing_packages() {
	local package
	for package; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) \
			== installed ]] || printf '%s\n' "$package"
	done
}

# Installs missing packages. A server that comes with a package is not started,
# because the scripts use their own servers.
install_missing() {
	local missing policy=/usr/sbin/policy-rc.d made_policy=
	mapfile -t missing < <(missing_packages "$@" | sort -u)
	((${#missing[@]})) || return 0
	say "Installing ${#missing[@]} packages, which can take some minutes: ${missing[*]}"
	if [[ ! -e $policy ]]; then
		made_policy=yes
		printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
		as_root chmod +x "$policy"
	fi
	local status=0
	apt_install "${missing[@]}" || status=$?
	[[ -z $made_policy ]] || as_root rm -f "$policy"
	((status == 0)) || die "installing packages failed"
}

# Installs the drivers of the programs in doc/examples and of clients/. If a driver is not
# available, the tests of its programs are skipped.
install_drivers() {
	install_if_possible libpostgresql-jdbc-java
	install_if_possible python3-psycopg
	install_if_possible python3-asyncpg
	install_if_possible ruby-pg ruby-activerecord
	install_if_possible golang-go golang-github-jackc-pgx-v4-dev
	has_node_driver || (install_missing node-pg) 2>/dev/null || npm_install pg@8 ||
		say "Not installed: node-pg"
}

# Installs the programs of test/t/programs/advisory_programs.pl and programs/symfony.pl, in the same
# way; those for Node.js in the versions that the Node.js of Debian 12 runs.
install_advisory_programs() {
	install_if_possible ruby-pg ruby-activerecord
	install_if_possible python3-django-pglocks python3-django python3-six
	install_if_possible php-cli php-pgsql php-symfony-lock
	command -v npm >/dev/null || (install_missing npm) || true
	npm_install pg@8 node-pg-migrate@7 pg-boss@9 || say "Not installed: node-pg-migrate, pg-boss"
}

# Installs pgTAP. It is SQL: if there is no package of it for a new version of PostgreSQL, the
# files of the newest package are taken.
install_pgtap() {
	local package=postgresql-$PG_MAJOR-pgtap dir=usr/share/postgresql newest
	[[ ! -e /$dir/$PG_MAJOR/extension/pgtap.control ]] || return 0
	newest=$(apt-cache pkgnames postgresql- | grep -E '^postgresql-[0-9]+-pgtap$' | sort -V | tail -n 1)
	if [[ -z $newest ]] || apt-cache show "$package" >/dev/null 2>&1; then
		install_missing "$package"
		return
	fi
	package=$newest
	say "$package is taken for PostgreSQL $PG_MAJOR"
	mkdir "$WORK/pgtap"
	(cd "$WORK/pgtap" && apt-get -qq -o APT::Sandbox::User= download "$package" && dpkg-deb -x ./*.deb .)
	as_root cp "$WORK/pgtap/$dir"/*/extension/pgtap* "/$dir/$PG_MAJOR/extension/"
}

# Installs extensions that use the same hooks, if there are packages of them.
install_other_extensions() {
	install_if_possible "postgresql-$PG_MAJOR-pgaudit"
	install_if_possible "postgresql-$PG_MAJOR-cron"
	install_if_possible "postgresql-$PG_MAJOR-pg-hint-plan"
}

install_if_possible() { (install_missing "$@") || say "Not installed: $*"; }

has_node_driver() { NODE_PATH=/usr/share/nodejs node -e 'require("pg")' 2>/dev/null; }

# Installs modules of Node.js that do not come from Debian into the work directory.
npm_install() {
	command -v npm >/dev/null || return 1
	mkdir -p "$WORK/npm"
	npm install --silent --no-audit --no-fund --ignore-scripts --fetch-retries=1 \
		--fetch-timeout=30000 --cache "$WORK/npm/cache" --prefix "$WORK/npm" "$@" \
		</dev/null >"$WORK/npm.log" 2>&1 || return 1
	export NODE_PATH=$WORK/npm/node_modules
}

# Gets PostgreSQL's regression test of advisory locks from Debian's source package. Sets
# ZKLOCK_PG_SOURCE to the directory, unless it is set.
fetch_pg_source() {
	[[ -z ${ZKLOCK_PG_SOURCE:-} ]] || return 0
	mkdir "$WORK/source"
	if (cd "$WORK/source" && extract_source "postgresql-$PG_MAJOR" --wildcards '*/src/test/regress/*/advisory_lock.*') \
		</dev/null >"$WORK/source.log" 2>&1; then
		export ZKLOCK_PG_SOURCE=$WORK/source
	else
		say "Not available: the source of postgresql-$PG_MAJOR"
	fi
}

# Downloads the source of a Debian package to the current directory and extracts it there,
# with further options of tar. Uses a copy of apt's sources with entries for source packages,
# which apt's own sources may lack. A mirror may lack the newest version.
extract_source() {
	local package=$1 version options=(-qq -o "Dir::Etc::SourceList=$PWD/apt/sources.list"
		-o "Dir::Etc::SourceParts=$PWD/apt/sources.list.d" -o "Dir::State::Lists=$PWD/apt/lists"
		-o "Dir::Cache=$PWD/apt" -o APT::Sandbox::User=)
	mkdir -p apt/lists/partial
	cp -r /etc/apt/sources.list* apt
	find apt -type f -exec sed -i -E 's/^deb\s/deb-src /; s/^Types:.*/Types: deb-src/' {} +
	apt-get "${options[@]}" update
	for version in $(apt-cache "${options[@]}" showsrc --only-source "$package" | sed -n 's/^Version: //p' | sort -rVu); do
		! apt-get "${options[@]}" source --download-only --tar-only "$package=$version" || break
	done
	tar -xf "$package"_*.orig.tar.* --strip-components=1 --no-same-owner "${@:2}"
}

apt_install() { with_progress apt_state run_apt "$@"; }

# Runs a command. Meanwhile prints every fifteen seconds the time and what the first argument, a
# function, prints. The pause must not keep a pipe open.
with_progress() {
	show_progress "$1" &
	local progress=$! status=0
	"${@:2}" || status=$?
	kill "$progress" 2>/dev/null || true
	wait "$progress" 2>/dev/null || true
	return "$status"
}

show_progress() {
	while sleep 15 >/dev/null 2>&1; do
		say "  ... $((SECONDS / 60)) min $((SECONDS % 60)) s: $("$1")"
	done
}

apt_state() { tail -n 1 "$WORK/apt.log" 2>/dev/null | cut -c 1-80; }

run_apt() {
	if ! { as_root apt-get -qq update &&
		as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
			--no-install-recommends -o Dpkg::Use-Pty=0 install "$@"; } \
		</dev/null >"$WORK/apt.log" 2>&1; then
		tail -n 30 "$WORK/apt.log" >&2
		return 1
	fi
}

# Finds pg_config; PG_CONFIG overrides it.
find_pg_config() {
	if [[ -z ${PG_CONFIG:-} ]]; then
		PG_CONFIG=/usr/lib/postgresql/$PG_MAJOR/bin/pg_config
		[[ -x $PG_CONFIG ]] || PG_CONFIG=$(command -v pg_config) ||
			die "pg_config not found; set PG_CONFIG"
	fi
	export PG_CONFIG
	BINDIR=$("$PG_CONFIG" --bindir)
	PGXS_DIR=$(dirname "$("$PG_CONFIG" --pgxs)")
	PATH=$BINDIR:$PATH
}

# PostgreSQL refuses to run as root. setpriv calls exec, so a recorded pid is the
# command's own.
choose_user() {
	((EUID == 0)) || return 0
	local user=postgres
	id "$user" >/dev/null 2>&1 || user=nobody
	AS_USER=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --init-groups --)
	chown "$user" "$WORK"
}

make_work_dir() {
	WORK=$(mktemp -d /tmp/zklock.XXXXXX)
	COPY=$WORK/src
	touch "$WORK/began"
	unset TMPDIR LC_ALL LANGUAGE PGHOST PGPORT PGUSER PGDATABASE PGDATA \
		PGOPTIONS PGSERVICE PGPASSWORD PGPASSFILE
	export LANG=C.UTF-8
}

# Ends every server below the work directory and removes it.
remove_work_dir() {
	local dir
	[[ -n $WORK && -d $WORK ]] || return 0
	for dir in "$WORK"/*/ "$WORK"/shared/*/zk/; do
		[[ ! -e $dir/zk.pid ]] || zk_stop "$dir"
	done
	end_postmasters
	remove_segments
	cd /
	rm -rf "$WORK"
}

# Removes the shared memory of servers that were killed: it is in no process, and was made
# after the work directory.
remove_segments() {
	local segment
	for segment in /dev/shm/PostgreSQL.*; do
		if [[ -O $segment || $EUID == 0 ]] && [[ $segment -nt $WORK/began ]] &&
			! grep -qsF "$segment" /proc/[0-9]*/maps; then
			rm -f "$segment"
		fi
	done
}

# Stops PostgreSQL servers that a test left running; their data is below the work directory.
end_postmasters() {
	local file pid
	while IFS= read -r file; do
		pid=$(head -n 1 "$file")
		kill -QUIT "$pid" 2>/dev/null || continue
		wait_for 10 gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
	done < <(find "$WORK" -name postmaster.pid 2>/dev/null)
}

gone() { ! kill -0 "$1" 2>/dev/null || [[ $(ps_state "$1") == Z ]]; }

ps_state() { sed -n 's/^State:\s*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null; }

# Copies the checkout, without build products, for the unprivileged user.
copy_tree() {
	mkdir "$COPY" "$WORK/home"
	tar -C "$ROOT" --exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.so' \
		--exclude='*.bc' -cf - . | tar -C "$COPY" --no-same-owner -xf -
	chmod -R u+w "$COPY"
	if ((${#AS_USER[@]})); then
		chown -R --reference="$WORK" "$COPY" "$WORK/home"
	fi
	export HOME=$WORK/home
}

# Runs make in the copy, as the unprivileged user. Bitcode would double the work, and no
# test needs it.
make_copy() {
	"${AS_USER[@]}" make -C "$COPY" --no-print-directory -j "$(nproc)" \
		PG_CONFIG="$PG_CONFIG" with_llvm=no "$@"
}

install_extension() {
	as_root make -C "$COPY" --no-print-directory -s \
		PG_CONFIG="$PG_CONFIG" with_llvm=no install
}

git_here() { git -c safe.directory="$ROOT" -C "$ROOT" "$@"; }

# Builds an earlier version, a commit, from the history.
build_earlier() {
	local dir=$WORK/earlier commit=$1
	"${AS_USER[@]}" mkdir "$dir"
	git_here archive "$commit" | "${AS_USER[@]}" tar -C "$dir" -xf -
	"${AS_USER[@]}" make -C "$dir" --no-print-directory -s -j "$(nproc)" \
		PG_CONFIG="$PG_CONFIG" with_llvm=no all
}

free_port() { perl -I "$COPY/test/lib" -MZkLock::Util=free_port -e 'print free_port'; }

# Starts a ZooKeeper server in a new directory, with further options of java;
# sets ZK_CONNECT.
zk_start() {
	local dir=$1
	"${AS_USER[@]}" mkdir "$dir"
	"${AS_USER[@]}" perl -I "$COPY/test/lib" -MZkLock::ZkServer \
		-e 'exit ZkLock::ZkServer->run_until_signal(@ARGV)' "$@" \
		</dev/null >"$dir.out" 2>&1 &
	echo $! >"$dir/zk.pid"
	# The process ends by itself if the server does not start.
	until zk_started_or_gone "$dir"; do
		sleep 0.05
	done
	if [[ ! -s $dir/connect_string ]]; then
		cat "$dir.out" >&2
		die "ZooKeeper did not start"
	fi
	ZK_CONNECT=$(<"$dir/connect_string")
}

zk_started_or_gone() { [[ -s $1/connect_string ]] || gone "$(<"$1/zk.pid")"; }

zk_stop() {
	local pid
	pid=$(<"$1/zk.pid")
	rm -f "$1/zk.pid"
	kill -TERM "$pid" 2>/dev/null || return 0
	wait_for 20 gone "$pid" || kill -KILL "$pid" 2>/dev/null || true
}

# Makes a database cluster in a new directory and starts its server on a socket
# in the work directory; further lines of configuration come on stdin.
pg_start() {
	local dir=$1 port=$2
	"${AS_USER[@]}" initdb -D "$dir" -U postgres -A trust -N \
		--locale=C --encoding=UTF8 >"$dir.initdb" 2>&1 || {
		cat "$dir.initdb" >&2
		die "initdb failed"
	}
	{
		echo "port = $port"
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$WORK'"
		echo "fsync = off"
		echo "log_line_prefix = '%m [%p] %q%a '"
		cat
	} >>"$dir/postgresql.conf"
	"${AS_USER[@]}" pg_ctl -D "$dir" -w -s -l "$dir.log" \
		"${PG_CTL_OPTIONS[@]}" start </dev/null || {
		tail -n 30 "$dir.log" >&2
		die "PostgreSQL did not start"
	}
}
