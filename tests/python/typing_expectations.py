"""The verdicts that type checkers must give on the package, checked by `mypy --strict`, never run.

An expected error carries `type: ignore` with its code. mypy reports an ignore that ignores nothing, so each of them is a
test that the line is wrong.
"""

import enum
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import svdserve
import svdserve.jax
import svdserve.torch
from svdserve import linalg


class Tensor:
    """An array of another library, as torch.Tensor is one."""

    def __dlpack_device__(self) -> tuple[enum.IntEnum, int]:
        raise NotImplementedError


class Traced:
    """As jax.Array is one."""

    def block_until_ready(self) -> "Traced":
        raise NotImplementedError


h: npt.NDArray[np.complex64] = np.zeros((5, 4, 4), np.complex64)
stacks: list[npt.NDArray[np.float64]] = [np.eye(2), np.zeros((3, 2))]
Values = npt.NDArray[np.floating[Any]]
Vectors = npt.NDArray[np.inexact[Any]]


def blocking(client: svdserve.Client) -> None:
    assert_type(client.svdvals(h), Values)
    assert_type(client.svdvals(h, return_status=True), tuple[Values, npt.NDArray[np.uint8]])
    assert_type(client.svd(h), svdserve.SVDResult)
    assert_type(client.svd(h, False, method="jacobi", timeout=3), svdserve.SVDResult)
    assert_type(client.svd(h, compute_uv=False), Values)
    assert_type(client.svd(h, True, False), Values)
    assert_type(client.svd(stacks), list[svdserve.SVDResult])
    assert_type(client.svd(stacks, compute_uv=False), list[Values])
    assert_type(client.hsvd(np.eye(3), [1, 1, -1]), svdserve.SVDResult)
    assert_type(client.hsvd(np.eye(3), [1, 1, -1], False), Values)
    assert_type(client.eigh(np.eye(3)), svdserve.EighResult)
    assert_type(client.eigh(h, accuracy="relative", certificate="matrix"), svdserve.EighResult)
    assert_type(client.eigvalsh(np.eye(3), "U"), Values)
    assert_type(client.eigvalsh(h, accuracy="relative", return_status=True), tuple[Values, npt.NDArray[np.uint8]])
    client.eigh(h, accuracy="high")  # type: ignore[call-overload]
    assert_type(client.eigh_factored(np.eye(3), [1, 1, -1]), svdserve.EighResult)
    assert_type(client.eig(h), svdserve.EigResult)
    assert_type(client.eig(h, False, certificate="matrix"), svdserve.EigResult)
    assert_type(client.eig(np.eye(3), left=True, timeout=3), svdserve.EigLeftResult)
    assert_type(client.eig(np.eye(3), True), svdserve.EigLeftResult)
    assert_type(client.eigvals(np.eye(3), method="qr"), Vectors)
    assert_type(client.eigvals(h, return_status=True), tuple[Vectors, npt.NDArray[np.uint8]])
    assert_type(client.eig(h, start=np.eye(4), condition=True), svdserve.EigResult)
    assert_type(client.eigvals(h, start=h, condition=True), tuple[Vectors, Values])
    assert_type(client.eigvals(h, condition=True, return_status=True), tuple[Vectors, Values, npt.NDArray[np.uint8]])
    w, vl, v = client.eig(h, left=True)
    assert_type(vl, Vectors)
    client.eig(h, tolerance=3)  # type: ignore[call-overload]
    assert_type(client.capacity(h, [0, 10], water_filling=True), Values)
    assert_type(client.capacity(stacks, 10), list[Values])
    assert_type(client.precoders(h, rank=2), Vectors)
    assert_type(client.mimo(h, snr_db=10, capacity=True), svdserve.MimoResult)
    assert_type(client.mimo(stacks, effective_rank=True), list[svdserve.MimoResult])
    u, s, vh = client.svd(h)
    wrong: str = client.svd(h)  # type: ignore[assignment]
    assert_type(client.svd(h, progress=True), svdserve.SVDResult)
    client.svd(h, progress="bar")  # type: ignore[call-overload]
    client.svd(h, methd="jacobi")  # type: ignore[call-overload]
    client.svd(h, top_k="two")  # type: ignore[call-overload]
    client.capacity(h)  # type: ignore[call-overload]
    client.capacity(h, 10, "yes")  # type: ignore[call-overload]


