#!/usr/bin/env python3
"""The GPU section of BENCHMARKS.md, made of the output of tests/device/run.sh.

    to_benchmarks.py             writes the section from tests/device/results: the newest of each part, by name
    to_benchmarks.py --check     says whether the section agrees with these files

Results of one GPU alone; those of several are named by hand. A part that failed is nothing to publish: its file is passed over.
"""
import collections
import csv
import pathlib
import re
import statistics
import sys
import textwrap

from compare import parts_of

HERE = pathlib.Path(__file__).resolve().parent
BENCHMARKS = HERE.parents[1] / "BENCHMARKS.md"
BEGIN = "<!-- begin: made by tests/device/to_benchmarks.py -->"
END = "<!-- end -->"
DTYPES = ("f32", "f64", "c64", "c128")


def rounded(text):
    """A figure to three digits: what another run would show, too."""
    value = float(text)
    if value == 0:
        return "0"
    if value >= 1000:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}".replace(",", " ")
    return f"{value:.3g}"


def span(values):
    """The lowest and the highest of several rounds."""
    low, high = rounded(min(values)), rounded(max(values))
    return low if low == high else f"{low} .. {high}"


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(r) + " |" for r in rows]


def machine(lines):
    """Where there are more GPUs, figures without a suffix in their file's name are of one."""
    lines = [line for line in lines if line]
    gpus = [line.split(", ") for line in lines if line.endswith(" MiB")]
    date, gpu, (cpu, cores) = lines[0], gpus[0], lines[len(gpus) + 1:len(gpus) + 3]
    cpu = cpu.split(":", 1)[1].strip()
    of = "" if len(gpus) == 1 else f" of {len(gpus)}"
    return [f"{gpu[0]}{of} ({int(gpu[2].split()[0]) // 1024} GiB, driver {gpu[1]}) beside {cores} of {cpu}, {date[:10]}."]


def checks(parts):
    rows = []
    compared = [re.match(r"same bits: (\d+) matrices on .*, (\d+) differ", x) for x in parts.get("bits", [])]
    if compared := [x for x in compared if x]:
        rows.append(("the same bits on GPU and CPU", f"{sum(int(x[1]) for x in compared):,} matrices".replace(",", " "),
                     f"{sum(int(x[2]) for x in compared)} differ"))
    for line in parts.get("arithmetic", []):
        if found := re.match(r"(.*): (\d+)( floats| numbers)?, (\d+) (differ|poor)", line):
            rows.append((f"arithmetic: {found[1]}", f"{int(found[2]):,}".replace(",", " "), f"{found[4]} {found[5]}"))
    contract = [re.match(r"contract of k > 32: (\d+) failures", x) for x in parts.get("contract", [])]
    if contract := [x for x in contract if x]:
        types = len({line.split()[0] for line in parts["contract"] if line.startswith(DTYPES)})
        rows.append(("the contract of matrices of 33 to 512 values", f"{types} types", f"{sum(int(x[1]) for x in contract)} failures"))
    checked = [x for x in parts.get("factor", []) if re.search(r" sweeps +\d.* (ok|FAILED) *$", x)]
    if checked:
        rows.append(("the contract of large matrices", f"{len(checked)} cases, twice for their bits", f"{sum('FAILED' in x for x in checked)} failures"))
    outcomes = collections.Counter(x.split(":")[0].strip() for x in parts.get("faults", []) if re.match(r"(ok|FAIL) *:", x))
    if outcomes:
        rows.append(("an illegal access on the GPU while the server serves", f"{sum(outcomes.values())} checks",
                     f"{outcomes.get('FAIL', 0)} failed"))
    if not rows:
        return []
    return ["", *table(("right or wrong", "compared", "result"), rows)]


