"""Decompositions of Dask arrays, block by block, on the workers of a cluster.

    >>> import dask.array as da, svdserve.dask
    >>> h = da.random.random((100_000, 4, 4), chunks=(10_000, 4, 4))
    >>> s = svdserve.dask.svdvals(h, address=["gpu1:50051", "gpu2:50051"])      # doctest: +SKIP
    >>> s.sum().compute()                                                       # doctest: +SKIP

The result is a Dask array with the leading chunks of the operand. A block is one call of the same name of `Client`, with
its options, on the worker that holds the block. Each worker process keeps one client for an address, which several servers
may share as always. A worker that dies takes nothing with it: Dask computes its blocks again. All matrices of a block have
the same bits as with one client, since a result does not depend on the batch.

`address` and `client` are those of Client: its address, and its other keywords, such as client={"tls": True}. `at_once` is
the back-pressure: the number of blocks of a worker process that are on their way at a time. Others wait there instead of at
the server. Calls that are rejected for load are repeated for as long as half an hour.

It needs `pip install svdserve[dask]`.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._client import Client
from ..errors import invalid_argument
from ..values import RetryPolicy

__all__ = ["capacity", "eigh", "eigvalsh", "precoders", "svd", "svdvals"]

da: Any = importlib.import_module("dask.array")

Address = str | Iterable[str] | None

# A batch job waits: fifty-nine pauses, most of 30 s.
_PATIENT = RetryPolicy(max_attempts=60, max_backoff=30.0)


def svdvals(a: Any, *, address: Address = None, client: Mapping[str, Any] | None = None, at_once: int = 2,
            **options: Any) -> Any:
    """Singular values (..., k) of a Dask array (..., m, n), as Client.svdvals."""
    return _compute("svdvals", a, address, client, at_once, options)


def svd(a: Any, full_matrices: bool = False, *, address: Address = None, client: Mapping[str, Any] | None = None,
        at_once: int = 2, **options: Any) -> Any:
    """U, S, V^H as three Dask arrays, as Client.svd. Without full_matrices, which would be the larger part of the bytes."""
    return _compute("svd", a, address, client, at_once, {"full_matrices": full_matrices, **options})


def eigh(a: Any, *, address: Address = None, client: Mapping[str, Any] | None = None, at_once: int = 2,
         **options: Any) -> Any:
    """Eigenvalues and eigenvectors of Hermitian matrices as two Dask arrays, as Client.eigh."""
    return _compute("eigh", a, address, client, at_once, options)


def eigvalsh(a: Any, *, address: Address = None, client: Mapping[str, Any] | None = None, at_once: int = 2,
             **options: Any) -> Any:
    """Eigenvalues of Hermitian matrices, as Client.eigvalsh."""
    return _compute("eigvalsh", a, address, client, at_once, options)


def capacity(h: Any, snr_db: float | Iterable[float], *, water_filling: bool = False, address: Address = None,
             client: Mapping[str, Any] | None = None, at_once: int = 2) -> Any:
    """Capacities of MIMO channels (..., m, n), as Client.capacity."""
    return _compute("capacity", h, address, client, at_once, {"snr_db": snr_db, "water_filling": water_filling})


def precoders(h: Any, rank: int, *, address: Address = None, client: Mapping[str, Any] | None = None, at_once: int = 2,
              **options: Any) -> Any:
    """The strongest right singular vectors of each channel, as Client.precoders."""
    return _compute("precoders", h, address, client, at_once, {"rank": rank, **options})


def _compute(verb: str, a: Any, address: Address, client: Mapping[str, Any] | None, at_once: int,
             options: dict[str, Any]) -> Any:
    a = da.asarray(a)
    if a.ndim < 3:
        raise invalid_argument("a", "must have leading dimensions, but has the shape "
                               f"{a.shape}; a matrix alone goes to Client", "a")
    if a.numblocks[-2:] != (1, 1):
        raise invalid_argument("a", f"must have whole matrices in each block, but they are cut in {a.numblocks[-2:]}; write "
                               "a.rechunk({-1: -1, -2: -1})", "a")
    if at_once < 1:
        raise ValueError(f"at_once is {at_once}, but must be at least 1")
    place = _Place(address if address is None or isinstance(address, str) else tuple(address),
                   tuple(sorted({"retry": _PATIENT, **(client or {})}.items())), at_once)
    # Without matrices a client asks no server: so it says what kinds of arrays come out.
    samples = place.connect().call(verb, np.empty((0, *a.shape[-2:]), a.dtype), options)
    several = isinstance(samples, tuple)
    blocks = a.map_blocks(_of_block, verb, place, options, dtype=object, meta=np.empty((0,) * a.ndim, object),
                          chunks=tuple((1,) * n for n in a.numblocks), name=None, token=f"svdserve-{verb}")

    def part(index: int | None, sample: np.ndarray) -> Any:
        batch = a.ndim - 2
        return blocks.map_blocks(_part, index, dtype=sample.dtype, meta=sample[:0], drop_axis=(batch, batch + 1),
                                 new_axis=list(range(batch, batch + sample.ndim - 1)),
                                 chunks=(*a.chunks[:-2], *((n,) for n in sample.shape[1:])))

    return tuple(part(i, sample) for i, sample in enumerate(samples)) if several else part(None, samples)


def _of_block(block: np.ndarray, verb: str, place: _Place, options: dict[str, Any]) -> np.ndarray:
    """All results of a block, in an array of one element: they are computed together and used apart."""
    answer = np.empty((1,) * block.ndim, object)
    results = place.connect().call(verb, block, options)
    answer[(0,) * block.ndim] = tuple(results) if isinstance(results, tuple) else results
    return answer


def _part(answer: np.ndarray, index: int | None) -> Any:
    results = answer[(0,) * answer.ndim]
    return results if index is None else results[index]


class _Place:
    """Where blocks go: what a client is made of. It is sent to the workers, the client is not."""

    def __init__(self, address: str | tuple[str, ...] | None, options: tuple[tuple[str, Any], ...], at_once: int) -> None:
        self.address = address
        self.options = options
        self.at_once = at_once

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "svdserve", self.address, repr(self.options)

    def connect(self) -> _Worker:
        """This process's client."""
        key = self.address, repr(self.options), self.at_once
        with _lock:
            if key not in _workers:
                _workers[key] = _Worker(self)
            return _workers[key]


class _Worker:
    """The client of a worker process."""

    def __init__(self, place: _Place) -> None:
        self._client = Client(place.address, **dict(place.options))
        self._room = threading.BoundedSemaphore(place.at_once)

    def call(self, verb: str, block: np.ndarray, options: dict[str, Any]) -> Any:
        """The verb's results for the block, once there is room for it."""
        with self._room:
            return getattr(self._client, verb)(block, **options)


_workers: dict[Any, _Worker] = {}
_lock = threading.Lock()
