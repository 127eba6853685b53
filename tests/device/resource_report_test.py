"""The compiler's report on the kernels that keep a matrix in registers: no stack, nothing spilled.

    resource_report_test.py OBJECT...   reads OBJECT.resources, which the build leaves beside the plugin's objects

The kernels are BIDIAGONAL of k <= 8 for f32, f64 and c64, one matrix a thread. They are also JACOBI of k > 32, columns of
a matrix in each thread of a block. A loop that is not unrolled moves a matrix into local memory, which is right and slow. So does
an array indexed by a number that the compiler does not know.

The kernels that orthogonalize the block pairs of a large matrix are checked, too. They keep nothing outside of registers
and shared memory either. So are those of BIDIAGONAL in which a few threads have a matrix, of every type.
"""
import dataclasses
import itertools
import pathlib
import re
import subprocess
import sys

BIDIAGONAL = 1  # Method::kBidiagonal, engine/options.h
LARGEST = 8     # kLargestFixedSize, engine/planner.h
DTYPES = {"RealElement<float>": "f32", "RealElement<double>": "f64", "ComplexElement<float>": "c64",
          "ComplexElement<double>": "c128"}
WATCHED = ("f32", "f64", "c64")
# Bytes of stack that the compiler's choice of registers still costs, by shape. It shrinks: a kernel that passes its
# entry is a fault, and an entry that is no longer needed is said.
KNOWN = {("f64", "block 64 U, V"): 100, ("f64", "block 128"): 24, ("f64", "block 128 U"): 120,
         ("f64", "block 128 U, V"): 204, ("c64", "block 128"): 52, ("c64", "block 128 U"): 8, ("c64", "block 128 U, V"): 180}

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
INNER = re.compile(r"::inner_kernel<(double|svdserve::Complex), (?:\(int\))?(\d+), (?:\(bool\))?(\w+)>")
# With the last one: those of many pairs, which keep to 80 registers, so that three blocks share a multiprocessor.
INNER_WANTED = {("double", 64, False), ("double", 128, False), ("svdserve::Complex", 64, False), ("double", 64, True),
                ("svdserve::Complex", 64, True)}
INNER_STACK_OF_MANY = 48
GRID = re.compile(r"grid_bidiagonalize_kernel<.*?(Real|Complex)Element<.*?(float|double)[ >]+, (?:\(int\))?(\d+)>")
KERNEL = re.compile(r"(lane_kernel|lane_bidiagonalize_kernel)<.*?(Real|Complex)Element<.*?(float|double)[ >]+,"
                    r" (?:\(int\))?(\d+)(?:, \([\w:]+\)(\d+))?>")
# Beyond 64 columns or not; values alone, with U, with U and V.
BLOCK_KERNEL = re.compile(r"placed_jacobi_kernel<.*?(Real|Complex)Element<.*?(float|double)[ >]+,"
                          r" (?:\(bool\))?(\w+), \([\w:]+\)(\d)>")
BLOCK_SHAPES = ("block 64", "block 64 U", "block 64 U, V", "block 128", "block 128 U", "block 128 U, V")


@dataclasses.dataclass
class Kernel:
    mangled: str
    architecture: str
    memory: tuple = None  # stack frame, spill stores, spill loads, in bytes
    name: str = ""

    def shape(self):
        """(dtype, k), or (dtype, of BLOCK_SHAPES), of a kernel that is watched, or None."""
        if found := BLOCK_KERNEL.search(self.name):
            large, parts = found[3] in ("true", "1"), int(found[4])
            return DTYPES[f"{found[1]}Element<{found[2]}>"], BLOCK_SHAPES[3 * large + parts]
        found = KERNEL.search(self.name)
        if not found or found[1] == "lane_kernel" and int(found[5]) != BIDIAGONAL:
            return None
        return DTYPES[f"{found[2]}Element<{found[3]}>"], int(found[4])


def parse(report):
    kernels = []
    for line in report.splitlines():
        if found := ENTRY.search(line):
            kernels.append(Kernel(*found.groups()))
        elif (found := MEMORY.search(line)) and kernels and kernels[-1].memory is None:
            kernels[-1].memory = tuple(int(x) for x in found.groups())
    return kernels


