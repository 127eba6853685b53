#!/usr/bin/env bash
# Calls a second of 64 clients that send one 4x4 matrix (c64) at a time. As many clients' empty unary calls to the same
# server run beside them, in turns. Prints every round and the medians; the ratio is of calls a second.
#   tests/support/small_requests.sh [ROUNDS] [BIN] [CONNECTIONS]      default: 5 build/release/bin 64; about 10 s a round
set -euo pipefail
rounds=${1:-5} bin=${2:-build/release/bin} connections=${3:-64}
work=$(mktemp -d)
server=
trap 'kill $server 2> /dev/null || true; wait; rm -rf "$work"' EXIT

"$bin/svdserve" --listen 127.0.0.1:0 --ready-file "$work/ready" --metrics-listen= --drain-delay 0s > "$work/log" 2>&1 &
server=$!
for ((i = 0; i < 300; ++i)); do [[ -s $work/ready ]] && break; sleep 0.1; done
address=$(sed -n 's/^grpc=//p' "$work/ready")

calls() { # FLAG...
  "$bin/svdctl" bench --address "$address" --concurrency 64 --connections "$connections" --duration 4s --warmup 1s --json \
    "$@" | awk -F '[": ,]+' '$2 == "requests_per_s" {print $3}'
}
printf '%-8s %12s %12s %8s\n' round 4x4 empty ratio
for ((round = 1; round <= rounds; ++round)); do
  echo "$(calls --shape 4x4 --dtype c64 --count 1) $(calls --empty)" >> "$work/rounds"
  tail -n 1 "$work/rounds" | awk -v r="$round" '{printf "%-8s %12.0f %12.0f %8.3f\n", r, $1, $2, $1 / $2}'
done
median() { awk "{print $1}" "$work/rounds" | sort -g | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'; }
printf '%-8s %12.0f %12.0f %8.3f\n' median "$(median '$1')" "$(median '$2')" "$(median '$1 / $2')"
