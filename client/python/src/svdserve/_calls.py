"""The calls of the clients, blocking or not: the query and the return value of each. No gRPC here."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import numpy as np

from . import _arrays, _large, _proto
from ._codec import Message, Operand, PieceSize, Result, messages
from ._display.progress import OnProgress, Teller
from ._narrow import narrow_type
from ._query import MIMO_GRADIENTS, MIMO_NUMBERS, Mimo, Query, keyword, number, positive, snrs
from .errors import Error, invalid_argument
from .values import EighResult, EigLeftResult, EigResult, Limits, MimoResult, SVDResult, condition_of_vectors


@dataclasses.dataclass
class Call:
    """A question about one operand, or about each of several."""

    query: Query
    results: list[tuple[Operand, Result]]
    finish: Callable[[Result], Any]  # what the caller gets of a result
    many: bool
    backs: tuple[_arrays.Back | None, ...] = (None,)  # to the caller's kinds of arrays, one for each operand
    named: tuple[str, str] = ("", "")  # the verb and its operand

    @property
    def empty(self) -> bool:
        """There is nothing to compute."""
        return all(operand.empty for operand, _ in self.results)

    def plan(self, limits: Limits, piece: PieceSize,
             on_progress: OnProgress | None) -> tuple[list[Message], list[_large.Factor]]:
        """The messages of small matrices, and the large ones, which have a call each.

        Raises InvalidArgument for an option that the matrices do not have.
        """
        small, factors = [], []
        teller = None if on_progress is None else Teller(on_progress)
        for place, (operand, result) in enumerate(self.results):
            if operand.empty:
                continue
            is_large = _large.is_large(operand, self.query, limits, tells=on_progress is not None)
            self.query.check_size(operand.rows, operand.cols, is_large, limits.max_general_order)
            if is_large:
                array = f"array {place}" if self.many else ""
                factors += [_large.Factor(operand, i, self.query, result, teller, array)
                            for i in range(operand.count)]
            else:
                small.append((operand, result))
        if teller is not None:
            teller.matrices = len(factors)
        return messages(small, self.query, limits, piece), factors

    def in_the_callers_words(self) -> contextlib.AbstractContextManager[None]:
        """Has errors name the verb's keywords."""
        return in_the_callers_words(*self.named)

    def answer(self) -> Any:
        """The return value of the caller, once all results are there."""
        answers = [_arrays.returned(self.finish(result), back) for (_, result), back in zip(self.results, self._each_back())]
        return answers if self.many else answers[0]

    def _each_back(self) -> Iterable[_arrays.Back | None]:
        return self.backs if len(self.backs) == len(self.results) else itertools.repeat(self.backs[0])


@contextlib.contextmanager
def in_the_callers_words(verb: str, operand: str) -> Iterator[None]:
    """Has errors name the keywords of a verb, and its operand."""
    try:
        yield
    except Error as error:
        if error.violations and (field := error.violations[0].field):
            error._reword(error.message.replace(f"{field}: ", f"{keyword(field, verb, operand)}: ", 1))
        raise


def _verb(make: Callable[..., Call]) -> Callable[..., Call]:
    """Makes the calls of the verb of its name. Its first argument is the operand, an array of any library."""
    named = make.__name__, next(iter(inspect.signature(make).parameters))
    of_any_kind = _arrays.of_any_kind(make)

    @functools.wraps(make)
    def call(*arguments: Any, **options: Any) -> Call:
        with in_the_callers_words(*named):
            made = of_any_kind(*arguments, **options)
            made.named = named
            return made

    return call


def _is_list(a: Any) -> bool:
    """Whether `a` is a list of stacks, each of its own shape, instead of one array_like."""
    return isinstance(a, list) and len(a) > 0 and all(isinstance(x, np.ndarray) and x.ndim >= 2 for x in a)


def _call(a: Any, query: Query, finish: Callable[[Result], Any], *, many: bool, copy: bool = True,
          out: dict[str, Any] | None = None, start: Any = None) -> Call:
    operands = [Operand(x) for x in a] if many else [Operand(a, start)]
    for operand in operands:
        _check_groups(operand, query)
    return Call(query, [(x, Result(x, query, copy=copy, out=out)) for x in operands], finish, many)


