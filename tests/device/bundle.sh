#!/usr/bin/env bash
# Makes a folder that runs on a machine with a GPU and nothing of ours. It has programs, the plugin, and the libraries
# they need but for glibc, libstdc++ and CUDA's own.
#   tests/device/bundle.sh [build folder, build/release] [bundle, build/device-bundle]
# also as bundle.tar.xz. Then, there: device-bundle/run.sh results-folder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/release}
bundle=${2:-build/device-bundle}
programs=(svdserve svdctl svdserve_echo svdserve_large_rate device_arithmetic device_same_bits device_contract device_large_states device_kernel_bench device_vectors_bench device_hermitian_bench device_general_bench device_answers_bench device_host_bench device_faults
  device_large_kernels device_gram_step_bench device_qr_bench device_tridiagonal_bench device_tridiagonal_form device_large_bench device_ring_bench device_rank_faults device_large_general large_accuracy libsvdserve_cuda.so)

rm -rf "$bundle"
tests/support/pack_programs.sh "$build/bin" "$bundle/bin" "${programs[@]}"
cp tests/device/run.sh tests/device/torch_peer.py tests/device/cusolvermp_peer.py tests/device/compare.py tests/device/limits.py \
  tests/support/large_against_echo.sh tests/support/serve_with_echo.sh "$bundle/"
# The Python client; NumPy and gRPC the machine there has.
cp client/python/benchmarks/outputs_against_numpy.py client/python/benchmarks/against_numpy.py "$bundle/"
python3 -m venv "$bundle/venv"
"$bundle/venv/bin/pip" -q install --no-deps --target "$bundle/python" ./client/python google-crc32c
rm -rf "$bundle/venv"
# The results that run.sh compares with at its end.
cp -r tests/device/results "$bundle/"
tar -C "$(dirname "$bundle")" -c "$(basename "$bundle")" | xz -T0 -3 > "$bundle.tar.xz"
du -sh "$bundle" "$bundle.tar.xz"
