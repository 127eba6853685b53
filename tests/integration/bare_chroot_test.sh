#!/usr/bin/env bash
# The server on a machine without an NVIDIA driver or any CUDA library. The chroot holds the program, the CUDA plugin
# where it was built, the libraries that the linker asks for, and nothing else. It must start, say why it has no GPU,
# and serve from the CPU.
#   bare_chroot_test.sh FOLDER-OF-PROGRAMS
# Exit code 77, skipped: no right to chroot.
set -euo pipefail
bin=$1
chroot=$(command -v chroot || echo /usr/sbin/chroot)
root=$(mktemp -d)
server=
clean_up() {
  if [[ $server ]]; then kill "$server" 2> /dev/null || true; fi
  rm -rf "$root"
}
trap clean_up EXIT

for program in svdserve svdctl libsvdserve_cuda.so; do
  [[ -e $bin/$program ]] || continue
  cp "$bin/$program" "$root/"
  # "name => path (address)", and the loader as "path (address)".
  ldd "$bin/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\/.*ld-linux/ {print $1}' |
    while read -r library; do
      mkdir -p "$root$(dirname "$library")"
      cp -L "$library" "$root$library"
    done
done
mkdir -p "$root"/{run,dev,etc,proc,tmp}
if ! env -i "$chroot" "$root" /svdctl --version > /dev/null 2>&1; then
  echo "skipped: this user may not chroot"
  exit 77
fi

env -i "$chroot" "$root" /svdserve --listen 127.0.0.1:0 --metrics-listen= --drain-delay 0s --ready-file /run/ready \
  > "$root/log" 2>&1 &
server=$!
for _ in $(seq 600); do
  [[ -s $root/run/ready ]] && break
  sleep 0.1
done
address=$(sed -n 's/^grpc=//p' "$root/run/ready")
env -i "$chroot" "$root" /svdctl info --address "$address" | grep 'device host:0'
env -i "$chroot" "$root" /svdctl bench --address "$address" --duration 1s --warmup 0s | grep -E '^requests +[1-9][0-9]* ok'
kill "$server"
wait "$server"
server=
grep 'event=device_refused reason="no GPU: no NVIDIA driver' "$root/log"
