#!/usr/bin/env bash
# The way of a large matrix to svdserve and its results' way back, checksums on, against the echo's stream of the same
# bytes, in turns. Prints GB/s of each round and the medians. Then it prints the server's memory before, and at most
# beside the matrix and its results.
#   tests/support/large_against_echo.sh [ROUNDS] [BIN] [ROWS] [COLS]    default: 5 build/release/bin 1048576 128, a GiB
set -euo pipefail
rounds=${1:-5} bin=${2:-build/release/bin} rows=${3:-1048576} cols=${4:-128}
# shellcheck source=tests/support/serve_with_echo.sh
source "$(dirname "${BASH_SOURCE[0]}")/serve_with_echo.sh"
memory() { awk -v name="$1:" '$1 == name {print $2}' "/proc/${pids[0]}/status"; }
idle=$(memory VmRSS)
address() { sed -n 's/^grpc=//p' "$work/$1"; }
rate() { "$bin/svdserve_large_rate" "$@" "$rows" "$cols" | awk '$1 == "rate_gb_per_s" {print $2}'; }

printf '%-8s %8s %8s %8s\n' round server echo ratio
for ((round = 1; round <= rounds; ++round)); do
  of_server=$(rate "$(address server)")
  of_echo=$(rate --echo "$(address echo)")
  echo "$of_server $of_echo" >> "$work/rounds"
  tail -n 1 "$work/rounds" | awk -v r="$round" '{printf "%-8s %8.3f %8.3f %8.3f\n", r, $1, $2, $1 / $2}'
done
median() { cut -d' ' -f"$1" "$work/rounds" | sort -g | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'; }
echo "$(median 1) $(median 2)" | awk '{printf "%-8s %8.3f %8.3f %8.3f\n", "median", $1, $2, $1 / $2}'
awk -v m="$rows" -v n="$cols" -v idle="$idle" -v peak="$(memory VmHWM)" 'BEGIN {k = m < n ? m : n
  printf "idle_mib %.0f\npeak_beside_operand_and_results_mib %.0f\n", idle / 1024,
    (peak - 8 * (m * n + m * k + k + k * n) / 1024) / 1024}'
