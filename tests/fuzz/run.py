#!/usr/bin/env python3
"""Runs the fuzzer of build/fuzz over its targets, from the corpora beside this file.

    cmake --preset fuzz && cmake --build --preset fuzz
    tests/fuzz/run.py --seconds=600                  # by hand: each target for so long, then the table
    tests/fuzz/run.py --target=npy --runs=200000     # one target, a fixed number of inputs: the same each time
    tests/fuzz/run.py --coverage                     # lines of the decoders that the corpora reach, by llvm-cov
    tests/fuzz/run.py --seconds=600 --keep=DIR       # keeps what was found in DIR/TARGET, and begins from there
    tests/fuzz/run.py --merge --keep=DIR             # adds the fewest of DIR's inputs that reach more to the corpora

A crash is printed in base64: put that line into the target's corpus, once it is mended.
"""
import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORPORA = {path.stem: path for path in sorted((HERE / "corpora").glob("*.txt"))}
# The decoders, and the functions of their files that decode nothing.
DECODERS = {
    "server/rpc/codec/decode.cc": r"^$",
    "server/rpc/codec/large_codec.cc": r"\b(wire_progress|status_of|method_of|wire_summary|slice_of|encode\w*)\(",
    "server/rpc/codec/wire_reader.h": r"^$",
    "server/metrics/http_reply.cc": r"http_reply_too_long\(",
    "server/config.cc": r"\b(check_exposure|check_metrics_exposure)\(",
    "client/cpp/wire/large_wire.cc": r"\b(to_buffer|make_\w+)\(",
    "client/cpp/wire/status.cc": r"\b(name|cancelled|deadline_exceeded|of_group|invalid)\(|Error::",
    "client/cpp/wire/wire.cc":
        r"\b(write\w*|options_of|serialized_options|batch_head|append_field|total_size|request_slices|borrow|make_\w+)\(",
    "client/cli/files/npy.cc": r"\b(npy_type|npy_value_type)\(",
    "client/cli/files/npy_matrices.cc": r"^$",
    "wire/fields.h": r"\bappend_head\(",
}


