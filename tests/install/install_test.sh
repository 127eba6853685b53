#!/usr/bin/env bash
# Installs a build into an empty prefix, then builds and runs a program against nothing but that prefix.
#   install_test.sh BUILD_DIR CONSUMER_SOURCE WORK_DIR
set -euo pipefail
build=$1 consumer=$2 work=$3
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

echo "client:"
"$prefix/bin/svdserve" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --ready-file "$work/ready" \
  2> "$work/server.log" &
server=$!
trap 'kill $server 2> /dev/null || true; wait $server 2> /dev/null || true' EXIT
for ((i = 0; i < 300; ++i)); do
  [[ -s $work/ready ]] && break
  kill -0 $server 2> /dev/null || { cat "$work/server.log" >&2; exit 1; }
  sleep 0.1
done
address=$(sed -n 's/^grpc=//p' "$work/ready")
"$work/build/remote" "$address"
"$prefix/bin/svdctl" --version
"$prefix/bin/svdserve" --version