def kernels(lines):
    rows = [x for x in lines if x.count(",") > 5]
    if not rows:
        return []
    copy = next(x for x in lines if x.startswith("# "))
    figures, shapes = {}, []
    for row in csv.DictReader(rows):
        figures[row["shape"], row["dtype"]] = row
        if row["shape"] not in shapes:
            shapes.append(row["shape"])

    def cells(shape, cell):
        return [cell(figures[shape, t]) if (shape, t) in figures else "" for t in DTYPES]

    def auto(row):
        peer = f" ({rounded(row['auto/gesvdj'])} times)" if float(row["auto/gesvdj"]) > 0 else ""
        return f"{rounded(row['auto M/s'])}{peer}, {round(100 * float(row['of ceiling']))} %"

    def others(row):
        bisection = rounded(row["bisection 1e-9 M/s"]) if float(row["bisection 1e-9 M/s"]) > 0 else "-"
        return f"{rounded(row['jacobi M/s'])} / {bisection}"

    return ["", "**Matrices that are on the GPU already** (`device_kernel_bench`), million matrices a second, values only. Each cell has AUTO; in",
            "brackets, how many times cuSOLVER's gesvdjBatched without vectors it is, on the same data. The percentage is the share",
            f"of the memory ceiling, a copy of {re.search(r'copy ([0-9.]+ TB/s)', copy)[1]} measured in the same run.", "",
            *table(("shape", *DTYPES), [(s, *cells(s, auto)) for s in shapes]), "",
            "The other methods, JACOBI / BISECTION to 1e-9:", "",
            *table(("shape", *DTYPES), [(s, *cells(s, others)) for s in shapes])]


def vectors(lines):
    rows = [x for x in lines if x.count(",") > 5]
    if not rows:
        return []
    figures, shapes = {}, []
    for row in csv.DictReader(rows):
        figures[row["shape"], row["dtype"]] = row
        if row["shape"] not in shapes:
            shapes.append(row["shape"])

    def cell(row):
        jacobi = float(row["gesvdjBatched M/s"])
        approximate = float(row["gesvdaStridedBatched M/s"])
        # gesvdaStridedBatched refuses small matrices, and so returns at once.
        peers = [rounded(x) for x in (jacobi, approximate if approximate < 1000 else 0) if x > 0]
        beside = f" ({' / '.join(peers)})" if peers else ""
        return f"{rounded(row['ours M/s'])}{beside}, {round(100 * float(row['of ceiling']))} %"

    of_jacobi = [s for s in shapes if any(float(figures[s, t].get("JACOBI M/s") or 0) > 0 for t in DTYPES if (s, t) in figures)]

    def by_jacobi(row):
        rate = float(row["JACOBI M/s"])
        return rounded(rate) if rate > 0 else "AUTO"

    return ["", "**With vectors** (`device_vectors_bench`), thin U, S and V, million matrices a second, and the share of the memory",
            "ceiling. The brackets have cuSOLVER's gesvdjBatched (up to 32 x 32) and gesvdaStridedBatched (which is approximate), with",
            "vectors, on the same data.", "",
            *table(("shape", *DTYPES), [(s, *(cell(figures[s, t]) if (s, t) in figures else "" for t in DTYPES)) for s in shapes]),
            *(["", "JACOBI of the same, where AUTO is BIDIAGONAL:", "",
               *table(("shape", *DTYPES), [(s, *(by_jacobi(figures[s, t]) for t in DTYPES)) for s in of_jacobi])] if of_jacobi else [])]


def hermitian(lines):
    rows = list(csv.DictReader(x for x in lines if x.count(",") > 8))
    if not rows:
        return []
    figures = {(row["shape"], row["dtype"]): row for row in rows}

    def cell(row):
        peer = float(row["XsyevBatched M/s"])
        beside = f" ({rounded(peer)}, residual {float(row['its residual / u']):.0f} u)" if peer > 0 else ""
        return f"{rounded(row['ours M/s'])}, residual {float(row['residual / u']):.0f} u{beside}"

    times = [float(row["ours/U S V"]) for row in rows]
    return ["", "**Hermitian matrices in batches** (`device_hermitian_bench`), eigenvalues and eigenvectors, million matrices a second, and the largest",
            "residual of some of them. The brackets have cuSOLVER's XsyevBatched on the same data. These rates are",
            f"{min(times):.2f} to {max(times):.2f} times those of U, S and V of general matrices of the shape in the same run.", "",
            *table(("shape", *DTYPES), [(s, *(cell(figures[s, t]) if (s, t) in figures else "" for t in DTYPES))
                                        for s in dict.fromkeys(row["shape"] for row in rows)])]