def unpack(target, folder):
    """The target's corpus as files."""
    for line in CORPORA[target].read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            data = base64.b64decode(line)
            (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def fuzz(program, target, options, folder, env=None):
    """Runs the fuzzer in `folder`; returns its status and its output."""
    done = subprocess.run([program, f"--target={target}", *options], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode, done.stdout


def stat(output, name):
    found = re.search(rf"stat::{name}:\s*(\d+)", output)
    return int(found.group(1)) if found else 0


def run(program, target, args):
    """One target; returns the row of the table and whether all is well."""
    with tempfile.TemporaryDirectory(prefix="svdserve-fuzz-") as scratch:
        folder = pathlib.Path(scratch)
        found = pathlib.Path(args.keep, target).resolve() if args.keep else folder / "found"
        found.mkdir(parents=True, exist_ok=True)
        (folder / "corpus").mkdir()
        unpack(target, folder / "corpus")
        bound = [f"-max_total_time={args.seconds}"] if args.seconds else [f"-runs={args.runs}"]
        code, output = fuzz(program, target, [str(found), "corpus", *bound, f"-seed={args.seed}", f"-max_len={args.max_len}",
                                              f"-timeout={args.timeout}", "-print_final_stats=1", "-use_value_profile=0"],
                            folder)
        for crash in sorted(folder.glob("*-" + "[0-9a-f]" * 40)):
            print(f"{target}: {crash.name.split('-')[0]} in base64: {base64.b64encode(crash.read_bytes()).decode()}")
        if code != 0:
            print("\n".join(output.splitlines()[-60:]))
        reached = re.findall(r"cov: (\d+)", output)
        row = (target, stat(output, "number_of_executed_units"), stat(output, "average_exec_per_sec"),
               int(reached[-1]) if reached else 0, stat(output, "slowest_unit_time_sec"), code)
        return row, code == 0


def merge(program, target, args):
    """Adds inputs to the target's corpus: the fewest that reach what it does not."""
    with tempfile.TemporaryDirectory(prefix="svdserve-fuzz-") as scratch:
        folder = pathlib.Path(scratch)
        (folder / "corpus").mkdir()
        unpack(target, folder / "corpus")
        before = set((folder / "corpus").iterdir())
        options = ["-set_cover_merge=1", f"-max_len={args.max_len}", "corpus", str(pathlib.Path(args.keep, target).resolve())]
        code, output = fuzz(program, target, options, folder)
        added = sorted((p.read_bytes() for p in set((folder / "corpus").iterdir()) - before), key=lambda b: (len(b), b))
        with CORPORA[target].open("a", encoding="ascii") as corpus:
            corpus.writelines(base64.b64encode(data).decode() + "\n" for data in added)
        print(f"{target}: {len(added)} inputs added")
        return code == 0


def lines_of(path, not_counted):
    """The numbers of the lines that count: those outside the functions that decode nothing."""
    lines, counted, begin = path.read_text(encoding="utf-8").splitlines(), set(), None
    for number, line in enumerate(lines, 1):
        if begin is None and re.match(r"[^\s}#/]", line) and re.search(not_counted, line):
            begin = number if not line.rstrip().endswith(("}", ";")) else None
            continue
        if begin is None:
            counted.add(number)
        elif line == "}":
            begin = None
    return counted


def coverage(args):
    """Prints the lines of the decoders that the corpora, and the inputs kept in --keep, reach."""
    build = ROOT / "build" / "fuzz-coverage"
    for command in (["cmake", "--preset", "fuzz", "-B", build, "-DSVDSERVE_FUZZ_COVERAGE=ON"],
                    ["cmake", "--build", build, "--target", "fuzz", "-j1"]):
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    program, profiles = build / "bin" / "fuzz", build / "profiles"
    profiles.mkdir(exist_ok=True)
    for target in args.target:
        with tempfile.TemporaryDirectory(prefix="svdserve-fuzz-") as scratch:
            folder = pathlib.Path(scratch)
            unpack(target, folder)
            kept = [str(pathlib.Path(args.keep, target).resolve())] if args.keep else []
            fuzz(program, target, ["-runs=0", ".", *kept], folder, {"LLVM_PROFILE_FILE": str(profiles / f"{target}.profraw")})
    merged = profiles / "all.profdata"
    subprocess.run(["llvm-profdata", "merge", "-o", merged, *profiles.glob("*.profraw")], check=True)
    export = subprocess.run(["llvm-cov", "export", "-format=lcov", "-instr-profile", merged, program], check=True, capture_output=True, text=True).stdout
    return print_coverage(export)


def print_coverage(export):
    """The table from llvm-cov's lines; returns whether 95 % are reached."""
    all_reached = all_lines = 0
    for record in export.split("end_of_record"):
        name = re.search(r"SF:(.*)", record)
        path = pathlib.Path(name.group(1) if name else "/").resolve()  # by way of the build directory
        file = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
        if file not in DECODERS:
            continue
        counted = lines_of(ROOT / file, DECODERS[file])
        hits = {int(n): int(c) for n, c in re.findall(r"^DA:(\d+),(\d+)", record, re.MULTILINE) if int(n) in counted}
        reached = sum(c > 0 for c in hits.values())
        print(f"{file:36} {reached:5} of {len(hits):5} lines; not: {[n for n, c in hits.items() if c == 0]}")
        all_reached, all_lines = all_reached + reached, all_lines + len(hits)
    print(f"{'all':36} {all_reached:5} of {all_lines:5} lines, {100 * all_reached / max(all_lines, 1):.1f} %")
    return all_reached >= 0.95 * all_lines > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build" / "fuzz" / "bin" / "fuzz", type=pathlib.Path)
    parser.add_argument("--target", action="append", choices=sorted(CORPORA), help="default: all of them, in turn")
    parser.add_argument("--runs", type=int, default=100000, help="inputs of each target")
    parser.add_argument("--seconds", type=int, default=0, help="of each target, instead of --runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-len", type=int, default=1024, help="bytes of an input")
    parser.add_argument("--timeout", type=int, default=60, help="seconds after which an input counts as a hang")
    parser.add_argument("--keep", help="folder of what is found")
    parser.add_argument("--merge", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    args = parser.parse_args()
    args.target = args.target or sorted(CORPORA)
    if args.coverage:
        return 0 if coverage(args) else 1
    if args.merge:
        return 0 if all([merge(args.program.resolve(), target, args) for target in args.target]) else 1
    good = True
    print(f"{'target':16} {'executions':>12} {'a second':>9} {'edges':>6} {'slowest':>8}")
    for target in args.target:
        (name, runs, rate, reached, slowest, code), well = run(args.program.resolve(), target, args)
        good = good and well and runs > 0
        print(f"{name:16} {runs:12} {rate:9} {reached:6} {slowest:6} s {'' if code == 0 else f'status {code}'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