def _check_groups(operand: Operand, query: Query) -> None:
    size = query.group_size
    if size > 1 and (not operand.batch_shape or operand.batch_shape[-1] % size):
        raise invalid_argument("options.mimo.group_size", "must divide the last of the leading dimensions "
                               f"{operand.batch_shape}, but is {size}")


def _values_and_status(result: Result) -> tuple[np.ndarray, np.ndarray]:
    return result.values(), result.statuses()


@_verb
def svdvals(a: Any, *, return_status: bool, copy: bool, **options: Any) -> Call:
    """`options` are those of Query."""
    finish = _values_and_status if return_status else Result.values
    many = _is_list(a) and len({x.shape for x in a}) > 1  # of one shape they are a stack, as for NumPy
    return _call(a, Query(**options), finish, many=many, copy=copy)


@_verb
def svd(a: Any, full_matrices: bool, compute_uv: bool, *, method: str, certificate: bool | str, out: Any, copy: bool,
        **options: Any) -> Call:
    """`options` are those of Query."""
    if not compute_uv:
        _refuse_without_vectors(certificate=certificate, **options)
    vectors = "none" if not compute_uv else "full" if full_matrices and options["top_k"] is None else "thin"
    # A tolerance or a sweep limit implies JACOBI: AUTO takes neither for small matrices.
    implied = method == "auto" and (options["tolerance"] is not None or options["max_sweeps"] is not None)
    query = Query(method="jacobi" if implied else method, large_method=method, vectors=vectors,
                  certificate=_scope(certificate), **options)
    many = _is_list(a)
    return _call(a, query, _svd_result if compute_uv else Result.values, many=many, copy=copy,
                 out=_out(out, compute_uv, many))


@_verb
def hsvd(g: Any, j: Any, compute_uv: bool, *, certificate: bool, out: Any, **options: Any) -> Call:
    """`options` are those of Query."""
    array = _one_matrix(g)
    if not compute_uv:
        _refuse_without_vectors(certificate=certificate)
    query = Query(vectors="thin" if compute_uv else "none", certificate=_scope_of_one(certificate),
                  signature=_signature(j, *array.shape), **options)
    return _call(array, query, _svd_result if compute_uv else Result.values, many=False,
                 out=_out(out, compute_uv, False))


@_verb
def eigh(a: Any, uplo: str, vectors: bool, *, accuracy: str, method: str, certificate: bool | str, out: Any, copy: bool,
         return_status: bool = False, **options: Any) -> Call:
    """`options` are those of Query."""
    array = _square_matrices(a)
    if not isinstance(uplo, str) or uplo.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    query = Query(method=_eigh_method(accuracy, method), vectors="thin" if vectors else "none",
                  certificate=_scope(certificate), eigenproblem="hermitian",
                  triangle="lower" if uplo.upper() == "L" else "upper", each_large=accuracy == "relative", **options)
    if query.fix_phases and query.is_for_large:
        cause = "accuracy='relative'" if accuracy == "relative" else f"method={method!r}"
        raise invalid_argument("options.fix_phases", f"is for batches; {cause} makes each matrix a call of its own")
    finish = _eigh_result if vectors else _values_and_status if return_status else Result.values
    return _call(array, query, finish, many=False, copy=copy, out=_eigh_out(out, vectors))


