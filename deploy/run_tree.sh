#!/usr/bin/env bash
# Starts the tree of image_tree.sh as a container would: read-only, as an unprivileged user, with NVIDIA's driver and no
# more. It asks the server for values that a GPU computes, and stops it.
#   tar -xJf svdserve-cuda.tar.xz && sudo ./run_tree.sh tree
#   --driver=FOLDER      libcuda.so.1 and what belongs to it, instead of the machine's
#   --most-seconds=N     until it serves; 5 by default
#   --fake               the plugin computes nothing: values are not compared
# Needs root, for its own mounts, which nobody else sees.
set -euo pipefail
tree='' driver='' most=5 fake=
for word in "$@"; do
  case $word in
    --driver=*) driver=${word#*=} ;;
    --most-seconds=*) most=${word#*=} ;;
    --fake) fake=yes ;;
    -*) sed -n '2,9p' "$0" | cut -c3-; exit 2 ;;
    *) tree=$(realpath "$word") ;;
  esac
done
[[ -x $tree/usr/local/bin/svdserve ]] || { echo "run_tree: name the unpacked tree" >&2; exit 2; }
((EUID == 0)) || { echo "run_tree: run as root" >&2; exit 2; }
[[ ${SVDSERVE_OWN_MOUNTS:-} ]] || SVDSERVE_OWN_MOUNTS=yes exec unshare --mount --propagation=private "$0" "$@"

chroot=$(command -v chroot || echo /usr/sbin/chroot)
# Mounts and the server go with this script.
server=
stop() { [[ ! $server ]] || { kill "$server" && wait "$server"; } || true; server=; }
trap stop EXIT

mount --bind "$tree" "$tree"
mount --rbind /dev "$tree/dev"
mount --bind /proc "$tree/proc"
mount -t tmpfs -o mode=1777 none "$tree/run"
if [[ ! $driver ]]; then
  # The libraries that NVIDIA's container toolkit takes for compute and utility.
  driver=$(mktemp -d)
  chmod 755 "$driver"  # the server's user reads it
  ldconfig -p | awk '/lib(cuda|nvidia-ml|nvidia-ptxjitcompiler|nvidia-nvvm|nvidia-gpucomp)\.so/ && /x86-64/ {print $1, $NF}' |
    while read -r name path; do cp -L "$path" "$driver/$name"; done
fi
[[ -e $driver/libcuda.so.1 ]] || { echo "run_tree: there is no NVIDIA driver" >&2; exit 1; }
mount --bind "$driver" "$tree/opt/driver"
mount -o remount,bind,ro "$tree"

mapfile -t settings < <(env | grep '^SVDSERVE_FAKE_')
inside=(env -i LD_LIBRARY_PATH=/opt/driver "${settings[@]}" "$chroot" --userspec=10001:10001 "$tree")

begin=$(date +%s%N)
"${inside[@]}" /usr/local/bin/svdserve --devices=cuda:0 --listen=127.0.0.1:0 --metrics-listen= --drain-delay=0s \
  --ready-file=/run/ready 2> "$tree/run/log" &
server=$!
for ((i = 0; i < 6000; ++i)); do
  [[ ! -s $tree/run/ready ]] || break
  kill -0 "$server" 2> /dev/null || { cat "$tree/run/log" >&2; exit 1; }
  sleep 0.01
done
took=$((($(date +%s%N) - begin) / 1000000))
echo "run_tree: it serves after $took ms"
((took <= most * 1000)) || { echo "run_tree: more than $most s" >&2; exit 1; }

# The server's user and what it may write.
grep -qE '^Uid:\s+10001\s+10001' "/proc/$server/status"
grep -qE '^CapEff:\s+0+$' "/proc/$server/status"
grep -q 'libsvdserve_cuda.so' "/proc/$server/maps"
if touch "$tree/usr/x" 2> /dev/null; then
  echo "run_tree: the root is not read-only" >&2
  exit 1
fi

address=$(sed -n 's/^grpc=//p' "$tree/run/ready")
# A file of one 1 x 1 matrix. Its only value is 2.
{
  printf '\x93NUMPY\x01\0\x76\0%-117s\n' "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1, 1), }"
  printf '\0\0\0\0\0\0\0\x40'
} > "$tree/run/a.npy"
"${inside[@]}" /usr/local/bin/svdctl info --address "$address" | grep '^device cuda:0'
value=$("${inside[@]}" /usr/local/bin/svdctl values /run/a.npy --print --quiet --address "$address")
[[ $fake || $value == 2 ]] || { echo "run_tree: the value is $value, not 2" >&2; exit 1; }
"${inside[@]}" /usr/local/bin/svdctl bench --address "$address" --duration 1s --warmup 0s --shape 8x8 --count 1000 --quiet
stop
echo "run_tree: all is well"
