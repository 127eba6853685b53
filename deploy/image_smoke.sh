#!/usr/bin/env bash
# Builds the image from the Dockerfile and asks the server in it for its health, on a Debian machine without Docker and
# without a registry. debootstrap makes the base; buildah runs the steps with chroot isolation.
#   sudo deploy/image_smoke.sh            minutes of compiling and 3 GB under $TMPDIR, removed at the end
# Not part of the tests: it needs root, and the network for every package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
((EUID == 0)) || { echo "image_smoke: run as root" >&2; exit 1; }
missing=()
for tool in debootstrap buildah; do
  command -v $tool > /dev/null || missing+=("$tool")
done
if ((${#missing[@]})); then
  echo "image_smoke: installing ${missing[*]}"
  apt-get -q update > /dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}" > /dev/null
fi

work=$(mktemp -d)
container=
b() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
clean_up() {
  [[ ! $container ]] || b rm "$container" > /dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean_up EXIT
stage() { printf '\n== %4d s  %s\n' "$SECONDS" "$*"; }

stage "base image"
debootstrap --variant=minbase bookworm "$work/rootfs" "${MIRROR:-http://deb.debian.org/debian}" > "$work/debootstrap.log" ||
  { tail "$work/debootstrap.log"; exit 1; }
base=$(b from scratch)
b add -q "$base" "$work/rootfs" / > /dev/null
b config --cmd /bin/bash "$base"
b commit -q --rm "$base" localhost/svdserve-base > /dev/null
rm -rf "$work/rootfs"

stage "the Dockerfile's steps"
b bud --isolation chroot --network host --pull-never --format docker --build-arg BASE=localhost/svdserve-base \
  -t localhost/svdserve . > "$work/build.log" 2>&1 || { tail -n 40 "$work/build.log"; exit 1; }
b images --format '{{.Name}} {{.Size}}'
b inspect --type image --format \
  'user {{.OCIv1.Config.User}}, ports {{.OCIv1.Config.ExposedPorts}}, health check {{.Docker.Config.Healthcheck.Test}}' \
  localhost/svdserve

stage "without TLS files and without --insecure it must refuse to start"
container=$(b from --pull-never localhost/svdserve)
in_container() { b run --isolation chroot --user 10001:10001 "$@"; }
if in_container "$container" -- timeout 20 svdserve; then
  echo "image_smoke: it served" >&2
  exit 1
fi

stage "health check, information and values, all inside the image"
# shellcheck disable=SC2016  # it is the shell inside that expands
in_container --env SVDSERVE_LISTEN=127.0.0.1:50951 --env SVDSERVE_METRICS_LISTEN=127.0.0.1:50952 \
  "$container" -- bash -euc '
  id -u
  svdserve --ready-file /tmp/ready 2> /tmp/log &
  for ((i = 0; i < 100; ++i)); do [[ -s /tmp/ready ]] && break; sleep 0.1; done
  svdctl health --address 127.0.0.1:50951
  svdctl info --address 127.0.0.1:50951
  # A .npy file of one 1x1 matrix, by hand: the image has no NumPy. Its only value is 2.
  printf "\x93NUMPY\x01\0\x76\0%-117s\n" "{\"descr\": \"<f8\", \"fortran_order\": False, \"shape\": (1, 1, 1), }" > /tmp/a.npy
  printf "\0\0\0\0\0\0\0\x40" >> /tmp/a.npy
  [[ $(svdctl values /tmp/a.npy --print --address 127.0.0.1:50951) == 2 ]]
  kill -TERM $!
  wait $!
  tail -n 1 /tmp/log'

stage "done"
