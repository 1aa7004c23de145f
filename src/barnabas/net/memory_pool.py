"""Memory pools: the bound on bytes of requests that were read but not yet handled (RP-25, `queued.max.request.bytes`).

Role: a pool counts; it hands out `PooledBuffer`s. A frame claims memory before it is read, but what it may claim depends on what has
arrived: with a claim of n bytes it may hold `n / LEAD`, then it must claim twice as much, until all of it is claimed. So

    who announces much and sends little costs little;
    a frame that is claimed whole can be read to its end, and its memory comes back;
    all others together hold a small part of the pool. When none is claimed whole, nothing would come back: then the one that has waited
    longest is let through, beyond the limit.

What large frames hold is never more than the pool, or one frame and 1 / LEAD of the pool. Small frames are claimed whole and never wait:
each is a small part of the pool, and whoever fills it with large frames that never end disturbs nobody who sends ordinary requests.
Thread: any (processors claim, request handlers release). Lock: `_lock` of each pool; listeners run outside it.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from mmap import MADV_REMOVE, mmap
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

LEAD = 16
SMALL_BYTES = 64 * 1024
SMALL_SHARE = 64
"""A frame of up to SMALL_BYTES, and up to this part of the pool, is small."""


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
    def open(self, size: int) -> PooledBuffer:
        """A buffer for a frame of `size` bytes; none may be read yet."""

    def claim(self, buffer: PooledBuffer) -> bool:
        """Let `buffer` hold more: its `room` grows. Else it waits, behind those that do already, and a listener is told when to ask
        again."""

    def try_allocate(self, size: int) -> PooledBuffer | None:
        """A buffer that is claimed whole. None when nothing is free."""

    def is_short(self) -> bool:
        """Whether somebody waits."""

    def add_listener(self, listener: Callable[[], None]) -> None: ...
    def remove_listener(self, listener: Callable[[], None]) -> None: ...


class Claim:
    """What a buffer takes of its pool; outlives the buffer, so that a leak can be booked. The pool's lock guards it."""

    __slots__ = ("bytes", "whole")

    def __init__(self) -> None:
        self.bytes = 0
        self.whole = False  # claimed whole, and not small: its memory comes back


class PooledBuffer:
    """Room for a frame of `size` bytes; `data` holds what arrived. `release` gives what was claimed back, once, from any thread."""

    __slots__ = ("__weakref__", "_finalizer", "_pool", "claim", "data", "room", "size")

    def __init__(self, size: int, pool: _BoundedPool | None, room: int = 0) -> None:
        self.size = size
        self.data: bytearray | mmap = bytearray()
        self.room = room  # how many bytes it may hold now
        self.claim = Claim()
        self._pool = pool  # None once it is released
        self._finalizer: weakref.finalize[[Claim], PooledBuffer] | None = None

    @property
    def released(self) -> bool:
        return self._pool is None

    def make_whole(self) -> None:
        """All of it is claimed: from now on `data` need not grow. Pages that no byte has arrived for take no memory. They are shared ones,
        because the system may put private ones into huge pages, of which a frame would take more than its size."""
        begun = self.data
        whole = mmap(-1, self.size)
        whole[: len(begun)] = begun
        self.data = whole

    def release(self) -> None:
        """Give the bytes back; a second call does nothing."""
        pool = self._pool
        if pool is None:
            return
        data = self.data
        if isinstance(data, mmap):
            with suppress(OSError):
                data.madvise(MADV_REMOVE)  # gone at once, although the request may keep its views for a while
        pool.give_back(self)

    def __repr__(self) -> str:
        return f"<PooledBuffer size={self.size} claimed={self.claim.bytes} released={self.released}>"


