"""Which form of the request path, of the record kernel and of the codec runs: compiled, or plain Python.

Role: most modules listed here are ordinary Python. When the package is built with a C compiler they are also compiled (`setup.py`), and
the compiled twin beside the source is what gets imported. The request path is compiled by mypyc: the same code, about a third less time
per request. It is all or nothing, because a compiled function accepts compiled objects only. The record kernel is compiled by Cython:
the loops over records and batches, at the speed of C. It is all or nothing too, because its modules call each other below Python.
`BARNABAS_NATIVE=0` chooses plain Python for all; so does, in a checkout, a source file that is newer than its twin.
Thread: whoever imports first. Lock: the import system's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

MODULES = (
    "barnabas.broker.apis.fetch",
    "barnabas.broker.apis.partition_lookup",
    "barnabas.broker.apis.produce",
    "barnabas.broker.fetch_sessions",
    "barnabas.broker.handlers",
    "barnabas.broker.log.arrivals",
    "barnabas.broker.log.cleaner",
    "barnabas.broker.log.durability",
    "barnabas.broker.log.epochs",
    "barnabas.broker.log.expansion",
    "barnabas.broker.log.flusher",
    "barnabas.broker.log.housekeeping",
    "barnabas.broker.log.index",
    "barnabas.broker.log.partition_log",
    "barnabas.broker.log.places",
    "barnabas.broker.log.producer_state",
    "barnabas.broker.log.reading",
    "barnabas.broker.log.record_validation",
    "barnabas.broker.log.results",
    "barnabas.broker.log.segment",
    "barnabas.broker.log.transactions",
    "barnabas.broker.log.validation",
    "barnabas.broker.log.waiters",
    "barnabas.broker.metrics_http",
    "barnabas.broker.network.acceptor",
    "barnabas.broker.network.baton",
    "barnabas.broker.network.heavy_lane",
    "barnabas.broker.network.intake",
    "barnabas.broker.network.mailbox",
    "barnabas.broker.network.outbox",
    "barnabas.broker.network.processor",
    "barnabas.broker.network.request",
    "barnabas.broker.network.request_channel",
    "barnabas.broker.network.short_cut",
    "barnabas.broker.network.stand_in",
    "barnabas.broker.network.time_share",
    "barnabas.broker.purgatory.delayed",
    "barnabas.broker.purgatory.timing_wheel",
    "barnabas.broker.request_metrics",
    "barnabas.broker.topic_metrics",
    "barnabas.net.channel",
    "barnabas.net.channel_table",
    "barnabas.net.connecting",
    "barnabas.net.deadlines",
    "barnabas.net.frame",
    "barnabas.net.mute",
    "barnabas.net.pace",
    "barnabas.net.read_on",
    "barnabas.net.reading",
    "barnabas.net.results",
    "barnabas.net.selector",
    "barnabas.net.send",
    "barnabas.net.sending",
    "barnabas.net.transport",
    "barnabas.protocol.codec",
    "barnabas.protocol.header",
    "barnabas.threads",
)
"""What is compiled. A class whose base is here must be here too: interpreted classes cannot inherit from compiled ones."""

KERNEL = (
    "barnabas.broker.request_figures",
    "barnabas.records.kernel.builder",
    "barnabas.records.kernel.checksum",
    "barnabas.records.kernel.compaction",
    "barnabas.records.kernel.fetched",
    "barnabas.records.kernel.record_layout",
    "barnabas.records.kernel.runs",
    "barnabas.records.kernel.scan",
    "barnabas.records.kernel.send_path",
    "barnabas.records.kernel.turns",
)
"""The record kernel, and what is counted for every request. Independent of the request path: they take and give plain objects only."""

CODEC = ("barnabas.protocol.native.layout", "barnabas.protocol.native.plan")
"""The codec in C, also compiled by Cython. It has no plain form: without it `codec` writes and compiles Python source."""

_CODEC_INCLUDES = ("layout.pxd", "slots.pxd")

_KERNEL_INCLUDES = (
    "builder.pxd",
    "builder_memory.pxd",
    "checksum.pxd",
    "crc32c.h",
    "crc32c.pxd",
    "fetched.pxd",
    "runs.pxd",
    "send_path.pxd",
    "siphash.pxd",
    "turn_lock.pxd",
    "turns.pxd",
    "wire.pxd",
)
"""What the kernel's modules are compiled from beside their own sources."""

SWITCH = "BARNABAS_NATIVE"
PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__))


def source_of(module: str) -> str:
    """The path of a module's source."""
    return os.path.join(PACKAGE_DIR, *module.split(".")[1:]) + (".pyx" if module in CODEC else SOURCE_SUFFIXES[0])


@cache
def is_native() -> bool:
    """Whether the compiled request path runs in this process; decided once, when the first of its modules is imported."""
    return _wanted() and all(map(_has_good_twin, MODULES))


@cache
def is_kernel_native() -> bool:
    """Whether the compiled record kernel runs in this process; decided once, when the first of its modules is imported."""
    return _wanted() and all(_has_good_twin(module, _KERNEL_INCLUDES) for module in KERNEL)


@cache
def is_codec_native() -> bool:
    """Whether messages are written and read in C in this process; decided once, when the codec is imported."""
    return _wanted() and all(_has_good_twin(module, _CODEC_INCLUDES) for module in CODEC)


def forms() -> dict[str, bool]:
    """Which parts run compiled in this process, by name."""
    return {"request path": is_native(), "record kernel": is_kernel_native(), "codec": is_codec_native()}


def _wanted() -> bool:
    return os.environ.get(SWITCH, "1") != "0"


def _has_good_twin(module: str, includes: Sequence[str] = ()) -> bool:
    source = source_of(module)
    stem = os.path.splitext(source)[0]
    twin = stem + EXTENSION_SUFFIXES[0]
    declarations = os.path.basename(stem) + ".pxd"
    sources = [source, *(os.path.join(os.path.dirname(source), name) for name in (*includes, declarations))]
    try:
        built = os.stat(twin).st_mtime
        return not _in_checkout() or built >= max(os.stat(path).st_mtime for path in sources if os.path.exists(path))
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
        runs_compiled = _FORMS.get(name)
        if runs_compiled is None or path is None or runs_compiled():
            return None
        return FileFinder(next(iter(path)), (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)


_FORMS: dict[str, Callable[[], bool]] = {
    **dict.fromkeys(MODULES, is_native),
    **dict.fromkeys(KERNEL, is_kernel_native),
}


def install() -> None:
    """Let imports of the listed modules follow the switch. Called by the package itself."""
    sys.meta_path.insert(0, _SourceFinder)
