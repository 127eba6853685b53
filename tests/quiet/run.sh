#!/usr/bin/env bash
# Runs on a quiet machine, beside the bundle's bin: measures the service from outside, into one results file. Each part
# has its own time, and one that fails stops no other.
#   SVDSERVE_CUDA_PLUGIN=PLUGIN run.sh [results folder, .] [part ...]
# Parts, in this order where none is named; all take four minutes:
#   edge          attacks through Envoy and on the guard; rates through Envoy
#   replicas      two servers of one thread beside one
#   python        one call of 10^6 channels by the Python client
#   plan          rates that svdctl plan reckons beside those of svdctl bench
#   image         the image's files started as a container: time to ready, one call on the GPU, bytes
# Where there is no plugin, the host computes, and `image` is skipped.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
declare -A seconds=([edge]=170 [replicas]=45 [python]=60 [plan]=60 [image]=90)
bin=$here/bin
devices=host
if [[ ${SVDSERVE_CUDA_PLUGIN:-} ]]; then
  SVDSERVE_CUDA_PLUGIN=$(realpath "$SVDSERVE_CUDA_PLUGIN")
  devices=cuda
fi
export SVDSERVE_CUDA_PLUGIN PYTHONPATH=$here/python PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
number() { awk -F '[": ,]+' -v name="$1" '$2 == name {print $3; exit}'; } # of JSON