def general(lines):
    rows = list(csv.DictReader(x for x in lines if x.count(",") in (6, 9, 12)))  # 6: before JACOBI; 9: before warm starts
    if not rows:
        return []
    figures = {(row["shape"], row["dtype"]): row for row in rows}
    peers = {}
    for line in lines:
        if found := re.match(r"torch.linalg.eig, \d+ (\S+) (\S+) on the GPU: ([0-9.]+) M/s, residual ([0-9.]+) u", line):
            peers[found[1], found[2]] = f" ({float(found[3]):.1g}, residual {float(found[4]):.0f} u)"

    def cell(key):
        row = figures[key]
        return f"{rounded(row['right M/s'])}, residual {float(row['residual / u']):.0f} u{peers.get(key, '')}"

    return ["", "**General matrices in batches** (`device_general_bench`), eigenvalues and right eigenvectors, million matrices a second, and the",
            "largest residual of all. The brackets have torch.linalg.eig on the same GPU, of random matrices as well.", "",
            *table(("shape", *DTYPES), [(s, *(cell((s, t)) if (s, t) in figures else "" for t in DTYPES))
                                        for s in dict.fromkeys(row["shape"] for row in rows)]), "",
            "Eigenvalues alone / with right and left eigenvectors:", "",
            *table(("shape", *DTYPES), [(s, *(" / ".join(rounded(figures[s, t][name]) for name in ("values alone M/s", "right and left M/s"))
                                              if (s, t) in figures else "" for t in DTYPES))
                                        for s in dict.fromkeys(row["shape"] for row in rows)]),
            *jacobi_of_general(figures)]


def jacobi_of_general(figures):
    if not all("JACOBI right M/s" in row for row in figures.values()):
        return []

    def cell(row):
        left = int(row["left to QR"])
        return (f"{rounded(row['JACOBI right M/s'])}, residual {float(row['residual / u of JACOBI']):.0f} u" +
                (f", {left} by QR" if left else ""))

    return ["", "The same with right eigenvectors by JACOBI, and the matrices that it left to QR:", "",
            *table(("shape", *DTYPES), [(s, *(cell(figures[s, t]) if (s, t) in figures else "" for t in DTYPES))
                                        for s in dict.fromkeys(shape for shape, _ in figures)]),
            *warm_jacobi(figures)]


def warm_jacobi(figures):
    if not all("warm JACOBI M/s" in row for row in figures.values()):
        return []

    def cell(row):
        warm, cold, left = float(row["warm JACOBI M/s"]), float(row["JACOBI right M/s"]), int(row["left to QR of warm"])
        return f"{rounded(warm)}, {cold / warm:.2f} of the time" + (f", {left} by QR" if left else "")

    return ["", "JACOBI of A + 1e-3 N from the eigenvectors of A, N random as A, and its time as a fraction of a cold start's:", "",
            *table(("shape", *DTYPES), [(s, *(cell(figures[s, t]) if (s, t) in figures else "" for t in DTYPES))
                                        for s in dict.fromkeys(shape for shape, _ in figures)])]


def answers(lines):
    rows = list(csv.reader(x for x in lines if x.count(",") > 5))
    if not rows:
        return []
    return ["", "**MIMO numbers** (`device_answers_bench`), million matrices a second, values alone and with the numbers named.", "",
            *table(rows[0], [(*row[:2], *(rounded(x) for x in row[2:])) for row in rows[1:]])]


def host(lines):
    found = next((x for x in lines if x.startswith("bus ")), None)
    if not found:
        return []
    what = next(x for x in lines if x[:1].isdigit())
    carries = found.replace("bus ", "The bus carries ", 1).replace("; ", ", ")
    return ["", f"**Matrices in host memory** (`device_host_bench`): {what}. {carries}."]


