"""Memory pools: the bound on bytes of requests that were read but not yet handled (RP-25, `queued.max.request.bytes`).

Role: a pool counts; it hands out `PooledBuffer`s. A buffer is charged for the bytes that really arrive, so the 4-byte size of an
unauthenticated peer costs nothing. As in Kafka the bound is not strict: a charge of any size succeeds while something is free, so that
one request larger than what is left cannot wait for ever.
Thread: any (processors allocate, request handlers release). Lock: `_lock` of each pool; listeners run outside it.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from mmap import mmap
from typing import Protocol

from barnabas.errors import BarnabasError

__all__ = [
    "FixedSizeMemoryPool",
    "LeakTrackingMemoryPool",
    "MemoryPool",
    "OversizedClaim",
    "PooledBuffer",
    "SimpleMemoryPool",
    "UnlimitedMemoryPool",
]

log = logging.getLogger(__name__)


class OversizedClaim(BarnabasError):
    """The pool can never serve a claim of this size: the connection that asks for it is closed."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a buffer of {size} bytes was asked for, this memory pool serves at most {limit}")
        self.size = size
        self.limit = limit


class MemoryPool(Protocol):
    """What the selector needs of a pool."""

    @property
    def size(self) -> int: ...
    @property
    def unlimited(self) -> bool: ...
    def available(self) -> int: ...
    def used(self) -> int: ...
    def open(self, size: int) -> PooledBuffer | None:
        """A buffer for `size` bytes, charged as they arrive. None when the pool cannot serve another one now."""

    def try_allocate(self, size: int) -> PooledBuffer | None:
        """A buffer that is charged for all its bytes at once. None when nothing is free."""

    def only_unfinished(self) -> bool:
        """Whether all that is used belongs to buffers that are still being filled: nothing comes back before one is whole."""

    def add_listener(self, listener: Callable[[], None]) -> None: ...
    def remove_listener(self, listener: Callable[[], None]) -> None: ...


class Charge:
    """What a buffer costs its pool now; outlives the buffer, so that a leak can be booked. The pool's lock guards it."""

    __slots__ = ("bytes", "finished")

    def __init__(self) -> None:
        self.bytes = 0
        self.finished = False  # all its bytes have arrived


class PooledBuffer:
    """Room for `size` bytes of a pool; `data` holds what arrived. `release` gives what was charged back, once, from any thread."""

    __slots__ = ("__weakref__", "_finalizer", "_pool", "cost", "data", "reused", "size")

    def __init__(self, size: int, data: bytearray, reused: bool, pool: _BoundedPool | None) -> None:
        self.size = size
        self.data: bytearray | mmap = data
        self.reused = reused  # True: `data` is whole and paid for, and belongs to the pool again after release
        self.cost = Charge()
        self._pool = pool  # None once it is released
        self._finalizer: weakref.finalize[[Charge], PooledBuffer] | None = None

    @property
    def released(self) -> bool:
        return self._pool is None

    def charge(self, count: int) -> None:
        """`count` bytes more have arrived."""
        pool = self._pool
        if pool is not None:
            pool.charge(self, count)

    def finish(self) -> None:
        """Its last byte has arrived."""
        pool = self._pool
        if pool is not None:
            pool.finish(self)

    def release(self) -> None:
        """Give the bytes back; a second call does nothing."""
        pool = self._pool
        if pool is not None:
            pool.give_back(self)

    def __repr__(self) -> str:
        return f"<PooledBuffer size={self.size} charged={self.cost.bytes} released={self.released}>"


class UnlimitedMemoryPool:
    """No bound, no accounting; lets the selector read ahead."""

    size = 0
    unlimited = True

    def available(self) -> int:
        return (1 << 63) - 1

    def used(self) -> int:
        return 0

    def open(self, size: int) -> PooledBuffer:
        return PooledBuffer(size, bytearray(), False, None)

    try_allocate = open

    def only_unfinished(self) -> bool:
        return False

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Memory never comes back because it never runs out: there is nothing to listen to."""

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """See add_listener."""

    def __repr__(self) -> str:
        return "<UnlimitedMemoryPool>"


class _BoundedPool:
    """The lock of a pool that can run out, and those who want to know when memory comes back."""

    unlimited = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()

    def add_listener(self, listener: Callable[[], None]) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one != listener)

    def charge(self, buffer: PooledBuffer, count: int) -> None:
        """`count` bytes of `buffer` have arrived."""
        raise AssertionError(f"{type(self).__name__} has no charge")

    def finish(self, buffer: PooledBuffer) -> None:
        """The last byte of `buffer` has arrived."""

    def only_unfinished(self) -> bool:
        return False

    def give_back(self, buffer: PooledBuffer) -> None:
        """`buffer` is not needed any more."""
        raise AssertionError(f"{type(self).__name__} has no give_back")

    def _notify(self) -> None:
        """Only what comes back while nothing was free is told: otherwise nobody can be waiting."""
        for listener in self._listeners:
            listener()


class SimpleMemoryPool(_BoundedPool):
    """A counter of free bytes; nothing is pre-allocated. `available` may be negative after a last, large claim."""

    def __init__(self, size: int) -> None:
        if size <= 0:
            raise ValueError(f"memory pool size must be positive, not {size}")
        super().__init__()
        self.size = size
        self._free = size
        self._unfinished = 0  # charged to buffers that are still being filled

    def available(self) -> int:
        return self._free

    def used(self) -> int:
        return self.size - self._free

    def open(self, size: int) -> PooledBuffer | None:
        """Costs nothing yet, so it always succeeds; whether more may be read is the reader's decision."""
        if size <= 0:
            raise ValueError(f"a claim must be positive, not {size}")
        return self._make(size)

    def try_allocate(self, size: int) -> PooledBuffer | None:
        if size <= 0:
            raise ValueError(f"a claim must be positive, not {size}")
        with self._lock:
            if self._free <= 0:
                return None
            self._free -= size
        buffer = self._make(size)
        buffer.cost.bytes = size
        buffer.cost.finished = True
        return buffer

    def _make(self, size: int) -> PooledBuffer:
        return PooledBuffer(size, bytearray(), False, self)

    def charge(self, buffer: PooledBuffer, count: int) -> None:
        with self._lock:
            if buffer._pool is not None:
                self._free -= count
                self._unfinished += count
                buffer.cost.bytes += count

    def finish(self, buffer: PooledBuffer) -> None:
        with self._lock:
            if buffer._pool is not None and not buffer.cost.finished:
                buffer.cost.finished = True
                self._unfinished -= buffer.cost.bytes

    def only_unfinished(self) -> bool:
        with self._lock:
            return self.size - self._free <= self._unfinished

    def _take_back(self, cost: Charge) -> bool:
        """Called with the lock. Whether nothing was free before."""
        was_used_up = self._free <= 0
        self._free += cost.bytes
        if not cost.finished:
            self._unfinished -= cost.bytes
        return was_used_up

    def give_back(self, buffer: PooledBuffer) -> None:
        with self._lock:
            if buffer._pool is None:  # another thread released it meanwhile
                return
            buffer._pool = None
            was_used_up = self._take_back(buffer.cost)
        if was_used_up:
            self._notify()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} size={self.size} used={self.used()}>"


