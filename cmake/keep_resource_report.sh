#!/usr/bin/env bash
# A compiler launcher: runs the compiler with its arguments, and keeps what ptxas says about kernels (--resource-usage) in
# OBJECT.resources instead of printing it. Before ccache, which repeats what a compiler said.
#   keep_resource_report.sh [ccache] nvcc ... -o OBJECT ...
set -uo pipefail
object='' previous=''
for word in "$@"; do
  [[ $previous == -o ]] && object=$word
  previous=$word
done
[[ $object ]] || exec "$@"

"$@" 2> "$object.stderr"
status=$?
info='^(ptxas info|    [0-9]+ bytes stack frame)'
grep -E "$info" "$object.stderr" > "$object.resources"
grep -vE "$info" "$object.stderr" >&2
rm -f "$object.stderr"
exit "$status"
