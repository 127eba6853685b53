#!/usr/bin/env bash
# A real Prometheus server scrapes a running svdserve: its targets are up, its series arrive, promtool finds no fault with
# their names. Every query of the dashboard, and every record, has a result.
#   prometheus_scrape_test.sh PATH_OF_SVDSERVE PATH_OF_SVDCTL
set -euo pipefail
svdserve=$1 svdctl=$2
deploy=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy" && pwd)
work=$(mktemp -d)
pids=()
finish() {
  local status=$?
  ((${#pids[@]})) && kill "${pids[@]}" 2>/dev/null
  wait 2>/dev/null
  if ((status != 0)); then tail -n 30 "$work"/*.log; fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || { echo "gave up waiting for: $*" >&2; return 1; }
    sleep 0.1
  done
}

"$svdserve" --listen=127.0.0.1:0 --metrics-listen=127.0.0.1:0 --ready-file="$work/ready" --drain-delay=0s \
  2>"$work/svdserve.log" &
pids+=($!)
wait_for 60 test -f "$work/ready"
target=$(sed -n 's/^metrics=//p' "$work/ready")

curl -sf "http://$target/metrics" >"$work/metrics.txt"
promtool check metrics <"$work/metrics.txt"
for name in svdserve_ready svdserve_build_info svdserve_inflight_bytes svdserve_batches_total svdserve_phase_seconds_bucket; do
  grep -q "^$name" "$work/metrics.txt" || { echo "no series $name" >&2; exit 1; }
done

cat >"$work/prometheus.yml" <<YAML
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: ["$deploy/prometheus/alerts.yaml"]
scrape_configs:
  - job_name: svdserve
    static_configs: [{targets: ["$target"]}]
YAML
promtool check config "$work/prometheus.yml"

# Prometheus takes no port 0: ask the system for a free one.
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" \
  --web.listen-address="127.0.0.1:$port" >"$work/prometheus.log" 2>&1 &
pids+=($!)
prometheus_url="http://127.0.0.1:$port"
wait_for 60 curl -sf -o /dev/null "$prometheus_url/-/ready"

holds() { promtool query instant "$prometheus_url" "$1" 2>/dev/null | grep -q '=>'; }
wait_for 60 holds 'up{job="svdserve"} == 1'
wait_for 60 holds 'svdserve_ready == 1'
wait_for 60 holds 'svdserve_build_info{version!=""} == 1'
wait_for 60 holds 'rate(process_cpu_seconds_total{job="svdserve"}[30s]) >= 0'

# Small requests and a large matrix, so that all there is has been counted.
address=$(sed -n 's/^grpc=//p' "$work/ready")
/usr/bin/python3 -c 'import numpy, sys; numpy.save(sys.argv[1], numpy.random.default_rng(1).normal(size=(600, 600)))' \
  "$work/large.npy"
"$svdctl" bench --address "$address" --duration 2s --warmup 0s --quiet
"$svdctl" svd "$work/large.npy" --address "$address" -o "$work/large" >"$work/svdctl.log"
"$svdctl" bench --address "$address" --duration 2s --warmup 0s --quiet
while IFS= read -r query; do
  wait_for 60 holds "$query"
  queries=$((${queries:-0} + 1))
done < <(/usr/bin/python3 - "$deploy" << 'PY'
import json, pathlib, re, sys
deploy = pathlib.Path(sys.argv[1])
for panel in json.loads((deploy / "grafana/svdserve.json").read_text())["panels"]:
    for target in panel["targets"]:
        print(target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*"))
print(*re.findall(r"record: (\S+)", (deploy / "prometheus/alerts.yaml").read_text()), sep="\n")
PY
)
((queries > 50)) || { echo "only $queries queries" >&2; exit 1; }

# When the server drains it goes away, and Prometheus notices.
kill "${pids[0]}"
wait "${pids[0]}"
wait_for 60 holds 'up{job="svdserve"} == 0'
echo "Prometheus scraped svdserve: up, ready, named well, $queries queries answered, and missed when gone"
