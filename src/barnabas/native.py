"""Which form of the request path runs: compiled by mypyc, or plain Python.

Role: the modules listed here are ordinary typed Python. When the package is built with a C compiler they are also compiled
(`setup.py`), and the compiled twin beside the source is what gets imported: the same code, about a third less time per request. It is
all or nothing, because a compiled function accepts compiled objects only. `BARNABAS_NATIVE=0` chooses plain Python; so does, in a
checkout, a source file that is newer than its twin.
Thread: whoever imports first. Lock: the import system's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

MODULES = (
    "barnabas.broker.apis.fetch",
    "barnabas.broker.apis.produce",
    "barnabas.broker.fetch_sessions",
    "barnabas.broker.handlers",
    "barnabas.broker.log.flusher",
    "barnabas.broker.log.housekeeping",
    "barnabas.broker.log.partition_log",
    "barnabas.broker.log.producer_state",
    "barnabas.broker.log.results",
    "barnabas.broker.log.segment",
    "barnabas.broker.log.waiters",
    "barnabas.broker.metrics_http",
    "barnabas.broker.network.acceptor",
    "barnabas.broker.network.baton",
    "barnabas.broker.network.processor",
    "barnabas.broker.network.request",
    "barnabas.broker.network.request_channel",
    "barnabas.broker.network.throttling",
    "barnabas.broker.network.time_share",
    "barnabas.broker.purgatory.delayed",
    "barnabas.broker.purgatory.timing_wheel",
    "barnabas.broker.request_metrics",
    "barnabas.broker.topic_metrics",
    "barnabas.net.channel",
    "barnabas.net.channel_table",
    "barnabas.net.deadlines",
    "barnabas.net.frame",
    "barnabas.net.mute",
    "barnabas.net.results",
    "barnabas.net.selector",
    "barnabas.net.send",
    "barnabas.net.transport",
    "barnabas.protocol.codec",
    "barnabas.protocol.header",
    "barnabas.threads",
)
"""What is compiled. A class whose base is here must be here too: interpreted classes cannot inherit from compiled ones."""

SWITCH = "BARNABAS_NATIVE"
PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__))


def source_of(module: str) -> str:
    """The path of a module's source."""
    return os.path.join(PACKAGE_DIR, *module.split(".")[1:]) + SOURCE_SUFFIXES[0]


@cache
def is_native() -> bool:
    """Whether the compiled form runs in this process; decided once, when the first of the modules is imported."""
    return os.environ.get(SWITCH, "1") != "0" and all(map(_has_good_twin, MODULES))


def _has_good_twin(module: str) -> bool:
    source = source_of(module)
    twin = source.removesuffix(SOURCE_SUFFIXES[0]) + EXTENSION_SUFFIXES[0]
    try:
        return os.stat(twin).st_mtime >= os.stat(source).st_mtime or not _in_checkout()
    except OSError:
        return False


@cache
def _in_checkout() -> bool:
    """Only there does a source change under its twin; an installer may unpack the two in any order."""
    return os.path.exists(os.path.join(PACKAGE_DIR, "..", "..", "pyproject.toml"))


class _SourceFinder:
    """Finds the listed modules' sources when plain Python is wanted; the import system would prefer the twins."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _NAMES or path is None or is_native():
            return None
        return FileFinder(next(iter(path)), (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)


_NAMES = frozenset(MODULES)


def install() -> None:
    """Let imports of the listed modules follow the switch. Called by the package itself."""
    sys.meta_path.insert(0, _SourceFinder)