def service(lines):
    rounds, latency, peer = collections.OrderedDict(), [], None
    mode = None
    for line in lines:
        if found := re.match(r"(.*), round \d+ +([0-9.]+) M/s +([0-9.]+) GB/s.* p50 +([0-9.]+) us +p99 +([0-9.]+) us +"
                             r"([0-9.]+) CPU", line):
            rounds.setdefault(found[1].strip(), []).append([float(x) for x in found.groups()[1:]])
        elif found := re.match(r"one idle 4x4 call .*--devices (\w+)", line):
            mode = found[1]
        elif mode and line.startswith("all "):
            latency.append((mode, float(line.split()[-1])))
            mode = None
        elif found := re.match(r"(torch\S+), (.*): ([0-9.]+) M/s", line):
            peer = found
    out = []
    if rounds:
        rows = []
        for name, runs in rounds.items():
            rate, gb, p50, p99, cpu = zip(*runs)
            rows.append((name, span(rate), span(gb), span(p50), span(p99), span(cpu)))
        out += ["", "**The service** (`svdctl bench`, 4x4 c64, 16 connections on the same machine, the load generator on the same cores); lowest and",
                "highest round. The echo returns as many bytes and computes nothing.", "",
                *table(("server, bytes a request", "M matrices/s", "GB/s", "p50 us", "p99 us", "CPU s a GB"), rows)]
    if latency:
        out += ["", "One idle 4x4 call over an empty one: " +
                ", ".join(f"{rounded(us)} us with `--devices {mode}`" for mode, us in latency) + "."]
    if peer:
        out += ["", f"`{peer[1]}` in a process of its own, {peer[2]}: {rounded(peer[3])} million matrices a second."]
    return out


def narrow(lines):
    """Rates of operands of 16-bit numbers, and how many times those of the floats that they become."""
    rates = {}
    for line in lines:
        if found := re.match(r"(\w+), 16 MiB, round \d+ +([0-9.]+) M/s", line):
            rates.setdefault(found[1], []).append(float(found[2]))
    if not rates:
        return []
    middle = {name: statistics.median(runs) for name, runs in rates.items()}
    wide = {"c32": "c64", "ci16": "c64", "f16": "f32", "bf16": "f32", "i16": "f32"}
    rows = [(name, span(runs), f"{middle[name] / middle[wide[name]]:.2f} x {wide[name]}" if wide.get(name) in middle else "")
            for name, runs in rates.items()]
    return ["", "**Operands of 16-bit numbers** (`svdctl bench`, 4x4, 16 MiB a request, 16 connections, `--devices cuda`, in turns):", "",
            *table(("operands", "M matrices/s", "medians"), rows)]


def torch(lines):
    found = [m for x in lines if (m := re.match(r"torch.linalg.svd, (\d+) (\S+) (\S+) on the GPU: ([0-9.]+) M/s", x))]
    if not found:
        return []
    figures = {(m[2], m[3]): rounded(float(m[4]) * 1e6) for m in found}
    types = [t for t in DTYPES if any(t == dtype for _, dtype in figures)]
    rows = [(shape, *(figures.get((shape, t), "") for t in types)) for shape in dict.fromkeys(m[2] for m in found)]
    return ["", "`torch.linalg.svd` of such matrices on the same GPU, matrices a second:", "", *table(("shape", *types), rows)]


def python(lines):
    rows = [r for r in csv.reader(x for x in lines if x.count(",") > 8) if r[0] != "machine"]
    if not rows:
        return []
    kinds = [("Unix socket" if r[1].startswith("unix:") else "TCP", r[2], r[3], r[4], f"{rounded(r[5])}", f"{rounded(r[6])}",
              f"{rounded(r[7])}") for r in rows]
    return ["", "**From Python** through the service on the same machine (`client/python/benchmarks/outputs_against_numpy.py`), NumPy in the",
            "same process with one BLAS thread, one call for all channels.", "",
            *table(("over", "work", "shape", "channels", "svdserve ms", "NumPy ms", "ratio"), kinds)]


