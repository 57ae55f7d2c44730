# Systems of other Debian releases, for the scripts that test in them; sourced by these
# scripts. Owns: a cache of minimal systems made by debootstrap, copies of these systems,
# and running a command in a copy. Touches no other system: everything is below CHROOTS, or
# in a directory that the caller names. A command runs with its own mounts and processes,
# which end with the command.
#
# CHROOTS comes from ZKLOCK_CHROOTS, default /var/cache/zklock. The directory may be removed
# when nothing runs in it. chroot_lock ensures that only one script at a time uses a system.
# Packages come from the mirror in this machine's own apt sources.
# shellcheck shell=bash

CHROOTS=${ZKLOCK_CHROOTS:-/var/cache/zklock}

# Prints why systems cannot be made or run here; prints nothing if they can.
chroot_obstacle() {
	if ((EUID != 0)); then
		echo "needs root"
	elif ! unshare --mount --pid --fork --kill-child \
		mount -t tmpfs tmpfs /mnt 2>/dev/null; then
		echo "may not mount"
	elif ! mkdir -p "$CHROOTS" 2>/dev/null || ! [[ -w $CHROOTS ]]; then
		echo "cannot write to $CHROOTS"
	fi
}

# The argument names the system, if the script uses only one.
# shellcheck disable=SC2120
chroot_lock() {
	exec {CHROOT_LOCK}>"$CHROOTS/lock${1:+.$1}"
	flock -n "$CHROOT_LOCK" && return
	echo "Waiting for another script that uses $CHROOTS"
	flock "$CHROOT_LOCK"
}

# Makes a minimal system of a release, once. Fails with a message if the mirror is
# unreachable or has no such release.
chroot_base() {
	local suite=$1 base=$CHROOTS/$1 mirror script=()
	[[ ! -d $base ]] || return 0
	mirror=$(chroot_sources "$suite" | awk -v s="$suite" '$3 == s { print $2; exit }')
	[[ -n $mirror ]] || { echo "apt has no source of Debian here" >&2 && return 1; }
	command -v debootstrap >/dev/null ||
		{ apt-get -qq update && apt-get -qq -y --no-install-recommends install debootstrap; } \
			>"$base.log" 2>&1 || { echo "debootstrap cannot be installed" >&2 && return 1; }
	# debootstrap uses the same script for all releases that are newer than itself.
	[[ -e /usr/share/debootstrap/scripts/$suite ]] || script=(sid)
	echo "Making a minimal $suite in $base"
	rm -rf --one-file-system "$base.new"
	debootstrap --variant=minbase "$suite" "$base.new" "$mirror" "${script[@]}" \
		>"$base.log" 2>&1 || { tail "$base.log" >&2 && return 1; }
	chroot_sources "$suite" >"$base.new/etc/apt/sources.list"
	# The index of testing is valid for a week; an older index of a slow mirror is accepted, and
	# one that is newer than the clock of this machine. Its signature is still checked.
	printf 'Acquire::%s "false";\n' Check-Valid-Until Check-Date >"$base.new/etc/apt/apt.conf.d/90mirror"
	# A system that is only for tests need not survive a power failure.
	echo force-unsafe-io >"$base.new/etc/dpkg/dpkg.cfg.d/unsafe-io"
	mv "$base.new" "$base"
}

# Prints the lines of a sources.list: this machine's, for another release. Unstable and
# experimental have no updates beside them.
chroot_sources() {
	local here
	# shellcheck source=/dev/null
	here=$(. /etc/os-release && echo "$VERSION_CODENAME")
	# The variables are apt's, not the shell's.
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' \
		'Created-By: Packages' | sort -u |
		awk -v here="$here" -v suite="$1" '$1 ~ "^" here "(-|$)" && $2 == "main" {
			if (suite ~ /^(sid|experimental)$/ && $1 != here)
				next
			sub("^" here, suite, $1)
			print "deb", $3, $1, $2
		}'
}

# Adds to a system the packages of one source package in another release. The newest version
# is installed, as of any package.
chroot_add_source() {
	local target=$1 suite=$2 source=$3
	chroot_sources "$suite" >"$target/etc/apt/sources.list.d/$suite.list"
	printf 'Package: src:%s\nPin: release a=%s\nPin-Priority: 500\n' "$source" "$suite" \
		>"$target/etc/apt/preferences.d/$suite"
}

# Copies a minimal system to a directory that is empty or does not exist.
chroot_copy() {
	chroot_base "$1"
	mkdir -p "$2"
	cp -a "$CHROOTS/$1/." "$2/"
}

# Copies the checkout, without .git and build products, to /zklock.
chroot_checkout() {
	rm -rf "$1/zklock"
	mkdir "$1/zklock"
	tar -C "$2" --exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.so' \
		--exclude='*.bc' -cf - . | tar -C "$1/zklock" --no-same-owner -xf -
}

# Runs a command in a system, in /zklock if it exists, with empty input. Of the environment
# only ZKLOCK_* is passed on. Downloaded packages are kept for the next system. The system
# becomes the root of its mount namespace, because user namespaces, which one test needs,
# cannot be created in a plain chroot.
chroot_run() {
	local target=$1 name pass=()
	shift
	for name in $(compgen -e ZKLOCK_); do
		pass+=("$name=${!name}")
	done
	mkdir -p "$CHROOTS/archives/partial"
	cp /etc/resolv.conf /etc/hosts "$target/etc/"
	# The words are expanded by the inner shell.
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --kill-child bash -ec '
		target=$1 archives=$2
		shift 2
		mount --bind "$target" "$target"
		mount -t proc proc "$target/proc"
		mount -t sysfs sysfs "$target/sys"
		mount --rbind /dev "$target/dev"
		mount -t tmpfs tmpfs "$target/dev/shm"
		mount --bind "$archives" "$target/var/cache/apt/archives"
		cd "$target"
		pivot_root . mnt
		umount --lazy /mnt
		exec env -i TERM=dumb HOME=/root \
			PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
	' bash "$target" "$CHROOTS/archives" "${pass[@]}" \
		bash -c 'cd /; if [[ -d /zklock ]]; then cd /zklock; fi; exec "$@"' bash "$@" </dev/null
}