class LeakTrackingMemoryPool(SimpleMemoryPool):
    """As simple; a buffer that is garbage-collected without release is logged, counted and its bytes are given back."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.leaks = 0
        # A finalizer may run inside any allocation, also of a thread that holds `_lock` or a listener's lock: it takes no lock and
        # tells nobody. The next call into the pool books what it left here; a selector with waiting channels calls every poll.
        self._leaked: list[Charge] = []

    def _make(self, size: int) -> PooledBuffer:
        buffer = super()._make(size)
        finalizer = weakref.finalize(buffer, self._on_leak, buffer.cost)
        finalizer.atexit = False
        buffer._finalizer = finalizer
        return buffer

    def _on_leak(self, cost: Charge) -> None:
        self._leaked.append(cost)

    def _book_leaks(self) -> None:
        while self._leaked:
            try:
                cost = self._leaked.pop()
            except IndexError:  # another thread booked it
                return
            with self._lock:
                self._take_back(cost)
                self.leaks += 1
            log.error(
                "A request buffer of %d bytes was garbage-collected without release; its bytes were given back",
                cost.bytes,
            )
            self._notify()

    def available(self) -> int:
        if self._leaked:
            self._book_leaks()
        return self._free

    def used(self) -> int:
        return self.size - self.available()

    def try_allocate(self, size: int) -> PooledBuffer | None:
        if self._leaked:
            self._book_leaks()
        return super().try_allocate(size)

    def give_back(self, buffer: PooledBuffer) -> None:
        if buffer._finalizer is not None:
            buffer._finalizer.detach()
        super().give_back(buffer)


class FixedSizeMemoryPool(_BoundedPool):
    """Buffers of one size, kept for reuse; a larger claim is refused with OversizedClaim.

    The bytes of a receive are only valid until its buffer is released: the next request is read into the same memory.
    """

    def __init__(self, size: int, buffer_size: int) -> None:
        if buffer_size <= 0 or size < buffer_size:
            raise ValueError(f"a pool of {size} bytes cannot hold a buffer of {buffer_size} bytes")
        super().__init__()
        self.buffer_size = buffer_size
        self.size = size // buffer_size * buffer_size
        self._free = self.size // buffer_size
        self._kept: list[bytearray] = []

    def available(self) -> int:
        return self._free * self.buffer_size

    def used(self) -> int:
        return self.size - self._free * self.buffer_size

    def try_allocate(self, size: int) -> PooledBuffer | None:
        if size <= 0:
            raise ValueError(f"a claim must be positive, not {size}")
        if size > self.buffer_size:
            raise OversizedClaim(size, self.buffer_size)
        with self._lock:
            if not self._free:
                return None
            self._free -= 1
            data = self._kept.pop() if self._kept else None
        if data is None:
            data = bytearray(self.buffer_size)
        return PooledBuffer(size, data, True, self)

    def open(self, size: int) -> PooledBuffer | None:
        """A buffer of this pool is paid for as soon as it is taken."""
        return self.try_allocate(size)

    def charge(self, buffer: PooledBuffer, count: int) -> None:
        """Paid for already."""

    def give_back(self, buffer: PooledBuffer) -> None:
        with self._lock:
            if buffer._pool is None:
                return
            buffer._pool = None
            if isinstance(buffer.data, bytearray):
                self._kept.append(buffer.data)
            buffer.data = bytearray()
            self._free += 1
            came_back = self._free == 1
        if came_back:
            self._notify()

    def __repr__(self) -> str:
        return f"<FixedSizeMemoryPool size={self.size} buffer_size={self.buffer_size} used={self.used()}>"
