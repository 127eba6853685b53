#!/usr/bin/env bash
# The plugin's kernels compile for every GPU that they are meant for: a file each, which is enough to see that the source
# asks for nothing special. The build makes that of sm_90. Files that take a minute are compiled in long runs only
# (SVDSERVE_TEST_SIZE=long).
#   architectures_test.sh OUT_DIR [ccache] nvcc FLAG...
set -euo pipefail
out=$1
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$out"
pairs=(sm_80:p_step sm_100:answers_f32)
[[ ${SVDSERVE_TEST_SIZE:-} != long ]] || pairs+=(sm_80:kernels_f32 sm_87:kernels_c64 sm_100:kernels_f64 sm_100:block_f64)
failed=0
for pair in "${pairs[@]}"; do
  architecture=${pair%:*} kernels=${pair#*:}
  # Without ptxas optimizing: whether it compiles, not how well.
  if "$@" -std=c++20 -I"$root" -arch="$architecture" -Xptxas -O0 -c "$root/engine/backends/cuda/$kernels.cu" \
    -o "$out/$kernels.$architecture.o"; then
    echo "$kernels for $architecture: $(stat -c %s "$out/$kernels.$architecture.o") bytes"
  else
    failed=1
  fi
done
exit "$failed"
