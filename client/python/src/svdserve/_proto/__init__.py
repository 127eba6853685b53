"""The wire contract: message classes and methods, made from the FileDescriptorSet that the wheel was built with.

They live in a descriptor pool of this package. The process-wide pool holds one file of a name, and google/rpc/status.proto
or grpc/health/v1/health.proto may be in it already, from googleapis-common-protos or grpcio-health-checking, with other
contents.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as DecodeError  # re-exported

_pool = descriptor_pool.DescriptorPool()


def _load() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(
        resources.files(__package__).joinpath("contract.binpb").read_bytes())
    for file in files.file:  # protoc orders them so that a file follows what it imports
        _pool.AddSerializedFile(file.SerializeToString())
    for file in files.file:  # the pure Python protobuf wants the classes of nested types made beforehand
        for name in file.message_type:
            message_class(f"{file.package}.{name.name}")


def message_class(full_name: str) -> Any:
    """The class of the message `full_name`, such as "svdserve.v1.MatrixBatch"."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(full_name))


def message_classes(path: str) -> tuple[Any, Any]:
    """The classes of the request and of the reply of the call `path`, such as HEALTH_CHECK."""
    method = _pool.FindMethodByName(path.removeprefix("/").replace("/", "."))
    return message_factory.GetMessageClass(method.input_type), message_factory.GetMessageClass(method.output_type)


def enum_numbers(full_name: str) -> dict[str, int]:
    """The values of an enum by name, without the prefix that every name of the enum carries."""
    values = _pool.FindEnumTypeByName(full_name).values
    prefix = values[0].name.removesuffix("UNSPECIFIED")
    return {v.name.removeprefix(prefix): v.number for v in values}


_load()

SERVICE = "svdserve.v1.SvdService"
DECOMPOSE = f"/{SERVICE}/Decompose"
EIGENDECOMPOSE = f"/{SERVICE}/Eigendecompose"
DECOMPOSE_LARGE = f"/{SERVICE}/DecomposeLarge"
HEALTH_CHECK = "/grpc.health.v1.Health/Check"

# Metadata of DECOMPOSE and EIGENDECOMPOSE: the length of the serialized request, as a decimal number.
REQUEST_BYTES_KEY = "svdserve-request-bytes"

DecomposeRequest = message_class("svdserve.v1.DecomposeRequest")
DecomposeResponse = message_class("svdserve.v1.DecomposeResponse")
DecomposeOptions = message_class("svdserve.v1.DecomposeOptions")
EigendecomposeRequest = message_class("svdserve.v1.EigendecomposeRequest")
EigendecomposeResponse = message_class("svdserve.v1.EigendecomposeResponse")
EigendecomposeOptions = message_class("svdserve.v1.EigendecomposeOptions")
DecomposeLargeRequest = message_class("svdserve.v1.DecomposeLargeRequest")
DecomposeLargeResponse = message_class("svdserve.v1.DecomposeLargeResponse")
LargeOpen = message_class("svdserve.v1.LargeOpen")
LargeOptions = message_class("svdserve.v1.LargeOptions")
LargeCommit = message_class("svdserve.v1.LargeCommit")
LargeFactorChunk = message_class("svdserve.v1.LargeFactorChunk")
MatrixBatch = message_class("svdserve.v1.MatrixBatch")
MimoOptions = message_class("svdserve.v1.MimoOptions")
MimoResult = message_class("svdserve.v1.MimoResult")
Certificate = message_class("svdserve.v1.Certificate")
GetServerInfoRequest = message_class("svdserve.v1.GetServerInfoRequest")
GetServerInfoResponse = message_class("svdserve.v1.GetServerInfoResponse")
HealthCheckRequest = message_class("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = message_class("grpc.health.v1.HealthCheckResponse")
RpcStatus = message_class("google.rpc.Status")
BadRequest = message_class("google.rpc.BadRequest")
ErrorInfo = message_class("google.rpc.ErrorInfo")
RetryInfo = message_class("google.rpc.RetryInfo")
RequestInfo = message_class("google.rpc.RequestInfo")

DATA_TYPES = enum_numbers("svdserve.v1.DataType")
MEMORY_ORDERS = enum_numbers("svdserve.v1.MemoryOrder")
METHODS = enum_numbers("svdserve.v1.Method")
VECTORS = enum_numbers("svdserve.v1.Vectors")
EIGEN_PROBLEMS = enum_numbers("svdserve.v1.EigenProblem")
EIGENVECTORS = enum_numbers("svdserve.v1.Eigenvectors")
CERTIFICATE_SCOPES = enum_numbers("svdserve.v1.CertificateScope")
PIVOT_STRATEGIES = enum_numbers("svdserve.v1.PivotStrategy")
BLOCK_VARIANTS = enum_numbers("svdserve.v1.BlockVariant")
LARGE_STAGES = enum_numbers("svdserve.v1.LargeStage")
LARGE_PROBLEMS = enum_numbers("svdserve.v1.LargeProblem")
TRIANGLES = enum_numbers("svdserve.v1.Triangle")
LARGE_FACTORS = enum_numbers("svdserve.v1.LargeFactor")
MATRIX_STATUSES = enum_numbers("svdserve.v1.MatrixStatus")
SERVING_STATUSES: dict[str, int] = {v.name: v.number for v in
                    HealthCheckResponse.DESCRIPTOR.enum_types_by_name["ServingStatus"].values}
