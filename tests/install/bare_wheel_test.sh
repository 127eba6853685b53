#!/usr/bin/env bash
# The wheels on a machine that never saw a compiler: Debian 12 by debootstrap, with python3-venv. pip installs them there,
# four lines print values within a minute, and no process is left.
#   bare_wheel_test.sh BUILD_DIR [WORK_DIR]
# Exit code 77, skipped: not a long run (SVDSERVE_TEST_SIZE=long), no root, no debootstrap, or not Debian 12.
set -euo pipefail
build=$1 work=${2:-$(mktemp -d)}
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
skip() { echo "skipped: $*"; exit 77; }
[[ ${SVDSERVE_TEST_SIZE:-} == long ]] || skip "only of long runs: a system is installed"
((EUID == 0)) || skip "it needs root"
command -v debootstrap > /dev/null || skip "there is no debootstrap"
grep -q 'VERSION_CODENAME=bookworm' /etc/os-release || skip "the wheel of this machine is not for Debian 12"

root=$work/root
# rooted: the processes whose root folder is the new system.
rooted() { for p in /proc/[0-9]*; do [[ $(readlink "$p/root") != "$root" ]] || echo "${p#/proc/}"; done 2> /dev/null; }
clean_up() {
  rooted | xargs -r kill -KILL
  if mountpoint -q "$root/proc"; then umount "$root/proc"; fi
  rm -rf --one-file-system "$root" "$work/wheels"
}
trap clean_up EXIT
clean_up
mkdir -p "$work"
work=$(cd "$work" && pwd -P) root=$work/root

python3 "$source_dir/deploy/wheel.py" "$build" --out "$work/wheels" --no-check
debootstrap --variant=minbase --include=python3-venv,ca-certificates bookworm "$root" \
  "${MIRROR:-http://deb.debian.org/debian}" > "$work/debootstrap.log" || { tail "$work/debootstrap.log"; exit 1; }
cp "$work"/wheels/*.whl "$root/root/"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
# How this machine reaches PyPI.
[[ ! ${PIP_CERT:-} ]] || install -D "$PIP_CERT" "$root$PIP_CERT"
mapfile -t network < <(env | grep -iE '^(pip_(cert|index_url|extra_index_url)|https?_proxy|no_proxy)=' || true)
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "${network[@]}" chroot "$root" "$@"; }
! inside sh -c 'command -v cc gcc g++ clang cmake' || exit 1
mount -t proc proc "$root/proc" || skip "it needs the right to mount /proc, by which the linker finds libraries"
none_left() { [[ -z $(rooted) ]] || { echo "processes are left: $(rooted)" >&2; exit 1; }; }

# The search for processes finds one.
exec 3< <(inside sh -c 'echo; exec sleep 600')
read -r -u 3
[[ $(rooted) ]]
rooted | xargs kill
exec 3<&-

SECONDS=0
# shellcheck disable=SC2016  # the shell inside expands
inside sh -euc 'python3 -m venv /root/venv && cd /root && venv/bin/pip install -q "$(echo ./svdserve-*.whl)[server]" ./svdserve_server-*.whl'
installed=$SECONDS
inside /root/venv/bin/python -c '
import numpy as np, svdserve
with svdserve.local() as client:
    print(client.svdvals(np.diag([3.0, 2.0, 1.0])))
' | tee "$work/values"
took=$SECONDS
grep -q '^\[3. 2. 1.\]$' "$work/values"
none_left
inside /root/venv/bin/svdctl --version
inside /root/venv/bin/python -c '
import svdserve
svdserve.local()  # not closed
'
none_left
echo "installed after $installed s, values after $took s"
((took <= 60)) || { echo "a minute was promised" >&2; exit 1; }
