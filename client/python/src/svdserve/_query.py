"""The options of a request, and the arrays of its reply."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import _proto
from .errors import invalid_argument


@dataclasses.dataclass(frozen=True)
class Mimo:
    """MimoOptions of the contract; `values`: the reply has the singular values, too."""

    numbers: frozenset[str] = frozenset()  #: the names of their fields in MimoResult
    rank_threshold: float | None = None  #: of the number "threshold_rank"
    snr_db: tuple[float, ...] = ()
    group_size: int = 1
    precoder_columns: int = 0
    combiner_columns: int = 0
    values: bool = False
    gradient: bool = False  #: of those numbers that have one

    @property
    def gradients(self) -> tuple[str, ...]:
        """The names of their fields in MimoResult."""
        return tuple(f"{name}_gradient" for name in MIMO_GRADIENTS if self.gradient and name in self.numbers)

    def message(self) -> Any:
        """MimoOptions"""
        message = _proto.MimoOptions(
            snr_db=self.snr_db, group_size=self.group_size, precoder_columns=self.precoder_columns,
            combiner_columns=self.combiner_columns, singular_values=self.values,
            gradient=self.gradient, **{name: True for name in self.numbers if name != "threshold_rank"})
        if self.rank_threshold is not None:
            message.rank_threshold = self.rank_threshold
        return message


@dataclasses.dataclass(frozen=True)
class Plane:
    """One array of a reply."""

    name: str  #: of the field that holds it
    shape: tuple[int, ...]  #: for one matrix, or for one group of them
    dtype: np.dtype[Any]
    is_matrix: bool = False  #: in the memory order of the operands
    per_group: bool = False

    @functools.cached_property
    def bytes(self) -> int:
        """For one matrix, or for one group of them."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Query:
    """The options of a request. Options for small or for large matrices alone say so."""

    method: str = "auto"
    tolerance: float | None = None
    max_sweeps: int | None = None
    vectors: str = "none"  #: "none", "thin" or "full"
    top_k: int | None = None
    fix_phases: bool = False
    certificate: str = "none"  #: "none", "batch" or "matrix"
    mimo: Mimo | None = None
    pivot_strategy: str | None = None  #: large
    block_variant: str | None = None  #: large
    large_method: str = ""  #: large, where it is another than `method`
    signature: bytes = b""  #: large; the diagonal of J, empty without J
    eigenproblem: str | None = None  #: "hermitian", "general", or for large ones "hermitian_factor"; None for an SVD
    triangle: str = "lower"  #: of "hermitian"
    condition: bool = False  #: of "general", in batches
    starting_vectors: bool = False  #: of "general"; the operand has them
    each_large: bool = False  #: matrices of any size go as large ones

    def __post_init__(self) -> None:
        methods = _METHODS_OF["hyperbolic" if self.signature and not self.eigenproblem else self.eigenproblem or "svd"]
        for field, given, known in (("method", self.method, methods),
                                    ("method", self.large_method or self.method, methods),
                                    ("pivot_strategy", self.pivot_strategy or _UNSAID, _PIVOT_STRATEGIES),
                                    ("block_variant", self.block_variant or _UNSAID, _BLOCK_VARIANTS)):
            if not isinstance(given, str) or given.lower() not in known:
                names = ", ".join(repr(name) for name in known if name != _UNSAID)
                raise invalid_argument(f"options.{field}", f"must be one of {names}, but is {given!r}")
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", number("options.tolerance", self.tolerance))
        if self.max_sweeps is not None:
            sweeps = integer(self.max_sweeps, "max_sweeps")
            if not -2**31 <= sweeps < 2**31:
                raise invalid_argument("options.max_sweeps", f"must fit 32 bits, but is {sweeps}")
            object.__setattr__(self, "max_sweeps", sweeps)
        if self.top_k is not None:
            object.__setattr__(self, "top_k", positive("options.top_k", self.top_k, "top_k"))

    def encode(self) -> bytes:
        """The serialized field `options` of a DecomposeRequest or an EigendecomposeRequest."""
        options = self._eigen_options() if self.eigenproblem else _proto.DecomposeOptions(
            vectors=_proto.VECTORS[self.vectors.upper()])
        options.method = _METHODS[self.method.lower()]
        options.fix_phases = self.fix_phases
        options.certificate = _proto.CERTIFICATE_SCOPES[self.certificate.upper()]
        if self.tolerance is not None:
            options.tolerance = self.tolerance
        if self.max_sweeps is not None:
            options.max_sweeps = self.max_sweeps
        if self.top_k is not None:
            options.top_k = self.top_k
        if self.mimo is not None:
            options.mimo.CopyFrom(self.mimo.message())
        request = _proto.EigendecomposeRequest if self.eigenproblem else _proto.DecomposeRequest
        return bytes(request(options=options).SerializeToString())

    def _eigen_options(self) -> Any:
        """The options that eigenproblems alone have."""
        return _proto.EigendecomposeOptions(
            problem=_proto.EIGEN_PROBLEMS[(self.eigenproblem or "").upper()],
            triangle=_proto.TRIANGLES[self.triangle.upper()], vectors=_proto.EIGENVECTORS[_EIGENVECTORS[self.vectors]],
            condition=self.condition, starting_vectors=self.starting_vectors)

    def large_options(self) -> Any:
        """LargeOptions"""
        return _proto.LargeOptions(
            method=_METHODS[(self.large_method or self.method).lower()], vectors=_proto.VECTORS[self.vectors.upper()],
            tolerance=self.tolerance or 0, max_sweeps=self.max_sweeps or 0,
            pivot_strategy=_PIVOT_STRATEGIES[(self.pivot_strategy or _UNSAID).lower()],
            block_variant=_BLOCK_VARIANTS[(self.block_variant or _UNSAID).lower()],
            certificate=self.certificate != "none", top_k=self.top_k or 0)

    def check_size(self, rows: int, cols: int, is_large: bool, largest_general: int) -> None:
        """Raises InvalidArgument for an option that matrices of such a size do not have.

        `largest_general`: the largest order of a batch of general matrices.
        """
        if self.condition and is_large:
            raise invalid_argument("options.condition", f"is for matrices up to n = {largest_general}, and these have "
                                   f"n = {rows}; leave it out")
        if self.top_k is not None and self.top_k > min(rows, cols):
            raise invalid_argument("options.top_k", f"must be at most min(m, n) = {min(rows, cols)}, but is {self.top_k}")
        only_small = {"fix_phases": self.fix_phases, "mimo": self.mimo is not None}
        only_large = {"pivot_strategy": self.pivot_strategy is not None, "block_variant": self.block_variant is not None}
        for name, given in (only_small if is_large else only_large).items():
            if given:
                here = "large" if is_large else "small"
                raise invalid_argument(f"options.{name}", f"is not supported for {here} matrices, and {rows}x{cols} is "
                                       f"{here} for this server{' or by its options' if is_large else ''}; leave it out")

    @property
    def is_for_large(self) -> bool:
        """Only large matrices have what it asks for, so matrices of any size go as large ones."""
        method = (self.large_method or self.method).lower()
        return (self.each_large or bool(self.signature) or self.eigenproblem == "hermitian_factor" or
                method in ("factored", "tridiagonal"))

    @property
    def is_for_small(self) -> bool:
        """Its method is one of small matrices alone."""
        return (self.large_method or self.method).lower() in ("bidiagonal", "bisection")

    @property
    def group_size(self) -> int:
        """Neighbouring matrices whose capacities are summed; a request has a multiple of it."""
        return self.mimo.group_size if self.mimo else 1

    def values_of(self, rows: int, cols: int) -> int:
        """Number of singular values, or of eigenvalues, of a matrix in the reply."""
        if self.eigenproblem:
            return rows
        if self.mimo is not None and not self.mimo.values:
            return 0
        return min(rows, cols) if self.top_k is None else self.top_k

    def title(self, plane: str) -> str:
        """The name of a plane in messages about the caller's arrays."""
        return (_EIGEN_TITLES if self.eigenproblem else _SVD_TITLES).get(plane, plane)

    def columns(self, rows: int, cols: int) -> tuple[int, int]:
        """Columns of U or of the combiners, and of V or of the precoders, in the reply."""
        if self.eigenproblem:
            return (0 if self.vectors == "none" else rows), (rows if self.vectors == "full" else 0)
        if self.vectors == "full":
            return rows, cols
        if self.vectors == "thin":
            leading = min(rows, cols) if self.top_k is None else self.top_k
            return leading, leading
        return (self.mimo.combiner_columns, self.mimo.precoder_columns) if self.mimo else (0, 0)

    def result_types(self, element: np.dtype[Any], real: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """The types of values and of vectors in the reply. `element`, `real`: the operand's on the wire."""
        if self.eigenproblem != "general":
            return real, element
        of_both = np.result_type(element, np.complex64).newbyteorder("<")
        return of_both, of_both

    def planes(self, rows: int, cols: int, element: np.dtype[Any], real: np.dtype[Any]) -> list[Plane]:
        """The arrays of a reply for matrices of this shape. `element`, `real`: the operand's types on the wire."""
        k = min(rows, cols)
        leading = k if self.top_k is None else self.top_k
        of_values, of_vectors = self.result_types(element, real)
        full = self.vectors == "full"
        planes = []
        if values := self.values_of(rows, cols):
            planes.append(Plane("singular_values", (values,), of_values))
        if self.vectors != "none":
            columns = rows if full or self.eigenproblem else leading
            planes.append(Plane("left_vectors", (rows, columns), of_vectors, is_matrix=True))
        if full or self.vectors == "thin" and not self.eigenproblem:
            planes.append(Plane("right_vectors_adjoint", (cols if full else leading, cols), of_vectors, is_matrix=True))
        if self.mimo is not None:
            planes += self._mimo_planes(self.mimo, rows, cols, element, real)
        if self.certificate != "none":
            planes.append(Plane("each_matrix", (3,), real))
        if self.condition:
            planes.append(Plane("eigenvalue_conditions", (rows,), real))
        return planes

    @staticmethod
    def _mimo_planes(mimo: Mimo, rows: int, cols: int, element: np.dtype[Any], real: np.dtype[Any]) -> list[Plane]:
        each_snr = len(mimo.snr_db)
        shapes = {"capacity": (each_snr,), "water_filling": (each_snr,), "stream_snr": (each_snr, min(rows, cols))}
        columns = [
            Plane("combiners", (rows, mimo.combiner_columns), element, is_matrix=True) if mimo.combiner_columns else None,
            Plane("precoders", (cols, mimo.precoder_columns), element, is_matrix=True) if mimo.precoder_columns else None,
        ]
        numbers = [Plane(name, shapes.get(name, ()), real, per_group=name in ("capacity", "water_filling"))
                   for name in MIMO_NUMBERS if name in mimo.numbers]
        gradients = [Plane(name, (rows, cols) if name.startswith("effective_rank") else (each_snr, rows, cols), element,
                           is_matrix=True) for name in mimo.gradients]
        return [plane for plane in columns if plane is not None] + numbers + gradients


#: The keyword of the verbs that sets a field of a request, where its name is not the last part of the field's path. Then
#: the keywords that single verbs have.
_KEYWORDS = {"signature": "j", "starting_vectors": "start", "triangle": "UPLO", "precoder_columns": "precoders",
             "combiner_columns": "combiners"}
_KEYWORDS_OF = {"precoders": {"precoder_columns": "rank"}}
_OF_MATRICES = ("matrices", "groups", "open", "chunk", "commit")  # their other fields are set by the operand


def keyword(field: str, verb: str, operand: str) -> str:
    """The keyword of a verb that sets a field: "rank" for "options.mimo.precoder_columns" of precoders().

    `operand` is the name of the matrices, such as "a".
    """
    path = field.replace("[", ".").split(".")
    name = _KEYWORDS_OF.get(verb, {}).get(path[-1]) or _KEYWORDS.get(path[-1])
    return name or (operand if path[0] in _OF_MATRICES and "options" not in path else path[-1])


#: The fields of MimoResult.
_MIMO_FIELDS = tuple(_proto.MimoResult.DESCRIPTOR.fields_by_name)
MIMO_NUMBERS: tuple[str, ...] = tuple(name for name in _MIMO_FIELDS if not name.endswith("_gradient"))
#: Those that have a gradient; its field is their name with "_gradient".
MIMO_GRADIENTS: tuple[str, ...] = tuple(name for name in MIMO_NUMBERS if f"{name}_gradient" in _MIMO_FIELDS)
_METHODS = {name.lower(): number for name, number in _proto.METHODS.items() if number}
#: The methods of each problem: of `eigenproblem`, and of an SVD without and with a signature.
_METHODS_OF = {"svd": ("auto", "bidiagonal", "bisection", "jacobi"), "hyperbolic": ("auto", "jacobi"),
               "hermitian": ("auto", "jacobi", "tridiagonal", "factored"),
               "hermitian_factor": ("auto", "factored", "jacobi"), "general": ("auto", "qr", "jacobi")}
_UNSAID = "unspecified"
_EIGENVECTORS = {"none": "NONE", "thin": "RIGHT", "full": "RIGHT_AND_LEFT"}
_SVD_TITLES = {"left_vectors": "U", "singular_values": "S", "right_vectors_adjoint": "Vh"}
_EIGEN_TITLES = {"singular_values": "eigenvalues", "left_vectors": "eigenvectors"}
_PIVOT_STRATEGIES = {name.lower(): number for name, number in _proto.PIVOT_STRATEGIES.items()}
_BLOCK_VARIANTS = {name.lower(): number for name, number in _proto.BLOCK_VARIANTS.items()}


def number(field: str, value: Any) -> float:
    """`value` as a float. Raises InvalidArgument."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise invalid_argument(field, f"must be a number, but is {value!r}") from None


def integer(value: Any, name: str) -> int:
    """`value` as an int. Raises TypeError."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: must be an integer, but is {value!r}") from None


def positive(field: str, value: Any, name: str) -> int:
    """The argument `name` as an int of at least 1. Raises InvalidArgument, or TypeError for another type."""
    if not 1 <= integer(value, name) < 2**63:
        raise invalid_argument(field, f"must be at least 1, but is {value}")
    return operator.index(value)


def snrs(snr_db: float | Iterable[float] | None) -> tuple[tuple[float, ...], bool]:
    """SNRs in dB, and whether it is one alone: its results have no dimension for it."""
    if snr_db is None:
        return (), False
    try:
        array = np.asarray(snr_db, np.float64)
    except (TypeError, ValueError):
        raise invalid_argument("options.mimo.snr_db", f"must be a number or a list of numbers, but is {snr_db!r}") from None
    if array.ndim > 1:
        raise invalid_argument("options.mimo.snr_db",
                               f"must be a number or a list of numbers, but has {array.ndim} dimensions")
    return tuple(array.reshape(-1).tolist()), array.ndim == 0
