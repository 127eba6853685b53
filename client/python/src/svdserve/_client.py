"""The blocking client."""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import functools
import threading
import time
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Callable, Literal, TypedDict, Unpack, overload

import grpc
import numpy as np
import numpy.typing as npt

from . import _calls, _codec, _proto
from ._arrays import A, Foreign
from ._channel import (DEFAULT_IN_FLIGHT, DEFAULT_MESSAGE_BYTES, ChannelSettings, Connections, Deadline, Stub,
                       announcement, best_health, health_name, serves, small_request, there)
from ._display.progress import OnProgress, shown
from ._query import Query
from ._replicas import CHECK_PATIENCE, PauseAfter, Route, as_the_route_says
from ._stack import Job, Pieces, Stack
from ._transfer import Stop, transfer
from .errors import Error, closed_error, from_rpc_error
from .values import (CapacityPlan, EighResult, EigLeftResult, EigResult, Limits, MimoResult, RetryPolicy, ServerInfo,
                     SVDResult, Tls, capacity_plan, server_info)

Values = npt.NDArray[np.floating[Any]]
Vectors = npt.NDArray[np.inexact[Any]]
Eigenvalues = npt.NDArray[np.inexact[Any]]
Statuses = npt.NDArray[np.uint8]
Stacks = list[npt.NDArray[Any]]  # of different shapes; they travel together
Out = npt.NDArray[Any] | tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None, npt.NDArray[Any] | None]


# The channels of clients that nobody has closed. At its end the interpreter ends gRPC's threads, whatever locks they
# hold. A channel that is closed later may wait for such a lock for ever.
_OPEN: weakref.WeakSet[grpc.Channel] = weakref.WeakSet()


@atexit.register
def _close_channels() -> None:
    for channel in list(_OPEN):
        channel.close()


# The keywords of the verbs, for their overloads. The verbs themselves have the defaults and say what each means.


class _General(TypedDict, total=False):
    method: str
    max_sweeps: int | None
    progress: OnProgress | bool | None
    timeout: float | None


class _Common(_General, total=False):
    tolerance: float | None
    pivot_strategy: str | None
    block_variant: str | None


class _Svdvals(_Common, total=False):
    copy: bool


class _Svd(_Svdvals, total=False):
    top_k: int | None
    fix_phases: bool
    certificate: bool | Literal["matrix"]
    out: Out | None


class _Hsvd(_Common, total=False):
    certificate: bool
    out: Out | None


class _Eigvalsh(_Svdvals, total=False):
    accuracy: Literal["absolute", "relative"]
    out: npt.NDArray[Any] | None


class _Eigh(_Svdvals, total=False):
    accuracy: Literal["absolute", "relative"]
    fix_phases: bool
    certificate: bool | Literal["matrix"]
    out: tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None] | None


class _EighFactored(_Common, total=False):
    certificate: bool
    out: tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None] | None


class _Eigvals(_General, total=False):
    copy: bool
    start: npt.ArrayLike | Foreign | None


class _Eig(_Eigvals, total=False):
    certificate: bool | Literal["matrix"]
    condition: bool


class _Capacity(TypedDict, total=False):
    water_filling: bool
    group_size: int | None
    copy: bool
    timeout: float | None


class _Precoders(TypedDict, total=False):
    fix_phases: bool
    copy: bool
    timeout: float | None


class _Mimo(TypedDict, total=False):
    snr_db: float | Iterable[float] | None
    capacity: bool
    water_filling: bool
    stream_snr: bool
    condition_number: bool
    effective_rank: bool
    gradient: bool
    rank_threshold: float | None
    precoders: int
    combiners: int
    singular_values: bool
    group_size: int | None
    fix_phases: bool
    certificate: bool | Literal["matrix"]
    copy: bool
    timeout: float | None


