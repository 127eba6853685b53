#!/usr/bin/env bash
# The cost of a server beside gRPC and the engine alone: CPU seconds a GB of operands at 1 MiB a request (4x4 c64).
# svdserve, the echo that computes nothing, and the engine on one core run in turns. Prints every round and the medians.
#   tests/support/against_echo.sh [ROUNDS] [BIN]      default: 5 build/release/bin; about 12 s a round
set -euo pipefail
rounds=${1:-5} bin=${2:-build/release/bin}
# shellcheck source=tests/support/serve_with_echo.sh
source "$(dirname "${BASH_SOURCE[0]}")/serve_with_echo.sh"

cost() { # NAME PID
  "$bin/svdctl" bench --address "$(sed -n 's/^grpc=//p' "$work/$1")" --request-bytes 1048576 --duration 4s --warmup 1s \
    --server-pid "$2" --json | awk -F '[": ,]+' '$2 == "server_cpu_s_per_gb" {print $3}'
}
engine_cost() { # the last column is matrices a second; each has 128 bytes
  "$bin/values_bench" --benchmark_filter='^4x4/c64/bidiagonal$' --benchmark_format=csv --benchmark_min_time=1 2> /dev/null |
    awk -F, '/^"4x4/ {print 1e9 / (128 * $NF)}'
}
printf '%-8s %8s %8s %8s %8s\n' round server echo engine ratio
for ((round = 1; round <= rounds; ++round)); do
  echo "$(cost server "${pids[0]}") $(cost echo "${pids[1]}") $(engine_cost)" >> "$work/rounds"
  tail -n 1 "$work/rounds" | awk -v r="$round" '{printf "%-8s %8.3f %8.3f %8.3f %8.3f\n", r, $1, $2, $3, $1 / ($2 + $3)}'
done
median() { cut -d' ' -f"$1" "$work/rounds" | sort -g | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'; }
echo "$(median 1) $(median 2) $(median 3)" |
  awk '{printf "%-8s %8.3f %8.3f %8.3f %8.3f\n", "median", $1, $2, $3, $1 / ($2 + $3)}'