@_verb
def eig(a: Any, vectors: str, *, start: Any, copy: bool, certificate: bool | str = False, return_status: bool = False,
        **options: Any) -> Call:
    """`vectors`: as in Query; "full": left ones, too. `options` are those of Query."""
    array = _square_matrices(a)
    query = Query(vectors=vectors, certificate=_scope(certificate), eigenproblem="general",
                  starting_vectors=start is not None, **options)
    if query.starting_vectors and query.method.lower() == "qr":
        raise invalid_argument("options.method", "must be 'auto' or 'jacobi' with start, but is 'qr', which takes none")
    is_narrow = narrow_type(array.dtype)
    is_real = not is_narrow.is_complex if is_narrow else array.dtype.kind != "c"

    def finish(result: Result) -> Any:
        values = result.values()
        right, adjoint = result.array("left_vectors"), result.array("right_vectors_adjoint")
        # As NumPy: results are real where every eigenpair of the whole stack is. NaN is neither.
        all_real = is_real and not any((x.imag > 0).any() for x in (values, right, adjoint) if x is not None)
        narrow = _real_part if all_real else np.asarray
        condition = result.array("eigenvalue_conditions")
        conditions = condition, None if condition is None else condition_of_vectors(condition)
        if vectors == "none":
            more = ([condition] if query.condition else []) + ([result.statuses()] if return_status else [])
            return (narrow(values), *more) if more else narrow(values)
        report = result.statuses(), result.certificate(), result.summaries
        assert right is not None
        if adjoint is None:
            return EigResult(narrow(values), narrow(right)).reported(*report).conditioned(*conditions)
        left = np.conjugate(adjoint, out=adjoint if adjoint.flags.writeable else None)
        left.flags.writeable = adjoint.flags.writeable
        both = narrow(left).swapaxes(-1, -2), narrow(right)
        return EigLeftResult(narrow(values), *both).reported(*report).conditioned(*conditions)

    return _call(array, query, finish, many=False, copy=copy, start=start)


def _real_part(array: np.ndarray) -> np.ndarray:
    """A copy, so that the memory of the imaginary part is free; read-only if the array is."""
    real = np.array(array.real)
    real.flags.writeable = array.flags.writeable
    return real


def _square_matrices(a: Any) -> np.ndarray:
    """`a` as an array of square matrices."""
    array = _one_array(a)
    if array.ndim < 2:
        raise np.linalg.LinAlgError(f"{array.ndim}-dimensional array given. Array must be at least two-dimensional")
    if array.shape[-1] != array.shape[-2]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    return array


def _one_array(a: Any) -> np.ndarray:
    """`a` as an array. Raises TypeError for several of them, and for what NumPy does not make an array of."""
    if isinstance(a, Iterator):
        raise TypeError("a: must be array_like, but is an iterator; pass one array")
    if _is_list(a) and len({x.shape for x in a}) > 1:
        raise TypeError("a: lists of stacks are for svd and svdvals; pass one array")
    return np.asarray(a)


def _eigh_method(accuracy: str, method: str) -> str:
    """The method that gives the accuracy."""
    if accuracy not in ("absolute", "relative"):
        raise ValueError(f"accuracy: must be 'absolute' or 'relative', but is {accuracy!r}")
    if accuracy == "absolute":
        return method
    if not isinstance(method, str) or method.lower() not in ("auto", "factored", "jacobi"):
        raise invalid_argument("options.method", "must be 'auto', 'factored' or 'jacobi' with accuracy='relative', but is "
                               f"{method!r}")
    return "factored" if method.lower() == "auto" else method


@_verb
def eigh_factored(g: Any, j: Any, *, certificate: bool, out: Any, **options: Any) -> Call:
    """`options` are those of Query."""
    array = _one_matrix(g)
    query = Query(vectors="thin", certificate=_scope_of_one(certificate), eigenproblem="hermitian_factor",
                  signature=_signature(j, *array.shape), **options)
    return _call(array, query, _eigh_result, many=False, out=_eigh_out(out, True))


def _eigh_result(result: Result) -> EighResult:
    vectors = result.array("left_vectors")
    assert vectors is not None
    return EighResult(result.values(), vectors).reported(result.statuses(), result.certificate(), result.summaries)


def _eigh_out(out: Any, vectors: bool) -> dict[str, Any] | None:
    if out is None:
        return None
    if not vectors:
        return {"singular_values": out}
    if not isinstance(out, tuple) or len(out) != 2:
        raise ValueError("out: must be a tuple of arrays for eigenvalues and eigenvectors, with None in place of either")
    return {name: array for name, array in zip(("singular_values", "left_vectors"), out) if array is not None}


