"""What a target is, and what it shares with others: comparing the two forms of the kernel, and outcomes as values."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from barnabas import native
from tests.records.kernel.forms import COMPILED, Kernel, load

HERE = Path(__file__).parent
NAMES = (
    "batches",
    "compression",
    "fetched",
    "frames",
    "http",
    "lines",
    "logs",
    "offsets",
    "requests",
    "responses",
    "scan",
    "settings",
)
"""The targets; each is a module of tests/fuzz/targets."""

Instrument = Callable[[Callable[..., Any]], Callable[..., Any]]
Mutator = Callable[[bytes, int, int], bytes]


class Finding(AssertionError):
    """An input broke a promise. Any other exception that leaves a target is a finding too."""


class Target:
    """One target: its module, and where its inputs are kept."""

    def __init__(self, name: str) -> None:
        if name not in NAMES:
            raise KeyError(f"there is no target {name}; there are: {', '.join(NAMES)}")
        self.name = name
        self.module: ModuleType = importlib.import_module(f"tests.fuzz.targets.{name}")

    @property
    def run(self) -> Callable[[bytes], None]:
        return self.module.run  # type: ignore[no-any-return]

    @property
    def max_length(self) -> int:
        """Longer inputs are not tried."""
        return getattr(self.module, "MAX_LENGTH", 4096)

    @property
    def mutate(self) -> Mutator | None:
        """A mutator that knows the format, if there is one."""
        return getattr(self.module, "mutate", None)

    def seeds(self) -> dict[str, bytes]:
        return self.module.seeds()  # type: ignore[no-any-return]

    def instrument(self, with_coverage: Instrument) -> None:
        """Functions that are made at run time, which the import hook does not see."""
        hook = getattr(self.module, "instrument", None)
        if hook is not None:
            hook(with_coverage)


def corpus_of(name: str) -> Path:
    return HERE / "corpus" / name


def findings_of(name: str) -> Path:
    return HERE / "findings" / name


class Outcome(NamedTuple):
    """What a call came to: a value, or the error that it may raise."""

    value: Any = None
    error: str = ""


def outcome(allowed: tuple[type[BaseException], ...], call: Callable[..., Any], *arguments: Any) -> Outcome:
    """Other errors than the allowed ones go through: they are findings."""
    try:
        return Outcome(call(*arguments))
    except allowed as error:
        return Outcome(error=f"{type(error).__name__}: {error}")


def must(condition: object, text: str) -> None:
    if not condition:
        raise Finding(text)


@cache
def compiled_kernel() -> Kernel | None:
    """The record kernel in C beside the plain one; None when it was not built."""
    return load(COMPILED)


class KernelUsers:
    """Modules that call the record kernel, which is plain in this process; `compiled()` lets them call the compiled one for a while."""

    def __init__(self, *modules: ModuleType) -> None:
        kernel = compiled_kernel()
        self._swaps: list[tuple[ModuleType, str, Any, Any]] = []
        if kernel is not None:
            self._swaps = [
                (module, name, value, getattr(kernel.module(value.__module__), name))
                for module in modules
                for name, value in vars(module).items()
                if getattr(value, "__module__", None) in native.KERNEL
            ]

    @property
    def both(self) -> bool:
        return bool(self._swaps)

    @contextmanager
    def compiled(self) -> Iterator[None]:
        for module, name, _, value in self._swaps:
            setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, value, _ in self._swaps:
                setattr(module, name, value)


class Reader:
    """Takes numbers and pieces from the front of an input; behind its end there are zeros and empty pieces."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        value = self.data[self.at] if self.at < len(self.data) else 0
        self.at += 1
        return value

    def piece(self) -> bytes:
        """A piece with its length, two bytes, in front."""
        size = self.byte() << 8 | self.byte()
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def rest(self) -> bytes:
        return self.data[self.at :]


def piece(data: bytes) -> bytes:
    """What `Reader.piece` reads."""
    return len(data).to_bytes(2, "big") + data