def factor(lines):
    rows = []
    for line in lines:
        if not (found := re.match(r"(\w+) +(f32|f64|c64|c128) +n +(\d+) +AUTO", line)):
            continue
        times = {m[1]: m[2] for m in re.finditer(r"\b(gesvdp|gesvdj|gesvd) +([0-9.]+)", line)}
        auto, jacobi = (re.search(name + r" +([0-9.]+)[^,]*, +([0-9.]+) compute", line) for name in ("AUTO", "JACOBI"))
        rows.append((found[1], found[2], found[3], f"{rounded(auto[2])} ({rounded(auto[1])})",
                     f"{rounded(jacobi[2])} ({rounded(jacobi[1])})",
                     *(rounded(times[peer]) if peer in times else "" for peer in ("gesvdp", "gesvdj", "gesvd"))))
    if not rows:
        return []
    return ["", "**Large matrices** (`device_large_bench`), milliseconds with U and V, n x n: the computation, in brackets with the way from host memory",
            "and back. cuSOLVER's matrices are on the GPU already.", "",
            *table(("columns", "dtype", "n", "AUTO", "JACOBI", "gesvdp", "gesvdj", "gesvd"), rows)]


def large_general(lines):
    pattern = (r"EIG V +(\w+) +n +(\d+) +(?:(\S.*?) +(qr|jacobi) +(\d+) sweeps +)?([0-9.]+) ms call, +([0-9.]+) compute"
               r" +residual (\d+) u; +Xgeev +([0-9.]+) ms(?:, residual (\d+) u)?; +compute/Xgeev ([0-9.]+)")
    by_qr, by_jacobi = [], []
    for found in filter(None, (re.match(pattern, line) for line in lines)):
        dtype, n, matrix, method, steps, call, compute, residual, peer, its_residual, ratio = found.groups()
        row = (f"{rounded(compute)} ({rounded(call)})", f"{residual} u", rounded(peer),
               f"{its_residual} u" if its_residual else "", ratio)
        if matrix in (None, "random"):
            if (dtype, n) not in [known[:2] for known in by_qr]:  # JACOBI leaves random ones to QR
                by_qr.append((dtype, n, *row))
        else:
            by_jacobi.append((matrix.replace("|A|", "of its norm"), dtype, n, f"{method} ({steps})", *row))
    if not by_qr:
        return []
    text = ["", "**Large general eigenproblems** (`device_large_general`), milliseconds with V, n x n, random: the computation, in brackets with",
            "the way from host memory and back. cuSOLVER's matrices are on the GPU already.", "",
            *table(("dtype", "n", "QR", "residual", "Xgeev", "its residual", "QR / Xgeev"), by_qr)]
    if by_jacobi:
        text += ["", "JACOBI of them: from approximate eigenvectors, and of normal matrices with normally distributed perturbations. The method in",
                 "the summary, in brackets the steps:", "",
                 *table(("matrix", "dtype", "n", "method", "time", "residual", "Xgeev", "its residual", "time / Xgeev"), by_jacobi)]
    return text


def eigen(lines):
    rows, checked = [], 0
    for line in lines:
        checked += line.startswith("eigen ") and ": ok" in line
        # Older files have FACTORED alone, without its name.
        if found := re.match(r"EIGH +(?:(factored|tridiagonal) +)?(\w+) +n +(\d+) +([0-9.]+) ms call .* (\d+) sweeps.*syevd +([0-9.]+) ms"
                             r" +call/syevd ([0-9.]+)(?:, residual (\d+) u)?", line):
            method, dtype, n, call, sweeps, peer, ratio, residual = found.groups()
            rows.append([(method or "factored").upper(), dtype, n, rounded(call), "", sweeps, f"{residual} u" if residual else "",
                         rounded(peer), ratio])
        elif rows and (found := re.match(r" +factorize +([0-9.]+) ms", line)):
            rows[-1][4] = rounded(found[1])
    if not rows:
        return []
    return ["", "**Hermitian eigenproblems** (`device_large_bench eigen`), milliseconds with vectors, n x n, random: the call from host memory and",
            "back, and the factorization in it. cuSOLVER's matrices are on the GPU already, and its small eigenvalues have absolute",
            f"accuracy alone. {checked} other problems of all types met the contract there.", "",
            *table(("method", "dtype", "n", "call", "factorization", "sweeps", "residual", "Xsyevd", "call / Xsyevd"), rows)]


