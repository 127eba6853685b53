#!/usr/bin/env bash
# Installs what is missing, builds, runs every test, and ends with one summary.
#   ./test.sh                 everything: release, then asan, tsan and fuzz
#   ./test.sh release|asan|tsan|fuzz ...   only these builds
#   ./test.sh cuda [release ...]      with the CUDA back end, which takes half an hour of two cores to compile; by hand,
#                             and wherever there is a GPU
#   ./test.sh long [release ...]      that, and the same tests at full size, over a million matrices; by hand
# Builds land in build/<name>; the last line says 'N passed, N failed', and the exit status is 0 only for 0 failed.
#   release   all tests, optimized as shipped for this machine's instruction set, with lint, layering, install and
#             operations checks; with 'long' for every instruction set
#   asan      C++ and Python tests of the smallest sizes, under AddressSanitizer and UndefinedBehaviorSanitizer; with
#             'long' also those of single algorithms and of the Python client. Clang compiles it in half of GCC's time,
#             checks the annotations of locks, and compiles every header by itself
#   tsan      what threads share in engine and server core, which know no gRPC, under ThreadSanitizer
#   fuzz      decoders, with inputs that libFuzzer makes up, for about a minute; tests/fuzz/run.py does it for as long as one likes
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2
exec < /dev/null

builds=()
cuda=OFF
[[ -e /proc/driver/nvidia/version ]] && cuda=ON
for word in "$@"; do
  case $word in
    release | asan | tsan | fuzz) builds+=("$word") ;;
    cuda) cuda=ON ;;
    long) cuda=ON && export SVDSERVE_TEST_SIZE=long ;;  # tests/support/numerics/effort.h
    -h | --help) sed -n '2,15p' "${BASH_SOURCE[0]}" | cut -c3-; exit 0 ;;
    *) echo "test.sh: unknown word '$word'; there are: cuda long release asan tsan fuzz" >&2; exit 2 ;;
  esac
done
((${#builds[@]})) || builds=(release asan tsan fuzz)
jobs=$(nproc)
# Many tests wait more than they compute.
test_jobs=$((jobs + jobs / 2))
# The release build is the quickstart's, and takes half the time of one for all instruction sets.
release=(-DSVDSERVE_SIMD=native -DSVDSERVE_UNITY=ON)
all_tests=OFF
[[ ${SVDSERVE_TEST_SIZE:-} == long ]] && release=() && all_tests=ON
[[ $cuda == OFF ]] && release+=(-DSVDSERVE_CUDA=OFF)
log_dir=$PWD/build/logs
mkdir -p "$log_dir"

rows=()     # of the closing summary
slowest=()  # tests of each build, with their seconds
failures=() # tests of each build that failed, each with the lines that say why
passed=0 failed=0

# stage NAME COMMAND...: runs the command and notes its time; a failure is remembered, not fatal.
stage() {
  local name=$1 start=$SECONDS result=ok
  shift
  printf '\n=== %s: %s\n' "$name" "$*"
  "$@" || result=FAILED
  rows+=("$(printf '%-22s %6d s   %s' "$name" $((SECONDS - start)) "$result")")
  [[ $result == ok ]]
}

# build NAME: configures and compiles; the long output goes to a file, of which a failure shows the end.
build() {
  local log=$log_dir/$1-build.log settings=()
  [[ $1 == release ]] && settings=("${release[@]}")
  { cmake --preset "$1" -DSVDSERVE_TESTS=ON -DSVDSERVE_ALL_TESTS=$all_tests \
    -DSVDSERVE_BENCHMARKS=ON "${settings[@]}" && cmake --build --preset "$1" -j "$jobs"; } > "$log" 2>&1 ||
    { grep -nE 'error:|Error |FAILED:' "$log" | head -n 20; tail -n 30 "$log"; echo "whole output: $log"; return 1; }
}

# count NAME RESULT: adds the tests of one run to the totals, its row to the summary, and its slowest tests. A test that
# CTest could not start is a failure; only a test that says itself why it does not apply here is skipped. A RESULT other
# than ok is at least one failure, whatever the report says.
count() {
  local good=0 bad=0 skipped=0
  read -r good bad skipped < <(python3 - "$log_dir/$1-tests.xml" << 'PY'
import sys, xml.etree.ElementTree as tree
try:
    cases = tree.parse(sys.argv[1]).getroot().findall("testcase")
except (OSError, tree.ParseError):
    cases = []
skipped = sum(c.get("status") == "notrun" and c.find("skipped").get("message", "").startswith("SKIP_") for c in cases)
good = sum(c.get("status") == "run" for c in cases)
print(good, len(cases) - good - skipped or int(not cases), skipped)
PY
  ) || good=0 bad=1 skipped=0
  [[ $2 == ok || $bad != 0 ]] || bad=1
  passed=$((passed + good)) failed=$((failed + bad))
  rows+=("$(printf '%-22s %d passed, %d failed, %d skipped' "$1" "$good" "$bad" "$skipped")")
  slowest+=("$(printf 'slowest of %s\n' "$1"; sed -nE 's/.*<testcase name="([^"]+)".* time="([0-9.]+)".*/\2 s   \1/p' \
    "$log_dir/$1-tests.xml" | sort -rn | head -n 10)")
  ((bad == 0)) || failures+=("$(failed_tests "$1" 2> /dev/null)")
}

# failed_tests NAME: the failed tests of one run, with at most 20 telling lines of each one's output.
failed_tests() {
  python3 - "$1" "$log_dir/$1-tests.xml" << 'PY'
import re, sys, xml.etree.ElementTree as tree
name, report = sys.argv[1:]
telling = re.compile(r"Failure|FAILED|ERROR|SUMMARY|runtime error|WARNING: ThreadSanitizer|terminate|Error:|signal|Timeout|^E ")
noise = re.compile(r"\[ RUN|\[ +OK |ts=[0-9]")  # names of tests, and what the server logs of planted faults
for case in tree.parse(report).getroot().findall("testcase"):
    if case.get("status") == "run" or case.get("status") == "notrun":
        continue
    print(f"failed in {name}: {case.get('name')} after {case.get('time')} s")
    lines = (case.findtext("system-out") or "").splitlines()
    found = [n for n, line in enumerate(lines) if telling.search(line) and not noise.match(line)]
    shown = sorted({m for n in found[:8] for m in range(n, min(n + 4, len(lines)))})[:20] or range(max(len(lines) - 10, 0), len(lines))
    for n in shown:
        print("    " + lines[n][:300])
PY
}

if stage "packages" deploy/bootstrap.sh build test; then
  for name in "${builds[@]}"; do
    rm -f "$log_dir/$name-tests.xml"
    result=FAILED
    stage "$name build" build "$name" &&
      stage "$name tests" ctest --preset "$name" -j "$test_jobs" --no-tests=error \
        --output-junit "$log_dir/$name-tests.xml" && result=ok
    count "$name" "$result"
  done
else
  failed=1
fi

printf '\n=== summary (%s, %d cores, %d s)\n' "$(uname -m)" "$jobs" "$SECONDS"
printf '%s\n' "${slowest[@]}" "${failures[@]}" "${rows[@]}"
echo "$passed passed, $failed failed"
((failed == 0))
