"""Arrays of other libraries: what a verb is given becomes NumPy's, and its results become what it was given.

torch, JAX, CuPy, Dask, and every library with the array API standard are known. None of them is imported here: one that has
made an array is there already.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, Callable, Protocol, TypeVar

import numpy as np

from ._narrow import BF16, C32

if TYPE_CHECKING:
    from ._calls import Call


# Arrays of other libraries, as type checkers know them.


class _OfDlpack(Protocol):
    """torch's and those of the array API standard. NumPy's devices are no enumerations."""

    def __dlpack_device__(self) -> tuple[enum.Enum, int]: ...


class _OfJax(Protocol):
    def block_until_ready(self) -> Any: ...


class _OfDask(Protocol):
    def rechunk(self) -> Any: ...


Foreign = _OfDlpack | _OfJax | _OfDask
A = TypeVar("A", bound=Foreign)

#: A NumPy array, which nobody else has, as an array of the library and on the device that an operand is of.
Back = Callable[[np.ndarray], Any]
Taken = tuple[Any, Back | None]

_COMMON = frozenset({np.ndarray, list, tuple, int, float, complex, bool, str, type(None)})  # these are told at a glance


def of_any_kind(make: Callable[..., Call]) -> Callable[..., Call]:
    """Has a maker of calls, whose first argument is the operand, take and return arrays of any library.

    An array or a list of arrays decides of which kind the results are. Other arguments are taken only.
    """
    names = list(inspect.signature(make).parameters)

    @functools.wraps(make)
    def call(*arguments: Any, **options: Any) -> Call:
        operand, backs = _operand(arguments[0], names[0])
        others = [host(value, name)[0] for value, name in zip(arguments[1:], names[1:])]
        options = {name: value if name == "out" else host(value, name)[0] for name, value in options.items()}
        if any(backs) and "copy" in options:
            options["copy"] = True  # torch has no arrays that are read-only
        made = make(operand, *others, **options)
        made.backs = tuple(backs)
        return made

    return call


def _operand(a: Any, name: str) -> tuple[Any, list[Back | None]]:
    """An operand for NumPy; and how an array becomes one of its kind, for each element if it is a list of arrays."""
    if isinstance(a, list) and any(_is_foreign(x) for x in a):
        taken = [host(x, f"{name}[{i}]") for i, x in enumerate(a)]
        return [x for x, _ in taken], [back for _, back in taken]
    array, back = host(a, name)
    return array, [back]


def _is_foreign(a: Any) -> bool:
    return type(a) not in _COMMON and not isinstance(a, np.ndarray | np.generic)


def host(a: Any, name: str) -> Taken:
    """`a` as NumPy takes it, without a copy where it is in the host's memory, and a function for the way back. That is None
    if `a` is no array of another library.

    Raises TypeError for an array that cannot be taken: it says what to pass instead of `name`.
    """
    if not _is_foreign(a):
        return a, None
    for module, (its_array, take) in _LIBRARIES.items():
        library = sys.modules.get(module)
        if isinstance(a, getattr(library, its_array, ())):  # one that is just being imported has none yet
            return take(library, a, name)
    if hasattr(a, "__array_namespace__"):
        namespace, device = a.__array_namespace__(), a.device
        return _from_dlpack(a, name), lambda array: namespace.asarray(array, device=device)
    return (_from_dlpack(a, name), None) if hasattr(a, "__dlpack_device__") else (a, None)


def _torch(torch: Any, a: Any, name: str) -> Taken:
    if a.requires_grad and torch.is_grad_enabled():
        raise TypeError(f"{name}: requires gradients, which would be lost here; svdserve.torch has functions that keep "
                        f"them. Without them pass {name}.detach(), or call under torch.no_grad()")
    if a.layout is not torch.strided:
        raise TypeError(f"{name}: must be a dense tensor, but its layout is {a.layout}; pass {name}.to_dense()")
    return _numpy_of(torch, a.detach().to("cpu")), lambda array: torch.from_numpy(array).to(a.device)


def _numpy_of(torch: Any, tensor: Any) -> np.ndarray:
    """A tensor in the host's memory, without a copy unless it is a conjugate or negative view."""
    if tensor.dtype == torch.bfloat16:  # NumPy has neither it nor complex32
        return np.asarray(tensor.resolve_neg().view(torch.int16).numpy().view(BF16))
    if tensor.dtype == torch.complex32 and not tensor.is_conj():
        return np.asarray(torch.view_as_real(tensor.resolve_neg()).numpy().view(C32)[..., 0])
    if tensor.dtype == torch.complex32:
        tensor = tensor.to(torch.complex64)  # torch conjugates no others on a CPU
    return np.asarray(tensor.resolve_conj().resolve_neg().numpy())


def _jax(jax: Any, a: Any, name: str) -> Taken:
    if isinstance(a, jax.core.Tracer):
        raise TypeError(f"{name}: is traced by JAX, and a call of a Client cannot be. svdserve.jax has functions for "
                        "jax.jit and jax.grad, and jax.pure_callback calls any other")
    devices = a.devices()
    place = next(iter(devices)) if len(devices) == 1 else None
    return np.asarray(a), lambda result: jax.device_put(result, place)


def _cupy(cupy: Any, a: Any, name: str) -> Taken:
    def back(array: np.ndarray) -> Any:
        with a.device:
            return cupy.asarray(array)

    return a.get(), back


def _dask(dask_array: Any, a: Any, name: str) -> Taken:
    array, leading = np.asarray(a.compute()), a.chunks[:-2]

    def back(result: np.ndarray) -> Any:
        known = result.shape[:len(leading)] == tuple(sum(sizes) for sizes in leading)
        chunks = (*leading, *((size,) for size in result.shape[len(leading):])) if known else -1
        return dask_array.from_array(result, chunks=chunks)

    return array, back


#: Module, the name of its array, and how one is taken.
_LIBRARIES: dict[str, tuple[str, Callable[[Any, Any, str], Taken]]] = {
    "torch": ("Tensor", _torch), "jax": ("Array", _jax), "cupy": ("ndarray", _cupy), "dask.array": ("Array", _dask)}

_HOST_DEVICES = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost


def _from_dlpack(a: Any, name: str) -> np.ndarray:
    try:
        if a.__dlpack_device__()[0] in _HOST_DEVICES:
            return np.from_dlpack(a)
        return np.from_dlpack(a, device="cpu")  # NumPy 2.1 asks for a copy
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise TypeError(f"{name}: {type(a).__name__} cannot be copied to the host's memory by DLPack ({error}); pass it as "
                        "a NumPy array") from error


def returned(value: Any, back: Back | None) -> Any:
    """A verb's result with its arrays, however deep, of the kind that `back` makes."""
    if back is None:
        return value
    if isinstance(value, np.ndarray | np.generic):
        return back(np.asarray(value))
    if isinstance(value, tuple | list):
        items = [returned(item, back) for item in value]
        make = getattr(value, "_make", None)
        if make is None:
            return type(value)(items)
        named = make(items)
        vars(named).update({name: returned(item, back) for name, item in vars(value).items()})
        return named
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        arrays = {name: item for name, item in vars(value).items() if not isinstance(item, str | int | float)}
        return dataclasses.replace(value, **{name: returned(item, back) for name, item in arrays.items()})
    return value
