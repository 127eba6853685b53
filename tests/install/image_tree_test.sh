#!/usr/bin/env bash
# The files of the CUDA image, with a fake plugin and a fake driver, are packed, unpacked and started as in a container.
# Docker's context has all that CMake asks for.
#   image_tree_test.sh BUILD_DIR FAKE_PLUGIN FAKE_DRIVER_DIR
# Exit code 77, skipped: no right to mount or to chroot.
set -euo pipefail
build=$1 plugin=$2 driver=$3
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Docker's context: the lines that .dockerignore admits.
mkdir "$work/context"
(cd "$source_dir" && sed -n 's/^!//p' .dockerignore | xargs cp -r --parents -t "$work/context")
rm -rf "$work/context/client/python"
cmake -S "$work/context" -B "$work/configured" --preset release -G Ninja -DSVDSERVE_TESTS=OFF -DSVDSERVE_BENCHMARKS=OFF \
  -DSVDSERVE_CUDA=OFF > "$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }

XZ_OPT=-0 "$source_dir/deploy/image_tree.sh" "$build/bin" "$plugin" "$work/image.tar.xz"
tar -C "$work" -xJf "$work/image.tar.xz"
if ((EUID != 0)) || ! unshare --mount true 2> /dev/null; then
  echo "skipped: this user may not mount"
  exit 77
fi
chmod 755 "$work"
"$work/run_tree.sh" "$work/tree" --driver="$driver" --fake --most-seconds=60
# The driver that the machine's loader knows.
mkdir "$work/stub"
printf '#!/bin/sh\necho "	libcuda.so.1 (libc6,x86-64) => %s/libcuda.so.1"\n' "$driver" > "$work/stub/ldconfig"
chmod +x "$work/stub/ldconfig"
PATH=$work/stub:$PATH "$work/run_tree.sh" "$work/tree" --fake --most-seconds=60
# Without a driver it says so.
mkdir "$work/empty"
if "$work/run_tree.sh" "$work/tree" --driver="$work/empty" --fake 2> "$work/log"; then exit 1; fi
grep 'there is no NVIDIA driver' "$work/log"
