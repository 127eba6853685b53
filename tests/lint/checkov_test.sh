#!/usr/bin/env bash
# Lets checkov look at the Helm chart, in an environment of its own: 300 MB, so only where SVDSERVE_TEST_SIZE=long.
#   checkov_test.sh DIR TOOLS      TOOLS: the environment of the other tools
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
[[ ${SVDSERVE_TEST_SIZE:-} == long ]] || { echo "only in a long run"; exit 77; }
"$here/tools.sh" "$1" python3 "$here/checkov.txt"
"$2/bin/python" "$here/helm_test.py" --checkov="$1/bin/checkov"
