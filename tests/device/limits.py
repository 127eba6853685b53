"""The limit of each kernel that a program launches, by Nsight Compute: the first launch of each, one line a kernel.

limits.py KERNELS PROGRAM [ARGUMENT ...]      KERNELS: a regular expression of their names

Shares are of what the GPU can do. They are of issue slots, of the units of double and single precision, and of those of
approximate reciprocals and roots. Then come shared memory and the device's memory. The limit is the largest share of at
least `BOUND` per cent. Where none is that large, warps wait for each other's or their own results: "latency".
"""
import csv
import subprocess
import sys

BOUND = 60
SHARES = {
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "fp64": "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active",
    "fp32": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "roots": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "shared": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "memory": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
}
TIME = "gpu__time_duration.sum"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"


def profile(kernels, program):
    """Rows of ncu's table, one a kernel, by the names of its columns."""
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--kernel-name-base", "mangled",
               "--kernel-id", f"::regex:{kernels}:1", "--metrics", ",".join([TIME, WARPS, *SHARES.values()]), *program]
    lines = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    rows = list(csv.DictReader(lines[begin:]))
    return rows[1:]  # the first one has units


def number(text):
    """A number of ncu, which separates thousands."""
    return float(text.replace(",", ""))


def main():
    """Prints the table."""
    for row in profile(sys.argv[1], sys.argv[2:]):
        shares = {name: number(row[metric]) for name, metric in SHARES.items()}
        largest = max(shares, key=shares.get)
        limit = largest if shares[largest] >= BOUND else "latency"
        numbers = "  ".join(f"{name} {share:4.1f} %" for name, share in shares.items())
        print(f"{row['Kernel Name']:80} {number(row[TIME]) * 1e-3:8.1f} us  {numbers}  warps {number(row[WARPS]):4.1f} %  {limit}")


if __name__ == "__main__":
    main()
