"""What a Python that Spark starts must have. Role: says plainly which one is missing, and where. Thread: any. Lock: none."""

from __future__ import annotations

import importlib.util
import socket
import sys

from barnabas.errors import BarnabasError

__all__ = ["MissingOnWorker", "require_arrow"]


class MissingOnWorker(BarnabasError, ImportError):
    """The Python that runs Spark's workers lacks a package."""


def require_arrow() -> None:
    """Raise unless this Python has pyarrow. Spark plans queries in processes that run the workers' Python, not the driver's."""
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingOnWorker(
            f"pyarrow is missing in the Python that Spark runs its workers with, {sys.executable} on {socket.gethostname()}: install it "
            f'there ({sys.executable} -m pip install "barnabas[spark]"), or set PYSPARK_PYTHON to a Python that has it. '
            "`barnabas doctor spark` looks at every worker"
        )
