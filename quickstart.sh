#!/usr/bin/env bash
# From a fresh clone to singular values of real MIMO channels and the SVD of a large matrix. This script builds and
# starts the server that computes them:
#   ./quickstart.sh
# Needs Debian 12 or Ubuntu 24.04 and root or sudo for missing packages. Asks nothing; stops the server at the end.
# Everything it makes lies under build/, but for the metadata that pip leaves in client/python (svdserve.egg-info).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec < /dev/null

venv=$PWD/build/quickstart-venv
logs=$PWD/build/logs
run_dir=$(mktemp -d)
server=
client=
step() { printf '\n== %s\n' "$*"; }
fail() { printf '\nquickstart: %s\n' "$*" >&2; exit 1; }

stop_server() {
  local pid=$server
  server=
  [[ $pid ]] || return 0
  kill -TERM "$pid" 2> /dev/null || true
  wait "$pid"
}
# shellcheck disable=SC2317  # called by the trap
clean_up() {
  [[ ! $client ]] || kill -TERM -- "-$client" 2> /dev/null || true
  stop_server || true
  rm -rf "$run_dir"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# logged NAME COMMAND...: on a terminal the command shows its progress, elsewhere only its failure.
logged() {
  local log=$logs/quickstart-$1.log
  shift
  if [[ -t 1 ]]; then
    "$@"
  else
    "$@" > "$log" 2>&1 || { tail -n 40 "$log" >&2; echo "whole output: $log" >&2; return 1; }
  fi
}

# Reinstalled when the package or the wire contract changed.
install_client() {
  local sources
  sources=$(find client/python proto -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' -print0 | sort -z |
    xargs -0 sha256sum | sha256sum)
  [[ $(cat "$venv/sources" 2> /dev/null) != "$sources" ]] || return 0
  rm -rf "$venv"
  python3 -m venv "$venv" &&
    "$venv/bin/pip" --disable-pip-version-check install --progress-bar off ./client/python &&
    echo "$sources" > "$venv/sources"
}

mkdir -p "$logs"
step "packages"
deploy/bootstrap.sh build || fail "the packages above are needed"
echo "all there"

# In a process group of its own, beside the compiler: pip waits for PyPI most of its time.
set -m
install_client > "$logs/quickstart-pip.log" 2>&1 &
client=$!
set +m

step "build (minutes the first time, seconds afterwards)"
# For this machine's instruction set and the scalar lane alone, sources together: 'cmake --preset release' is for all.
logged configure cmake --preset release -DSVDSERVE_SIMD=native -DSVDSERVE_UNITY=ON || fail "cmake could not configure build/release"
logged build cmake --build --preset release -j "$(nproc)" --target svdserve svdctl || fail "the build failed"
build/release/bin/svdserve --version

step "Python client in $venv"
wait "$client" || { tail -n 40 "$logs/quickstart-pip.log" >&2; fail "pip could not install client/python; is PyPI reachable?"; }
client=
"$venv/bin/python" -c 'import numpy, grpc, svdserve; print("svdserve", svdserve.__version__, "numpy", numpy.__version__, "grpcio", grpc.__version__)'

step "server"
build/release/bin/svdserve --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --ready-file "$run_dir/ready" \
  > "$logs/quickstart-server.log" 2>&1 &
server=$!
for ((i = 0; ; ++i)); do
  [[ -s $run_dir/ready ]] && break
  kill -0 "$server" 2> /dev/null || { cat "$logs/quickstart-server.log" >&2; fail "the server did not start"; }
  ((i < 300)) || fail "the server was not ready within 30 s; its log: $logs/quickstart-server.log"
  sleep 0.1
done
address=$(sed -n 's/^grpc=//p' "$run_dir/ready")
metrics=$(sed -n 's/^metrics=//p' "$run_dir/ready")
echo "pid $server, gRPC on $address, metrics on http://$metrics/metrics"

step "singular values of 3GPP CDL-C channels, checked against NumPy"
"$venv/bin/python" -m svdserve.examples.mimo_capacity "$address" tests/data/cdl_c_4x4.npy --check ||
  fail "the client failed; the server's log: $logs/quickstart-server.log"

step "the SVD of a 1000 x 1000 matrix, checked against NumPy"
"$venv/bin/python" -m svdserve.examples.large_matrix "$address" --check ||
  fail "the large matrix failed; the server's log: $logs/quickstart-server.log"

step "what the server counted"
"$venv/bin/python" - "http://$metrics/metrics" << 'PY'
import sys, urllib.request
shown = ("svdserve_requests_total", "svdserve_matrices_total", "svdserve_batches_total", "svdserve_admitted_bytes_total",
         "svdserve_device_busy_seconds_total", "svdserve_phase_seconds_sum", "svdserve_phase_seconds_count")
for line in urllib.request.urlopen(sys.argv[1], timeout=10).read().decode().splitlines():
    if line.startswith(shown) and float(line.rsplit(" ", 1)[1]) != 0:
        print(" ", line)
PY

step "stop"
stop_server || fail "the server did not stop cleanly; its log: $logs/quickstart-server.log"
cat << EOF_NEXT
the server drained and exited

Next, from $PWD:
  build/release/bin/svdserve                                     a server on 127.0.0.1:50051; --help says the rest
  build/release/bin/svdctl values tests/data/cdl_c_4x4.npy -o s.npy    their values, through the C++ client
  build/release/bin/svdctl bench --help                          load and latency
  $venv/bin/python -c \\
    'import numpy as np, svdserve; print(svdserve.Client("127.0.0.1:50051").svdvals(np.random.randn(5, 4, 4)))'
  ./test.sh                                                      every test
EOF_NEXT