def _refuse_without_vectors(**options: Any) -> None:
    for name in ("fix_phases", "certificate"):
        if options.get(name):
            raise invalid_argument(f"options.{name}", "needs compute_uv=True, since it is for vectors alone")


def _signature(j: Any, rows: int, columns: int) -> bytes:
    """The diagonal of J as it is sent. Raises InvalidArgument for other entries than 1 and -1, and where g, rows x columns,
    cannot have full column rank."""
    array = np.asarray(j)
    if array.ndim != 1 or array.size == 0:
        raise invalid_argument("open.signature", "must be the diagonal of J, an array of one dimension, but has the shape "
                               f"{array.shape}")
    wrong = np.flatnonzero((array != 1) & (array != -1))
    if wrong.size:
        raise invalid_argument("open.signature", f"entry {wrong[0]} is {array[wrong[0]]}, but must be 1 or -1")
    if array.size != columns:
        raise invalid_argument("open.signature", f"must have {columns} entries, one for each column of g, but has "
                               f"{array.size}")
    if rows < columns:
        raise invalid_argument("open.signature", f"must have at least as many rows as columns, but is {rows}x{columns}",
                               "g")
    return array.astype(np.int8).tobytes()


def _one_matrix(g: Any) -> np.ndarray:
    """`g` as an array of one matrix that has elements."""
    array = np.asarray(g)
    if array.ndim != 2:
        raise np.linalg.LinAlgError(f"{array.ndim}-dimensional array given. Array must be two-dimensional")
    if array.size == 0:
        raise invalid_argument("open.rows" if array.shape[0] == 0 else "open.cols",
                               f"must have elements, but has the shape {array.shape}")
    return array


def _svd_result(result: Result) -> SVDResult:
    u, vh = result.array("left_vectors"), result.array("right_vectors_adjoint")
    assert u is not None and vh is not None
    return SVDResult(u, result.values(), vh).reported(result.statuses(), result.certificate(), result.summaries)


def _out(out: Any, compute_uv: bool, many: bool) -> dict[str, Any] | None:
    """The caller's memory for results by the name of the plane."""
    if out is None:
        return None
    if many:
        raise ValueError("out: is for the results of one array, not of a list")
    if not compute_uv:
        return {"singular_values": out}
    if not isinstance(out, tuple) or len(out) != 3:
        raise ValueError("out: must be a tuple of arrays for U, S and Vh, with None in place of any")
    names = ("left_vectors", "singular_values", "right_vectors_adjoint")
    return {name: array for name, array in zip(names, out) if array is not None}


def _scope(certificate: bool | str) -> str:
    if isinstance(certificate, str) and certificate != "matrix":
        raise invalid_argument("options.certificate", f"must be a bool or 'matrix', but is {certificate!r}")
    return "matrix" if certificate == "matrix" else "batch" if certificate else "none"


def _scope_of_one(certificate: bool) -> str:
    """The scope of a call about one matrix."""
    if isinstance(certificate, str):
        raise invalid_argument("options.certificate", f"must be a bool, but is {certificate!r}")
    return _scope(certificate)


@_verb
def capacity(h: Any, snr_db: float | Iterable[float], *, water_filling: bool, group_size: int | None,
             copy: bool) -> Call:
    decibels, is_scalar = snrs(snr_db)
    name = "water_filling" if water_filling else "capacity"
    mimo = Mimo(frozenset([name]), snr_db=decibels, group_size=_group_size(group_size))

    def finish(result: Result) -> Any:
        array = result.array(name)
        assert array is not None
        return array[..., 0] if is_scalar else array

    return _call(h, Query(mimo=mimo), finish, many=_is_list(h), copy=copy)


