#!/usr/bin/env bash
# Runs on a machine with a GPU, beside the bundle's bin: checks, then measures, into one results file.
#   run.sh [results folder, .] [what ...: bits kernels ...; default: all]
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-.}
shift || true
what=${*:-bits kernels}
bin=$here/bin
mkdir -p "$out"
section() { printf '\n== %s\n' "$*"; }

{
  section machine
  date -u +%Y-%m-%dT%H:%M:%SZ
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  grep -m1 'model name' /proc/cpuinfo; nproc
  for part in $what; do
    section "$part"
    case $part in
      bits) "$bin/device_same_bits" "${BITS:-10000}" ;;
      kernels) "$bin/device_kernel_bench" ;;
    esac
    echo "exit code $?"
  done
} 2>&1 | tee "$out/results.txt"
