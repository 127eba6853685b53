#!/usr/bin/env bash
# Makes all files of a release from a clean clone. They are the Debian package, the wheels, the Helm chart, the wire
# contract as a descriptor set, an SPDX list of the libraries, and checksums.
#   deploy/release.sh [OUT [BUILD]]     default: build/dist, from build/release. About half an hour of two cores
# CHANGELOG.md says what a release is, and what comes before and after this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build/dist} build=${2:-build/release}
[[ -z $(git status --porcelain) ]] || { echo "release: the clone has changes that are not committed" >&2; exit 1; }
version=$(sed -nE 's/^project\(svdserve VERSION (\S+).*/\1/p' CMakeLists.txt)
grep -q "^## $version " CHANGELOG.md || { echo "release: CHANGELOG.md has no section of $version" >&2; exit 1; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

deploy/bootstrap.sh build
cmake --preset release -B "$build" -DSVDSERVE_TESTS=OFF -DSVDSERVE_BENCHMARKS=OFF -DSVDSERVE_SIMD=all
cmake --build "$build" --target svdserve svdctl
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cpack --config "$build/CPackConfig.cmake" -B "$work/deb"
cp "$work"/deb/*.deb "$out/"
python3 deploy/wheel.py "$build" --out "$out"
tar -czf "$out/svdserve-chart-$version.tgz" --dereference --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
  --transform 's|^chart|svdserve|' -C deploy chart
protoc --include_imports --descriptor_set_out="$out/svdserve-$version.binpb" -Iproto proto/svdserve/v1/svd_service.proto
python3 deploy/sbom.py "$build" > "$out/svdserve-$version.spdx.json"
(cd "$out" && sha256sum -- * > "$work/sums" && mv "$work/sums" SHA256SUMS)
ls -l "$out"
