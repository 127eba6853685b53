#!/usr/bin/env bash
# The CUDA plugin's wheel beside the server's, in one environment, with a fake plugin, a fake driver and empty stand-ins
# for NVIDIA's wheels. The program and svdserve.local() find the plugin without a setting.
#   cuda_wheel_test.sh BUILD_DIR FAKE_PLUGIN FAKE_DRIVER_DIR
# Exit code 77, skipped: not a long run (SVDSERVE_TEST_SIZE=long).
set -euo pipefail
build=$1 plugin=$2 driver=$3
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[[ ${SVDSERVE_TEST_SIZE:-} == long ]] || { echo "skipped: only of long runs: wheels are made"; exit 77; }
unset SVDSERVE_CUDA_PLUGIN
work=$(mktemp -d)
server=
stop() {
  [[ ! $server ]] || { kill "$server" && wait "$server"; } || true
  server=
}
trap 'stop; rm -rf "$work"' EXIT

python3 "$source_dir/deploy/wheel.py" "$build" --cuda "$plugin" --out "$work/wheels" --no-check
# Files of the names that NVIDIA's wheels have, where they have them.
python3 - "$work/wheels" << 'END'
import sys, zipfile
for name, version, library in (("cublas", "13.0", "libcublas.so.13"), ("cusolver", "12.0", "libcusolver.so.12")):
    info = f"nvidia_{name}-{version}.dist-info"
    with zipfile.ZipFile(f"{sys.argv[1]}/nvidia_{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"nvidia/cu13/lib/{library}", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: nvidia-{name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
END

# Without an index: the plugin's wheel asks for the server's and for NVIDIA's.
python3 -m venv "$work/venv"
pip() { "$work/venv/bin/pip" --quiet --disable-pip-version-check "$@"; }
pip install --no-index --find-links "$work/wheels" svdserve-cuda
bin=$(echo "$work"/venv/lib/*/site-packages/svdserve/bin)
[[ -x $bin/svdserve && -f $bin/libsvdserve_cuda.so ]]
first=$(readelf -d "$bin/libsvdserve_cuda.so" | sed -n 's/.*runpath: \[\([^]:]*\):.*/\1/p')
# shellcheck disable=SC2016  # the linker expands $ORIGIN
for library in libcublas.so.13 libcusolver.so.12; do [[ -f ${first/'$ORIGIN'/$bin}/$library ]]; done

# serve [VARIABLE=VALUE...]: runs the program on PATH of the environment.
serve() {
  rm -f "$work/ready"
  env LD_LIBRARY_PATH="$driver" "$@" "$work/venv/bin/svdserve" --listen "unix:$work/socket" --metrics-listen= \
    --drain-delay 0s --ready-file "$work/ready" > "$work/log" 2>&1 &
  server=$!
  for ((i = 0; i < 600; ++i)); do
    [[ ! -s $work/ready ]] || return 0
    kill -0 $server 2> /dev/null || break
    sleep 0.1
  done
  cat "$work/log" >&2
  return 1
}
devices() { "$work/venv/bin/svdctl" info --address "unix:$work/socket" | grep '^device '; }

serve
devices | tee "$work/devices"
[[ $(grep -c '^device cuda:' "$work/devices") == 2 ]]
grep -q "$bin/libsvdserve_cuda.so" "/proc/$server/maps"
# The plugin has the libraries of the server's wheel: one libstdc++, and none of the machine.
grep -q "$work/.*/libstdc++" "/proc/$server/maps"
! grep -oE '/[^ ]*/lib(stdc\+\+|gcc_s)[^ ]*' "/proc/$server/maps" | grep -v "^$work/" || exit 1
stop

serve SVDSERVE_FAKE_CUDA_RESIZED=release
grep "event=device_refused .*$bin/libsvdserve_cuda.so is a CUDA back end of another build: its release is 9" "$work/log"
! devices | grep cuda || exit 1
stop

# The package, with its own dependencies from PyPI. Its extra asks for what is there.
pip install "$(echo "$work"/wheels/svdserve-*.whl)[cuda]"
LD_LIBRARY_PATH=$driver "$work/venv/bin/python" -I -c '
import sys, svdserve
with svdserve.local() as client:
    assert svdserve._local.find_program().startswith(sys.prefix)
    names = [d.name for d in client.info().devices]
    assert "cuda:0" in names and "cuda:1" in names, names
with svdserve.local(devices="host") as client:
    assert [d.name for d in client.info().devices] == ["host:0"]
'

pip uninstall --yes svdserve-cuda
[[ ! -e $bin/libsvdserve_cuda.so ]]
serve
! devices | grep cuda || exit 1
echo "the plugin is found beside the program"
