"""Memory pools: the bound on bytes of requests that were read but not yet handled (RP-25, `queued.max.request.bytes`).

Role: a pool counts; it hands out `PooledBuffer` claims. A claim is counted whole when it is made, but its memory grows with the bytes
that really arrive, so the 4-byte size of an unauthenticated peer allocates nothing. As in Kafka the bound is not strict: a claim of any
size succeeds while something is free, so that one request larger than what is left cannot wait for ever.
Thread: any (processors allocate, request handlers release). Lock: `_lock` of each pool; listeners run outside it.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
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
    def try_allocate(self, size: int) -> PooledBuffer | None: ...
    def add_listener(self, listener: Callable[[], None]) -> None: ...
    def remove_listener(self, listener: Callable[[], None]) -> None: ...


class PooledBuffer:
    """A claim of `size` bytes on a pool; `data` holds what arrived. `release` gives the claim back, once, from any thread."""

    __slots__ = ("__weakref__", "_finalizer", "_give_back", "data", "reused", "size")

    def __init__(
        self, size: int, data: bytearray, reused: bool, give_back: Callable[[PooledBuffer], None] | None
    ) -> None:
        self.size = size
        self.data = data
        self.reused = reused  # True: `data` is whole already and belongs to the pool again after release
        self._give_back = give_back
        self._finalizer: weakref.finalize[[int], PooledBuffer] | None = None

    def release(self) -> None:
        """Give the bytes back; a second call does nothing."""
        if self._give_back is not None:
            self._give_back(self)

    def __repr__(self) -> str:
        return f"<PooledBuffer size={self.size} received={len(self.data)} released={self._give_back is None}>"


class UnlimitedMemoryPool:
    """No bound, no accounting; lets the selector read ahead."""

    size = 0
    unlimited = True

    def available(self) -> int:
        return (1 << 63) - 1

    def used(self) -> int:
        return 0

    def try_allocate(self, size: int) -> PooledBuffer:
        return PooledBuffer(size, bytearray(), False, None)

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

    def _notify(self) -> None:
        """Only the step from "nothing free" to "something free" is told: before it nobody can be waiting."""
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

    def available(self) -> int:
        return self._free

    def used(self) -> int:
        return self.size - self._free

    def try_allocate(self, size: int) -> PooledBuffer | None:
        if size <= 0:
            raise ValueError(f"a claim must be positive, not {size}")
        with self._lock:
            if self._free <= 0:
                return None
            self._free -= size
        return self._make(size)

    def _make(self, size: int) -> PooledBuffer:
        return PooledBuffer(size, bytearray(), False, self._give_back)

    def _give_back(self, buffer: PooledBuffer) -> None:
        with self._lock:
            if buffer._give_back is None:  # another thread released it meanwhile
                return
            buffer._give_back = None
            came_back = self._free <= 0
            self._free += buffer.size
            came_back = came_back and self._free > 0
        if came_back:
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
        self._leaked: list[int] = []

    def _make(self, size: int) -> PooledBuffer:
        buffer = super()._make(size)
        finalizer = weakref.finalize(buffer, self._on_leak, size)
        finalizer.atexit = False
        buffer._finalizer = finalizer
        return buffer

    def _on_leak(self, size: int) -> None:
        self._leaked.append(size)

    def _book_leaks(self) -> None:
        while self._leaked:
            try:
                size = self._leaked.pop()
            except IndexError:  # another thread booked it
                return
            with self._lock:
                self._free += size
                self.leaks += 1
            log.error(
                "A request buffer of %d bytes was garbage-collected without release; its bytes were given back", size
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

    def _give_back(self, buffer: PooledBuffer) -> None:
        if buffer._finalizer is not None:
            buffer._finalizer.detach()
        super()._give_back(buffer)


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
        return PooledBuffer(size, data, True, self._give_back)

    def _give_back(self, buffer: PooledBuffer) -> None:
        with self._lock:
            if buffer._give_back is None:
                return
            buffer._give_back = None
            self._kept.append(buffer.data)
            buffer.data = bytearray()
            self._free += 1
            came_back = self._free == 1
        if came_back:
            self._notify()

    def __repr__(self) -> str:
        return f"<FixedSizeMemoryPool size={self.size} buffer_size={self.buffer_size} used={self.used()}>"
