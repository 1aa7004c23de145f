"""How many connections there may be, and how fast new ones may come (RP-9, RP-10, RP-11).

Role:    acceptors `acquire` before they hand a socket on; whoever closes it `release`s. Over the broker's or the listener's
         limit the acceptor waits here, except on the inter-broker listener, which the broker-wide limits do not touch.
         Over the limit of an address the connection is refused at once.
Thread:  any; acceptors may block in `acquire`.
Lock:    `_changed` guards all counters and limits; it is notified on every release and on every change of a limit.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable

from barnabas.broker.connection_settings import is_address
from barnabas.broker.network.host_names import HostNames
from barnabas.broker.network.rate import SampledRate
from barnabas.clock import Clock, SystemClock
from barnabas.config import Config
from barnabas.errors import BarnabasError

UNLIMITED = 2**31 - 1
WAIT_SLICE_SECONDS = 0.5
MAX_IDLE_ADDRESSES = 1000

DYNAMIC_KEYS = (
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.connection.creation.rate",
)
LISTENER_KEYS = ("max.connections", "max.connection.creation.rate")
"""Those that a listener may have a limit of its own for."""


class TooManyConnections(BarnabasError):
    """An address has all the connections that it may have."""

    def __init__(self, address: str, limit: int) -> None:
        self.address = address
        self.limit = limit
        super().__init__(f"{address} already has the configured maximum of {limit} connections")


class ConnectionThrottled(BarnabasError):
    """An address opens connections too fast; the socket is kept for `throttle_ms` and then closed."""

    def __init__(self, address: str, throttle_ms: int) -> None:
        self.address = address
        self.throttle_ms = throttle_ms
        super().__init__(f"{address} opens connections too fast, throttled for {throttle_ms} ms")


class AcceptorStopped(BarnabasError):
    """The listener went away while its acceptor waited for a slot."""


class ListenerQuota:
    """The counters and limits of one listener; guarded by the owner's lock."""

    __slots__ = ("count", "ip_throttled_ms", "max_connections", "rate", "throttled_ms")

    def __init__(self, rate: SampledRate) -> None:
        self.count = 0
        self.max_connections = UNLIMITED
        self.rate = rate
        self.throttled_ms = 0  # in all, because of the broker's or the listener's rate
        self.ip_throttled_ms = 0  # in all, because of an address's rate


