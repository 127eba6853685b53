"""Compiles the wire contract while the package is built; everything else is in pyproject.toml.

The repository keeps one copy of the .proto files, in proto/ at its root. A wheel carries them compiled, an sdist carries
a copy of them. The results lie in a temporary folder, not beside the sources.

protoc writes a FileDescriptorSet, not _pb2.py modules. Those do not run with a protobuf two major versions away from the
protoc that wrote them. They also register themselves in the process-wide descriptor pool, where the google/rpc files
clash with another package's copy. svdserve._proto makes its message classes from the set, in a pool of its own.
"""

import atexit
import importlib.resources
import shutil
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build import build
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
CONTRACT = ["svdserve/v1/svd_service.proto", "google/rpc/status.proto", "google/rpc/error_details.proto",
            "grpc/health/v1/health.proto"]
COMPILED = Path("svdserve", "_proto", "contract.binpb")


def proto_root() -> Path:
    """The folder that holds the contract: beside this file in an sdist, at the repository's root in a checkout."""
    for root in (HERE / "proto", HERE.parents[1] / "proto"):
        if (root / CONTRACT[0]).is_file():
            return root
    raise FileNotFoundError(f"{CONTRACT[0]} is neither in {HERE / 'proto'} nor in {HERE.parents[1] / 'proto'}; "
                            "build from a checkout of the repository or from an sdist")


def compile_contract(output: Path) -> None:
    from grpc_tools import protoc  # there in the build environment only

    output.parent.mkdir(parents=True, exist_ok=True)
    wellknown = importlib.resources.files("grpc_tools") / "_proto"
    if protoc.main(["protoc", f"-I{proto_root()}", f"-I{wellknown}", "--include_imports",
                    f"--descriptor_set_out={output}", *CONTRACT]) != 0:
        raise RuntimeError(f"protoc could not compile the contract in {proto_root()}")


class BuildElsewhere(build):
    def initialize_options(self) -> None:
        super().initialize_options()
        folder = tempfile.TemporaryDirectory(prefix="svdserve-build-")
        atexit.register(folder.cleanup)
        self.build_base = folder.name


class BuildWithContract(build_py):
    def compiled(self) -> Path:
        return (HERE / "src" if self.editable_mode else Path(self.build_lib)) / COMPILED

    def run(self) -> None:
        super().run()
        compile_contract(self.compiled())

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), str(self.compiled())]


class SdistWithContract(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        for name in CONTRACT:
            target = Path(base_dir, "proto", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(proto_root() / name, target)


setup(cmdclass={"build": BuildElsewhere, "build_py": BuildWithContract, "sdist": SdistWithContract})