@_verb
def precoders(h: Any, rank: int, *, fix_phases: bool, copy: bool) -> Call:
    field = "options.mimo.precoder_columns"
    columns = positive(field, rank, "rank")
    query = Query(mimo=Mimo(precoder_columns=columns), fix_phases=bool(fix_phases))
    call = _call(h, query, lambda result: result.array("precoders"), many=_is_list(h), copy=copy)
    for operand, _ in call.results:
        if columns > operand.values_per_matrix and not operand.empty:
            raise invalid_argument(field, f"must be at most min(m, n) = {operand.values_per_matrix}, but is {rank}")
    return call


@_verb
def mimo(h: Any, *, snr_db: float | Iterable[float] | None, rank_threshold: float | None, precoders: int, combiners: int,
         singular_values: bool, group_size: int | None, fix_phases: bool, certificate: bool | str,
         gradient: bool, copy: bool, **options: bool) -> Call:
    """`options` say which numbers are wanted."""
    decibels, is_scalar = snrs(snr_db)
    threshold = None if rank_threshold is None else number("options.mimo.rank_threshold", rank_threshold)
    numbers = {name for name, wanted in {"threshold_rank": threshold is not None, **options}.items() if wanted}
    if not (numbers or precoders or combiners or singular_values or gradient):
        raise invalid_argument("options.mimo", "nothing is asked for; give capacity=True or other options")
    asked = Mimo(frozenset(numbers), snr_db=decibels, group_size=_group_size(group_size), rank_threshold=threshold,
                 precoder_columns=positive("options.mimo.precoder_columns", precoders, "precoders") if precoders else 0,
                 combiner_columns=positive("options.mimo.combiner_columns", combiners, "combiners") if combiners else 0,
                 values=singular_values, gradient=bool(gradient))
    if gradient and not asked.gradients:
        raise invalid_argument("options.mimo.gradient",
                               "is of capacity, water_filling and effective_rank; ask for one of them")

    def finish(result: Result) -> MimoResult:
        arrays = {name: result.array(name) for name in _MIMO_ARRAYS}
        if is_scalar:
            for name, axis in (("capacity", -1), ("water_filling", -1), ("stream_snr", -2), ("capacity_gradient", -3),
                               ("water_filling_gradient", -3)):
                if (array := arrays[name]) is not None:
                    arrays[name] = array.squeeze(axis)
        if not singular_values:
            arrays["singular_values"] = None
        return MimoResult(status=result.statuses(), certificate=result.certificate(), **arrays)

    query = Query(mimo=asked, fix_phases=bool(fix_phases), certificate=_scope(certificate))
    return _call(h, query, finish, many=_is_list(h), copy=copy)


_MIMO_ARRAYS = (*MIMO_NUMBERS, *(f"{name}_gradient" for name in MIMO_GRADIENTS), "precoders", "combiners", "singular_values")


def _group_size(group_size: int | None) -> int:
    return 1 if group_size is None else positive("options.mimo.group_size", group_size, "group_size")


class _Caught:
    """In the place of a client: its verbs return the call that they would make."""

    def _run(self, call: Call, *_rest: Any) -> Call:
        return call


def load_of(verbs: type, known: tuple[str, ...], verb: str, arguments: tuple[Any, ...], options: dict[str, Any],
            **load: float) -> dict[str, Any]:
    """The fields of a PlanCapacityRequest for a load of calls of a verb with such arguments. Reads no elements.

    `verbs`: the class that has the verbs `known`. Raises as the verb does, and InvalidArgument for what is no batch.
    """
    if verb not in known:
        raise invalid_argument("verb", f"must be one of {', '.join(map(repr, known))}, but is {verb!r}")
    call: Call = getattr(verbs, verb)(_Caught(), *arguments, **options)
    query = call.query
    if call.many or query.is_for_large:
        raise invalid_argument("matrices", "must be a batch of one shape: there are no plans for lists of arrays, nor for "
                               "large matrices")
    ((operand, _),) = call.results
    message = _proto.EigendecomposeRequest if query.eigenproblem else _proto.DecomposeRequest
    request = message.FromString(query.encode())
    request.matrices.CopyFrom(operand.header(operand.count))
    return {"eigendecompose" if query.eigenproblem else "decompose": request, **load}
