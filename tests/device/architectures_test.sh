#!/usr/bin/env bash
# The plugin's kernels compile for every GPU that they are meant for. A file each is enough to see that the source asks
# for nothing special. The build makes that of sm_90. Files that take a minute are compiled in long runs only
# (SVDSERVE_TEST_SIZE=long).
#   architectures_test.sh OUT_DIR GENERATED_KERNELS_DIR [ccache] nvcc FLAG...
set -euo pipefail
out=$1 generated=$2
shift 2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cuda=$root/engine/backends/cuda
mkdir -p "$out"
pairs=("sm_80:$cuda/p_steps/gram_step" "sm_80:$cuda/tridiagonal/reduction" "sm_100:$cuda/mimo/answers")
[[ ${SVDSERVE_TEST_SIZE:-} != long ]] ||
  pairs+=("sm_80:$generated/kernels_f32" "sm_87:$generated/kernels_c64" "sm_100:$generated/kernels_f64"
    "sm_100:$generated/block_f64")
failed=0
for pair in "${pairs[@]}"; do
  architecture=${pair%%:*} source=${pair#*:}
  object=$out/$(basename "$source").$architecture.o
  # Without ptxas optimizing: whether it compiles, not how well.
  if "$@" -std=c++20 -I"$root" -arch="$architecture" -Xptxas -O0 -c "$source.cu" -o "$object"; then
    echo "$(basename "$source") for $architecture: $(stat -c %s "$object") bytes"
  else
    failed=1
  fi
done
exit "$failed"
