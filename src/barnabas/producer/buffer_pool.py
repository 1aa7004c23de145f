"""The memory of a producer: at most `buffer.memory` bytes, handed out as buffers (PP-6).

Role: buffers of `batch.size` are kept and used again, others are made and dropped. When nothing is left, callers wait in the order
in which they came, each at most as long as it says; memory that comes back goes to the first of them until it has enough.
Thread: any. Lock: `_lock` guards everything; waiting lets go of it. A buffer is made outside of it.
"""

from __future__ import annotations

import threading
from collections import deque

from barnabas.clock import Clock
from barnabas.producer.errors import BufferExhausted, ProducerClosed, RecordTooLarge

__all__ = ["BufferPool"]


class BufferPool:
    """See the file header."""

    def __init__(self, total: int, poolable_size: int, clock: Clock) -> None:
        self.total = total
        self.poolable_size = poolable_size
        self._clock = clock
        self._lock = threading.Lock()
        self._free: deque[bytearray] = deque()
        self._unpooled = total  # bytes that are neither handed out nor in a kept buffer
        self._waiters: deque[threading.Condition] = deque()
        self._closed = False
        self.wait_ns = 0
        self.exhausted_count = 0

    def allocate(self, size: int, max_wait_ms: float) -> bytearray:
        """A buffer of `size` bytes; waits up to `max_wait_ms`, then raises `BufferExhausted`."""
        if size > self.total:
            raise RecordTooLarge(f"{size} bytes are more than buffer.memory = {self.total}")
        with self._lock:
            self._raise_if_closed()
            buffer = self._take_at_once(size)
            if buffer is None and self._has(size) and not self._waiters:
                self._reserve(size)
            elif buffer is None:
                buffer = self._wait_for(size, max_wait_ms)
        return self._make(size) if buffer is None else buffer

    def deallocate(self, buffer: bytearray, size: int) -> None:
        """Give back what `allocate(size)` gave."""
        with self._lock:
            if size == self.poolable_size and len(buffer) == size:
                self._free.append(buffer)
            else:
                self._unpooled += size
            self._wake_first()

    def close(self) -> None:
        """Refuse new callers and those that wait; what is handed out may still come back."""
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.notify()

    @property
    def available(self) -> int:
        """Bytes that nobody has."""
        with self._lock:
            return self._unpooled + len(self._free) * self.poolable_size

    @property
    def queued(self) -> int:
        """How many callers wait; without the lock, because the sender asks in every turn."""
        return len(self._waiters)

    # All below under the lock.

    def _take_at_once(self, size: int) -> bytearray | None:
        if size == self.poolable_size and self._free and not self._waiters:
            return self._free.popleft()
        return None

    def _has(self, size: int) -> bool:
        return self._unpooled + len(self._free) * self.poolable_size >= size

    def _reserve(self, size: int) -> None:
        """Take `size` bytes out of the account; kept buffers are dropped as far as needed."""
        while self._unpooled < size and self._free:
            self._free.pop()
            self._unpooled += self.poolable_size
        self._unpooled -= size

    def _wait_for(self, size: int, max_wait_ms: float) -> bytearray | None:
        """Gather `size` bytes as they come back, first come first served. None: the bytes are reserved, the buffer is to be made.

        What was gathered goes back when the wait ends in any other way: time-out, close, Ctrl-C.
        """
        waiter = threading.Condition(self._lock)
        self._waiters.append(waiter)
        gathered = 0
        start = self._clock.monotonic_ns()
        try:
            while gathered < size:
                left = max_wait_ms / 1e3 - (self._clock.monotonic_ns() - start) / 1e9
                if left <= 0 or not waiter.wait(left):
                    self._raise_if_closed()
                    raise self._exhausted(size, max_wait_ms)
                self._raise_if_closed()
                if not gathered and size == self.poolable_size and self._free:
                    gathered = size
                    return self._free.popleft()
                wanted = size - gathered
                while self._unpooled < wanted and self._free:
                    self._free.pop()
                    self._unpooled += self.poolable_size
                taken = min(wanted, self._unpooled)
                self._unpooled -= taken
                gathered += taken
            return None
        finally:
            self.wait_ns += self._clock.monotonic_ns() - start
            if gathered < size:
                self._unpooled += gathered
            self._waiters.remove(waiter)
            self._wake_first()

    def _wake_first(self) -> None:
        if self._waiters and (self._unpooled > 0 or self._free):
            self._waiters[0].notify()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise ProducerClosed("the producer was closed while a record waited for memory")

    def _exhausted(self, size: int, max_wait_ms: float) -> BufferExhausted:
        self.exhausted_count += 1
        free = self._unpooled + len(self._free) * self.poolable_size
        return BufferExhausted(
            f"no {size} bytes of memory within max.block.ms = {max_wait_ms:.0f}: {free} of buffer.memory = {self.total} are free "
            f"and {len(self._waiters)} callers wait; the brokers take records more slowly than they are sent"
        )

    def _make(self, size: int) -> bytearray:
        """Outside the lock; when the system has no memory, the account gets it back."""
        try:
            return bytearray(size)
        except BaseException:
            with self._lock:
                self._unpooled += size
                self._wake_first()
            raise

    def __repr__(self) -> str:
        return f"<BufferPool total={self.total} available={self.available} queued={self.queued}>"
