"""The installed package: its documentation runs, it shares a process with others, it says what it is."""

import doctest
import importlib
import subprocess
import sys
import tomllib
from importlib import metadata, resources
from pathlib import Path

import pytest

import svdserve

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("module", ["svdserve", "svdserve._client", "svdserve.aio", "svdserve.linalg", "svdserve.torch",
                                    "svdserve.jax"])
def test_documentation(module, address):
    if module in ("svdserve.torch", "svdserve.jax"):
        pytest.importorskip(module.rpartition(".")[2])
    results = doctest.testmod(importlib.import_module(module), extraglobs={"address": address},
                              optionflags=doctest.NORMALIZE_WHITESPACE, report=True)
    assert results.attempted >= 2 and results.failed == 0


def test_every_public_name_is_documented():
    for name in svdserve.__all__:
        if name != "__version__":
            assert getattr(svdserve, name).__doc__, name


def test_the_version_is_the_projects():
    project = tomllib.loads((ROOT / "client/python/pyproject.toml").read_text())["project"]
    version = project["version"]
    assert project["optional-dependencies"]["server"] == [f"svdserve-server=={version}"]
    assert project["optional-dependencies"]["cuda"] == [f"svdserve-cuda=={version}"]
    assert f'kRelease[] = "{version}";' in (ROOT / "engine/backends/cuda_door/plugin_abi.h").read_text()
    assert svdserve.__version__ == version == metadata.version("svdserve")
    assert f"project(svdserve VERSION {version} " in (ROOT / "CMakeLists.txt").read_text()


def test_the_wheel_has_what_it_needs():
    files = resources.files("svdserve")
    for name in ("py.typed", "_proto/contract.binpb", "examples/cdl_profiles.json"):
        assert files.joinpath(name).is_file(), name
    assert Path(svdserve.__file__).parent.parent != ROOT / "client/python/src", "the tests are for the installed package"


@pytest.mark.parametrize("address", ["localhost:1", "[::1]:50051", "unix:/run/svd.sock", "dns:///host:1"])
def test_what_grpc_resolves_is_an_address(address):
    svdserve.Client(address).close()


PROGRAM = """
import numpy as np
{before}
import svdserve
{after}
with svdserve.Client({address!r}, retry=svdserve.RetryPolicy(max_attempts=1)) as client:
    assert client.svdvals(np.eye(2)).tolist() == [1, 1]
    assert client.health() == "SERVING"
    try:
        client.svdvals(np.eye(2), tolerance=2)
    except svdserve.InvalidArgument as error:
        assert error.field == "options.tolerance"
"""
# Another package's google.rpc and grpc.health.v1, and somebody's own svdserve.v1 with other contents.
OTHERS = {
    "googleapis": "from google.rpc import status_pb2, error_details_pb2; status_pb2.Status(code=3)",
    "own copies": """
from google.protobuf import descriptor_pb2, descriptor_pool
for name, package in (("google/rpc/status.proto", "google.rpc"), ("grpc/health/v1/health.proto", "grpc.health.v1"),
                      ("svdserve/v1/svd_service.proto", "svdserve.v1")):
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    file.message_type.add(name="Status")
    file.message_type.add(name="MatrixBatch")
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
""",
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("order", ["before", "after"])
def test_other_packages_protos_do_not_clash(address, other, order):
    code = PROGRAM.format(**{"before": "", "after": "", order: OTHERS[other]}, address=address)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_protobuf_without_its_extension_module(address):
    code = PROGRAM.format(before="import os; os.environ['PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION'] = 'python'", after="",
                          address=address)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
