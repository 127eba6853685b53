"""svdserve: SVDs and eigenproblems of many small matrices and of large ones, and MIMO capacities.

    >>> import numpy as np, svdserve
    >>> with svdserve.Client(address) as client:
    ...     client.svdvals(np.full((2, 3, 3), 2.0)).round(12)
    array([[6., 0., 0.],
           [6., 0., 0.]])

Client is the blocking client, AsyncClient the one for asyncio. local() starts a private server for its client. Failed calls
raise Error or one of its subclasses.
"""

from importlib.metadata import version as _version

from ._client import Client
from ._local import LocalClient, local
from ._narrow import as_operand
from .aio import AsyncClient
from .errors import (Cancelled, DeadlineExceeded, Error, FieldViolation, Internal, InvalidArgument, Overloaded,
                     Unauthenticated, Unavailable, Unimplemented)
from .values import (CapacityPlan, Certificate, Device, DeviceCost, EighResult, EigLeftResult, EigResult, LargeSummary,
                     Limits, MatrixStatus, MimoResult, Phase, Progress, RetryPolicy, ServerInfo, SVDResult, Tls)

__version__ = _version("svdserve")

__all__ = [
    "AsyncClient", "Cancelled", "CapacityPlan", "Certificate", "Client", "DeadlineExceeded", "Device", "DeviceCost",
    "EigLeftResult", "EigResult", "EighResult", "Error", "FieldViolation", "Internal", "InvalidArgument", "LargeSummary",
    "Limits", "LocalClient", "MatrixStatus", "MimoResult", "Overloaded", "Phase", "Progress", "RetryPolicy", "SVDResult",
    "ServerInfo", "Tls", "Unauthenticated", "Unavailable", "Unimplemented", "__version__", "as_operand", "local",
]
