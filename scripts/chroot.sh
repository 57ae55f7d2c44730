# Systems of other Debian releases, to be sourced by the scripts that test in
# them. Owns: a cache of minimal systems made by debootstrap, systems copied from
# them, running a command in one. Never touches a system of others: everything
# is below CHROOTS, or a directory that the caller names, and what runs there has
# mounts and processes of its own, which end with it.
#
# CHROOTS comes from ZKLOCK_CHROOTS, default /var/cache/zklock; it may be removed
# whenever nothing runs there. chroot_lock makes sure that one script at a time
# uses it. Packages come from the mirror in this machine's own apt sources.
# shellcheck shell=bash

CHROOTS=${ZKLOCK_CHROOTS:-/var/cache/zklock}

# Says why systems cannot be made or run here; nothing if they can.
chroot_hindrance() {
	if ((EUID != 0)); then
		echo "needs root"
	elif ! unshare --mount --pid --fork --kill-child \
		mount -t tmpfs tmpfs /mnt 2>/dev/null; then
		echo "may not mount"
	elif ! mkdir -p "$CHROOTS" 2>/dev/null || ! [[ -w $CHROOTS ]]; then
		echo "cannot write to $CHROOTS"
	fi
}

chroot_lock() {
	exec {CHROOT_LOCK}>"$CHROOTS/lock"
	flock -n "$CHROOT_LOCK" && return
	echo "Waiting for another script that uses $CHROOTS"
	flock "$CHROOT_LOCK"
}

# Makes a minimal system of a release, once; fails, and tells why, where the
# mirror cannot be reached or does not know the release.
chroot_base() {
	local suite=$1 base=$CHROOTS/$1 mirror script=()
	[[ ! -d $base ]] || return 0
	mirror=$(chroot_sources "$suite" | awk -v s="$suite" '$3 == s { print $2; exit }')
	[[ -n $mirror ]] || { echo "apt has no source of Debian here" >&2 && return 1; }
	command -v debootstrap >/dev/null ||
		{ apt-get -qq update && apt-get -qq -y --no-install-recommends install debootstrap; } \
			>"$base.log" 2>&1 || { echo "debootstrap cannot be installed" >&2 && return 1; }
	# Releases that this machine's debootstrap has not heard of are alike.
	[[ -e /usr/share/debootstrap/scripts/$suite ]] || script=(sid)
	echo "Making a minimal $suite in $base"
	rm -rf --one-file-system "$base.new"
	debootstrap --variant=minbase "$suite" "$base.new" "$mirror" "${script[@]}" \
		>"$base.log" 2>&1 || { tail "$base.log" >&2 && return 1; }
	chroot_sources "$suite" >"$base.new/etc/apt/sources.list"
	# Testing's index is valid for a week; a mirror that lags more serves as well.
	# That it is signed is still checked.
	echo 'Acquire::Check-Valid-Until "false";' >"$base.new/etc/apt/apt.conf.d/90mirror"
	mv "$base.new" "$base"
}

# Lines of a sources.list: this machine's, for another release.
chroot_sources() {
	local here
	# shellcheck source=/dev/null
	here=$(. /etc/os-release && echo "$VERSION_CODENAME")
	# The variables are apt's, not the shell's.
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' \
		'Created-By: Packages' | sort -u |
		awk -v here="$here" -v suite="$1" '$1 ~ "^" here "(-|$)" && $2 == "main" {
			sub("^" here, suite, $1)
			print "deb", $3, $1, $2
		}'
}

# A new system in an empty directory, or one that is not there yet.
chroot_copy() {
	chroot_base "$1"
	mkdir -p "$2"
	cp -a "$CHROOTS/$1/." "$2/"
}

# The checkout without .git and without what was built, as /zklock.
chroot_checkout() {
	rm -rf "$1/zklock"
	mkdir "$1/zklock"
	tar -C "$2" --exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.so' \
		--exclude='*.bc' -cf - . | tar -C "$1/zklock" --no-same-owner -xf -
}

# Runs a command in a system, in /zklock if there is one, with nothing on its
# input; of the environment only ZKLOCK_* is passed on. Packages that were
# downloaded are kept for the next system. The system becomes the root of its
# name space, because in a plain chroot nobody may make name spaces for users,
# which a test wants.
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
