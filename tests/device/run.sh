#!/usr/bin/env bash
# Runs on a machine with a GPU, beside the bundle's bin: checks, then measures, into one results file.
#   run.sh [results folder, .] [part ...]
# Parts, in this order where none is named:
#   arithmetic bits contract faults      right or wrong
#   factor                      large matrices: right or wrong, then figures; eigen: of eigenproblems alone; eig: general ones
#   kernels vectors hermitian general answers torch host large python service    figures, each with its peers in the same run
# Parts that run by name alone:
#   few                         few matrices, by AUTO and JACOBI: U, S and V, certified, values alone; six batches at once
#   eigh                        eigenvectors through the service, by AUTO and JACOBI, of one caller and of 16
#   midsize                     singular values of 256x256 and 512x512 through the service, of one caller, of 4 and of 16
#   svds                        U, S and V through the service, by AUTO and JACOBI, of 4x4 to 512x512, of one caller and of
#                               16; of 4x4 beside the echo
#   stacks                      U, S and V of stacks in files, from eight callers at once, against NumPy
#   fresh                       servers that have just started: the first two seconds of 64 callers, and the sizes of batches
#   connections                 16 to 128 of them beside the echo
#   windows                     --call-window-bytes
#   narrow                      operands of 16-bit numbers beside f32 and c64
#   several                     large matrices at once
#   gang                        one large matrix through the service, on one GPU and on several together
#   repeat                      k > 32: the same batches 200 times, with the same bits
#   accuracy                    one large Hermitian matrix of each family, n = 4096: errors in units of the contract's
#   ring                        one large matrix on 1, 2, 4 and 8 GPUs together: bits, sweeps, whole factors; lost ranks
#   cusolvermp                  rings of ranks on four GPUs beside cuSOLVERMp, which cusolvermp_peer.py says how to install
#   sanitize                    compute-sanitizer over a reduced list
#   soak                        two minutes of mixed load
#   first                       the first large matrices of a server that has just started, and of one that has prepared
#   resources
#   limits                      the limits of the kernels of singular values alone, by Nsight Compute
#   factor-profile              Nsight Compute on one launch of each kernel of a p-step
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(mkdir -p "${1:-.}" && cd "${1:-.}" && pwd)
shift || true
parts=${*:-arithmetic bits contract faults factor kernels vectors hermitian general answers torch host large python service}
bin=$here/bin
# Programs to measure, in $bin: SERVERS="before/svdserve svdserve". Each folder has a plugin of its own and a link to lib.
# `fresh` takes them in turns. Parts that compare methods take the first one.
servers=${SERVERS:-svdserve}
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
section() { printf '\n== %s\n' "$*"; }
number() { awk -F '[": ,]+' -v name="$1" '$2 == name {print $3}'; } # of JSON

server=
stop() {
  [[ $server ]] || return 0
  kill "$server" 2> /dev/null
  wait "$server" 2> /dev/null
  server=
}
trap stop EXIT
# start PROGRAM FLAG...: sets server and address
start() {
  rm -f "$out/ready"
  "$bin/$1" --listen=127.0.0.1:0 --ready-file="$out/ready" "${@:2}" > "$out/${1##*/}.log" 2>&1 &
  server=$!
  for _ in $(seq 300); do
    [[ -s $out/ready ]] && break
    sleep 0.1
  done
  address=$(sed -n 's/^grpc=//p' "$out/ready")
}
# bench NAME FLAG...: one line of figures
bench() {
  local report
  report=$("$bin/svdctl" bench --address "$address" --server-pid "$server" --duration "${duration:-6s}" --warmup "${warmup:-2s}" --json \
    "${@:2}" 2>&1)
  printf '%-44s %10.3f M/s  %7.3f GB/s  %8.0f requests/s  p50 %8.1f us  p99 %8.1f us  %s CPU s/GB\n' "$1" \
    "$(number matrices_per_s <<< "$report" | awk '{print $1 * 1e-6}')" "$(number gb_per_s <<< "$report")" \
    "$(number requests_per_s <<< "$report")" "$(number p50_s <<< "$report" | awk '{print $1 * 1e6}')" \
    "$(number p99_s <<< "$report" | awk '{print $1 * 1e6}')" "$(number server_cpu_s_per_gb <<< "$report")"
}

