#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian package in a clean chroot and tests it in another; as root on Debian 12.
#
#     tests/packaging/debian.sh FOLDER [TEST...]
#
# The package and the chroots are left in FOLDER. Tests that are named, of tests/functional, are
# run against the daemon of the installed package. Debian's mirror is that of the machine's own
# apt, and pip goes where it goes on this machine.
# shellcheck disable=SC1091,SC2016  # single quotes: the shell inside expands it
set -euo pipefail

# Mounts and processes of its own end with it.
if [ -z "${NOVASCHED_UNSHARED:-}" ]; then
    NOVASCHED_UNSHARED=1 exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi

folder=$(realpath -m "${1:?usage: debian.sh FOLDER [TEST...]}")
shift
top=$(realpath "$(dirname "$0")/../..")
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
clean=(env -i "PATH=/usr/sbin:/usr/bin:/sbin:/bin" "DEBIAN_FRONTEND=$DEBIAN_FRONTEND" "LC_ALL=$LC_ALL")

say() { printf '\n== %s\n' "$*"; }

refuse() {
    echo "debian.sh: $*" >&2
    exit 1
}

new_root() { # NAME: a chroot like the base, with the sources in /src/novasched
    local root=$folder/$1
    rm -rf "$root"
    cp -a "$folder/base" "$root"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    mount -t proc proc "$root/proc"
    mkdir -p "$root/src/novasched"
    (cd "$top" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -c) |
        tar -x -C "$root/src/novasched"
    chroot "$root" apt-get -qq update
}

install_in() { # ROOT PACKAGE...
    local root=$1
    shift
    chroot "$root" "${clean[@]}" apt-get -qq install --no-install-recommends --yes "$@" \
        > "$folder/apt.log" 2>&1 || refuse "$(tail -n 20 "$folder/apt.log")"
}

say "a base of $suite"
if [ ! -d "$folder/base" ]; then
    mkdir -p "$folder"
    rm -rf "$folder/base.part"
    command -v debootstrap > /dev/null || apt-get -qq install --yes debootstrap
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite")
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$folder/base.part" \
        "${mirror%%$'\n'*}" > "$folder/debootstrap.log" || refuse "see $folder/debootstrap.log"
    mv "$folder/base.part" "$folder/base"
fi

say 'build it'
root=$folder/build
new_root build
cp -rL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
chroot "$root" update-ca-certificates > /dev/null 2>&1
install_in "$root" build-essential lintian
(cd / && chroot "$root" apt-get -qq build-dep --no-install-recommends --yes /src/novasched) \
    > "$folder/apt.log" 2>&1 || refuse "$(tail -n 20 "$folder/apt.log")"
chroot "$root" sh -c 'cd /src/novasched && exec dpkg-buildpackage -us -uc -b' \
    > "$folder/build.log" 2>&1 || refuse "$(tail -n 40 "$folder/build.log")"
cp "$root"/src/novasched_*.{deb,buildinfo,changes} "$folder"
package=$(basename "$root"/src/novasched_*.deb)
dpkg-deb --field "$folder/$package" Package Version Architecture Installed-Size Depends

say 'lintian'
chroot "$root" "${clean[@]}" sh -c 'lintian --allow-root --fail-on error /src/*.changes'

say 'install it in a clean root'
root=$folder/test
new_root test
cp "$folder/$package" "$root/src"
inside=(chroot "$root" "${clean[@]}")
install_in "$root" "/src/$package"
"${inside[@]}" sh -ec '
    id nova
    test "$(id -u nova)" = 64060
    test "$(stat -c %U:%a /var/log/nova)" = nova:750
    test "$(stat -c %U:%G:%a /var/lib/nova)" = nova:nova:750
    test -z "$(find /etc/systemd -name novasched.service)"
    cd /usr/lib/novasched/lib/python3*/site-packages
    (cd /src/novasched && find novasched -type f | sort) > /tmp/sources
    find novasched -type f ! -name "*.pyc" | sort | diff /tmp/sources -
    echo "nothing is enabled; every file of the sources is there"'

say 'autopkgtest'
install_in "$root" autopkgtest systemd logrotate
"${inside[@]}" autopkgtest "/src/$package" /src/novasched -- null 2>&1 || refuse 'autopkgtest failed'

say 'the unit and logrotate, beside nova-common'
install_in "$root" nova-common
"${inside[@]}" sh -ec '
    test "$(id -u nova)" = 64060
    said=$(systemd-analyze verify novasched.service 2>&1 | grep -F novasched || true)
    test -z "$said" || { echo "$said"; exit 1; }
    touch /var/log/nova/novasched.log
    chown nova:nova /var/log/nova/novasched.log
    logrotate --debug /etc/logrotate.conf > /tmp/rotation 2>&1
    ! grep -F error: /tmp/rotation
    grep -F "rotating pattern: /var/log/nova/novasched.log  after 1 days (14 rotations)" /tmp/rotation'

say 'remove it, and install it after nova-common'
"${inside[@]}" apt-get -qq purge --yes novasched > "$folder/apt.log"
"${inside[@]}" sh -c '! find / -xdev -name "*novasched*" ! -path "/src/*" ! -path "/tmp/*" ! -path "/var/log/nova/*" ! -path "/var/lib/nova/*" | grep .'
"${inside[@]}" id nova
install_in "$root" "/src/$package"
"${inside[@]}" novaschedctl check --help > /dev/null

if [ $# -gt 0 ]; then
    say "its daemon: $*"
    mount --bind /tmp "$root/tmp"
    cd "$top"
    NOVASCHED_TEST_SCHEDULER="chroot $root /usr/bin/novasched" pytest "$@"
fi
say "$folder/$package is good"