class UnlimitedMemoryPool:
    """No bound, no accounting; lets the selector read ahead."""

    size = 0
    unlimited = True

    def available(self) -> int:
        return (1 << 63) - 1

    def used(self) -> int:
        return 0

    def open(self, size: int) -> PooledBuffer:
        return PooledBuffer(size, None, size)

    try_allocate = open

    def claim(self, buffer: PooledBuffer) -> bool:
        return True

    def is_short(self) -> bool:
        return False

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Memory never comes back because it never runs out: there is nothing to listen to."""

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """See add_listener."""

    def __repr__(self) -> str:
        return "<UnlimitedMemoryPool>"


class _BoundedPool:
    """The lock of a pool that can run out, those who wait for memory, and those who want to know when there may be some."""

    unlimited = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._waiting: dict[PooledBuffer, None] = {}  # in the order in which they began to

    def add_listener(self, listener: Callable[[], None]) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one != listener)

    def open(self, size: int) -> PooledBuffer:
        if size <= 0:
            raise ValueError(f"a claim must be positive, not {size}")
        return PooledBuffer(size, self)

    def claim(self, buffer: PooledBuffer) -> bool:
        waiting = self._waiting
        with self._lock:
            first = self._may_overtake(buffer) or not waiting or next(iter(waiting)) is buffer
            if not first or not self._take(buffer):
                waiting[buffer] = None
                return False
            another = buffer in waiting
            if another:
                del waiting[buffer]
                another = bool(waiting)
        if another:  # whose turn it is now
            self._notify()
        return True

    def try_allocate(self, size: int) -> PooledBuffer | None:
        buffer = self.open(size)
        with self._lock:
            return buffer if self._take_whole(buffer) else None

    def give_back(self, buffer: PooledBuffer) -> None:
        """`buffer` is not needed any more."""
        with self._lock:
            if buffer._pool is None:  # another thread released it meanwhile
                return
            buffer._pool = None
            self._waiting.pop(buffer, None)
            self._take_back(buffer)
            short = bool(self._waiting)
        if short:
            self._notify()

    def is_short(self) -> bool:
        return bool(self._waiting)

    # What a kind of pool decides; called with the lock.

    def _may_overtake(self, buffer: PooledBuffer) -> bool:
        """Whether `buffer` need not wait for its turn."""
        return False

    def _take(self, buffer: PooledBuffer) -> bool:
        """Let `buffer` hold more, if that is possible now."""
        return self._take_whole(buffer)

    def _take_whole(self, buffer: PooledBuffer) -> bool:
        """Let `buffer` hold all of its frame, if anything is free."""
        raise AssertionError(f"{type(self).__name__} has no memory")

    def _take_back(self, buffer: PooledBuffer) -> None:
        raise AssertionError(f"{type(self).__name__} has no memory")

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


class SimpleMemoryPool(_BoundedPool):
    """A counter of free bytes; nothing is pre-allocated. It may be negative: after a frame beyond the limit, and for small frames."""

    def __init__(self, size: int) -> None:
        if size <= 0:
            raise ValueError(f"memory pool size must be positive, not {size}")
        super().__init__()
        self.size = size
        self._small = max(LEAD, min(SMALL_BYTES, size // SMALL_SHARE))
        self._free = size
        self._whole = 0  # frames that are claimed whole, without the small ones: memory comes back

    def available(self) -> int:
        return self._free

    def used(self) -> int:
        return self.size - self._free

    def _may_overtake(self, buffer: PooledBuffer) -> bool:
        return (
            buffer.size <= self._small or buffer.claim.bytes > 0
        )  # the sooner a frame is whole, the sooner its memory is back

    def _take(self, buffer: PooledBuffer) -> bool:
        claimed = buffer.claim.bytes
        wanted = min(buffer.size, max(self._small, 2 * claimed))
        if wanted - claimed > self._free and buffer.size > self._small:
            if self._whole:
                return False
            wanted = buffer.size
        self._grant(buffer, wanted)
        return True

    def _take_whole(self, buffer: PooledBuffer) -> bool:
        """As in Kafka: a claim of any size succeeds while something is free, so that one that is larger need not wait for ever."""
        if self._free <= 0:
            return False
        self._grant(buffer, buffer.size)
        return True

    def _grant(self, buffer: PooledBuffer, wanted: int) -> None:
        claim = buffer.claim
        self._free -= wanted - claim.bytes
        claim.bytes = wanted
        if wanted < buffer.size:
            buffer.room = wanted // LEAD
            return
        buffer.room = wanted
        if wanted > self._small:
            claim.whole = True
            self._whole += 1

    def _take_back(self, buffer: PooledBuffer) -> None:
        self._book(buffer.claim)

    def _book(self, claim: Claim) -> None:
        self._free += claim.bytes
        self._whole -= claim.whole

    def __repr__(self) -> str:
        return f"<{type(self).__name__} size={self.size} used={self.used()}>"


class LeakTrackingMemoryPool(SimpleMemoryPool):
    """As simple; a buffer that is garbage-collected without release is logged, counted and its bytes are given back."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.leaks = 0
        # A finalizer may run inside any allocation, also of a thread that holds `_lock` or a listener's lock: it takes no lock and
        # tells nobody. The next call into the pool books what it left here; a selector with waiting channels calls every poll.
        self._leaked: list[Claim] = []

    def open(self, size: int) -> PooledBuffer:
        buffer = super().open(size)
        finalizer = weakref.finalize(buffer, self._on_leak, buffer.claim)
        finalizer.atexit = False
        buffer._finalizer = finalizer
        return buffer

    def _on_leak(self, claim: Claim) -> None:
        if claim.bytes:
            self._leaked.append(claim)

    def _book_leaks(self) -> None:
        while self._leaked:
            try:
                claim = self._leaked.pop()
            except IndexError:  # another thread booked it
                return
            with self._lock:
                self._book(claim)
                self.leaks += 1
            log.error(
                "A request buffer of %d bytes was garbage-collected without release; its bytes were given back",
                claim.bytes,
            )
            self._notify()

    def available(self) -> int:
        if self._leaked:
            self._book_leaks()
        return self._free

    def used(self) -> int:
        return self.size - self.available()

    def claim(self, buffer: PooledBuffer) -> bool:
        if self._leaked:
            self._book_leaks()
        return super().claim(buffer)

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

    def open(self, size: int) -> PooledBuffer:
        if size > self.buffer_size:
            raise OversizedClaim(size, self.buffer_size)
        return super().open(size)

    def _take_whole(self, buffer: PooledBuffer) -> bool:
        if not self._free:
            return False
        self._free -= 1
        buffer.data = self._kept.pop() if self._kept else bytearray(self.buffer_size)
        buffer.room = buffer.size
        return True

    def _take_back(self, buffer: PooledBuffer) -> None:
        if isinstance(buffer.data, bytearray) and buffer.room:
            self._kept.append(buffer.data)
            buffer.data = bytearray()
            self._free += 1

    def __repr__(self) -> str:
        return f"<FixedSizeMemoryPool size={self.size} buffer_size={self.buffer_size} used={self.used()}>"