# One processor of each core that this process may use.
mapfile -t cores < <(lscpu --parse=CPU,CORE | awk -F , -v usable="$(python3 -c 'import os; print(*os.sched_getaffinity(0))')" '
  BEGIN {split(usable, list, " "); for (i in list) may[list[i]] = 1}
  !/^#/ && $1 in may && !seen[$2]++ {print $1}')
# cpus FIRST COUNT: a list of processors. With fewer cores than that some are in several lists.
cpus() {
  local list='' i
  for ((i = $1; i < $1 + $2; ++i)); do list+=,${cores[i % ${#cores[@]}]}; done
  tr , '\n' <<< "${list#,}" | sort -nu | paste -sd ,
}

servers=()
stop() {
  ((${#servers[@]})) || return 0
  kill "${servers[@]}" 2> /dev/null
  wait "${servers[@]}" 2> /dev/null
  servers=()
}
# start CPUS FLAG...: sets address
start() {
  local ready=$out/ready$RANDOM
  taskset --cpu-list "$1" "$bin/svdserve" --listen=127.0.0.1:0 --metrics-listen= --ready-file="$ready" --drain-delay=0s \
    "${@:2}" >> "$out/svdserve.log" 2>&1 &
  servers+=($!)
  for ((i = 0; i < 300; ++i)); do [[ -s $ready ]] && break; sleep 0.1; done
  address=$(sed -n 's/^grpc=//p' "$ready")
  rm -f "$ready"
}
# bench CPUS FLAG...: an object of JSON
bench() { taskset --cpu-list "$1" "$bin/svdctl" bench --duration=1500ms --warmup=300ms --json "${@:2}"; }

edge() {
  local edge=$here/tests/edge quick=(--rounds=3 --seconds=0.8 --large-mib=0)
  # Server, Envoy and the honest client have two cores, the attacker two others.
  taskset --cpu-list "$(cpus 0 2)" python3 "$edge/envoy_test.py" "$bin" --strict --attacker-cpus="$(cpus 2 2)" \
    Envoy.test_attacks_harm_nobody > "$out/envoy.log" 2>&1 &
  local envoy=$! failed=0
  taskset --cpu-list "$(cpus 4 2)" python3 "$edge/guard_test.py" "$bin" --strict --attacker-cpus="$(cpus 6 2)" \
    Guard.test_offenders_are_cut_off > "$out/guard.log" 2>&1 || failed=1
  wait "$envoy" || failed=1
  for name in envoy guard; do
    echo "attacks, $name:"
    cat "$out/$name.log"
  done
  echo "rates, server, Envoy and client on cores of their own, four connections:"
  python3 "$edge/envoy_bench.py" "$bin" "${quick[@]}" --connections=4 --server-cpus="$(cpus 0 2)" \
    --envoy-cpus="$(cpus 2 2)" --client-cpus="$(cpus 4 3)" || failed=1
  echo "rates, all on the same two cores:"
  taskset --cpu-list "$(cpus 0 2)" python3 "$edge/envoy_bench.py" "$bin" "${quick[@]}" || failed=1
  return $failed
}

replicas() {
  local one two round load
  start "$(cpus 0 1)" --devices=host --threads=1
  one=$address
  start "$(cpus 1 1)" --devices=host --threads=1
  two=$one,$address
  for load in 4x4 16x16 64x64; do
    for round in 1 2 3; do
      for servers_of in "$one" "$two"; do
        bench "$(cpus 2 6)" --address "$servers_of" --shape "$load" --request-bytes 262144 --concurrency 32 --connections 8 \
          --retry | number matrices_per_s
      done | paste -sd ' ' | awk -v what="$load, round $round" '{
        printf "%-16s one server %12.0f matrices/s, two servers %12.0f: %.2f times\n", what, $1, $2, $2 / $1}'
    done
  done
}

python() {
  start "$(taskset -cp $$ | sed 's/.*: //')" --devices="$devices" # as anybody runs it
  python3 "$here/client/python/benchmarks/pieces.py" "$address"
}

plan() {
  local size shape count planned measured pid
  start "$(cpus 0 4)" --devices="$devices"
  pid=${servers[0]}
  for size in 4x4:1000 4x4:100 8x8:1000 16x16:1000 32x32:500 64x64:100 128x128:10; do
    shape=${size%:*} count=${size#*:}
    measured=$(bench "$(cpus 4 4)" --address "$address" --shape "$shape" --count "$count" --concurrency 32 --connections 8 \
      --server-pid "$pid")
    planned=$("$bin/svdctl" plan --address "$address" --rate 1000 --shape "$shape" --count "$count" --json)
    awk -v size="$size" -v cores="$(number core_s <<< "$planned")" -v gpu="$(number gpu_s <<< "$planned")" \
      -v rate="$(number requests_per_s <<< "$measured")" -v cpu="$(number server_cpu_s <<< "$measured")" \
      -v calls="$(number ok <<< "$measured")" 'BEGIN {
        printf "%-12s core-seconds of a request planned %.2e, measured %.2e: %.2f   GPU-seconds planned %.2e, at most %.2e passed\n",
          size, cores, cpu / calls, cores * calls / cpu, gpu, 1 / rate}'
  done
}

# take_this_glibc TREE: a plugin that was built here may ask for a newer one than the image's.
take_this_glibc() {
  local old new
  for old in "$1"/lib/x86_64-linux-gnu/* "$1"/lib64/*; do
    [[ $(basename "$old") =~ ^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)[-.] ]] || continue
    new=$(ldconfig -p | awk -v name="$(basename "$old")" '$1 == name && /x86-64/ {print $NF; exit}')
    echo "the image gets this machine's $new"
    cp -L "$new" "$old"
  done
}

image() {
  if [[ $devices == host ]]; then
    echo "skipped: there is no plugin"
    return 0
  fi
  local tree=$out/tree
  cp -r "$here/tree" "$tree"
  install --strip "$SVDSERVE_CUDA_PLUGIN" "$tree/usr/local/lib/libsvdserve_cuda.so"
  local needs
  needs=$(chroot "$tree" /lib64/ld-linux-x86-64.so.2 --list /usr/local/lib/libsvdserve_cuda.so 2>&1)
  if [[ $needs == *'not found (required'* ]]; then
    grep 'not found (required' <<< "$needs"
    take_this_glibc "$tree"
  fi
  chmod 755 "$out"
  # The driver, where the loader does not know it.
  local options=() folder
  if ! ldconfig -p | grep -q libcuda.so.1; then
    for folder in ${LD_LIBRARY_PATH//:/ } /usr/local/nvidia/lib64 /usr/lib64; do
      [[ -e $folder/libcuda.so.1 ]] && options=(--driver="$folder") && break
    done
  fi
  "$here/deploy/run_tree.sh" "$tree" "${options[@]}"
  local status=$?
  tar -C "$out" --owner=0 --group=0 -c tree | xz -T0 -3 | wc -c | awk '{print "image: " $1 " bytes compressed"}'
  rm -rf "$tree"
  return $status
}

if [[ ${1:-} == --part ]]; then
  out=$3
  trap 'trap - TERM; stop; jobs -p | xargs -r kill 2> /dev/null' EXIT
  trap 'exit 143' TERM
  "$2"
  exit
fi
out=$(mkdir -p "${1:-.}" && cd "${1:-.}" && pwd)
shift || true
(($#)) || set -- edge replicas python plan image
{
  printf '== machine\n'
  date -u +%Y-%m-%dT%H:%M:%SZ
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
  grep -m1 'model name' /proc/cpuinfo
  echo "$(nproc) processors, one of each core: ${cores[*]}; kernel $(uname -r)"
  python3 -c 'import platform, grpc, numpy; print("Python", platform.python_version(), "grpcio", grpc.__version__, "NumPy", numpy.__version__)'
  for part in "$@"; do
    printf '\n== %s\n' "$part"
    [[ ${seconds[$part]:-} ]] || { echo "no such part"; continue; }
    began=$SECONDS
    timeout --kill-after=5 "${seconds[$part]}" "${BASH_SOURCE[0]}" --part "$part" "$out"
    echo "exit code $?"
    echo "$part took $((SECONDS - began)) s"
  done
} 2>&1 | tee "$out/results.txt"
