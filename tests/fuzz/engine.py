"""One target under atheris: `python -m tests.fuzz.engine TARGET [--strict] [options and folders of libFuzzer]`.

Role: measures coverage of the modules that the target imports, and watches each input's memory (and, with --strict, its time).
Thread: atheris takes over the process. Lock: none.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import sys
import time
from collections.abc import Callable

MEMORY_PER_INPUT = 32 << 20
"""By so much one input may raise the most memory that the process has had."""
SECONDS_PER_INPUT = 1.0
"""Of the processor, which an input of some kilobytes may take; with --strict."""
WARM_INPUTS = 200
"""The first inputs load what is loaded late."""


def is_available() -> bool:
    """Whether atheris is installed: it has wheels for Linux on x86-64 only."""
    return importlib.util.find_spec("atheris") is not None


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class Watched:
    """A target whose inputs are watched."""

    def __init__(self, run: Callable[[bytes], None], strict: bool) -> None:
        self._run = run
        self._strict = strict
        self._count = 0

    def __call__(self, data: bytes) -> None:
        self._count += 1
        memory, began = peak_memory(), time.thread_time()
        self._run(data)
        if self._count <= WARM_INPUTS:
            return
        grown, took = peak_memory() - memory, time.thread_time() - began
        if grown > MEMORY_PER_INPUT:
            raise MemoryError(f"an input of {len(data)} bytes took {grown >> 20} MiB")
        if self._strict and took > SECONDS_PER_INPUT:
            raise TimeoutError(f"an input of {len(data)} bytes took {took:.1f} s")


def main(arguments: list[str]) -> None:
    os.environ["BARNABAS_NATIVE"] = "0"  # what is to be measured must be Python; compiled forms are compared with it
    import atheris

    import barnabas  # noqa: F401  # first its own finder of modules, then the one of atheris in front of it

    name, *options = arguments
    strict = "--strict" in options
    with atheris.instrument_imports(include=["barnabas"]):
        from tests.fuzz.target import Target

        target = Target(name)
    target.instrument(atheris.instrument_func)
    options = [option for option in options if option != "--strict"] + [f"-max_len={target.max_length}"]
    mutator = {"custom_mutator": target.mutate} if target.mutate is not None else {}
    atheris.Setup([name, *options], Watched(target.run, strict), **mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
