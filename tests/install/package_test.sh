#!/usr/bin/env bash
# The Debian package. Lintian finds no error, its programs are of this version, and its unit is sandboxed. The SPDX list
# names what it depends on. In long runs a Debian 12 that debootstrap makes installs it, and it serves as the
# unit's user.
#   package_test.sh BUILD_DIR WORK_DIR
# Exit code 77, skipped: this is no Debian.
set -euo pipefail
build=$(cd "$1" && pwd) work=$2
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command -v dpkg-shlibdeps > /dev/null || { echo "skipped: there is no dpkg-shlibdeps"; exit 77; }
fail() { echo "package_test: $*" >&2; exit 1; }
root=
clean_up() {
  if [[ $root ]]; then
    for p in /proc/[0-9]*; do if [[ $(readlink "$p/root") == "$root" ]]; then kill -KILL "${p#/proc/}"; fi; done 2> /dev/null
    if mountpoint -q "$root/proc"; then umount "$root/proc"; fi
  fi
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
rm -rf --one-file-system "$work"
mkdir -p "$work"
work=$(cd "$work" && pwd -P)

cpack --config "$build/CPackConfig.cmake" -B "$work/deb" > "$work/cpack.log" 2>&1 || { cat "$work/cpack.log"; exit 1; }
package=$(echo "$work"/deb/svdserve_*.deb)
if command -v lintian > /dev/null; then
  lintian --allow-root --fail-on error "$package" || fail "lintian found errors"
fi
version=$(dpkg-deb -f "$package" Version)
dpkg-deb -x "$package" "$work/files"
[[ $("$work/files/usr/bin/svdserve" --version) == "svdserve $version "* ]] || fail "the program is not of $version"
unit=$work/files/usr/lib/systemd/system/svdserve.service
grep -q '^ExecStart=/usr/bin/svdserve$' "$unit" || fail "the unit starts something else"
if command -v systemd-analyze > /dev/null; then  # 0: nothing is allowed; 100: everything is
  systemd-analyze security --offline=yes --threshold=20 "$unit" > "$work/security" || { cat "$work/security"; exit 1; }
fi

python3 "$source_dir/deploy/sbom.py" "$build" > "$work/sbom.json"
dpkg-deb -f "$package" Depends | python3 -c '
import json, re, sys
found = json.load(open(sys.argv[1]))
names = {p["name"] for p in found["packages"]}
asked = {re.match(r"[^ (]+", d.strip())[0] for d in sys.stdin.read().split(",") if "|" not in d}
missing = {a for a in asked if not any(n.startswith(a) for n in names)}  # libopenblas0 is libopenblas0-pthread
sys.exit(f"the list of libraries lacks {missing}" if missing else 0)
' "$work/sbom.json"

if [[ ${SVDSERVE_TEST_SIZE:-} != long ]] || ((EUID != 0)) || ! command -v debootstrap > /dev/null ||
    ! grep -q 'VERSION_CODENAME=bookworm' /etc/os-release; then
  echo "the package is good; it was not installed, since this is no long run as root on Debian 12"
  exit 0
fi
root=$work/root
debootstrap --variant=minbase --include=systemd,init-system-helpers bookworm "$root" \
  "${MIRROR:-http://deb.debian.org/debian}" > "$work/debootstrap.log" || { tail "$work/debootstrap.log"; exit 1; }
cp "$package" "$root/root/svdserve.deb"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
if [[ -e /etc/apt/apt.conf ]]; then cp /etc/apt/apt.conf "$root/etc/apt/"; fi
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
mount -t proc proc "$root/proc" || fail "it needs the right to mount /proc"
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }
inside apt-get -q update > "$work/apt.log" 2>&1
inside apt-get -q install -y --no-install-recommends /root/svdserve.deb >> "$work/apt.log" 2>&1 || { tail "$work/apt.log"; exit 1; }
inside getent passwd svdserve > /dev/null || fail "there is no user svdserve"
[[ -L $root/etc/systemd/system/multi-user.target.wants/svdserve.service ]] || fail "the unit is not enabled"
inside setpriv --reuid=svdserve --regid=svdserve --init-groups --no-new-privs --bounding-set=-all \
  /usr/bin/svdserve --listen=127.0.0.1:50987 --metrics-listen= --drain-delay=0s > "$work/server.log" 2>&1 &
for _ in $(seq 300); do
  if inside svdctl health --address 127.0.0.1:50987 > /dev/null 2>&1; then healthy=yes; break; fi
  sleep 0.1
done
[[ ${healthy:-} ]] || { cat "$work/server.log"; fail "it does not serve as its user"; }
inside apt-get -q purge -y svdserve >> "$work/apt.log" 2>&1
[[ ! -e $root/etc/default/svdserve && ! -e $root/usr/bin/svdserve ]] || fail "files are left after a purge"
echo "the package was installed, served as its user, and is gone"
