#!/usr/bin/env bash
# To be sourced: starts svdserve and the echo of the folder $bin. Sets work, a folder that goes at the exit, and pids.
# A ready file of each, $work/server and $work/echo, has its address.
bin=${bin:?}
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2> /dev/null || true; wait; rm -rf "$work"' EXIT

serve() { # NAME COMMAND...
  local name=$1
  shift
  "$@" --listen 127.0.0.1:0 --ready-file "$work/$name" > "$work/$name.log" 2>&1 &
  pids+=($!)
  for ((i = 0; i < 300; ++i)); do [[ -s $work/$name ]] && return; sleep 0.1; done
  cat "$work/$name.log" >&2
  exit 1
}
serve server "$bin/svdserve" --metrics-listen= --drain-delay 0s
serve echo "$bin/svdserve_echo"
