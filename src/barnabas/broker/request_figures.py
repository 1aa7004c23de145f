"""The figures of the requests of one API: how many there were, where their time went, how large they were.

Role: what is counted for every request (RP-31), in memory that is not Python's; `request_metrics` says whose figures these are, merges
them and shows them. Plain Python for Cython: compiled with the record kernel, and the same without.
Thread: `record` belongs to one writer; any thread may read, and sees each number before or after an update. Lock: none.

The stamps of a request cut its life into parts whose sum is its total, by construction. A part of zero is not counted in its bucket: what
the others leave of the count is.
"""

from __future__ import annotations

from array import array

from barnabas.metrics import BUCKETS, Histogram, bucket_upper_bound

try:
    import cython
except ImportError:
    from barnabas.records.kernel import shadow as cython

PARTS = ("queue", "local", "remote", "throttle", "response_queue", "send", "total")

Stamps = tuple[int, int, int, int, int, int]
"""Of a request, in the order of its life (ns): start, dequeue, local_done, complete, response_dequeue, end."""

_BYTES = cython.declare(cython.Py_ssize_t, len(PARTS))  # the row after those of the parts
_ROWS = len(PARTS) + 1
_ROW = cython.declare(cython.Py_ssize_t, BUCKETS)
_WORD_BYTES = 8
_LOW_64 = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)


@cython.cclass
class RequestFigures:
    """See the file header."""

    _buckets: cython.longlong[::1]
    _sums: cython.ulonglong[::1]
    _carries: cython.longlong[::1]  # a thousand consumers that wait fill 64 bits of nanoseconds in seven months
    _count: cython.longlong

    def __init__(self) -> None:
        self._buckets = array("q", bytes(_WORD_BYTES * _ROWS * BUCKETS))
        self._sums = array("Q", bytes(_WORD_BYTES * _ROWS))
        self._carries = array("q", bytes(_WORD_BYTES * _ROWS))
        self._count = 0

    def record(self, stamps: Stamps, throttle: cython.longlong, size: cython.longlong) -> tuple[int, ...]:
        """Count a request by its stamps; its parts, in the order of PARTS. Stamps that were not reached, or that two threads set in the
        other order, count as the one before them, so that no part is negative."""
        start: cython.longlong = stamps[0]
        dequeue: cython.longlong = stamps[1]
        local_done: cython.longlong = stamps[2]
        complete: cython.longlong = stamps[3]
        response_dequeue: cython.longlong = stamps[4]
        end: cython.longlong = stamps[5]
        if dequeue < start:
            dequeue = start
        if complete < dequeue:
            complete = dequeue
        if local_done < dequeue or local_done > complete:
            local_done = complete
        if response_dequeue < complete:
            response_dequeue = complete
        if end < response_dequeue:
            end = response_dequeue
        self._count += 1
        self._add(0, dequeue - start)
        self._add(1, local_done - dequeue)
        self._add(2, complete - local_done)
        self._add(3, throttle)
        self._add(4, response_dequeue - complete)
        self._add(5, end - response_dequeue)
        self._add(6, end - start + throttle)
        self._add(_BYTES, size)
        return (
            dequeue - start,
            local_done - dequeue,
            complete - local_done,
            throttle,
            response_dequeue - complete,
            end - response_dequeue,
            end - start + throttle,
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _add(self, row: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
        """The bucket is that of `barnabas.metrics.bucket_of`."""
        shift: cython.Py_ssize_t = 0
        bucket: cython.Py_ssize_t
        if value > 0:
            while value >> shift >= 16:
                shift += 1
            bucket = (shift << 3) + (value >> shift)
            self._buckets[row * _ROW + (bucket if bucket < _ROW else _ROW - 1)] += 1
            self._add_to_sum(row, value)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _add_to_sum(self, row: cython.Py_ssize_t, value: cython.ulonglong) -> cython.void:
        total: cython.ulonglong = (self._sums[row] + value) & _LOW_64
        if total < value:
            self._carries[row] += 1
        self._sums[row] = total

    @property
    def count(self) -> int:
        return int(self._count)

    def merge(self, other: RequestFigures) -> None:
        """Add what another shard has; `self` must be private to the caller."""
        at: cython.Py_ssize_t
        self._count += other._count
        for at in range(len(self._buckets)):
            self._buckets[at] += other._buckets[at]
        for at in range(len(self._sums)):
            self._carries[at] += other._carries[at]
            self._add_to_sum(at, other._sums[at])

    def histogram(self, part: str) -> Histogram:
        """One part as a histogram in ns."""
        return self._histogram(PARTS.index(part))

    def request_bytes(self) -> Histogram:
        return self._histogram(_BYTES)

    def _histogram(self, row: int) -> Histogram:
        carries: int = self._carries[row]
        found = Histogram()
        found.buckets = [self._buckets[at] for at in range(row * BUCKETS, (row + 1) * BUCKETS)]
        found.buckets[0] = max(0, self._count - sum(found.buckets[1:]))
        found.count = self._count
        found.sum = (carries << 64) + self._sums[row]
        found.max = next((bucket_upper_bound(i) for i in range(BUCKETS - 1, -1, -1) if found.buckets[i]), 0)
        return found

    def __repr__(self) -> str:
        return f"<RequestFigures count={self._count}>"