service() {
  python3 "$here/torch_peer.py"
  local load=(--request-bytes 16777216 --concurrency 16 --connections 16)
  local small=(--request-bytes 1048576 --concurrency 16 --connections 16)
  for round in 1 2; do
    start svdserve_echo
    bench "echo, 16 MiB, round $round" "${load[@]}"
    bench "echo, 1 MiB, round $round" "${small[@]}"
    stop
    for devices in cuda auto host; do
      start svdserve --devices "$devices" --metrics-listen=
      bench "svdserve --devices $devices, 16 MiB, round $round" "${load[@]}"
      bench "svdserve --devices $devices, 1 MiB, round $round" "${small[@]}"
      stop
    done
  done
  for devices in auto cuda; do
    start svdserve --devices "$devices" --metrics-listen=
    echo "one idle 4x4 call over an empty unary call, --devices $devices (rounds' medians, then all):"
    "$bin/svdctl" latency --address "$address" | tail -3
    stop
  done
  start svdserve
  "$bin/svdctl" info --address "$address"
  stop
}

# by_methods PROBLEM VECTORS DTYPE ROUNDS LOADS SHAPE..: through a server with default flags, AUTO and JACOBI in turns. A
# load is CALLERS:MIB, of each caller's requests.
by_methods() {
  local problem=$1 vectors=$2 dtype=$3 rounds=$4 loads=$5 round shape load callers method duration=2s warmup=1s
  shift 5
  start "${servers%% *}" --metrics-listen=
  for round in $(seq "$rounds"); do
    for shape; do
      for load in $loads; do
        callers=${load%:*}
        for method in auto jacobi; do
          bench "$problem $shape $dtype, $method, $callers of ${load#*:} MiB, round $round" --problem "$problem" \
            --vectors "$vectors" --method "$method" --shape "$shape" --dtype "$dtype" --request-bytes $((${load#*:} << 20)) \
            --concurrency "$callers" --connections "$callers"
        done
      done
    done
  done
  stop
}

svds() {
  local callers
  by_methods svd thin f64 2 '1:16 16:16' 4x4 16x16 64x64 128x128 256x256 512x512
  start svdserve_echo
  for callers in 1 16; do
    duration=2s warmup=1s bench "echo of U, S and V, 4x4 f64, $callers of 16 MiB" --vectors thin --shape 4x4 --dtype f64 \
      --request-bytes 16777216 --concurrency "$callers" --connections "$callers"
  done
  stop
}

stacks() {
  start svdserve --metrics-listen=
  python3 "$here/stacks_against_numpy.py" "$bin/svdctl" "$address" "$out/stacks" || return 1
  stop
  rm -rf "$out/stacks"
}

# U, S and V by servers that have just started, of each build in turns.
fresh() {
  local round program metrics
  for round in 1 2 3 4 5; do
    for program in $servers; do
      start "$program" --metrics-listen=
      duration=2s warmup=0s bench "$program, first two seconds, 64 callers, 256x256 f64" --vectors thin --shape 256x256 \
        --dtype f64 --request-bytes 16777216 --concurrency 64 --connections 64
      stop
      start "$program" --metrics-listen=127.0.0.1:0
      metrics=$(sed -n 's/^metrics=//p' "$out/ready")
      duration=2s warmup=1s bench "$program, 16 callers, 64x64 f64" --vectors thin --shape 64x64 --dtype f64 \
        --request-bytes 16777216 --concurrency 16 --connections 16
      curl -s "http://$metrics/metrics" | awk '$1 == "svdserve_batch_matrices_sum" {matrices = $2}
        $1 == "svdserve_batch_matrices_count" {batches = $2} END {printf "%.0f matrices a batch\n", matrices / batches}'
      stop
    done
  done
}

# Many connections with default flags, each beside the echo at the same concurrency.
connections() {
  local n
  for n in 16 32 64 128; do
    start svdserve_echo
    bench "echo, 16 MiB, $n connections" --request-bytes 16777216 --concurrency "$n" --connections "$n"
    stop
    start svdserve --metrics-listen=
    bench "svdserve, 16 MiB, $n connections" --request-bytes 16777216 --concurrency "$n" --connections "$n"
    stop
  done
  start svdserve_echo
  bench "echo, 1 MiB, 16 connections" --request-bytes 1048576 --concurrency 16 --connections 16
  stop
  start svdserve --metrics-listen=
  bench "svdserve, 1 MiB, 16 connections" --request-bytes 1048576 --concurrency 16 --connections 16
  stop
  grep -E 'event=limit' "$out/svdserve.log"
}

# Windows of calls (--call-window-bytes), in turns beside the echo.
windows() {
  local round window
  for round in 1 2 3; do
    for window in echo 64KiB 1088KiB 2304KiB 4MiB; do
      if [[ $window == echo ]]; then
        start svdserve_echo
      else
        start svdserve --metrics-listen= --call-window-bytes="$window"
      fi
      bench "$window, 1 MiB, 16 connections, round $round" --request-bytes 1048576 --concurrency 16 --connections 16
      bench "$window, 16 MiB, 64 connections, round $round" --request-bytes 16777216 --concurrency 64 --connections 64
      stop
    done
  done
}

# 4x4 matrices of 16-bit numbers beside the floats that they become, in turns. Half the bytes a matrix: the same request
# has twice as many.
narrow() {
  local round dtype
  start svdserve --devices cuda --metrics-listen=
  for round in 1 2 3; do
    for dtype in c64 c32 ci16 f32 f16 bf16 i16; do
      bench "$dtype, 16 MiB, round $round" --dtype "$dtype" --request-bytes 16777216 --concurrency 16 --connections 16
    done
  done
  stop
}

# Large matrices of order 8192: one alone, as many as there are GPUs one after the other, then all at once.
several() {
  local folder=$out/several gpus i begin one=0 all=0
  gpus=$(nvidia-smi --list-gpus | wc -l)
  mkdir -p "$folder"
  python3 -c "import numpy as np; np.save('$folder/a.npy', np.random.default_rng(1).standard_normal((8192, 8192)))"
  start svdserve --metrics-listen= --max-large-bytes="$((gpus * 6))GiB"
  decompose() {
    "$bin/svdctl" svd "$folder/a.npy" --u "$folder/u$1.npy" --s "$folder/s$1.npy" --vh "$folder/vh$1.npy" --verbose \
      --address "$address" > "$folder/log$1" 2>&1 || cat "$folder/log$1"
  }
  decompose 0
  for round in 1 2 3; do
    begin=$(date +%s.%N)
    for i in $(seq "$gpus"); do decompose "$i"; done
    one=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN {print b - a}')
    begin=$(date +%s.%N)
    local pids=()
    for i in $(seq "$gpus"); do
      decompose "$i" &
      pids+=($!)
    done
    wait "${pids[@]}"
    all=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN {print b - a}')
    printf 'round %d: %d matrices of order 8192 f64 with U and V: one after the other %.2f s, at once %.2f s: %.2f times\n' \
      "$round" "$gpus" "$one" "$all" "$(awk -v a="$one" -v b="$all" 'BEGIN {print a / b}')"
  done
  for i in $(seq "$gpus"); do tail -n 1 "$folder/log$i"; done
  stop
  rm -rf "$folder"
}

# JACOBI by a server's one GPU, then by 2 and by 4 that sweep a matrix together: whole calls, and the last one's summary.
# Fails where a call does, and where 2 and 4 GPUs have other bits.
gang() {
  local folder=$out/gang gpus members order round begin bits failed=0
  local -A wanted=()
  gpus=$(nvidia-smi --list-gpus | wc -l)
  mkdir -p "$folder"
  python3 -c "
import numpy as np
for n in 8192, 16384:
    np.save('$folder/%d.npy' % n, np.random.default_rng(n).standard_normal((n, n)))"
  for members in 1 2 4; do
    [[ $members -le $gpus ]] || continue
    start svdserve --metrics-listen= --large-gpus="$members" --max-large-bytes=48GiB
    for order in 8192 16384; do
      for round in 1 2 3; do
        begin=$(date +%s.%N)
        "$bin/svdctl" svd "$folder/$order.npy" --method jacobi --u "$folder/u.npy" --s "$folder/s.npy" \
          --vh "$folder/vh.npy" --verbose --address "$address" > "$folder/log" 2>&1 || { cat "$folder/log"; failed=1; }
        printf 'order %d, --large-gpus=%d, round %d: %.2f s\n' "$order" "$members" "$round" \
          "$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN {print b - a}')"
      done
      bits=$(cat "$folder/u.npy" "$folder/s.npy" "$folder/vh.npy" | sha256sum | cut -c 1-16)
      printf '%s; bits %s\n' "$(tail -n 1 "$folder/log")" "$bits"
      ((members == 1)) && continue
      [[ $bits == "${wanted[$order]:=$bits}" ]] || failed=1
    done
    stop
  done
  rm -rf "$folder"
  return $failed
}

# Through the service from Python, beside NumPy in the same process: over TCP, then over a Unix socket.
python_clients() {
  for listen in 127.0.0.1:0 unix:/tmp/svdserve_bench.sock; do
    start svdserve --metrics-listen= --listen="$listen"
    PYTHONPATH=$here/python python3 -W ignore::RuntimeWarning "$here/outputs_against_numpy.py" "$address" || return 1
    stop
  done
}

# The times of one large matrix, as the lines that to_benchmarks.py reads: of svdctl's whole process, and of its JSON.
#   large_times COMMAND FILE...
large_times() {
  local began ended
  rm -f "$out"/large/x.*.npy  # to remove a file that is replaced takes longer than some calls
  began=$(date +%s.%N)
  "$bin/svdctl" "$@" -o "$out/large/x" --json --address "$address" > "$out/large/report.json" || return 1
  ended=$(date +%s.%N)
  python3 -c '
import json, sys
report = json.load(open(sys.argv[1]))["files"][0]
shape = "x".join(str(size) for size in report["shape"])
print(shape, report["dtype"], "in %.4g s:" % (float(sys.argv[3]) - float(sys.argv[2])), *report["methods"], "on",
      report["devices"][0] + ";", *report["statuses"])
print("upload %(upload_seconds).3g s, queue %(queue_seconds).3g s, compute %(compute_seconds).3g s, "
      "download %(download_seconds).3g s" % report["server"])' "$out/large/report.json" "$began" "$ended"
  "$bin/svdctl" "$@" --certificate --json --address "$address" |
    python3 -c 'import json, sys; print("certificate", json.dumps(json.load(sys.stdin)["files"][0]["certificate"]))'
}

# Large matrices through the service, each by svdctl from a file and back into files. Then a small call beside one, and
# the way there and back beside the echo's.
large() {
  local folder=$out/large n server_address
  mkdir -p "$folder"
  python3 - "$folder" << 'PY' || return 1
import sys, numpy as np
for n in (2048, 8192):
    np.save(f"{sys.argv[1]}/{n}.npy", np.random.default_rng(n).standard_normal((n, n)))
np.save(f"{sys.argv[1]}/j.npy", np.where(np.arange(2048) % 3, 1, -1))
PY
  start svdserve --metrics-listen= --max-large-bytes=16GiB
  server_address=$address
  for n in 2048 2048 8192 8192; do
    echo "svd:"
    large_times svd "$folder/$n.npy" || return 1
  done
  echo "hsvd:"
  large_times hsvd "$folder/2048.npy" "$folder/j.npy" || return 1
  echo "small calls while a factor of 8192 x 8192 is computed:"
  (for _ in 1 2 3 4; do "$bin/svdctl" svd "$folder/8192.npy" --s "$folder/s.npy" --method jacobi --quiet --address "$server_address"; done) &
  local factors=$!
  sleep 4
  "$bin/svdctl" latency --rounds 3 --calls 300 --address "$server_address"
  wait $factors
  stop
  rm -rf "$folder"
  bash "$here/large_against_echo.sh" 3 "$bin"
}

first() {
  python3 -c "import numpy as np; np.save('$out/first.npy', np.random.default_rng(1).standard_normal((2048, 2048)))" || return 1
  local seconds call began
  for seconds in 0 3 0 3 0 3; do
    start svdserve --metrics-listen=
    sleep "$seconds"
    for call in 1 2 3; do
      began=${EPOCHREALTIME/./}
      "$bin/svdctl" svd "$out/first.npy" -o "$out/first" --quiet --address "$address" || return 1
      echo "svd of 2048x2048 after $seconds s, call $call: $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
    done
    nvidia-smi --query-gpu=memory.used --format=csv,noheader
    stop
  done
  rm -f "$out"/first*
}

soak() {
  start svdserve --metrics-listen=127.0.0.1:0
  local metrics
  metrics=$(sed -n 's/^metrics=//p' "$out/ready")
  for minute in 0 1 2; do
    nvidia-smi --query-gpu=memory.used --format=csv,noheader
    grep VmRSS "/proc/$server/status"
    [[ $minute == 2 ]] && break
    "$bin/svdctl" bench --address "$address" --shape 2x2,4x4,8x8,16x16,32x32,64x4 --dtype f32,f64,c64,c128 \
      --count 2000 --concurrency 32 --duration 58s --server-pid "$server" --json |
      grep -E 'requests_per_s|failed|rss'
  done
  curl -s "http://$metrics/metrics" | grep -E '^svdserve_device' | head -40
  stop
}

{
  section machine
  date -u +%Y-%m-%dT%H:%M:%SZ
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  grep -m1 'model name' /proc/cpuinfo
  echo "$(nproc) cores"
  for part in $parts; do
    section "$part"
    began=$SECONDS
    case $part in
      arithmetic) "$bin/device_arithmetic" ;;
      bits)
        for dtype in f32 f64 c64 c128; do "$bin/device_same_bits" "${BITS:-13000}" all "$dtype" & done
        failed=0
        for _ in 1 2 3 4; do wait -n || failed=1; done
        (exit $failed)
        ;;
      contract)
        for dtype in f32 f64 c64 c128; do "$bin/device_contract" all "$dtype" & done
        failed=0
        for _ in 1 2 3 4; do wait -n || failed=1; done
        (exit $failed)
        ;;
      repeat)
        for dtype in f32 f64 c64 c128; do "$bin/device_contract" repeat "$dtype" & done
        failed=0
        for _ in 1 2 3 4; do wait -n || failed=1; done
        (exit $failed)
        ;;
      faults) timeout 120 "$bin/device_faults" ;;
      factor)
        failed=0
        "$bin/device_large_kernels" || failed=1
        "$bin/device_gram_step_bench" || failed=1
        "$bin/device_qr_bench" || failed=1
        "$bin/device_tridiagonal_bench" || failed=1
        "$bin/device_tridiagonal_form" || failed=1
        "$bin/device_large_bench" || failed=1
        "$bin/device_large_general" || failed=1
        "$bin/device_large_states" || failed=1
        (exit $failed)
        ;;
      eig) "$bin/device_large_general" ;;
      eigen)
        failed=0
        "$bin/device_large_bench" eigen || failed=1
        "$bin/device_large_general" || failed=1
        (exit $failed)
        ;;
      factor-profile)
        failed=0
        for kernel in gram inner postmultiply; do
          # In the second sweep at n = 2048.
          timeout 60 ncu --set full --kernel-name "regex:${kernel}_kernel" --launch-skip 80 --launch-count 1 --kill yes \
            "$bin/device_large_bench" profile || failed=1
        done
        (exit $failed)
        ;;
      limits)
        failed=0
        for shape in 2x2 4x4 8x8 16x16 32x32; do
          echo "$shape"
          timeout 90 python3 "$here/limits.py" 'lane_kernel|bidiagonal|finish' "$bin/device_kernel_bench" "$shape" quick || failed=1
        done
        (exit $failed)
        ;;
      kernels) "$bin/device_kernel_bench" ;;
      vectors) "$bin/device_vectors_bench" ;;
      hermitian) "$bin/device_hermitian_bench" ;;
      general)
        "$bin/device_general_bench" && python3 "$here/torch_peer.py" eig
        ;;
      answers) "$bin/device_answers_bench" ;;
      torch) python3 "$here/torch_peer.py" vectors ;;
      python) python_clients ;;
      large) large ;;
      host) "$bin/device_host_bench" ;;
      service) service ;;
      few) "$bin/device_vectors_bench" 64x64,128x128,256x256,512x512 few ;;
      eigh) by_methods eigh thin f64 2 '1:16 16:16' 64x64 128x128 256x256 ;;
      midsize) by_methods svd none f64 2 '1:16 1:128 4:16 16:16' 256x256 512x512 ;;
      svds) svds ;;
      stacks) stacks ;;
      fresh) fresh ;;
      connections) connections ;;
      windows) windows ;;
      narrow) narrow ;;
      several) several ;;
      gang) gang ;;
      ring)
        failed=0
        "$bin/device_ring_bench" || failed=1
        "$bin/device_rank_faults" || failed=1
        (exit $failed)
        ;;
      cusolvermp)
        python3 "$here/cusolvermp_peer.py" 8192 16384 && "$bin/device_ring_bench" figures members=4 8192 16384
        ;;
      accuracy)
        for dtype in f64 c128; do
          "$bin/large_accuracy" hermitian 2048 4096 --dtype "$dtype" --solvers tridiagonal,factored --cuda --check
        done
        ;;
      soak) soak ;;
      first) first ;;
      sanitize)
        for tool in memcheck racecheck initcheck; do
          compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/device_same_bits" 3 small 2>&1 | tail -3
          compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/device_contract" small 2>&1 | tail -3
        done
        ;;
      resources) cuobjdump --dump-resource-usage "$bin/libsvdserve_cuda.so" ;;
      *) echo "no such part" ;;
    esac
    echo "exit code $?"
    echo "$part took $((SECONDS - began)) s"
  done
} 2>&1 | tee "$out/results.txt"
rm -f "$out/ready"
{ section compared && python3 "$here/compare.py" "$out/results.txt"; } 2>&1 | tee -a "$out/results.txt"