def of_other_libraries(client: svdserve.Client, t: Tensor, x: Traced) -> None:
    assert_type(client.svdvals(t), Tensor)
    assert_type(client.svdvals(x, copy=False), Traced)
    assert_type(client.svdvals(t, return_status=True), tuple[Tensor, Tensor])
    assert_type(client.svd(t), svdserve.SVDResult[Tensor, Tensor, Tensor])
    assert_type(client.svd(t).status, Tensor)
    assert_type(client.svd(t, False, False), Tensor)
    assert_type(client.svd([t, t]), list[svdserve.SVDResult[Tensor, Tensor, Tensor]])
    assert_type(client.svd([t, t], compute_uv=False), list[Tensor])
    assert_type(client.hsvd(t, [1, -1]), svdserve.SVDResult[Tensor, Tensor, Tensor])
    assert_type(client.hsvd(t, t, False), Tensor)
    assert_type(client.eigh(t, "U", accuracy="relative"), svdserve.EighResult[Tensor, Tensor, Tensor])
    assert_type(client.eigvalsh(x), Traced)
    assert_type(client.eigh_factored(t, t).eigenvalues, Tensor)
    assert_type(client.eig(t, start=t).eigenvectors, Tensor)
    assert_type(client.eig(t, True), svdserve.EigLeftResult[Tensor, Tensor, Tensor])
    assert_type(client.eigvals(t, condition=True), tuple[Tensor, Tensor])
    assert_type(client.capacity(t, 10), Tensor)
    assert_type(client.capacity([t], 10), list[Tensor])
    assert_type(client.precoders(t, 1), Tensor)
    assert_type(client.mimo(t, snr_db=3, capacity=True), svdserve.MimoResult[Tensor, Tensor])
    assert_type(client.svd([[1, 2], [3, 4]]), svdserve.SVDResult)
    wrong: npt.NDArray[Any] = client.svdvals(t)  # type: ignore[assignment]
    client.svd(t, copy="no")  # type: ignore[call-overload]


def as_numpy(t: Tensor) -> None:
    assert_type(linalg.svd(h), svdserve.SVDResult)
    assert_type(linalg.svd(h, compute_uv=False, hermitian=True), Values)
    assert_type(linalg.svd(t, False), svdserve.SVDResult[Tensor, Tensor, Tensor])
    assert_type(linalg.svdvals(t), Tensor)
    assert_type(linalg.pinv(h), Vectors)
    assert_type(linalg.pinv(t, rtol=None), Tensor)
    assert_type(linalg.eigh(h, "U"), svdserve.EighResult)
    assert_type(linalg.eigvals(h), Vectors)
    linalg.use(svdserve.Client())
    linalg.use(50051)  # type: ignore[arg-type]
    linalg.svd(h, method="jacobi")  # type: ignore[call-overload]


def with_gradients(client: svdserve.Client, t: Tensor, x: Traced) -> None:
    assert_type(svdserve.torch.svdvals(t), Tensor)
    assert_type(svdserve.torch.svd(t), svdserve.SVDResult[Tensor, Tensor, Tensor])
    assert_type(svdserve.torch.eigh(t).status, Tensor)
    assert_type(svdserve.torch.capacity(t, [0, 10], water_filling=True, client=client), Tensor)
    assert_type(svdserve.torch.log_det(t, 3), Tensor)
    assert_type(svdserve.torch.effective_rank(t), Tensor)
    assert_type(svdserve.jax.svdvals(x), Traced)
    assert_type(svdserve.jax.svd(x).U, Traced)
    assert_type(svdserve.jax.eigh(x), svdserve.EighResult[Traced, Traced, Traced])
    assert_type(svdserve.jax.capacity(x, 3), Traced)
    assert_type(svdserve.jax.log_det(x, (3, 4)), Traced)
    assert_type(svdserve.jax.effective_rank(x, client=client), Traced)
    svdserve.torch.svd(h)  # type: ignore[type-var]
    svdserve.torch.capacity(t)  # type: ignore[call-arg]
    svdserve.torch.log_det(t)  # type: ignore[call-arg]
    svdserve.jax.svdvals(x, client="127.0.0.1:50051")  # type: ignore[arg-type]


async def awaited(client: svdserve.AsyncClient) -> None:
    assert_type(await client.svdvals(h), Values)
    assert_type(await client.svd(h), svdserve.SVDResult)
    assert_type(await client.svd(h, compute_uv=False), Values)
    assert_type(await client.svd(stacks), list[svdserve.SVDResult])
    assert_type(await client.hsvd(np.eye(3), [1, 1, -1]), svdserve.SVDResult)
    assert_type(await client.eigh(np.eye(3)), svdserve.EighResult)
    assert_type(await client.eigvalsh(h, return_status=True), tuple[Values, npt.NDArray[np.uint8]])
    assert_type(await client.eig(h), svdserve.EigResult)
    assert_type(await client.eig(h, left=True), svdserve.EigLeftResult)
    assert_type(await client.eigvals(h, condition=True), tuple[Vectors, Values])
    assert_type(await client.eigvals(h, return_status=True), tuple[Vectors, npt.NDArray[np.uint8]])
    assert_type(await client.capacity(h, 10), Values)
    assert_type(await client.precoders(h, rank=2), Vectors)
    assert_type(await client.mimo(h, condition_number=True), svdserve.MimoResult)
    assert_type(await client.eigh(Tensor()), svdserve.EighResult[Tensor, Tensor, Tensor])
    wrong: str = await client.svd(h)  # type: ignore[assignment]
    await client.svd(h, methd="jacobi")  # type: ignore[call-overload]
