"""The history: one JSON object per line, one line per operation that has ended.

    {"f": "send",   "process": "w0", "outcome": "ok", "start": 1200, "end": 4100, "ops": [["send", "t-0", 17, ["w0", 3, 2868…]]]}
    {"f": "poll",   "process": "r0", "outcome": "ok", "start": …, "end": …, "ops": [["poll", "t-0", 17, ["w0", 3, 2868…]], …]}
    {"f": "txn",    "process": "c0", "outcome": "fail", …, "ops": [["poll", …], ["send", …], …]}
    {"f": "assign", "process": "r0", "isolation": "read_committed"}     the position of this consumer is set anew; or "subscribe"
    {"f": "open",   "process": "w1", "idempotent": false}               of a producer that may duplicate; all others may not
    {"f": "trim",   "partition": "t-0", "before": 500}                  records below may be gone from here on (retention, DeleteRecords)
    {"f": "fault",  "text": "kill -9"}                                  a note for the reader of the file

`outcome` says what became of the whole operation: `ok` it took place (a transaction: committed), `fail` it certainly did not (aborted),
`info` nobody knows. A micro-operation is [kind, partition, offset, value]: the offset of a send is null when it is not known, and the
value is [producer, seq, crc] (values.py). A fifth element is the record's key in a compacted topic: a later record with that key may
remove this one. Times are microseconds of the monotonic clock, which all processes of a machine share. Operations of one consumer
stand in its order; sends stand in the order of their answers, their own order is the value's seq.

Role: writes the file. Thread: any. Lock: `_lock`, over the write of one line into a buffer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Self

from tests.history.values import Value

Outcome = Literal["ok", "fail", "info"]
MicroOp = Sequence[object]


def now_us() -> int:
    return time.monotonic_ns() // 1000


class History:
    """Writes a history. A context manager: the file is complete when the block ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file = path.open("w", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._file.close()

    # What happened

    def sent(
        self, process: str, outcome: Outcome, start: int, send: tuple[str, int | None, Value], key: str | None = None
    ) -> None:
        """One record was sent outside transactions: (partition, offset if known, value)."""
        self.operation("send", process, outcome, start, [["send", *send, *([key] if key is not None else [])]])

    def polled(self, process: str, start: int, records: Iterable[tuple[str, int, Value]]) -> None:
        """A consumer got these records, in this order: (partition, offset, value)."""
        self.operation("poll", process, "ok", start, [["poll", *record] for record in records])

    def operation(self, f: str, process: str, outcome: Outcome, start: int, ops: Sequence[MicroOp]) -> None:
        """An operation of one or, for a transaction, of several micro-operations, which ends now."""
        self._write({"f": f, "process": process, "outcome": outcome, "start": start, "end": now_us(), "ops": ops})

    # What the checker has to know besides

    def assigned(self, process: str, isolation: str = "read_committed", subscribed: bool = False) -> None:
        self._write({"f": "subscribe" if subscribed else "assign", "process": process, "isolation": isolation})

    def opened(self, process: str, idempotent: bool) -> None:
        self._write({"f": "open", "process": process, "idempotent": idempotent})

    def trimmed(self, partition: str, before: int) -> None:
        self._write({"f": "trim", "partition": partition, "before": before})

    def fault(self, text: str) -> None:
        self._write({"f": "fault", "text": text, "start": now_us()})

    def _write(self, fields: dict[str, object]) -> None:
        line = json.dumps(fields, separators=(",", ":")) + "\n"
        with self._lock:
            if not self._file.closed:  # what is still told after the end of a failed test interests nobody
                self._file.write(line)

    def __repr__(self) -> str:
        return f"<History {self.path}>"
