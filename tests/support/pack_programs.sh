#!/usr/bin/env bash
# Copies programs into a folder, to run on a machine with nothing of ours. Their libraries lie in lib beside them, but for
# glibc, libstdc++ and CUDA's own.
#   tests/support/pack_programs.sh BUILD_BIN FOLDER PROGRAM...
# Says which of the programs the build does not have.
set -euo pipefail
from=$1 to=$2
shift 2

command -v patchelf > /dev/null || { apt-get update -qq; apt-get install -y -qq patchelf; } > /dev/null
mkdir -p "$to/lib"
for program in "$@"; do
  if [[ ! -e $from/$program ]]; then
    echo "pack_programs: $from/$program is missing" >&2
    continue
  fi
  cp "$from/$program" "$to/"
  strip --strip-unneeded "$to/$program"
  # name => path, of what is not the platform's own.
  ldd "$from/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    { grep -vE '/(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libcublas|libcublasLt|libcusolver|libcusparse|libnvJitLink)[-.]' || true; } |
    while read -r library; do
      [[ -e $to/lib/$(basename "$library") ]] || cp -L "$library" "$to/lib/"
    done
done
# RPATH, unlike RUNPATH, also serves the libraries' libraries.
for program in "$to"/*; do
  [[ -f $program ]] || continue
  if [[ $program == *.so ]]; then
    continue  # its own $ORIGIN:/usr/local/cuda/lib64 is right
  fi
  patchelf --force-rpath --set-rpath "\$ORIGIN/lib:/usr/local/cuda/lib64" "$program"
done
for library in "$to"/lib/*; do
  strip --strip-unneeded "$library"
  patchelf --set-rpath "\$ORIGIN" "$library"
done