def demangle(kernels):
    names = subprocess.run(["c++filt"], input="\n".join(k.mangled for k in kernels), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    for kernel, name in zip(kernels, names):
        kernel.name = name


def watched_shapes():
    return itertools.product(WATCHED, (*range(1, LARGEST + 1), *BLOCK_SHAPES))


def check(report, known):
    """Returns one line for every fault, and the entries of `known` that are no longer needed."""
    kernels = parse(report)
    demangle(kernels)
    faults, seen, needless = [], {}, set()
    for kernel in kernels:
        shape = kernel.shape()
        if shape is None or shape[0] not in WATCHED:
            continue
        seen.setdefault(kernel.architecture, set()).add(shape)
        if shape in known and kernel.memory == (0, 0, 0):
            needless.add(shape)
        if kernel.memory is None:
            faults.append(f"no figures for {kernel.name}")
        elif max(kernel.memory) > known.get(shape, 0):
            faults.append("%s, %s: %d bytes of stack, %d + %d bytes spilled" %
                          (kernel.name, kernel.architecture, *kernel.memory))
    wanted = set(watched_shapes())
    if not seen:
        faults.append("no kernel is in the report")
    for architecture, shapes in seen.items():
        for dtype, k in sorted(wanted - shapes, key=str):
            faults.append(f"{architecture}: no kernel for {dtype} {k}")
    return faults, needless


def check_inner(report):
    """The same for the kernels of a large factor: one line for every fault."""
    kernels = parse(report)
    demangle(kernels)
    faults, seen = [], {}
    for kernel in kernels:
        if not (found := INNER.search(kernel.name)):
            continue
        many = found[3] in ("true", "1")
        seen.setdefault(kernel.architecture, set()).add((found[1], int(found[2]), many))
        if kernel.memory != (0, 0, 0) and not (many and kernel.memory[0] <= INNER_STACK_OF_MANY):
            faults.append(f"{kernel.name}, {kernel.architecture}: stack or spills, {kernel.memory}")
    if not seen:
        faults.append("no inner_kernel is in the report")
    return faults + [f"{architecture}: no inner_kernel for {missing}"
                     for architecture, shapes in seen.items() for missing in sorted(INNER_WANTED - shapes)]


def check_grid(report):
    """The same for matrices that a few threads share: one line for every fault."""
    kernels = parse(report)
    demangle(kernels)
    faults, seen = [], {}
    for kernel in kernels:
        if found := GRID.search(kernel.name):
            seen.setdefault(kernel.architecture, set()).add(DTYPES[f"{found[1]}Element<{found[2]}>"])
            if kernel.memory != (0, 0, 0):
                faults.append(f"{kernel.name}, {kernel.architecture}: stack or spills, {kernel.memory}")
    if not seen:
        faults.append("no grid_bidiagonalize_kernel is in the report")
    return faults + [f"{architecture}: no grid_bidiagonalize_kernel for {missing}"
                     for architecture, types in seen.items() for missing in sorted(set(DTYPES.values()) - types)]


def planted_faults():
    """The check itself: a report of all kernels, then one with a stack frame, one with a spill, and one too few."""
    def entry(dtype, k, memory="0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"):
        element, lane = {"f32": ("11Real", "f"), "f64": ("11Real", "d"), "c64": ("14Complex", "f")}[dtype]
        if k in BLOCK_SHAPES:
            large, parts = divmod(BLOCK_SHAPES.index(k), 3)
            name = (f"_ZN8svdserve4cuda20placed_jacobi_kernelINS_6scalar{element}ElementINS2_10ScalarLaneI{lane}EEEE"
                    f"Lb{large}ELNS0_11PlacedPartsE{parts}EEEvNS0_11VectorsCallIT_EEPS9_")
        else:
            name = (f"_ZN8svdserve4cuda11lane_kernelINS_6scalar{element}ElementINS2_10ScalarLaneI{lane}EEEELi{k}"
                    "ELNS_6MethodE1EEEvNS0_10SquareCallINT_6ScalarEEE")
        return (f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
                f"ptxas info    : Function properties for {name}\n    {memory}\n")
    everything = {(d, k): entry(d, k) for d, k in watched_shapes()}
    def faults(shapes, known):
        return check("".join(shapes.values()), known)[0]
    assert faults(everything, {}) == []
    for memory in ("16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
                   "0 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads"):
        one = {**everything, ("f64", 5): entry("f64", 5, memory)}
        assert len(faults(one, {})) == 1 and "lane_kernel" in faults(one, {})[0]
        assert faults(one, {("f64", 5): 16}) == []
    found = faults({s: t for s, t in everything.items() if s != ("c64", 8)}, {})
    assert len(found) == 1 and "c64 8" in found[0], found
    shape = ("f32", "block 128 U, V")
    found = faults({**everything, shape: entry(*shape, "8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads")}, {})
    assert len(found) == 1 and "placed_jacobi_kernel" in found[0], found

    def inner(element, k, memory="0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", many=0):
        name = f"_ZN8svdserve4cuda12inner_kernelI{element}Li{k}ELb{many}EEEvNS0_9InnerCallIT_EE"
        return (f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
                f"ptxas info    : Function properties for {name}\n    {memory}\n")
    few = "48 bytes stack frame, 64 bytes spill stores, 132 bytes spill loads"
    real, complex_one = inner("d", 64) + inner("d", 128) + inner("d", 64, few, 1), inner("NS_7ComplexE", 64)
    complex_many = inner("NS_7ComplexE", 64, many=1)
    assert check_inner(real + complex_one + complex_many) == []
    assert len(check_inner(real + complex_one)) == 1 and len(check_inner("")) == 1
    assert len(check_inner(real + complex_one + inner("NS_7ComplexE", 64, few.replace("48", "56"), 1))) == 1
    def grid(element, lane, memory="0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"):
        name = (f"_ZN8svdserve4cuda25grid_bidiagonalize_kernelINS_6scalar{element}ElementINS2_10ScalarLaneI{lane}EEEELi16"
                "EEEvNS0_10SquareCallINT_6ScalarEEENS0_7BetweenIS7_EE")
        return (f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
                f"ptxas info    : Function properties for {name}\n    {memory}\n")
    grids = grid("11Real", "f") + grid("11Real", "d") + grid("14Complex", "f")
    assert check_grid(grids + grid("14Complex", "d")) == []
    assert len(check_grid(grids)) == 1 and len(check_grid("")) == 1
    assert len(check_grid(grids + grid("14Complex", "d", "8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"))) == 1
    spilling = inner("NS_7ComplexE", 64, "0 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads")
    assert len(check_inner(real + spilling + complex_many)) == 1


def main():
    planted_faults()
    reports = [pathlib.Path(path + ".resources") for path in sys.argv[1:]]
    faults = [f"{path} is missing: build again" for path in reports if not path.exists()]
    report = "".join(path.read_text(encoding="utf-8") for path in reports if path.exists())
    found, needless = check(report, KNOWN)
    faults += found + check_inner(report) + check_grid(report)
    for dtype, k in sorted(needless, key=str):
        print(f"{dtype} {k} needs no stack any more: its entry in KNOWN can go")
    print("\n".join(faults) or "no stack, no spills, but for what is KNOWN")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
