#!/usr/bin/env bash
# Goodput at two and three times the capacity, with a deadline of one second, from several client processes.
#   tests/support/overload.sh [build/release/bin] [client processes, 4] [cores of the server, 0-3] [flag of the server ...]
# With cores named, the clients run on the others: then what is measured is the server, not the contest for its cores.
# Prints, for requests of 128 KB and of 1 MB, the capacity (closed loop, no deadline), then the replies in time at each
# rate. Prints also how many requests failed in another way than by a rejection or their deadline.
set -euo pipefail
bin=${1:-build/release/bin} clients=${2:-4} cores=${3:-}
on_server=() on_clients=()
if [[ $cores ]]; then
  on_server=(taskset -c "$cores")
  others=$(python3 -c "
import os, sys
mine = {c for part in sys.argv[1].split(',') for low, _, high in [part.partition('-')]
        for c in range(int(low), int(high or low) + 1)}
print(','.join(str(c) for c in sorted(os.sched_getaffinity(0) - mine)))" "$cores")
  on_clients=(taskset -c "$others")
fi
folder=$(mktemp -d)
trap 'kill $server 2> /dev/null; wait; rm -rf "$folder"' EXIT
"${on_server[@]}" "$bin/svdserve" --listen=127.0.0.1:0 --metrics-listen= --ready-file="$folder/ready" "${@:4}" > "$folder/log" 2>&1 &
server=$!
for _ in $(seq 300); do
  [[ -s $folder/ready ]] && break
  sleep 0.1
done
address=$(sed -n 's/^grpc=//p' "$folder/ready")

# bench FLAG...: all client processes at once; prints the sum of each figure that follows.
bench() {
  local i pids=()
  for i in $(seq "$clients"); do
    "${on_clients[@]}" "$bin/svdctl" bench --address "$address" --shape 32x32 --dtype f64 --seed "$i" --duration 6s --warmup 2s --json \
      "$@" > "$folder/bench$i" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || true; done
  awk -F '[": ,]+' '$2 ~ /^(ok|refused|expired|failed)$/ {n[$2] += $3} $2 == "seconds" {s = $3}
    END {printf "%d %d %d %d %s\n", n["ok"], n["refused"], n["expired"], n["failed"], s}' "$folder"/bench*
}

for bytes in 131072 1048576; do
  read -r ok refused expired failed seconds < <(bench --request-bytes "$bytes" --concurrency 4 --connections 2)
  capacity=$(awk "BEGIN {print $ok / $seconds}")
  printf '%8d bytes: capacity %8.1f requests/s\n' "$bytes" "$capacity"
  for times in 2 3; do
    rate=$(awk "BEGIN {print $capacity * $times / $clients}")
    read -r ok refused expired failed seconds < <(bench --request-bytes "$bytes" --rate "$rate" --timeout 1s \
      --max-outstanding 2000 --connections 2)
    printf '%8d bytes: %dx: goodput %8.1f requests/s = %.2f of capacity; %d refused, %d expired, %d failed\n' "$bytes" \
      "$times" "$(awk "BEGIN {print $ok / $seconds}")" "$(awk "BEGIN {print $ok / $seconds / $capacity}")" "$refused" \
      "$expired" "$failed"
  done
done
