"""Delayed operations and the purgatory that watches them (RP-38).

Role:    a request that cannot be answered yet (Fetch below min.bytes, Produce that waits for the disk) becomes an
         operation; it completes when an event on one of its keys makes it ready, or when its time is over. When nobody wants
         the answer any more it is cancelled: it ends without one.
Threads: any. Operations complete on the thread that made them ready, or on the timer's thread.
Lock:    one per purgatory, guards the watch lists; `ready`, `ready_for` and the `on_` methods run outside every lock. An operation
         with many keys takes it in slices, so that nobody waits for more than one of them.

Completing exactly once: `_once` is a lock that is acquired without waiting and never released, which is an atomic
test-and-set on every build; completion, expiry and cancellation all go through it. No wake-up is lost, because the operation is
first put on all its watch lists and then asked once more whether it is ready: an event before that is seen by the question, an
event after it finds the operation.

An event need not ask everybody. It says how much it brings, and each operation how much it still needs; a watch list is ordered by the
amount at which the next question is worth it. The amount that has come is read before an operation is asked, so what the answer does not
know of is counted from there on; when enough has come by the time the operation is put back, it is asked again.

Keys are `(topic, partition)`. On a hot path ask `if purgatory.watchers:` first; an empty dict costs nothing to ask.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from barnabas.broker.purgatory.timing_wheel import Timer, TimerTask

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

KEYS_PER_SLICE = 500
"""Keys that are put on or taken off watch lists under one hold of the lock; about 0.1 ms."""
_OUT_OF_DATE = 64
"""Entries of a watch list that may be left over."""


class DelayedOperation(TimerTask):
    """Something that waits. Subclasses say when it is ready and what is done then."""

    __slots__ = ("_keys", "_once", "_purgatory")

    def __init__(self) -> None:
        super().__init__()
        self._once = threading.Lock()
        self._purgatory: Purgatory | None = None
        self._keys: Sequence[Hashable] = ()

    def ready(self) -> bool:
        """Can it complete now? Without side effects: several threads may ask at once."""
        raise AssertionError(f"{type(self).__name__} has no ready")

    def ready_for(self, key: Hashable) -> bool:
        """Can it complete now, when only `key` may have changed since it was asked last? Operations with many keys override this, so
        that an event does not cost in proportion to them."""
        return self.ready()

    def needs(self, key: Hashable) -> int:
        """How much events have to bring for `key` before it is worth asking; 0 to be asked at every event. A moment's look at what the last
        answers found: it is asked under the purgatory's lock."""
        return 0

    def needs_less(self) -> bool:
        """Whether `needs` has gone down for all keys since this was asked last."""
        return False

    def on_complete(self) -> None:
        """Runs exactly once, whether ready, expired or forced; never after `on_cancel`."""
        raise AssertionError(f"{type(self).__name__} has no on_complete")

    def on_cancel(self) -> None:
        """Runs instead of `on_complete` when the operation was cancelled."""

    def hang_up(self) -> None:
        """The client of this operation sends no more. Whoever may wait for long ends the wait; others need not override this."""

    def on_expiration(self) -> None:
        """Runs after `on_complete` when it was the time that ended the wait."""

    @property
    def completed(self) -> bool:
        return self._once.locked()

    def force_complete(self) -> bool:
        """Complete now. True for exactly one caller."""
        if not self._end():
            return False
        self.on_complete()
        return True

    def cancel(self) -> bool:
        """End without completing: nobody wants the answer. True when this call ended it, False when it had ended before."""
        if not self._end():
            return False
        self.on_cancel()
        return True

    def _end(self) -> bool:
        """True for exactly one caller, and then nothing watches the operation any more."""
        if not self._once.acquire(blocking=False):
            return False
        purgatory = self._purgatory
        if purgatory is not None:
            purgatory.forget(self)
        return True

    def try_complete(self) -> bool:
        """Complete if ready; True when this call did it."""
        return not self._once.locked() and self.ready() and self.force_complete()

    def try_complete_for(self, key: Hashable) -> bool:
        """As `try_complete`, after an event on one of its keys."""
        return not self._once.locked() and self.ready_for(key) and self.force_complete()

    def expire(self) -> None:
        if self.force_complete():
            purgatory = self._purgatory
            if purgatory is not None:
                purgatory.count_expired()
            self.on_expiration()


class _Watchers:
    """The operations that wait for one key; under the purgatory's lock."""

    __slots__ = ("_entries", "_queue", "arrived")

    def __init__(self) -> None:
        self.arrived = 0
        """What events have brought so far."""
        self._entries: dict[DelayedOperation, int] = {}
        """The number of the entry in the queue that counts; others of the operation are out of date."""
        self._queue: list[tuple[int, int, DelayedOperation]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, operation: DelayedOperation) -> bool:
        return operation in self._entries

    def all(self) -> list[DelayedOperation]:
        return list(self._entries)

    def ask_at(self, amount: int, operation: DelayedOperation, number: int) -> None:
        self._entries[operation] = number
        heappush(self._queue, (amount, number, operation))
        self._tidy()

    def due(self) -> list[DelayedOperation]:
        """Those to be asked now; they stay here, but must be given a new time to be asked."""
        found = []
        queue = self._queue
        while queue and queue[0][0] <= self.arrived:
            _, number, operation = heappop(queue)
            if self._entries.get(operation) == number:
                found.append(operation)
        return found

    def remove(self, operation: DelayedOperation) -> None:
        del self._entries[operation]
        self._tidy()

    def _tidy(self) -> None:
        if len(self._queue) > 2 * len(self._entries) + _OUT_OF_DATE:
            entries = self._entries
            self._queue = [entry for entry in self._queue if entries.get(entry[2]) == entry[1]]
            heapify(self._queue)


