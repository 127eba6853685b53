#!/usr/bin/env bash
# Checks that every C++ file looks as .clang-format says; with --fix, makes it so.
#   tests/lint/format.sh [--fix] [CLANG_FORMAT]
# The version is pinned, because versions disagree: without CLANG_FORMAT the tools of requirements.txt are installed
# into build/lint-tools.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mode=(--dry-run --Werror --ferror-limit=1)
if [[ ${1:-} == --fix ]]; then
  mode=(-i)
  shift
fi
if [[ ! ${1:-} ]]; then
  mkdir -p build
  tests/lint/tools.sh build/lint-tools
fi
find engine server client wire tests \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -r "${1:-build/lint-tools/bin/clang-format}" --style=file "${mode[@]}"
