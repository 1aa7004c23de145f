"""The slow requests of a request channel: which wait, how many run, and how much memory their answers hold (`broker/budget.py`).

Role:    keeps slow requests apart, so that others overtake them. Slow are the heavy ones, and those of administrators, which may wait
         for a disk, a lock or a thread (`ApiRow.admin`): at most a quarter of the handlers for each kind, and never all. No heavy one is
         begun while clients have not taken what others were answered, and none of an address that holds a third of that memory. Clients
         take turns, so that one with a thousand connections does not keep the requests of others waiting. The queues have no bound of
         their own: a connection has one request at a time, and to let a processor wait for room here would stop everybody else on it.
Thread:  any. Lock: that of the channel; every method is called with it held.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.network.request import ConnectionContext, Request

HANDLERS_PER_KIND = 4
PATIENCE_NS = 3_000_000_000
"""A client that has not taken its answer after this time is disconnected, if heavy requests of others wait for the memory."""
ADDRESSES_PER_MEMORY = 3
"""No address begins a heavy request while unsent answers to its own hold more than this part of the memory."""

Clients = OrderedDict[str, deque["Request"]]


class Turns:
    """Requests that wait. Addresses take turns, and the client ids of one address among themselves: an id costs nothing to invent."""

    __slots__ = ("_by_address", "_parked", "_size", "running")

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, Clients] = OrderedDict()
        self._parked: dict[str, Clients] = {}  # of addresses that have no turn for now
        self._size = 0
        self.running = 0  # of those that were taken

    def append(self, request: Request) -> None:
        address = request.connection.client_address
        clients = self._parked.get(address)
        if clients is None:
            clients = self._by_address.setdefault(address, OrderedDict())
        clients.setdefault(request.header.client_id or "", deque()).append(request)
        self._size += 1

    def park(self, address: str) -> None:
        """It has no turn until `unpark`."""
        if address not in self._parked:
            self._parked[address] = self._by_address.pop(address, OrderedDict())

    def unpark(self, address: str) -> None:
        clients = self._parked.pop(address, None)
        if clients:
            self._by_address[address] = clients

    def is_parking(self) -> bool:
        """Whether any address is parked."""
        return len(self._parked) > 0

    def waits_parked(self, address: str) -> bool:
        return bool(self._parked.get(address))

    def has_next(self) -> bool:
        return len(self._by_address) > 0

    def first(self) -> Request:
        """Whose turn it is."""
        clients = next(iter(self._by_address.values()))
        return next(iter(clients.values()))[0]

    def popleft(self) -> Request:
        """The first one; its client and its address come last from now on."""
        address, clients = next(iter(self._by_address.items()))
        client, queue = next(iter(clients.items()))
        request = queue.popleft()
        self._size -= 1
        clients.move_to_end(client)
        self._by_address.move_to_end(address)
        if not queue:
            del clients[client]
            if not clients:
                del self._by_address[address]
        return request

    def clear(self) -> None:
        self._by_address.clear()
        for clients in self._parked.values():
            clients.clear()
        self._size = 0

    def __iter__(self) -> Iterator[Request]:
        for clients in (*self._by_address.values(), *self._parked.values()):
            for queue in clients.values():
                yield from queue

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"<Turns {self._size} requests of {len(self._by_address)} addresses>"


class SlowLane:
    """See the file header."""

    __slots__ = ("_admin_next", "_held", "_held_by", "_max_unsent", "admin", "heavy", "unsent")

    def __init__(self, max_unsent: int) -> None:
        self._max_unsent = max_unsent
        self.heavy = Turns()
        self.admin = Turns()
        self._admin_next = False
        self.unsent = 0
        self._held: dict[
            ConnectionContext, tuple[int, int, Request]
        ] = {}  # oldest first: since when, how many bytes, for what
        self._held_by: dict[str, int] = {}  # bytes by address

    def append(self, request: Request) -> None:
        (self.heavy if request.heavy else self.admin).append(request)

    def next_turns(self, handlers: int) -> Turns | None:
        """Of which kind one that waits may run now. Each has its share of the handlers; where both kinds had all, they alternate."""
        if self.running >= max(1, handlers - 1):
            return None
        share = max(1, handlers // HANDLERS_PER_KIND)
        heavy = self.heavy.has_next() and self.heavy.running < share and self.has_memory()
        if len(self.admin) > 0 and self.admin.running < share and (self._admin_next or not heavy):
            return self.admin
        return self.heavy if heavy else None

    def begin(self, turns: Turns) -> Request:
        """The first one of these; it counts as running until `end`."""
        self._admin_next = turns is self.heavy
        turns.running += 1
        return turns.popleft()

    def end(self, turns: Turns) -> None:
        turns.running -= 1

    @property
    def running(self) -> int:
        return self.heavy.running + self.admin.running

    def waiting(self) -> list[Request]:
        return [*self.heavy, *self.admin]

    def has_memory(self) -> bool:
        return self.unsent <= self._max_unsent

    def is_short(self) -> bool:
        """Whether requests may be waiting for memory; `overdue` knows."""
        return len(self.heavy) > 0 and (not self.has_memory() or self.heavy.is_parking())

    def hold(self, request: Request, size: int, now_ns: int) -> None:
        """The answer to `request` takes `size` bytes until `give_back`."""
        self.give_back(request.connection)
        self._held[request.connection] = (now_ns, size, request)
        self._count(request.connection.client_address, size)

    def give_back(self, connection: ConnectionContext) -> bool:
        """Its answer was sent, or never will be. Idempotent; whether there was one."""
        held = self._held.pop(connection, None)
        if held is not None:
            self._count(connection.client_address, -held[1])
        return held is not None

    def _count(self, address: str, size: int) -> None:
        self.unsent += size
        held = self._held_by.pop(address, 0) + size
        if held > 0:
            self._held_by[address] = held
        if held > self._max_unsent // ADDRESSES_PER_MEMORY:
            self.heavy.park(address)
        else:
            self.heavy.unpark(address)

    def overdue(self, now_ns: int) -> Request | None:
        """Whose answer has held memory for too long, while others wait for it."""
        if not self.is_short():
            return None
        everybody = not self.has_memory()
        for connection, (since_ns, size, request) in self._held.items():
            late = now_ns - since_ns >= PATIENCE_NS
            if late and (everybody or self.heavy.waits_parked(connection.client_address)):
                self._held[connection] = (now_ns, size, request)  # not again at once: its processor needs a moment
                return request
        return None

    def clear(self) -> None:
        self.heavy.clear()
        self.admin.clear()

    def __len__(self) -> int:
        return len(self.heavy) + len(self.admin)

    def __repr__(self) -> str:
        return f"<SlowLane heavy={len(self.heavy)} admin={len(self.admin)} running={self.running} unsent={self.unsent}>"
