"""The verbs of AsyncClient, made of Client's: their arguments, defaults and documents are written once.

Type checkers read _aio_verbs.pyi instead, which client/python/aio_stub.py writes from Client's signatures.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Coroutine

from ._client import Client

VERBS = ("svdvals", "svd", "hsvd", "eigh", "eigvalsh", "eigh_factored", "eig", "eigvals", "capacity", "precoders", "mimo")


def _awaited(verb: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The verb as a coroutine: it ends in _run(), which gives a coroutine here."""

    @functools.wraps(verb)
    async def call(self: Any, *arguments: Any, **options: Any) -> Any:
        return await verb(self, *arguments, **options)

    document = f"Client.{verb.__name__}, to be awaited.\n\n        {verb.__doc__}"
    call.__doc__ = document.partition("        Example:")[0].rstrip()  # the example is one of Client
    return call


class AsyncVerbs:
    """The calls for decompositions. AsyncClient has the rest of a client."""


for _name in VERBS:
    setattr(AsyncVerbs, _name, _awaited(getattr(Client, _name)))
    getattr(AsyncVerbs, _name).__qualname__ = f"AsyncClient.{_name}"
