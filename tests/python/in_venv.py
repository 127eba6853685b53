"""Runs the Python tests as a user would have the package: built, installed by pip into a fresh environment.

    python3 tests/python/in_venv.py --versions newest --build build/release     # what pip chooses today
    python3 tests/python/in_venv.py --versions oldest --build build/release     # the lower bound of every dependency

`newest` goes through an sdist, `oldest` installs the checkout, so that both ways of building are tried. The environment
lies beside the build tree, in python/, for all builds there. It is kept for the next run as long as neither the package
nor its requirements change. Needs Python 3.11 or newer with venv, and PyPI; nothing is written to the source tree.
Further arguments go to pytest.

`newest` has Dask. A long run (SVDSERVE_TEST_SIZE=long) of it has torch and JAX, too. They take gigabytes, and stay in a folder of
their own until the build tree goes. Tests of them are skipped elsewhere.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Tests of what the server computes and of examples: half of the time. Old dependencies run them in long runs alone.
LEFT_TO_NEWEST = ("test_eig.py", "test_examples.py", "test_large_server.py", "test_linalg.py")
# Tests of the client more than of the server. Builds that instrument the server run them in long runs alone.
LEFT_TO_RELEASE = ("test_dask.py", "test_eig.py", "test_examples.py", "test_idle.py", "test_large.py", "test_linalg.py",
                   "test_replicas.py", "test_stacks.py", "test_svdvals.py")
PACKAGE = Path("client", "python")
LIBRARIES = ("torch", "jax")  # whose arrays the package takes
SMALL_TORCH = "https://download.pytorch.org/whl/cpu"  # without CUDA; where it is out of reach, PyPI's is installed


def copy_sources(target: Path) -> None:
    """The package and the contract, laid out as in the repository: a build leaves its traces in the copy."""
    shutil.rmtree(target, ignore_errors=True)
    ignore = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", "*.binpb", "CMakeLists.txt")
    for folder in (PACKAGE, Path("proto")):
        shutil.copytree(ROOT / folder, target / folder, ignore=ignore)


def digest(*parts: object) -> str:
    """The hash of the parts and, where a part is a folder, of everything in it."""
    sha = hashlib.sha256()
    for part in parts:
        files = sorted(p for p in part.rglob("*") if p.is_file()) if isinstance(part, Path) else []
        for item in [str(part), *files]:
            sha.update(item.read_bytes() if isinstance(item, Path) else item.encode())
    return sha.hexdigest()


def lower_bounds(project: dict) -> list[str]:
    """The dependencies with "at least" made "exactly", and their markers."""
    return [re.sub(r">=([^,;]+)(,[^;]+)?", r"==\1", requirement) for requirement in project["dependencies"]]


def install(python: Path, sources: Path, versions: str, project: dict) -> None:
    def pip(*arguments: str | Path) -> None:
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments],
                       check=True)

    tests = project["optional-dependencies"]["test"]
    if versions == "oldest":
        pip(*lower_bounds(project), *tests, sources / PACKAGE)
    else:
        pip("build")
        subprocess.run([python, "-m", "build", "--outdir", sources / "dist", sources / PACKAGE], check=True,
                       stdout=subprocess.DEVNULL)
        (wheel,) = (sources / "dist").glob("*.whl")
        assert list((sources / "dist").glob("*.tar.gz")), "no sdist was made"
        pip("--upgrade", "--upgrade-strategy", "eager", f"{wheel}[dask]", *tests)


def find_libraries(python: Path, folder: Path, wanted: bool) -> None:
    """Has the environment of `python` find LIBRARIES in the folder, or not. Installs them if they are not there yet."""
    (site,) = python.parents[1].glob("lib/python3.*/site-packages")
    finder, stamp, state = site / "libraries.pth", folder / "installed", " ".join((sys.version, *LIBRARIES))
    finder.unlink(missing_ok=True)
    if not wanted:
        return
    if not stamp.exists() or stamp.read_text() != state:
        shutil.rmtree(folder, ignore_errors=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", folder]
        small = subprocess.run([*pip, "--retries=0", f"--index-url={SMALL_TORCH}", "torch"], capture_output=True)
        subprocess.run([*pip, *LIBRARIES[0 if small.returncode else 1:]], check=True)
        stamp.write_text(state)
    finder.write_text(f"{folder}\n")  # behind the environment's own packages


def environment(work: Path, versions: str, is_long: bool) -> Path:
    """The Python of the environment in the folder, which is made if it is not there yet or of something else."""
    work.mkdir(parents=True, exist_ok=True)
    venv, sources, stamp = work / "venv", work / "sources", work / "installed"
    python = venv / "bin" / "python"
    project = tomllib.loads((ROOT / PACKAGE / "pyproject.toml").read_text())["project"]
    with open(work / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        copy_sources(sources)
        state = digest(sys.version, Path(__file__).read_text(), sources)
        if not stamp.exists() or stamp.read_text() != state or not python.exists():
            stamp.unlink(missing_ok=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
            install(python, sources, versions, project)
            stamp.write_text(state)
        find_libraries(python, work.parent / "libraries", is_long and versions == "newest")
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--versions", choices=["newest", "oldest"], required=True)
    parser.add_argument("--build", type=Path, required=True, help="build tree with bin/svdserve")
    args, for_pytest = parser.parse_known_args()
    build = args.build.resolve()
    is_long = os.environ.get("SVDSERVE_TEST_SIZE") == "long"
    python = environment(build.parent / "python" / args.versions, args.versions, is_long)
    subprocess.run([python, "-c", "import platform\nfrom importlib.metadata import version as v\nprint('python', "
                    "platform.python_version(), *(f'{n} {v(n)}' for n in ('numpy', 'grpcio', 'protobuf')))"], check=True)
    left = (LEFT_TO_RELEASE if os.environ.get("SVDSERVE_TEST_SERVER_ONLY") == "1" else
            LEFT_TO_NEWEST if args.versions == "oldest" else ())
    left_out = [f"--ignore={ROOT / 'tests' / 'python' / name}" for name in left if not is_long]
    return subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "tests" / "python", *left_out,
                           *for_pytest],
                          env={**os.environ, "SVDSERVE_BUILD_DIR": str(build), "PYTHONDONTWRITEBYTECODE": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