def large(lines):
    rows, beside, rates, what = [], None, None, None
    for line in lines:
        if line in ("svd:", "hsvd:"):
            what = line[:-1]
        elif found := re.match(r"(\d+x\d+) (\w+) in ([0-9.e+-]+) s: .* on (\S+);", line):
            rows.append([what, found[1], found[2], found[4], rounded(1e3 * float(found[3]))])
        elif rows and (found := re.match(r"upload ([0-9.e+-]+) s, queue \S+ s, compute ([0-9.e+-]+) s, download ([0-9.e+-]+) s", line)):
            rows[-1] += [rounded(1e3 * float(x)) for x in found.groups()]
        elif line.startswith("all "):
            beside = line.split()[1]
        elif line.startswith("median "):
            rates = line.split()[1:]
    out = ["", "**Large matrices through the service** (`svdctl`, from a file and back into files on the same machine), milliseconds.", "",
           *table(("command", "shape", "dtype", "device", "whole call", "upload", "compute", "download"), [r for r in rows if len(r) == 8])]
    if beside:
        out += ["", f"A small call while a matrix of 8192 x 8192 is computed: {rounded(beside)} us at the median."]
    if rates and float(rates[0]) > 0:
        out += ["", f"A matrix of 1 GiB there and its results back: {rates[0]} GB/s, the echo {rates[1]}, {rates[2]} of it (medians)."]
    return out


# In the order of the section.
PARTS = {"kernels": kernels, "vectors": vectors, "hermitian": hermitian, "general": general, "torch": torch, "answers": answers, "host": host, "service": service, "narrow": narrow,
         "python": python, "factor": factor, "eigen": eigen, "eig": large_general, "large": large}
CHECKS = ("bits", "contract", "arithmetic", "faults")


def section(files):
    """`files`: {name: text}, the newest first."""
    parts, sources = {}, {}
    for name, text in files.items():
        for part, lines in parts_of(text).items():
            if part not in parts and part in (*PARTS, *CHECKS) and "exit code 0" in lines:
                parts[part] = lines
                sources.setdefault(name, []).append(part)
    out = [BEGIN]
    for name, of_it in sources.items():
        out += [*machine(parts_of(files[name])["machine"]), f"From it, `results/{name}`: {', '.join(of_it)}.", ""]
    out += checks(parts)[1:]
    for part, write in PARTS.items():
        out += write(parts.get(part, []))
    return "\n".join([*list(wrapped(out))[:-1], END])


def wrapped(lines):
    """Paragraphs with a line of more than 120 columns in new lines; tables as they are."""
    paragraph = []
    for line in [*lines, ""]:
        if line and not line.startswith(("|", "<!--")):
            paragraph.append(line)
            continue
        if any(len(one) > 120 for one in paragraph):
            paragraph = textwrap.wrap(" ".join(paragraph), 120, break_long_words=False, break_on_hyphens=False)
        yield from [*paragraph, line]
        paragraph = []


def replaced(document, new):
    begin, end = document.index(BEGIN), document.index(END)
    return document[:begin] + new + document[end + len(END):]


def main():
    checking = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not checking:
        sys.exit(__doc__)
    results = sorted((f for f in (HERE / "results").glob("*.txt") if not re.search(r"-x\d+$", f.stem)), reverse=True)
    document = BENCHMARKS.read_text(encoding="utf-8")
    wanted = replaced(document, section({f.name: f.read_text(encoding="utf-8") for f in results}))
    if checking:
        if wanted != document:
            print("BENCHMARKS.md is not what tests/device/results says: run tests/device/to_benchmarks.py")
            return 1
        return 0
    BENCHMARKS.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
