"""Writes src/svdserve/_aio_verbs.pyi, the types of AsyncClient's verbs, from the signatures of Client.

    python3 client/python/aio_stub.py            # writes it
    python3 client/python/aio_stub.py --check    # exit status 1 where it is not up to date
"""

import ast
import pathlib
import sys

PACKAGE = pathlib.Path(__file__).parent / "src" / "svdserve"
STUB = PACKAGE / "_aio_verbs.pyi"
HEAD = """# Written by client/python/aio_stub.py from the signatures of Client.
from collections.abc import Iterable
from typing import Literal, Unpack, overload

import numpy.typing as npt

from ._arrays import A, Foreign
from ._client import (Eigenvalues, Stacks, Statuses, Values, Vectors, _Capacity, _Eig, _Eigh, _EighFactored, _Eigvals,
                      _Eigvalsh, _Hsvd, _Mimo, _Precoders, _Svd, _Svdvals)
from .values import EighResult, EigLeftResult, EigResult, MimoResult, SVDResult

VERBS: tuple[str, ...]

class AsyncVerbs:
"""


def verbs():
    """The names in VERBS."""
    for node in ast.parse((PACKAGE / "_aio_verbs.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "VERBS":
            return ast.literal_eval(node.value)
    sys.exit("aio_stub: _aio_verbs.py has no VERBS")


def plain(client, name):
    """The one signature of a verb without overloads, its defaults left out."""
    (node,) = (node for node in client.body if isinstance(node, ast.FunctionDef) and node.name == name)
    node.args.defaults = [ast.Constant(...) for _ in node.args.defaults]
    node.args.kw_defaults = [default and ast.Constant(...) for default in node.args.kw_defaults]
    return node


def stub():
    """Each overload of a verb, awaited."""
    tree = ast.parse((PACKAGE / "_client.py").read_text(encoding="utf-8"))
    (client,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Client")
    out = HEAD
    for name in verbs():
        overloads = [node for node in client.body if isinstance(node, ast.FunctionDef) and node.name == name
                     and any(getattr(d, "id", "") == "overload" for d in node.decorator_list)]
        for node in overloads or [plain(client, name)]:
            arguments, returns = ast.unparse(node.args), ast.unparse(node.returns)
            out += "    @overload\n" * bool(overloads) + f"    async def {name}({arguments}) -> {returns}: ...\n"
    return out


def main():
    wanted = stub()
    if sys.argv[1:] == ["--check"]:
        if not STUB.exists() or STUB.read_text(encoding="utf-8") != wanted:
            print(f"{STUB.name} is not what Client's signatures give: run client/python/aio_stub.py")
            return 1
        return 0
    STUB.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
