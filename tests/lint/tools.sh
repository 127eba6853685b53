#!/usr/bin/env bash
# Makes the virtual environment DIR with the pinned tools of FILE, which is requirements.txt; does nothing when it is up to
# date.
#   tools.sh DIR [PYTHON [FILE]]
set -euo pipefail
dir=$1 python=${2:-python3}
wanted=${3:-$(dirname "${BASH_SOURCE[0]}")/requirements.txt}
cmp -s "$wanted" "$dir/requirements.txt" && exit 0
rm -rf "$dir"
"$python" -m venv "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
cp "$wanted" "$dir/requirements.txt"
