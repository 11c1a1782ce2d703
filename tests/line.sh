#!/bin/sh
# Runs a command on a copy of this checkout with another line of TFX than this machine's:
#
#     tests/line.sh 1.21 make test
#
# TFX 1.21 runs in a Debian 13 that debootstrap makes (root only, and Debian's packages),
# with Python 3.13; with SYSTEM=ubuntu-24.04, in that one, with Python 3.12. This machine's
# Pythons of pyenv run there too:
#
#     PYTHON=~/.pyenv/versions/3.12.1/bin/python tests/line.sh 1.21 make test
#
# TFX 1.16 runs on this machine, which needs a Python 3.10. Copy and environment stay in
# ~/.cache/tfx-distribute for the next time (6 GB each). The files that a test run leaves
# are below /tmp there until the next one.
set -eu
cd "$(dirname "$0")/.."
line=$1
shift
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tfx-distribute/$line
mkdir -p "$cache"

# Two runs would take the copy from each other.
exec 9>"$cache/.lock"
flock --nonblock 9 || {
    echo "error: tests/line.sh $line runs already" >&2
    exit 1
}

# The files that are here now, committed or not, without those of the last time. What was
# built there stays.
copy_to() {
    mkdir -p "$1"
    [ ! -e "$cache/files" ] || (cd "$1" && xargs -0 rm -f <"$cache/files")
    git ls-files -z --cached --others --exclude-standard >"$cache/files"
    tar --create --null --ignore-failed-read --files-from "$cache/files" 2>/dev/null | tar --extract --directory "$1"
}

if [ "$line" != 1.21 ]; then
    copy_to "$cache/checkout"
    cd "$cache/checkout"
    LINE=$line exec "$@"
fi

system=${SYSTEM:-debian-13}
case $system in
debian-13) set -- trixie http://deb.debian.org/debian /usr/share/keyrings/debian-archive-keyring.gpg "$@" ;;
ubuntu-24.04) set -- noble http://archive.ubuntu.com/ubuntu /usr/share/keyrings/ubuntu-archive-keyring.gpg "$@" ;;
*)
    echo "error: SYSTEM=$system: there are debian-13 and ubuntu-24.04" >&2
    exit 1
    ;;
esac
release=$1 mirror=$2 keyring=$3
shift 3
root=$cache/$system
if [ "$(id -u)" != 0 ]; then
    echo "error: a system of its own needs root: sudo make test-line LINE=$line" >&2
    exit 1
fi
command -v debootstrap >/dev/null || {
    echo "error: no debootstrap: apt install debootstrap" >&2
    exit 1
}
if [ ! -e "$root/.made" ]; then
    [ -e "$keyring" ] || {
        echo "error: no $keyring, which has the keys of $system's packages: install it" >&2
        exit 1
    }
    echo "making $system in $root"
    rm -rf "$root"
    # An older debootstrap does not know the newest releases, which are all made alike.
    scripts=/usr/share/debootstrap/scripts
    script=$scripts/$release
    [ -e "$script" ] || script=$scripts/gutsy
    # Ubuntu has python3-venv among the packages that its community maintains.
    [ $release = trixie ] || components=main,universe
    debootstrap --variant=minbase --components="${components:-main}" --keyring="$keyring" \
        --include=ca-certificates,g++,git,iproute2,make,procps,python3-dev,python3-venv \
        "$release" "$root" "$mirror" "$script" >"$cache/debootstrap.log" || {
        tail -n 5 "$cache/debootstrap.log" >&2
        exit 1
    }
    touch "$root/.made"
fi
rm -rf "$root/tmp/"*
copy_to "$root/checkout"
# This machine's name resolution, package index and trusted certificates.
for file in etc/resolv.conf etc/hosts etc/pip.conf etc/ssl/certs/ca-certificates.crt; do
    [ ! -e "/$file" ] || cat "/$file" >"$root/$file"
done

# The namespaces end with the shell, their first process, and all mounts and processes in
# them end too. The shell also reaps orphaned processes.
PYENV=${PYENV_ROOT:-$HOME/.pyenv}/versions ROOT=$root LINE=$line exec unshare --mount --pid --fork --kill-child --mount-proc sh -euc '
    mount --bind "$ROOT" "$ROOT"
    mount --rbind /dev "$ROOT/dev"
    mount -t sysfs sysfs "$ROOT/sys"
    mount -t proc proc "$ROOT/proc"
    mount -t tmpfs tmpfs "$ROOT/run"
    if [ -d "$PYENV" ]; then
        mkdir -p "$ROOT$PYENV"
        mount --bind -o ro "$PYENV" "$ROOT$PYENV"
    fi
    # A test needs user namespaces, which Linux forbids in a chroot.
    cd "$ROOT"
    pivot_root . mnt
    cd /
    umount --lazy /mnt
    code=0
    HOME=/root env --chdir=/checkout "$@" || code=$?
    exit $code' sh "$@" 9>&-
