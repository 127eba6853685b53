#!/usr/bin/env bash
# Makes a folder that runs on a machine with a GPU and nothing of ours. It has programs, the plugin, and the libraries
# they need but for glibc, libstdc++ and CUDA's own.
#   tests/device/bundle.sh [build folder, build/release] [bundle, build/device-bundle]
# also as bundle.tar.xz. Then, there: device-bundle/run.sh results-folder
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/release}
bundle=${2:-build/device-bundle}
programs=(svdserve svdctl svdserve_echo svdserve_large_rate device_arithmetic device_same_bits device_contract device_kernel_bench device_vectors_bench device_hermitian_bench device_general_bench device_answers_bench device_host_bench device_faults
  device_large_kernels device_gram_step_bench device_qr_bench device_large_bench device_ring_bench device_large_general large_accuracy libsvdserve_cuda.so)

command -v patchelf > /dev/null || { apt-get update -qq; apt-get install -y -qq patchelf; } > /dev/null
rm -rf "$bundle"
mkdir -p "$bundle/bin/lib"
for program in "${programs[@]}"; do
  if [[ ! -e $build/bin/$program ]]; then
    echo "bundle: $build/bin/$program is missing" >&2
    continue
  fi
  cp "$build/bin/$program" "$bundle/bin/"
  strip --strip-unneeded "$bundle/bin/$program"
  # name => path, of what is not the platform's own.
  ldd "$build/bin/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    { grep -vE '/(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libcublas|libcublasLt|libcusolver|libcusparse|libnvJitLink)[-.]' || true; } |
    while read -r library; do
      [[ -e $bundle/bin/lib/$(basename "$library") ]] || cp -L "$library" "$bundle/bin/lib/"
    done
done
# RPATH, unlike RUNPATH, also serves the libraries' libraries.
for program in "$bundle"/bin/*; do
  [[ -f $program ]] || continue
  if [[ $program == *.so ]]; then
    continue  # its own $ORIGIN:/usr/local/cuda/lib64 is right
  fi
  patchelf --force-rpath --set-rpath "\$ORIGIN/lib:/usr/local/cuda/lib64" "$program"
done
for library in "$bundle"/bin/lib/*; do
  strip --strip-unneeded "$library"
  patchelf --set-rpath "\$ORIGIN" "$library"
done
cp tests/device/run.sh tests/device/torch_peer.py tests/device/compare.py tests/support/large_against_echo.sh \
  tests/support/serve_with_echo.sh "$bundle/"
# The Python client; NumPy and gRPC the machine there has.
cp client/python/benchmarks/outputs_against_numpy.py client/python/benchmarks/against_numpy.py "$bundle/"
python3 -m venv "$bundle/venv"
"$bundle/venv/bin/pip" -q install --no-deps --target "$bundle/python" ./client/python google-crc32c
rm -rf "$bundle/venv"
# The results that run.sh compares with at its end.
cp -r tests/device/results "$bundle/"
tar -C "$(dirname "$bundle")" -c "$(basename "$bundle")" | xz -T0 -3 > "$bundle.tar.xz"
du -sh "$bundle" "$bundle.tar.xz"
