#!/usr/bin/env bash
# Installs the client alone, moves it, and builds programs with it by CMake, by pkg-config and by hand. They see no gRPC,
# and the library shows no names but svdserve's.
#   client_package_test.sh BUILD_DIR CONSUMER_SOURCE WORK_DIR
set -euo pipefail
build=$1 consumer=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cp -r "$consumer" "$work/consumer" # outside the tree, so that nothing of it is found by accident
cmake --install "$build" --component client --prefix "$work/installed" > "$work/install.log"
mv "$work/installed" "$work/prefix"
prefix=$work/prefix
library=$(find "$prefix" -name libsvdserve_client.so)
fail() { echo "$*" >&2; exit 1; }

echo "names:"
nm -D --defined-only "$library" | awk '{print $3}' > "$work/names"
others=$(grep -vE '^_Z(N|NK|TIN|TSN|TVN)8svdserve6client' "$work/names" || true)
[[ ! $others ]] || fail "libsvdserve_client.so shows names that are not svdserve's:" "$others"
grep -q '^_ZN8svdserve6client6Client' "$work/names" || fail "libsvdserve_client.so shows no Client"
# Every #include of an installed header is another one's, or a library's that the header is for.
outside=$(grep -rhoE '^#include [<"][^>"]*[/.][^>"]*[>"]' "$prefix/include" | grep -vE '<svdserve/\w+\.h>|<Eigen/Core>' || true)
[[ ! $outside ]] || fail "installed headers include $outside"

echo "by CMake:"
cxx=${CXX:-c++}
# Packages of others are out of reach: whoever asks for them fails.
cmake -S "$work/consumer" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" \
  -DCMAKE_DISABLE_FIND_PACKAGE_gRPC=ON -DCMAKE_DISABLE_FIND_PACKAGE_Protobuf=ON -DCMAKE_DISABLE_FIND_PACKAGE_absl=ON
cmake --build "$work/build"

echo "by pkg-config:"
export PKG_CONFIG_PATH=${library%/*}/pkgconfig
version=$(pkg-config --modversion svdserve-client)
[[ $(readlink "$library") == "libsvdserve_client.so.${version%.*}" ]] || fail "version $version, but $(readlink "$library")"
# shellcheck disable=SC2046  # words
"$cxx" -std=c++20 -O1 -Wall -Wextra -Werror "$work/consumer/plain.cc" -o "$work/plain" \
  $(pkg-config --cflags --libs svdserve-client) -Wl,-rpath,"${library%/*}"

echo "linked:"
for program in "$work/build/verbs" "$work/build/plain" "$work/plain"; do
  needed=$(readelf -d "$program" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
  grep -q '^libsvdserve_client\.so' <<< "$needed" || fail "$program does not link the shared library"
  ! grep -E 'grpc|gpr|protobuf|absl' <<< "$needed" || fail "$program links these itself"
done

echo "run:"
"$build/bin/svdserve" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --ready-file "$work/ready" 2> "$work/server.log" &
server=$!
trap 'kill $server 2> /dev/null || true; wait $server 2> /dev/null || true' EXIT
for ((i = 0; i < 600; ++i)); do
  [[ -s $work/ready ]] && break
  kill -0 $server 2> /dev/null || { cat "$work/server.log" >&2; exit 1; }
  sleep 0.1
done
address=$(sed -n 's/^grpc=//p' "$work/ready")
"$work/build/plain" "$address"
"$work/plain" "$address"
"$work/build/verbs" "$address"