class Client:
    """Connections to a svdserve server, or to several. It may be used by several threads at once.

    Args:
        address: "host:port" or "unix:/path", as gRPC takes it. None: that of the environment variable SVDSERVE_ADDRESS, or
            "127.0.0.1:50051". Several servers: a list of these, or "a:1,b:2". "dns:///host:port": all servers of the name.
        tls: False for plain text, True for TLS with gRPC's default trust, or a Tls with the files to use.
        retry: when to send a rejected request again; RetryPolicy() if None.
        piece_bytes: the client sends a longer batch in pieces of about this many bytes. None: 4 MiB, and up to 32 MiB where
            16 matrices have more than 4 MiB. A GPU takes as long for one large matrix as for many. Several servers have
            fewer matrices each.
        max_in_flight: the number of pieces of one call, or of its large matrices, that may be under way at once at each
            server. Large matrices of more than 16 MiB, results included, go fewer at once, from 32 MiB on one after the
            other.
        max_message_bytes: the longest reply that the client accepts; it cuts batches by this or by the server's own
            limit, whichever is smaller. A longer reply raises Overloaded.
        connections: TCP connections to each server, made when they are first needed. Large messages and large matrices
            take turns on them; small messages share the first. None: one for every four processors, at most four.
        silence_timeout: seconds without a reply to a ping after which a server is left, with the calls that wait for it.
            None: 4 with several servers, 50 with one.

    Several servers take turns, for calls and for the pieces of one call, each with an equal share. A call goes to
    the next one at once where a server rejects it for load, drains or is out of reach. It waits only when all have failed. A
    server is left while it is out of reach, stopped, or does not serve by its own health check. A large matrix
    whose server goes before its upload is complete is sent to another one. The logger "svdserve" has a line for each retry,
    and for each server that is left or comes back.

    Raises:
        OSError: a file of `tls` cannot be read.
        TypeError: `address` is no str, nor a list of them.
        ValueError: `address` has no port or is a URL, a number is below 1, max_message_bytes is above 2**31 - 1, or `tls`
            has a file of another kind, or half of a certificate and its key.

    The first call makes the connection, and raises Unavailable if the server cannot be reached. Close the client when it
    is no longer needed, or use it in a `with` statement.
    """

    def __init__(self, address: str | Iterable[str] | None = None, *, tls: Tls | bool = False,
                 retry: RetryPolicy | None = None, piece_bytes: int | None = None,
                 max_in_flight: int = DEFAULT_IN_FLIGHT, max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
                 connections: int | None = None, silence_timeout: float | None = None) -> None:
        self._settings = ChannelSettings(address, tls, retry, piece_bytes, max_in_flight, max_message_bytes, connections,
                                         silence_timeout)
        self._connections = Connections(self._settings, self._open_channel)
        self._closed = threading.Event()
        self._limits: Limits | None = None

    # The first overload that fits counts: a list of arrays is an ArrayLike, too.
    @overload
    def svdvals(self, a: Stacks, *, return_status: Literal[False] = ...,
                **options: Unpack[_Svdvals]) -> Values | list[Values]: ...

    @overload
    def svdvals(self, a: Stacks, *, return_status: Literal[True],
                **options: Unpack[_Svdvals]) -> tuple[Values, Statuses] | list[tuple[Values, Statuses]]: ...

    @overload
    def svdvals(self, a: list[A], *, return_status: Literal[False] = ...,
                **options: Unpack[_Svdvals]) -> A | list[A]: ...

    @overload
    def svdvals(self, a: list[A], *, return_status: Literal[True],
                **options: Unpack[_Svdvals]) -> tuple[A, A] | list[tuple[A, A]]: ...

    @overload
    def svdvals(self, a: A, *, return_status: Literal[False] = ..., **options: Unpack[_Svdvals]) -> A: ...

    @overload
    def svdvals(self, a: A, *, return_status: Literal[True], **options: Unpack[_Svdvals]) -> tuple[A, A]: ...

    @overload
    def svdvals(self, a: npt.ArrayLike, *, return_status: Literal[False] = ...,
                **options: Unpack[_Svdvals]) -> Values: ...

    @overload
    def svdvals(self, a: npt.ArrayLike, *, return_status: Literal[True],
                **options: Unpack[_Svdvals]) -> tuple[Values, Statuses]: ...

    def svdvals(self, a: Any, *, method: str = "auto", tolerance: float | None = None,
                max_sweeps: int | None = None, pivot_strategy: str | None = None, block_variant: str | None = None,
                progress: OnProgress | bool | None = None, copy: bool = True, timeout: float | None = None,
                return_status: bool = False) -> object:
        """Singular values, as numpy.linalg.svd(a, compute_uv=False) returns them.

        Args:
            a: array_like of shape (..., m, n). float32, float64, complex64 and complex128 are computed in their own
                precision, integers and bool in float64. float16, bfloat16 and what as_operand() returns are sent as they
                are and computed in float32 or complex64. C- and Fortran-ordered matrices are sent from where they are,
                numpy.memmap too; other strides, types and byte orders are converted piece by piece. Arrays of torch, JAX,
                CuPy, Dask or the array API standard give results of their kind, on their device. A tensor that requires
                gradients is accepted under torch.no_grad() only. A list of arrays that
                differ in shape gives a list of results. A matrix is large if it exceeds info().limits.max_values or
                max_dimension, or if it or its results do not fit a message. Each large matrix is uploaded in chunks, in a
                call of its own; several go at once. A single matrix, shape (m, n), of any size counts as large with a
                pivot_strategy or block_variant.
            method: "auto" or "jacobi"; for small matrices also those for values alone, such as "bidiagonal" and
                "bisection".
            tolerance: for "bisection" the relative width of an interval, in (0, 1/2]. For "jacobi" the cosine of two
                columns, in (0, 1], below which they count as orthogonal. None for the method's default. Other methods
                take none; for large matrices it is the cosine with every method.
            max_sweeps: for "jacobi" and large matrices, sweeps after which a matrix has not converged; None for the
                default.
            pivot_strategy: for large matrices, the order in which pairs of blocks are rotated, such as "recursive",
                "round_robin" or "row_cyclic"; None for the server's choice. The error for an unknown name lists all.
            block_variant: for large matrices, the work on a pair: "block_oriented" or "full_block"; None for the
                server's choice.
            progress: for large matrices. True: a bar on stderr, or in a notebook, by tqdm where that is installed. Or a
                callable that receives Progress updates, possibly from different threads but never concurrently. Those of
                several matrices alternate; `matrix` says which one it is. An exception raised in it ends the call. A single
                matrix with min(m, n) > 128 counts as large with it, unless an option for small matrices is given.
            copy: True: the arrays returned are writable. False saves a copy: arrays of small matrices are read-only, and
                views of the message if there was one.
            timeout: seconds that the call may take, retries included; None or inf for no limit.
            return_status: also return the status of each matrix.

        Returns:
            Array of shape (..., k), k = min(m, n), values descending, float32 for float32 and complex64, else float64.
            With return_status a pair: this array, and a uint8 array of shape (...) holding MatrixStatus numbers.
            A matrix with an infinity or a NaN has NaN for values and does not affect its neighbours. A large matrix
            with an infinity or a NaN is rejected. An empty batch, and matrices without rows or columns, give empty
            results as in NumPy, without the server.

        Raises:
            InvalidArgument: an argument is wrong; the message names it, and `field` the field of the request.
            Overloaded, Unavailable: the server rejected the call, and retries failed or do not fit into the timeout.
            DeadlineExceeded: the timeout passed.
            Error: any other failure of the call.
            numpy.linalg.LinAlgError: `a` has fewer than two dimensions.
            TypeError: elements of an unsupported type, such as longdouble or object.
            ValueError: `timeout` is negative or NaN.

        Example:
            >>> import numpy as np, svdserve
            >>> with svdserve.Client(address) as client:
            ...     values, status = client.svdvals([[[3, 0], [4, 5]], [[0, 2], [1, 0]]], return_status=True)
            >>> np.round(values ** 2, 12)
            array([[45.,  5.],
                   [ 4.,  1.]])
            >>> status == svdserve.MatrixStatus.OK
            array([ True,  True])
        """
        return self._run(_calls.svdvals(
            a, return_status=return_status, copy=copy, method=method, tolerance=tolerance, max_sweeps=max_sweeps,
            pivot_strategy=pivot_strategy, block_variant=block_variant), timeout, progress)

    @overload
    def svd(self, a: Stacks, full_matrices: bool = ..., compute_uv: Literal[True] = ...,
            **options: Unpack[_Svd]) -> list[SVDResult]: ...

    @overload
    def svd(self, a: Stacks, full_matrices: bool = ..., *, compute_uv: Literal[False],
            **options: Unpack[_Svd]) -> list[Values]: ...

    @overload
    def svd(self, a: Stacks, full_matrices: bool, compute_uv: Literal[False],
            **options: Unpack[_Svd]) -> list[Values]: ...

    @overload
    def svd(self, a: list[A], full_matrices: bool = ..., compute_uv: Literal[True] = ...,
            **options: Unpack[_Svd]) -> list[SVDResult[A, A, A]]: ...

    @overload
    def svd(self, a: list[A], full_matrices: bool = ..., *, compute_uv: Literal[False],
            **options: Unpack[_Svd]) -> list[A]: ...

    @overload
    def svd(self, a: list[A], full_matrices: bool, compute_uv: Literal[False], **options: Unpack[_Svd]) -> list[A]: ...

    @overload
    def svd(self, a: A, full_matrices: bool = ..., compute_uv: Literal[True] = ...,
            **options: Unpack[_Svd]) -> SVDResult[A, A, A]: ...

    @overload
    def svd(self, a: A, full_matrices: bool = ..., *, compute_uv: Literal[False],
            **options: Unpack[_Svd]) -> A: ...

    @overload
    def svd(self, a: A, full_matrices: bool, compute_uv: Literal[False], **options: Unpack[_Svd]) -> A: ...

    @overload
    def svd(self, a: npt.ArrayLike, full_matrices: bool = ..., compute_uv: Literal[True] = ...,
            **options: Unpack[_Svd]) -> SVDResult: ...

    @overload
    def svd(self, a: npt.ArrayLike, full_matrices: bool = ..., *, compute_uv: Literal[False],
            **options: Unpack[_Svd]) -> Values: ...

    @overload
    def svd(self, a: npt.ArrayLike, full_matrices: bool, compute_uv: Literal[False],
            **options: Unpack[_Svd]) -> Values: ...

    def svd(self, a: Any, full_matrices: bool = True, compute_uv: bool = True, *,
            top_k: int | None = None, fix_phases: bool = False, certificate: bool | Literal["matrix"] = False,
            method: str = "auto", tolerance: float | None = None, max_sweeps: int | None = None,
            pivot_strategy: str | None = None, block_variant: str | None = None, progress: OnProgress | bool | None = None,
            out: Out | None = None, copy: bool = True, timeout: float | None = None) -> object:
        """The decomposition a = U @ diag(S) @ Vh, as numpy.linalg.svd returns it, of matrices of any size.

        Args:
            a: as for svdvals. A list of arrays of two or more dimensions is a list of stacks, each of its own shape and
                type. The client sends them together and returns a list of their results.
            full_matrices: U is (..., m, m) and Vh (..., n, n); otherwise (..., m, k) and (..., k, n), k = min(m, n).
            compute_uv: False: the values alone, as an array.
            top_k: only the leading top_k singular values and vectors, whatever full_matrices says. Those of a large
                matrix come from a subspace where that is as accurate, in a part of the time; see docs/accuracy.md.
            fix_phases: for small matrices, make the largest component of every column of U real and positive; Vh
                follows. Then results of different programs can be compared.
            certificate: True: also return residual and orthogonality, the largest of all matrices; "matrix": also those
                of each matrix.
            method: "auto" or "jacobi".
            tolerance, max_sweeps: for the Jacobi method; see svdvals.
            pivot_strategy, block_variant, progress: for large matrices; see svdvals.
            out: a tuple of arrays for U, S and Vh, of the shapes and types of the results. None in place of an array
                allocates it. Without compute_uv, an array for S. Large results are written to `out` as they arrive if
                its elements lie in the order of those of `a`: with numpy.memmap they need not fit memory.
            copy: as for svdvals.
            timeout: seconds that the call may take, retries included; None or inf for no limit. A large matrix whose
                upload has begun is not sent again.

        Returns:
            SVDResult, which unpacks to U, S, Vh and has the attributes `status`, `certificate` and `summaries`; without
            compute_uv the array S. U and Vh have the type in which `a` is computed, S its real type. U and Vh are
            orthonormal also for matrices without full rank. A small matrix with an infinity or a NaN has NaN
            everywhere; a large one is rejected. A matrix that did not converge has the best results so far, and
            NOT_CONVERGED for status. The arrays are writable, and each has memory of its own.

        Raises:
            As svdvals does. InvalidArgument for a large matrix has the reason NON_FINITE if it holds an infinity or a NaN;
            the message says where. The reason is FACTOR_TOO_LARGE if the matrix exceeds the server's memory. The message
            of a stack or a list begins with the matrix: "matrix [1, 2]: ". ValueError: `out` does not fit the results,
            or its arrays overlap each other or `a`. Error with the code DATA_LOSS: the network damaged a result or a
            part of `a`.

        Example:
            >>> import numpy as np, svdserve
            >>> a = np.arange(24.0).reshape(2, 3, 4)
            >>> with svdserve.Client(address) as client:
            ...     u, s, vh = client.svd(a, full_matrices=False)
            >>> u.shape, s.shape, vh.shape, np.allclose((u * s[:, None, :]) @ vh, a)
            ((2, 3, 3), (2, 3), (2, 3, 4), True)

            A large matrix, with progress:

            >>> a = np.random.default_rng(1).standard_normal((200, 150))
            >>> stages = []
            >>> with svdserve.Client(address) as client:
            ...     result = client.svd(a, full_matrices=False, progress=lambda p: stages.append(p.stage))
            >>> np.allclose((result.U * result.S) @ result.Vh, a), stages[0], stages[-1], result.summaries[0].sweeps > 0
            (True, 'upload', 'download', True)
        """
        return self._run(_calls.svd(
            a, full_matrices, compute_uv, top_k=top_k, fix_phases=bool(fix_phases), certificate=certificate,
            method=method, tolerance=tolerance, max_sweeps=max_sweeps, pivot_strategy=pivot_strategy,
            block_variant=block_variant, out=out, copy=copy), timeout, progress)

    @overload
    def hsvd(self, g: A, j: npt.ArrayLike | Foreign, compute_uv: Literal[True] = ...,
             **options: Unpack[_Hsvd]) -> SVDResult[A, A, A]: ...

    @overload
    def hsvd(self, g: A, j: npt.ArrayLike | Foreign, compute_uv: Literal[False], **options: Unpack[_Hsvd]) -> A: ...

    @overload
    def hsvd(self, g: npt.ArrayLike, j: npt.ArrayLike | Foreign, compute_uv: Literal[True] = ...,
             **options: Unpack[_Hsvd]) -> SVDResult: ...

    @overload
    def hsvd(self, g: npt.ArrayLike, j: npt.ArrayLike | Foreign, compute_uv: Literal[False],
             **options: Unpack[_Hsvd]) -> Values: ...

    def hsvd(self, g: Any, j: npt.ArrayLike | Foreign, compute_uv: bool = True, *, certificate: bool = False,
             method: str = "auto", tolerance: float | None = None, max_sweeps: int | None = None,
             pivot_strategy: str | None = None, block_variant: str | None = None, progress: OnProgress | bool | None = None,
             out: Out | None = None, timeout: float | None = None) -> object:
        """The hyperbolic decomposition g = U @ diag(S) @ Vh, with U^H U = I and V^H J V = J.

        With it g @ diag(j) @ g^H, which may be indefinite, has the eigenvalues j * S**2 and the eigenvectors U.

        Args:
            g: array_like of shape (m, n), m >= n, of full column rank; types and layouts as for svdvals. Any size: it is
                uploaded in chunks.
            j: the diagonal of J: n numbers, each 1 or -1, in any order.
            compute_uv: False: the values alone, as an array.
            certificate: True: also return residual and orthogonality; right_orthogonality is norm(J - V^H J V).
            method, tolerance, max_sweeps, pivot_strategy, block_variant, progress, out, timeout: as for svd.

        Returns:
            SVDResult of U (m, n), S (n) and Vh (n, n); without compute_uv the array S. Column i of U and of V belongs to
            j[i]; S is positive, and descending among columns of equal sign.

        Raises:
            As svd does. InvalidArgument also for a wrong `j`, and with the reason RANK_DEFICIENT for a `g` without full
            column rank. numpy.linalg.LinAlgError: `g` does not have two dimensions.

        Example:
            >>> import numpy as np, svdserve
            >>> g, j = np.random.default_rng(1).standard_normal((60, 50)), np.repeat([1, -1], 25)
            >>> with svdserve.Client(address) as client:
            ...     u, s, vh = client.hsvd(g, j)
            >>> np.allclose((u * s) @ vh, g), np.allclose(vh @ np.diag(j) @ vh.T, np.diag(j))
            (True, True)
        """
        return self._run(_calls.hsvd(
            g, j, compute_uv, certificate=certificate, method=method, tolerance=tolerance, max_sweeps=max_sweeps,
            pivot_strategy=pivot_strategy, block_variant=block_variant, out=out), timeout, progress)

    @overload
    def eigh(self, a: A, UPLO: str = ..., **options: Unpack[_Eigh]) -> EighResult[A, A, A]: ...

    @overload
    def eigh(self, a: npt.ArrayLike, UPLO: str = ..., **options: Unpack[_Eigh]) -> EighResult: ...

    def eigh(self, a: Any, UPLO: str = "L", *, accuracy: Literal["absolute", "relative"] = "absolute",
             fix_phases: bool = False, certificate: bool | Literal["matrix"] = False, method: str = "auto",
             tolerance: float | None = None, max_sweeps: int | None = None, pivot_strategy: str | None = None,
             block_variant: str | None = None, progress: OnProgress | bool | None = None,
             out: tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None] | None = None, copy: bool = True,
             timeout: float | None = None) -> object:
        """Eigenvalues and eigenvectors of Hermitian matrices, as numpy.linalg.eigh returns them.

        Args:
            a: array_like of shape (..., n, n), Hermitian; types and layouts as for svdvals. Any size. A matrix is large
                if n exceeds info().limits.max_hermitian_order (512), or if it does not fit a message. accuracy="relative"
                and methods other than "auto" and "jacobi" make each matrix a large one.
            UPLO: "L" or "U": the triangle that is read. Imaginary parts of the diagonal are not read.
            accuracy: "absolute": errors are relative to the largest eigenvalue, as NumPy's are. Small eigenvalues of
                graded matrices need "relative": they keep their digits where the entries determine them. For that each
                matrix of any size is a call of its own, of about 3 ms up to n = 32. The server factorizes it as
                G @ diag(J) @ G^H, and the hyperbolic Jacobi method computes the rest.
            fix_phases: for small matrices, make the largest component of every eigenvector real and positive.
            certificate: True: also return residual and orthogonality, the largest of all matrices; "matrix": also those
                of each matrix.
            method: for small matrices, "auto" or "jacobi". For large ones also "tridiagonal", which is "auto", and
                "factored", the one of accuracy="relative"; there "jacobi" is "factored" without a start from an
                eigenbasis. For n up to 4 "auto" has a tridiagonal form, too; with a tolerance or max_sweeps it is
                "jacobi". Small matrices with n > 128, on a CPU those with n > 32, always have a tridiagonal form.
            tolerance, max_sweeps, pivot_strategy, block_variant: as for svd. "tridiagonal" has no sweeps and takes none.
            progress, copy, timeout: as for svd.
            out: a tuple of arrays for eigenvalues and eigenvectors, with None in place of either.

        Returns:
            EighResult, which unpacks to eigenvalues (..., n), ascending, and eigenvectors (..., n, n). It has the
            attributes `status`, `certificate` and `summaries`. Column i of the eigenvectors belongs to eigenvalue i. A
            small matrix with an infinity or a NaN has NaN everywhere; a large one is rejected. With accuracy="relative"
            eigenvalues that the rank of the matrix lacks are exact zeros. With a certificate, too,
            `summaries[0].factor_condition` bounds the relative errors.

        Raises:
            As svd does. numpy.linalg.LinAlgError: `a` has fewer than two dimensions, or is not square. ValueError: another
            UPLO.

        Example:
            >>> import numpy as np, svdserve
            >>> d = np.diag(10.0 ** -np.arange(0, 40, 10))  # graded: eigenvalues from 1e-60 to 1
            >>> a = d @ (np.eye(4) + 0.1) @ d
            >>> with svdserve.Client(address) as client:
            ...     w, v = client.eigh(a, accuracy="relative")
            >>> np.allclose(np.prod(w / np.diag(d)[::-1] ** 2), np.linalg.det(np.eye(4) + 0.1), rtol=1e-12)
            True
        """
        return self._run(_calls.eigh(
            a, UPLO, True, accuracy=accuracy, fix_phases=bool(fix_phases), certificate=certificate, method=method,
            tolerance=tolerance, max_sweeps=max_sweeps, pivot_strategy=pivot_strategy, block_variant=block_variant,
            out=out, copy=copy), timeout, progress)

    @overload
    def eigvalsh(self, a: A, UPLO: str = ..., *, return_status: Literal[False] = ...,
                 **options: Unpack[_Eigvalsh]) -> A: ...

    @overload
    def eigvalsh(self, a: A, UPLO: str = ..., *, return_status: Literal[True],
                 **options: Unpack[_Eigvalsh]) -> tuple[A, A]: ...

    @overload
    def eigvalsh(self, a: npt.ArrayLike, UPLO: str = ..., *, return_status: Literal[False] = ...,
                 **options: Unpack[_Eigvalsh]) -> Values: ...

    @overload
    def eigvalsh(self, a: npt.ArrayLike, UPLO: str = ..., *, return_status: Literal[True],
                 **options: Unpack[_Eigvalsh]) -> tuple[Values, Statuses]: ...

    def eigvalsh(self, a: Any, UPLO: str = "L", *, accuracy: Literal["absolute", "relative"] = "absolute",
                 method: str = "auto", tolerance: float | None = None, max_sweeps: int | None = None,
                 pivot_strategy: str | None = None, block_variant: str | None = None,
                 progress: OnProgress | bool | None = None, out: npt.NDArray[Any] | None = None, copy: bool = True,
                 timeout: float | None = None, return_status: bool = False) -> object:
        """Eigenvalues of Hermitian matrices, as numpy.linalg.eigvalsh returns them: an array (..., n), ascending.

        Errors are relative to the largest eigenvalue of each matrix. Small ones of graded matrices need
        accuracy="relative". Matrices with n > info().limits.max_hermitian_order (512) are large: each is a call of its own.

        Args:
            a, UPLO: as for eigh, and so all others; `out` is an array for the eigenvalues.
            return_status: also return the status of each matrix, as svdvals does.

        Example:
            >>> import numpy as np, svdserve
            >>> with svdserve.Client(address) as client:
            ...     client.eigvalsh([[0, 2], [2, 0]]).round(12)
            array([-2.,  2.])
        """
        return self._run(_calls.eigh(
            a, UPLO, False, accuracy=accuracy, certificate=False, method=method, tolerance=tolerance, max_sweeps=max_sweeps,
            pivot_strategy=pivot_strategy, block_variant=block_variant, out=out, copy=copy, return_status=return_status),
            timeout, progress)

    @overload
    def eigh_factored(self, g: A, j: npt.ArrayLike | Foreign,
                      **options: Unpack[_EighFactored]) -> EighResult[A, A, A]: ...

    @overload
    def eigh_factored(self, g: npt.ArrayLike, j: npt.ArrayLike | Foreign,
                      **options: Unpack[_EighFactored]) -> EighResult: ...

    def eigh_factored(self, g: Any, j: npt.ArrayLike | Foreign, *, certificate: bool = False, method: str = "auto",
                      tolerance: float | None = None, max_sweeps: int | None = None, pivot_strategy: str | None = None,
                      block_variant: str | None = None, progress: OnProgress | bool | None = None,
                      out: tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None] | None = None,
                      timeout: float | None = None) -> object:
        """Eigenvalues and eigenvectors of g @ diag(j) @ g^H, a product that is never formed.

        Args:
            g: array_like of shape (m, n), m >= n, of full column rank, as for hsvd.
            j: the diagonal of J: n numbers, each 1 or -1, in any order.
            certificate: True: also return residual and orthogonality.
            method: "auto", which is "factored", or "jacobi". "auto" starts from an eigenbasis where j has one sign.
            tolerance, max_sweeps, pivot_strategy, block_variant, progress, timeout: as for svd.
            out: as for eigh.

        Returns:
            EighResult of m eigenvalues, m - n of them zero, and of (m, m) eigenvectors.

        Raises:
            As hsvd does.

        Example:
            >>> import numpy as np, svdserve
            >>> g = np.array([[1.0, 1.0], [0.0, 1e-9]])  # g @ g.T as it is rounded is singular
            >>> with svdserve.Client(address) as client:
            ...     w, v = client.eigh_factored(g, [1, 1])
            >>> np.allclose(w, [5e-19, 2.0], rtol=1e-12)
            True
        """
        return self._run(_calls.eigh_factored(
            g, j, certificate=certificate, method=method, tolerance=tolerance, max_sweeps=max_sweeps,
            pivot_strategy=pivot_strategy, block_variant=block_variant, out=out), timeout, progress)

    @overload
    def eig(self, a: A, left: Literal[False] = ..., **options: Unpack[_Eig]) -> EigResult[A, A, A]: ...

    @overload
    def eig(self, a: A, left: Literal[True], **options: Unpack[_Eig]) -> EigLeftResult[A, A, A]: ...

    @overload
    def eig(self, a: npt.ArrayLike, left: Literal[False] = ..., **options: Unpack[_Eig]) -> EigResult: ...

    @overload
    def eig(self, a: npt.ArrayLike, left: Literal[True], **options: Unpack[_Eig]) -> EigLeftResult: ...

    def eig(self, a: Any, left: bool = False, *, certificate: bool | Literal["matrix"] = False,
            condition: bool = False, start: npt.ArrayLike | Foreign | None = None, method: str = "auto",
            max_sweeps: int | None = None, progress: OnProgress | bool | None = None, copy: bool = True,
            timeout: float | None = None) -> object:
        """Eigenvalues and eigenvectors of general square matrices, as numpy.linalg.eig returns them.

        Residuals are relative to the norm of each matrix. Hermitian matrices are for eigh, which is faster.

        Args:
            a: array_like of shape (..., n, n); types and layouts as for svdvals. Any size. A matrix is large if n exceeds
                info().limits.max_general_order (32), or if it does not fit a message. Each large matrix is a call of its
                own; several go at once.
            left: True: also return left eigenvectors, as scipy.linalg.eig(a, left=True) does.
            certificate: True: also return the residual, the largest of all matrices; "matrix": also those of each matrix.
            condition: for small matrices. True: also return the condition number of each eigenvalue. A condition that
                stays large after balancing gives the `status` NEAR_DEFECTIVE. Results are as good as others.
            start: approximate eigenvectors V0, such as those of matrices nearby. The array can be
                broadcast to the shape of `a`, and is rounded to its precision. "jacobi" starts from V0, which halves its
                sweeps where V0 is good. Eigenvalues of complex matrices keep the order of V0 where they stay apart. A
                matrix whose V0 is singular or not finite goes to "qr", and loses the order.
            method: "auto" is "qr", and "jacobi" where there is `start`. "jacobi" makes shears and rotations. It leaves to
                "qr" what it cannot do, and the results are as good. The `status` of a small matrix is BY_QR then, the
                `method` in the summary of a large one "qr". For random matrices "qr" is the faster one. On a GPU
                "jacobi" is faster for large matrices with a good start, and for large ones that are nearly normal.
            max_sweeps: for "jacobi", sweeps after which a matrix goes to "qr"; None for the default, 30, or 60 if large.
            progress, copy, timeout: as for svd.

        Returns:
            EigResult, which unpacks to eigenvalues w (..., n) and eigenvectors v (..., n, n): a @ v[:, i] is
            w[i] * v[:, i]. With `left` EigLeftResult, which unpacks to w, vl, v: vl[:, i]^H @ a is w[i] * vl[:, i]^H.
            Both have the attributes `status`, `certificate`, `summaries`, and with `condition` the condition numbers of
            eigenvalues, `condition`, and of eigenvectors, `vectors_condition`. Eigenvalues have no order, but a conjugate
            pair stays together. Eigenvectors have norm 1, and their largest component is real. A small matrix with an
            infinity or a NaN has NaN everywhere; a large one is rejected. For real `a` the arrays are real if all
            eigenvalues of the whole stack are, else complex. They are complex for complex `a`. Precision is that of `a`:
            complex64 or float32 for float32.

        Raises:
            As svd does. InvalidArgument with the reason NON_FINITE: a large matrix with an infinity or a NaN, where NumPy
            raises LinAlgError. numpy.linalg.LinAlgError: `a` has fewer than two dimensions, or is not square. A plain
            ValueError: `start` cannot be broadcast to the shape of `a`.

        Example:
            >>> import numpy as np, svdserve
            >>> a = np.array([[0.0, 1.0], [-4.0, -1.0]])  # x'' = -4 x - x'
            >>> with svdserve.Client(address) as client:
            ...     w, vl, v = client.eig(a, left=True)
            >>> np.allclose(a @ v, v * w), np.allclose(vl.conj().T @ a, w[:, None] * vl.conj().T), bool(w[0] == w[1].conj())
            (True, True, True)
        """
        return self._run(_calls.eig(a, "full" if left else "thin", start=start, copy=copy, certificate=certificate,
                                    condition=bool(condition), method=method, max_sweeps=max_sweeps), timeout, progress)

    @overload
    def eigvals(self, a: A, *, condition: Literal[False] = ..., return_status: Literal[False] = ...,
                **options: Unpack[_Eigvals]) -> A: ...

    @overload
    def eigvals(self, a: A, *, condition: Literal[False] = ..., return_status: Literal[True],
                **options: Unpack[_Eigvals]) -> tuple[A, A]: ...

    @overload
    def eigvals(self, a: A, *, condition: Literal[True], return_status: Literal[False] = ...,
                **options: Unpack[_Eigvals]) -> tuple[A, A]: ...

    @overload
    def eigvals(self, a: A, *, condition: Literal[True], return_status: Literal[True],
                **options: Unpack[_Eigvals]) -> tuple[A, A, A]: ...

    @overload
    def eigvals(self, a: npt.ArrayLike, *, condition: Literal[False] = ..., return_status: Literal[False] = ...,
                **options: Unpack[_Eigvals]) -> Eigenvalues: ...

    @overload
    def eigvals(self, a: npt.ArrayLike, *, condition: Literal[False] = ..., return_status: Literal[True],
                **options: Unpack[_Eigvals]) -> tuple[Eigenvalues, Statuses]: ...

    @overload
    def eigvals(self, a: npt.ArrayLike, *, condition: Literal[True], return_status: Literal[False] = ...,
                **options: Unpack[_Eigvals]) -> tuple[Eigenvalues, Values]: ...

    @overload
    def eigvals(self, a: npt.ArrayLike, *, condition: Literal[True], return_status: Literal[True],
                **options: Unpack[_Eigvals]) -> tuple[Eigenvalues, Values, Statuses]: ...

    def eigvals(self, a: Any, *, condition: bool = False, start: npt.ArrayLike | Foreign | None = None,
                method: str = "auto", max_sweeps: int | None = None, progress: OnProgress | bool | None = None,
                copy: bool = True, timeout: float | None = None, return_status: bool = False) -> object:
        """Eigenvalues of general square matrices, as numpy.linalg.eigvals returns them: an array (..., n).

        Args:
            a: as for eig, and so all others.
            condition: for small matrices. True: also return the condition number of each eigenvalue, an array (..., n),
                second.
            return_status: also return the status of each matrix, as svdvals does, last.

        Example:
            >>> import numpy as np, svdserve
            >>> with svdserve.Client(address) as client:
            ...     np.sort(client.eigvals([[0, 1], [2, 1]])).round(12)
            array([-1.,  2.])
        """
        return self._run(_calls.eig(a, "none", start=start, copy=copy, condition=bool(condition), method=method,
                                    max_sweeps=max_sweeps, return_status=return_status), timeout, progress)

    @overload
    def capacity(self, h: Stacks, snr_db: float | Iterable[float], **options: Unpack[_Capacity]) -> list[Values]: ...

    @overload
    def capacity(self, h: list[A], snr_db: float | Iterable[float], **options: Unpack[_Capacity]) -> list[A]: ...

    @overload
    def capacity(self, h: A, snr_db: float | Iterable[float], **options: Unpack[_Capacity]) -> A: ...

    @overload
    def capacity(self, h: npt.ArrayLike, snr_db: float | Iterable[float], **options: Unpack[_Capacity]) -> Values: ...

    def capacity(self, h: Any, snr_db: float | Iterable[float], *, water_filling: bool = False,
                 group_size: int | None = None, copy: bool = True, timeout: float | None = None) -> object:
        """Capacity of MIMO channels y = h @ x + noise in bit/s/Hz. The server computes it from the singular values s_i.

        Args:
            h: channels of shape (..., m, n), m receive and n transmit antennas, complex or real; or a list of such
                arrays, as for svd.
            snr_db: one or several SNRs in dB. SNR is the transmitted power, of all antennas together, over the power of
                the white Gaussian noise of one receive antenna. `h` is not normalized: with a mean |h|^2 of 1, SNR is
                the mean SNR of a receive antenna.
            water_filling: False: equal power on every transmit antenna, sum_i log2(1 + snr s_i^2 / n). True: the
                transmitter knows h and divides its power optimally, sum_i log2(max(1, mu g_i)) with g_i = snr s_i^2. Here
                mu is such that sum_i max(0, mu - 1 / g_i) = 1. Telatar (1999), sections 3 and 3.1.
            group_size: neighbours along the last of the leading dimensions (subcarriers) whose capacities are summed; it
                divides that dimension. Water-filling divides the power of the whole group, group_size times that of one
                channel, among all its streams.
            copy: as for svdvals.
            timeout: seconds that the call may take, retries included; None or inf for no limit.

        Returns:
            Array of shape (..., n_snr), or (...) for a single snr_db; with group_size the last of the leading dimensions
            is divided by it. float32 for float32 and complex64, else float64. A zero channel has capacity 0; a channel
            with an infinity or a NaN has NaN.

        Raises:
            As svdvals does.

        Example:
            >>> import numpy as np, svdserve
            >>> with svdserve.Client(address) as client:
            ...     client.capacity(np.eye(2), snr_db=[0, 10]).round(6)
            array([1.169925, 5.169925])
        """
        return self._run(_calls.capacity(h, snr_db, water_filling=water_filling, group_size=group_size, copy=copy), timeout)

    @overload
    def precoders(self, h: Stacks, rank: int, **options: Unpack[_Precoders]) -> list[Vectors]: ...

    @overload
    def precoders(self, h: list[A], rank: int, **options: Unpack[_Precoders]) -> list[A]: ...

    @overload
    def precoders(self, h: A, rank: int, **options: Unpack[_Precoders]) -> A: ...

    @overload
    def precoders(self, h: npt.ArrayLike, rank: int, **options: Unpack[_Precoders]) -> Vectors: ...

    def precoders(self, h: Any, rank: int, *, fix_phases: bool = False, copy: bool = True,
                  timeout: float | None = None) -> object:
        """The `rank` strongest right singular vectors of each channel: the precoder of a transmitter with `rank` streams.

        Args:
            h: channels of shape (..., m, n), or a list of such arrays, as for svd.
            rank: 1 .. min(m, n).
            fix_phases: make the largest component of every left singular vector real and positive; the right ones follow.
            copy: as for svdvals.
            timeout: seconds that the call may take, retries included; None or inf for no limit.

        Returns:
            Array of shape (..., n, rank) with orthonormal columns, strongest first.

        Raises:
            As svdvals does.
        """
        return self._run(_calls.precoders(h, rank, fix_phases=fix_phases, copy=copy), timeout)

    @overload
    def mimo(self, h: Stacks, **options: Unpack[_Mimo]) -> list[MimoResult]: ...

    @overload
    def mimo(self, h: list[A], **options: Unpack[_Mimo]) -> list[MimoResult[A, A]]: ...

    @overload
    def mimo(self, h: A, **options: Unpack[_Mimo]) -> MimoResult[A, A]: ...

    @overload
    def mimo(self, h: npt.ArrayLike, **options: Unpack[_Mimo]) -> MimoResult: ...

    def mimo(self, h: Any, *, snr_db: float | Iterable[float] | None = None, capacity: bool = False,
             water_filling: bool = False, stream_snr: bool = False, condition_number: bool = False,
             effective_rank: bool = False, rank_threshold: float | None = None, precoders: int = 0,
             combiners: int = 0, singular_values: bool = False, gradient: bool = False, group_size: int | None = None,
             fix_phases: bool = False, certificate: bool | Literal["matrix"] = False, copy: bool = True,
             timeout: float | None = None) -> object:
        """Any selection of MIMO numbers, from one decomposition.

        Args:
            h, snr_db, group_size, copy, timeout: as for capacity.
            capacity, water_filling: capacity with equal power, and with optimally divided power; see capacity.
            stream_snr: snr s_i^2 / n of each of the k = min(m, n) streams, linear.
            condition_number: s_1 / s_k, inf where h does not have full rank.
            effective_rank: exp of the entropy of s_i / sum(s), Roy and Vetterli (2007).
            rank_threshold: in (0, 1); the result's `threshold_rank` is the number of s_i > rank_threshold * s_1.
            precoders, combiners: the number of leading columns of V, and of U; 0: none.
            singular_values: also return the singular values.
            gradient: also return the gradient of each of capacity, water_filling and effective_rank that is requested.
                It is G = U diag(dF / ds_i) V^H, shape (..., m, n), for which F(h + d) = F(h) + Re sum(conj(G) d) + o(|d|):
                the gradient of torch and JAX (of JAX its conjugate). Values of zero add nothing to it. The effective rank
                has no derivative where a value is zero; one that is rounding error of zero counts as it is. With
                water_filling, group_size must be 1.
            fix_phases, certificate: as for svd; with precoders or combiners only.

        Returns:
            MimoResult, or a list of them where `h` is a list. Its arrays have no dimension for a single snr_db.

        Raises:
            As svdvals does.
        """
        call = _calls.mimo(
            h, snr_db=snr_db, capacity=capacity, water_filling=water_filling, stream_snr=stream_snr,
            condition_number=condition_number, effective_rank=effective_rank, rank_threshold=rank_threshold,
            precoders=precoders, combiners=combiners, singular_values=singular_values, gradient=gradient,
            group_size=group_size, fix_phases=fix_phases, certificate=certificate, copy=copy)
        return self._run(call, timeout)

    def info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's version, limits and devices. Raises as svdvals does."""
        info = server_info(self._ask("GetServerInfo", timeout))
        self._limits = self._settings.bound(info.limits)
        return info

    def plan_capacity(self, verb: str, *arguments: Any, requests_per_second: float, latency: float | None = None,
                      timeout: float | None = None, **options: Any) -> CapacityPlan:
        """The cores, GPUs, replicas and limits of memory that serve a load of equal calls.

        The server reckons by the times that it has measured on its devices, and computes nothing.

        Args:
            verb: the verb that is called, such as "svdvals". One of batches of one shape.
            arguments, options: its arguments. The elements of arrays are not read.
            requests_per_second: of all clients together, each with one message.
            latency: seconds that 99 of 100 requests shall not exceed; None: any.
            timeout: of this question.

        Example:
            >>> import numpy as np, svdserve
            >>> with svdserve.Client(address) as client:
            ...     plan = client.plan_capacity("svdvals", np.empty((1000, 4, 4), "c8"), requests_per_second=10)
            >>> plan.replicas
            1
        """
        from ._aio_verbs import VERBS  # which imports this file

        with _calls.in_the_callers_words(verb, "a"):
            load = _calls.load_of(Client, VERBS, verb, arguments, options, requests_per_second=requests_per_second,
                                  latency_seconds=latency or 0.0)
            return capacity_plan(self._ask("PlanCapacity", timeout, **load))

    def health(self, service: str = "", *, timeout: float | None = None) -> str:
        """State of the server, or of one service of it: "SERVING", "NOT_SERVING", ... One that serves is enough.

        The client does not repeat this call. Raises Unavailable if the server cannot be reached, and Error for a service
        that the server does not have.
        """
        request, deadline = _proto.HealthCheckRequest(service=service), Deadline(timeout)
        servers = len(self._settings.addresses)
        self._require_open()

        # A stopped server takes its share of the time, and leaves the others theirs.
        def ask(replica: int) -> str | Error:
            try:
                reply = self._connections.stub(replica).health_check(request, timeout=deadline.share(servers - replica))
                return health_name(there(reply).status)
            except grpc.RpcError as error:
                return from_rpc_error(error, self._closed.is_set(), self._settings.addresses[replica], self._settings.tls)

        return best_health(ask(replica) for replica in range(servers))

    def close(self) -> None:
        """Ends the connection. Calls under way raise Cancelled. Closing twice is harmless."""
        self._closed.set()
        for channel in self._connections.channels():
            channel.close()

    def __repr__(self) -> str:
        return f"<svdserve.Client {self._settings.address!r}, {'closed' if self._closed.is_set() else 'open'}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _run(self, call: _calls.Call, timeout: float | None, progress: OnProgress | bool | None = None) -> Any:
        deadline = Deadline(timeout)
        if not call.empty:
            with shown(progress) as on_progress, call.in_the_callers_words():
                limits = self._limits or self._settings.bound(self.info(timeout=deadline.remaining()).limits)
                messages, factors = call.plan(limits, self._settings.piece, on_progress)
                self._compute(messages, call.query, deadline)
                if factors:
                    self._compute_all_large(self._settings.stack(factors), deadline)
        return call.answer()

    def _compute_all_large(self, stack: Stack, deadline: Deadline) -> None:
        """Sends large matrices, several at once. A single lane is the calling thread."""

        def lane() -> None:
            while (job := stack.take()) is not None:
                try:
                    self._compute_large(job, deadline)
                except BaseException as error:
                    if stack.failed(job, error):
                        return
                else:
                    stack.done(job)

        if stack.lanes == 1:
            lane()
        else:
            with concurrent.futures.ThreadPoolExecutor(stack.lanes, "svdserve") as threads:
                try:
                    concurrent.futures.wait([threads.submit(lane) for _ in range(stack.lanes)])
                finally:  # of a KeyboardInterrupt
                    stack.end()
        stack.raise_failure()

    def _compute_large(self, job: Job, deadline: Deadline) -> None:
        """Sends a large matrix; again as Job.pause_after() says."""
        def method(stub: Stub) -> Callable[..., Any]:
            return functools.partial(transfer, stub.decompose_large, stop=job.stop)

        route = self._settings.route()
        send = functools.partial(self._send, route, method, job.factor, job.factor.bytes, deadline)
        with job.factor.named_in_errors():
            self._retry(route, send, send, deadline, job.pause_after, job.stop)

    def _compute(self, messages: list[_codec.Message], query: Query, deadline: Deadline) -> None:
        if not messages:
            return
        options = query.encode()

        def begin(route: Route, request: _codec.Request, method: Callable[[Stub], Any] = lambda s: s.of(query)) -> Any:
            return self._send(route, method, request, request.size, deadline, metadata=announcement(request))

        if len(messages) == 1:  # a blocking call wakes one thread less than a future
            route = self._settings.route()
            send = functools.partial(begin, route, messages[0].request(options))
            messages[0].deliver(there(self._retry(route, send, send, deadline)))
            return

        lanes = min(len(messages), self._settings.max_in_flight, self._settings.lanes)
        pieces = Pieces(messages)

        def lane() -> None:
            under_way: collections.deque[tuple[_codec.Message, _codec.Request, Route, Any]] = collections.deque()

            def finish_oldest() -> None:
                message, request, route, call = under_way.popleft()
                reply = there(self._retry(route, call.result, functools.partial(begin, route, request), deadline))
                pieces.deliver(message, reply, call)

            while (message := pieces.take()) is not None:
                request, route = message.request(options), self._settings.route()
                call = begin(route, request, lambda s: s.of(query).future)
                pieces.sent(call)
                under_way.append((message, request, route, call))
                if len(under_way) >= self._settings.max_in_flight // lanes:
                    finish_oldest()  # before the next one is taken, which another lane may send at once
            while under_way:
                finish_oldest()

        pieces.send(lane, lanes)

    def _ask(self, method: str, timeout: float | None, **fields: Any) -> Any:
        """The reply to a unary call without matrices. `fields`: of its request."""
        deadline, route, request = Deadline(timeout), self._settings.route(), small_request(method, **fields)
        send = functools.partial(self._send, route, lambda stub: stub.small(method), request, 0, deadline)
        return there(self._retry(route, send, send, deadline))

    def _send(self, route: Route, method: Callable[[Stub], Any], request: Any, size: int, deadline: Deadline,
              **options: Any) -> Any:
        """Makes the call `method` of a connection where the route goes next. `size`: of the request in bytes."""
        self._require_open()
        self._check_health()
        stub = self._connections.stub(route.next(), size)
        try:
            return method(stub)(request, timeout=deadline.remaining(), **options)
        except ValueError:  # gRPC's word for a closed channel
            self._require_open()
            raise

    def _retry(self, route: Route, first: Callable[[], Any], again: Callable[[], Any], deadline: Deadline,
               pause_after: PauseAfter = as_the_route_says, stop: Stop | None = None) -> Any:
        """The reply that `first` waits for. While it is worthwhile and allowed, `again` makes another attempt."""
        answer = first
        while True:
            try:
                reply = answer()
            except grpc.FutureCancelledError:
                raise closed_error() from None
            except grpc.RpcError as rpc_error:
                error = from_rpc_error(rpc_error, self._closed.is_set(), route.address, self._settings.tls)
                pause = pause_after(error, route.pause(error, deadline.left()), deadline.left())
                if pause is None:
                    self._limits = None  # the server may have been replaced by one with others
                    raise error from rpc_error
            else:
                route.succeeded()
                return reply
            self._pause(pause, stop)
            answer = again

    def _check_health(self) -> None:
        """Asks a server that is due, and does not wait for the reply."""
        rotation = self._settings.rotation
        if (replica := rotation.due()) is None:
            return
        try:
            asked = self._connections.stub(replica).ask_health(timeout=CHECK_PATIENCE)
        except ValueError:  # the client was closed
            return

        def done(asked: Any) -> None:
            if not self._closed.is_set():
                rotation.checked(replica, serves(asked.result))

        asked.add_done_callback(done)

    def _open_channel(self, replica: int) -> grpc.Channel:
        channel: grpc.Channel = self._settings.open(grpc, replica)
        _OPEN.add(channel)
        return channel

    def _pause(self, seconds: float, stop: Stop | None) -> None:
        """Waits until the time is over, the client is closed, or `stop` is requested."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and (stop is None or not stop.wanted):
            if self._closed.wait(left if stop is None else min(left, 0.05)):
                return

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise closed_error()
