#!/usr/bin/env bash
# Installs a build into an empty prefix, then builds and runs a program against nothing but that prefix.
#   install_test.sh BUILD_DIR CONSUMER_SOURCE WORK_DIR FAKE_DRIVER_DIR HAS_CUDA
# FAKE_DRIVER_DIR holds a libcuda.so.1 of no use; HAS_CUDA is 1 where the build has the CUDA plugin.
set -euo pipefail
build=$1 consumer=$2 work=$3 fake_driver=$4 has_cuda=$5
rm -rf "$work"
mkdir -p "$work"
cp -r "$consumer" "$work/consumer" # outside the tree, so that nothing of it is found by accident
prefix=$work/prefix

cmake --install "$build" --prefix "$prefix" > "$work/install.log"
cmake -S "$work/consumer" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)"
cmake --build "$work/build" -j 2

echo "engine:"
"$work/build/local"

# The plugin is found where it was put, by the consumer and by the server: it is asked, and has no use for this driver.
echo "cuda:"
[[ -f $prefix/include/svdserve/engine/cuda_engine.h ]]
wanted='the driver counts no devices' not_wanted='does not open'
[[ $has_cuda == 1 ]] || wanted='does not open' not_wanted='counts no devices'
[[ $has_cuda == 0 || -f $prefix/lib/libsvdserve_cuda.so ]]
unset SVDSERVE_CUDA_PLUGIN
LD_LIBRARY_PATH=$fake_driver "$work/build/gpu" | tee "$work/gpu.log"
grep -q "$wanted" "$work/gpu.log"
! grep -q "$not_wanted" "$work/gpu.log" || exit 1

echo "client:"
LD_LIBRARY_PATH=$fake_driver "$prefix/bin/svdserve" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --ready-file "$work/ready" \
  2> "$work/server.log" &
server=$!
trap 'kill $server 2> /dev/null || true; wait $server 2> /dev/null || true' EXIT
for ((i = 0; i < 600; ++i)); do
  [[ -s $work/ready ]] && break
  kill -0 $server 2> /dev/null || { cat "$work/server.log" >&2; exit 1; }
  sleep 0.1
done
address=$(sed -n 's/^grpc=//p' "$work/ready")
"$work/build/remote" "$address"
grep "$wanted" "$work/server.log"
"$prefix/bin/svdctl" --version
cmp <(env -u SVDSERVE_ADDRESS "$prefix/bin/svdctl" man) "$prefix/share/man/man1/svdctl.1"
cmp <(env -u SVDSERVE_ADDRESS "$prefix/bin/svdctl" completion bash) "$prefix/share/bash-completion/completions/svdctl"
"$prefix/bin/svdserve" --version