class ConnectionQuotas:
    """Thread-safe."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._config = config
        self._inter_broker = (config["inter.broker.listener.name"] or "").upper()
        self._window_ns = config["quota.window.size.seconds"] * 1_000_000_000
        self._windows = config["quota.window.num"]
        self._changed = threading.Condition()
        self._by_address: dict[str, int] = {}
        self._listeners: dict[str, ListenerQuota] = {}
        self._total = 0
        self._max_connections = UNLIMITED
        self._max_per_ip = UNLIMITED
        self._overrides: dict[str, int] = {}
        self._override_items: tuple[str, ...] = ()
        self._host_names = HostNames()
        self._broker_rate = self._new_rate()
        self._ip_rates: dict[str, SampledRate] = {}
        self._ip_rate_limits: dict[str, int] = {}
        self._default_ip_rate = UNLIMITED
        self.configure(config)

    def _new_rate(self, limit: int = UNLIMITED) -> SampledRate:
        return SampledRate(limit, self._windows, self._window_ns)

    def follow_config(self) -> None:
        """Take each change of a limit from now on, of the broker and of the listeners that there are."""
        limits = (f"listener.name.{name.lower()}.{key}" for name in self._listeners for key in LISTENER_KEYS)
        self._config.follow((*DYNAMIC_KEYS, *limits), self.configure)

    # ---- limits, all dynamic -------------------------------------------------------------------------------------

    def configure(self, config: Config) -> None:
        """Take the limits from the configuration; waiting acceptors look again. Called for each change. The limit of a host's name is in
        force as soon as the name servers have answered: counting is by address."""
        with self._changed:
            self._max_connections = config["max.connections"]
            self._max_per_ip = config["max.connections.per.ip"]
            self._configure_overrides(config["max.connections.per.ip.overrides"])
            self._broker_rate.limit = config["max.connection.creation.rate"]
            for name, quota in self._listeners.items():
                self._configure_listener(name, quota)
            self._changed.notify_all()

    def _configure_overrides(self, items: tuple[str, ...]) -> None:
        if items == self._override_items:
            return
        overrides, names = _counts(items)

        def found(name: str, addresses: frozenset[str]) -> None:
            with self._changed:
                overrides.update(dict.fromkeys(addresses, names[name]))

        self._host_names.look_up(list(names), found)
        self._overrides, self._override_items = overrides, items

    def _configure_listener(self, name: str, quota: ListenerQuota) -> None:
        prefix = f"listener.name.{name.lower()}."
        limit, rate = (self._config.get(prefix + key) for key in LISTENER_KEYS)
        quota.max_connections = UNLIMITED if limit is None else limit
        quota.rate.limit = UNLIMITED if rate is None else rate

    def add_listener(self, name: str) -> None:
        with self._changed:
            if name not in self._listeners:
                quota = self._listeners[name] = ListenerQuota(self._new_rate())
                self._configure_listener(name, quota)
            self._changed.notify_all()

    def remove_listener(self, name: str) -> None:
        """Acceptors that wait for a slot of this listener give up."""
        with self._changed:
            self._listeners.pop(name, None)
            self._changed.notify_all()

    def set_ip_rate(self, address: str | None, rate: int | None) -> None:
        """The creation rate of one address, or of all others (None). A rate of None goes back to the default."""
        with self._changed:
            if address is None:
                self._default_ip_rate = UNLIMITED if rate is None else rate
            elif rate is None:
                self._ip_rate_limits.pop(address, None)
            else:
                self._ip_rate_limits[address] = rate
            for known in self._ip_rates if address is None else self._ip_rates.keys() & {address}:
                self._ip_rates[known].limit = self.ip_rate(known)

    def ip_rate(self, address: str) -> int:
        return self._ip_rate_limits.get(address, self._default_ip_rate)

    # ---- the life of a connection --------------------------------------------------------------------------------

    def acquire(self, listener: str, address: str, still_wanted: Callable[[], bool] = lambda: True) -> int:
        """Count a new connection, after waiting for a slot. Returns the nanoseconds that were spent waiting. When it raises,
        nothing was counted."""
        with self._changed:
            blocked_ns = self._wait_for_slot(listener, still_wanted)
            self._check_ip_rate(listener, address)
            count = self._by_address.get(address, 0)
            limit = self._overrides.get(address, self._max_per_ip)
            if count >= limit:
                raise TooManyConnections(address, limit)
            self._by_address[address] = count + 1
            self._total += 1
            self._listeners[listener].count += 1
        return blocked_ns

    def release(self, listener: str, address: str) -> None:
        """A counted connection is gone; exactly once for each `acquire`."""
        with self._changed:
            count = self._by_address.get(address, 0)
            if count == 0:
                raise BarnabasError(f"{address} has no connection that could be given back")
            if count == 1:
                del self._by_address[address]
            else:
                self._by_address[address] = count - 1
            self._total -= 1
            quota = self._listeners.get(listener)
            if quota is not None and quota.count > 0:
                quota.count -= 1
            self._changed.notify_all()

    def wake_waiting(self) -> None:
        """Let waiting acceptors see at once that they are stopped."""
        with self._changed:
            self._changed.notify_all()

    def exceeded(self, listener: str) -> bool:
        """Whether the broker has more connections than it may, so that this listener should close one (RP-18)."""
        return self._total > self._max_connections and not self._protected(listener)

    # ---- called with the lock ------------------------------------------------------------------------------------

    def _wait_for_slot(self, listener: str, still_wanted: Callable[[], bool]) -> int:
        start_ns = now = self._clock.monotonic_ns()
        end_ns = start_ns + self._record_new_connection(listener, start_ns) * 1_000_000
        waited = False
        while now < end_ns or not self._slot_available(listener):
            waited = True
            left = (end_ns - now) / 1e9
            self._changed.wait(min(left, WAIT_SLICE_SECONDS) if left > 0 else WAIT_SLICE_SECONDS)
            if not still_wanted() or listener not in self._listeners:
                raise AcceptorStopped(f"{listener} was stopped while a connection waited for a slot")
            now = self._clock.monotonic_ns()
        return now - start_ns if waited else 0

    def _slot_available(self, listener: str) -> bool:
        quota = self._quota(listener)
        if quota.count >= quota.max_connections:
            return False
        return self._protected(listener) or self._total < self._max_connections

    def _protected(self, listener: str) -> bool:
        """Broker-wide limits never lock out the inter-broker listener, when it is not the only one."""
        return listener == self._inter_broker and len(self._listeners) > 1

    def _quota(self, listener: str) -> ListenerQuota:
        quota = self._listeners.get(listener)
        if quota is None:
            raise BarnabasError(f"no listener {listener} is registered")
        return quota

    def _record_new_connection(self, listener: str, now_ns: int) -> int:
        """Milliseconds by which this connection must be delayed to keep the broker's and the listener's rate."""
        quota = self._quota(listener)
        throttle_ms = 0 if self._protected(listener) else self._broker_rate.record(now_ns)
        throttle_ms = max(throttle_ms, quota.rate.record(now_ns))
        quota.throttled_ms += throttle_ms
        return throttle_ms

    def _check_ip_rate(self, listener: str, address: str) -> None:
        """A connection over its address's rate is not accepted, so it counts nowhere."""
        limit = self.ip_rate(address)
        if limit == UNLIMITED:
            return
        now_ns = self._clock.monotonic_ns()
        rate = self._ip_rates.get(address)
        if rate is None:
            self._forget_idle_addresses(now_ns)
            rate = self._ip_rates[address] = self._new_rate(limit)
        throttle_ms = rate.record(now_ns)
        if throttle_ms > 0:
            quota = self._listeners[listener]
            quota.ip_throttled_ms += throttle_ms
            rate.unrecord(now_ns)
            quota.rate.unrecord(now_ns)
            if not self._protected(listener):
                self._broker_rate.unrecord(now_ns)
            raise ConnectionThrottled(address, throttle_ms)

    def _forget_idle_addresses(self, now_ns: int) -> None:
        if len(self._ip_rates) >= MAX_IDLE_ADDRESSES:
            self._ip_rates = {a: rate for a, rate in self._ip_rates.items() if rate.rate(now_ns) > 0}

    # ---- figures -------------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        return self._total

    def count(self, address: str) -> int:
        return self._by_address.get(address, 0)

    def listener_count(self, listener: str) -> int:
        quota = self._listeners.get(listener)
        return quota.count if quota is not None else 0

    def creation_rate(self, listener: str | None = None) -> float:
        """New connections per second, of the broker or of one listener."""
        with self._changed:
            rate = self._broker_rate if listener is None else self._quota(listener).rate
            return rate.rate(self._clock.monotonic_ns())

    def throttled_ms(self, listener: str) -> tuple[int, int]:
        """Delays in all: because of the broker's or listener's rate, and because of addresses' rates."""
        quota = self._quota(listener)
        return quota.throttled_ms, quota.ip_throttled_ms

    def __repr__(self) -> str:
        counts = {name: quota.count for name, quota in self._listeners.items()}
        return f"<ConnectionQuotas total={self._total}/{self._max_connections} listeners={counts}>"


def _counts(items: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int]]:
    """Of `host:count` items: by address, and by name."""
    counts = {host.strip("[]"): int(count) for host, _, count in (item.rpartition(":") for item in items)}
    by_address = {ipaddress.ip_address(host).compressed: count for host, count in counts.items() if is_address(host)}
    return by_address, {host: count for host, count in counts.items() if not is_address(host)}
