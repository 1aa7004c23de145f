"""Threads that read and sync a segment while others give up its file: a program of its own, for test_concurrency.py.

Ends with status 1 and what went wrong when anybody met a file that was closed, or another one.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable

from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.segment import Segment

SECONDS = 1.0
CONTENT = bytes(range(256)) * 16


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        segment = Segment(FileSystem(), directory, 0)
        segment.create()
        segment.file().use(FileSystem().pwritev, (CONTENT,), 0)
        segment.size = len(CONTENT)

        def read() -> None:
            assert segment.read(256, 256) == CONTENT[256:512]

        failures = together(read, read, segment.sync_data, segment.release, segment.release)
    sys.exit("\n".join(map(repr, failures)) if failures else 0)


def together(*works: Callable[[], object]) -> list[BaseException]:
    """Each again and again on a thread of its own, with as many switches between them as can be had."""
    over = threading.Event()
    failures: list[BaseException] = []

    def repeat(work: Callable[[], object]) -> None:
        while not over.is_set():
            try:
                work()
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=repeat, args=(work,), daemon=True) for work in works]
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    over.wait(SECONDS)
    over.set()
    for thread in threads:
        thread.join(20)
    return failures


if __name__ == "__main__":
    main()
