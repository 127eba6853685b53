#!/usr/bin/env bash
# Packs the files that Dockerfile.cuda's last stage runs, without Docker, as the tree of a container. These are the programs,
# the CUDA plugin, and every library that they ask for; only NVIDIA's driver is missing. run_tree.sh is packed beside it.
#   deploy/image_tree.sh build/release/bin PLUGIN OUT.tar.xz
# Fails where the archive is larger than 60 MB. The plugin is that of the same build; -: it is added to the tree later.
set -euo pipefail
bin=$1 plugin=$2 out=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/tree

mkdir -p "$root"/{dev,etc,proc,run,tmp,opt/driver} "$root/usr/local/bin" "$root/usr/local/lib"
install --strip -t "$root/usr/local/bin" "$bin/svdserve" "$bin/svdctl"
objects=("$bin/svdserve" "$bin/svdctl")
if [[ $plugin != - ]]; then
  install --strip "$plugin" "$root/usr/local/lib/libsvdserve_cuda.so"
  objects+=("$plugin")
fi
# "name => path (address)", and the loader as "path (address)".
ldd "${objects[@]}" |
  awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\/.*ld-linux/ {print $1}' | sort -u |
  while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
# The base's parts of the C library that NVIDIA's driver asks for.
for name in libdl.so.2 libpthread.so.0 librt.so.1; do
  cp -L "$(dirname "$(ldd "$bin/svdserve" | awk '$1 == "libc.so.6" {print $3}')")/$name" "$root/lib/x86_64-linux-gnu/"
done
install "$here/run_tree.sh" "$work/"
tar -C "$work" --owner=0 --group=0 -cJf "$out" tree run_tree.sh
bytes=$(stat -c %s "$out")
echo "image_tree: $out has $bytes bytes, of $(du -sb "$root" | cut -f1) unpacked"
((bytes <= 60000000)) || { echo "image_tree: more than 60 MB" >&2; exit 1; }