class Purgatory:
    """The operations of one kind that wait. Thread-safe."""

    def __init__(self, name: str, timer: Timer) -> None:
        self.name = name
        self._timer = timer
        self._lock = threading.Lock()
        self._watchers: dict[Hashable, _Watchers] = {}
        self._entries = count()
        self.watchers: Mapping[Hashable, object] = self._watchers
        """Keys that somebody waits for. Read without the lock, only to see whether there is anybody."""
        self._delayed = 0
        self._expired = 0

    @property
    def size(self) -> int:
        """Entries on all watch lists: an operation counts once per key (PurgatorySize)."""
        with self._lock:
            return sum(map(len, self._watchers.values()))

    @property
    def delayed(self) -> int:
        """Operations that wait (NumDelayedOperations)."""
        return self._delayed

    @property
    def expired(self) -> int:
        """Operations that have timed out since start (ExpiresPerSec)."""
        return self._expired

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable], delay_ns: int) -> bool:
        """Complete it now if it is ready (True), else let it wait for `keys`, at most `delay_ns` (False)."""
        if operation.try_complete():
            return True
        self._watch(operation, keys)
        if not operation.try_complete() and not operation.completed:
            self._timer.add(operation, delay_ns)
            self._order(operation)
        if not operation.completed:
            return False
        # Whoever completed it may have done so before `_watch` or before `add`, and then its `forget` found nothing.
        self.forget(operation)
        return True

    def check_and_complete(self, key: Hashable, amount: int | None = None) -> int:
        """An event happened on `key`: complete what it makes ready; returns how many. Hold no lock when calling. `amount`: how much it has
        brought, if it was nothing else."""
        if key not in self._watchers:
            return 0
        with self._lock:
            watched = self._watchers.get(key)
            if watched is None:
                return 0
            if amount is not None:
                watched.arrived += amount
            operations = watched.all() if amount is None else watched.due()
            arrived = watched.arrived
        return self._ask(key, operations, arrived)

    def _ask(self, key: Hashable, operations: list[DelayedOperation], arrived: int) -> int:
        """Complete those that are ready, when so much had come before they are asked; how many."""
        completed = 0
        while operations:
            for operation in operations:
                completed += self._try(operation, key)
            asked = operations
            operations, arrived = self._put_back(key, asked, arrived)
            for operation in asked:
                if operation.needs_less():
                    self._order(operation)
        return completed

    def _put_back(
        self, key: Hashable, operations: list[DelayedOperation], arrived: int
    ) -> tuple[list[DelayedOperation], int]:
        """They were asked when so much had come. Those for which enough has come since, to be asked again, and how much it is by now."""
        again: list[DelayedOperation] = []
        with self._lock:
            watched = self._watchers.get(key)
            if watched is None:
                return again, arrived
            for operation in operations:
                if operation in watched:
                    at = arrived + operation.needs(key)
                    if arrived < watched.arrived >= at:
                        again.append(operation)
                    else:
                        watched.ask_at(at, operation, next(self._entries))
            return again, watched.arrived

    def _order(self, operation: DelayedOperation) -> None:
        """Ask for each of its keys, and put it where it belongs."""
        for key in operation._keys:
            if operation.needs(key):
                arrived = self._arrived(key, operation)
                if arrived is not None:
                    self._ask(key, [operation], arrived)

    def _arrived(self, key: Hashable, operation: DelayedOperation) -> int | None:
        """How much has come for `key`; None when the operation does not wait for it any more."""
        with self._lock:
            watched = self._watchers.get(key)
            return watched.arrived if watched is not None and operation in watched else None

    def complete_all(self) -> int:
        """Complete everything that waits, as if its time were over; for shutdown. Returns how many."""
        with self._lock:
            operations = {operation for watched in self._watchers.values() for operation in watched.all()}
        return sum(operation.force_complete() for operation in operations)

    def forget(self, operation: DelayedOperation) -> None:
        """Take an operation that has ended off its watch lists and the timer. Idempotent."""
        self._timer.cancel(operation)
        with self._lock:
            keys, operation._keys = operation._keys, ()
            if keys:
                self._delayed -= 1
        for start in range(0, len(keys), KEYS_PER_SLICE):
            self._unwatch(operation, keys[start : start + KEYS_PER_SLICE])

    def _unwatch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> None:
        watchers = self._watchers
        with self._lock:
            for key in keys:
                watched = watchers.get(key)
                if watched is not None and operation in watched:  # it may have ended before `_watch` came to this key
                    watched.remove(operation)
                    if not watched:
                        del watchers[key]

    def count_expired(self) -> None:
        with self._lock:
            self._expired += 1

    def _watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> None:
        """Put it on all its watch lists. `forget`, on another thread, takes the keys away under the lock: no slice after that adds
        anything, and the slices before it are taken back."""
        distinct = tuple(dict.fromkeys(keys))
        with self._lock:
            operation._keys = distinct
            operation._purgatory = self
            if distinct:
                self._delayed += 1
        watchers = self._watchers
        for start in range(0, len(distinct), KEYS_PER_SLICE):
            with self._lock:
                if not operation._keys:
                    return
                for key in distinct[start : start + KEYS_PER_SLICE]:
                    watched = watchers.get(key)
                    if watched is None:
                        watched = watchers[key] = _Watchers()
                    watched.ask_at(watched.arrived, operation, next(self._entries))

    def _try(self, operation: DelayedOperation, key: Hashable) -> bool:
        try:
            return operation.try_complete_for(key)
        except Exception:
            # The event belongs to another request, which must not fail because this one does.
            log.exception("%s: %r failed while completing", self.name, operation)
            return False

    def __repr__(self) -> str:
        return f"<Purgatory {self.name}: {self._delayed} waiting, {self._expired} expired>"
