#!/usr/bin/env bash
# Installs the Debian packages that building, running or testing svdserve needs and that are not there yet.
#   deploy/bootstrap.sh [build] [test]      no argument: both
# For Debian 12 and Ubuntu 24.04, as root or through sudo. Asks nothing, starts no service, and returns at once when
# everything is installed.
set -euo pipefail

# build: what configuring, compiling and the Python client need. CMake looks for the test and benchmark libraries too,
# so that one build directory serves the quick start, the tests and the benchmarks.
build_packages=(
  build-essential cmake ninja-build ccache pkg-config
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  prometheus-cpp-dev libcurl4-openssl-dev zlib1g-dev libssl-dev
  libhwy-dev libtbb-dev libopenblas-dev liblapacke-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  python3 python3-venv
)
# test: openssl makes the certificates of the TLS tests, NumPy the .npy files that svdctl must read. Eigen is for
# programs with the installed client. prometheus brings promtool and the server that scrapes us, curl asks them. git and
# ca-certificates serve pip and the format check, lintian checks the Debian package. clang and its run-time libraries
# make the asan build and the fuzzer, lld links them, and llvm finds the lines of their reports. faketime has a server's
# clock jump.
test_packages=(
  openssl python3-numpy libeigen3-dev prometheus curl ca-certificates git clang libclang-rt-dev lld llvm lintian faketime
)

fail() { echo "bootstrap: $*" >&2; exit 1; }

wanted=()
for group in "${@:-build test}"; do
  for word in $group; do
    case $word in
      build) wanted+=("${build_packages[@]}") ;;
      test) wanted+=("${test_packages[@]}") ;;
      -h | --help) sed -n '2,5p' "$0" | cut -c3-; exit 0 ;;
      *) fail "unknown group '$word'; there are: build test" ;;
    esac
  done
done

command -v dpkg-query > /dev/null || fail "this is no Debian or Ubuntu. Install the equivalents of: ${wanted[*]}"
installed=" $(dpkg-query -W -f='${db:Status-Abbrev}${Package} ' "${wanted[@]}" 2> /dev/null || true)"
missing=()
for package in "${wanted[@]}"; do
  [[ $installed == *" ii $package "* ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo > /dev/null || fail "run as root, or install sudo; missing packages: ${missing[*]}"
  as_root=(sudo)
  [[ -t 0 ]] || as_root=(sudo -n)
fi

echo "bootstrap: installing ${#missing[@]} packages: ${missing[*]}"

# Debian starts a service as soon as its package is installed; policy-rc.d is the documented way to say no. One that is
# there already is the administrator's and stays.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy > /dev/null
  "${as_root[@]}" chmod 755 $policy
  trap '"${as_root[@]}" rm -f $policy' EXIT
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"; }
log=$(mktemp)
if ! { apt -q update && apt -q install -y --no-install-recommends "${missing[@]}"; } > "$log" 2>&1; then
  tail -n 30 "$log" >&2
  fail "apt-get failed; its whole output is in $log"
fi
rm -f "$log"
echo "bootstrap: done"
