#!/usr/bin/env python3
"""compare.py finds nothing worse between a file and itself, and what was made worse by hand."""
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("kernels", "host", "service")


def compare(new, old):
    run = subprocess.run([sys.executable, HERE / "compare.py", new, old], capture_output=True, text=True)
    return run.returncode, run.stdout


def main():
    full = [f for f in sorted((HERE / "results").glob("*.txt")) if all(f"== {part}\n" in f.read_text() for part in PARTS)]
    recorded = full[-1]
    text = recorded.read_text()
    code, said = compare(recorded, recorded)
    assert code == 0 and re.match(r"0 of [1-9]\d\d figures", said), said
    with tempfile.TemporaryDirectory() as folder:
        slower = pathlib.Path(folder) / "slower.txt"

        def slow_down(pattern):
            # The first figure of the line becomes 10 % less.
            changed, times = re.subn(pattern, lambda m: f"{m[1]}{float(m[2]) * 0.9:.3f}", text)
            assert times >= 1, pattern
            slower.write_text(changed)
            code, said = compare(slower, recorded)
            assert code == 1, said
            return said

        assert "kernels 4x4 c64 auto" in slow_down(r"(?m)^(4x4,c64,4000000,)([\d.]+)")
        assert "svdserve --devices cuda, 1 MiB" in slow_down(r"(?m)^(svdserve --devices cuda, 1 MiB, round \d +)([\d.]+)")
        assert "of the bus" in slow_down(r"(operands, )([\d.]+)")
    print("ok")


if __name__ == "__main__":
    main()
