"""Client quotas (RP-39): produced and fetched bytes per second and share of request time, by user, client id or both.

Role:    measures each client's rate over Kafka's sampled windows and says for how long it must be throttled. The answer
         goes out at once with `throttle_time_ms`; `request.throttle` then keeps the connection muted (KIP-219).
Threads: any; `update` from whoever changes the catalog.
Lock:    one per client and resource for its samples, one for the tables. A charge takes the latter only for a client that it has not
         seen since the last change of a limit.

Cost when no quota is configured: `if quotas.enabled:` in the caller, one attribute.

The formula (Kafka's): with O the rate over the window W and T the limit, waiting X brings O down to T when
O · W / (W + X) = T, so X = (O - T) / T · W. W is the time since the oldest sample, at least all windows but one.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker import metrics as rows
from barnabas.clock import Clock
from barnabas.metrics import Sample, label_text

if TYPE_CHECKING:
    from barnabas.broker.network.request import Request
    from barnabas.metrics import Registry

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of entity type (`user`, `client-id`) and name; the name None is the default entity of that type."""

MAX_THROTTLE_MS: Final = 2**31 - 1
MAX_CLIENTS: Final = 10_000
"""Clients measured at a time, per resource. Client ids are chosen by peers, so their number must have a bound."""
MAX_NAME: Final = 256
"""Longer client ids, of up to 32 KB, are kept as their beginning and a digest."""
IDLE_MS: Final = 3_600_000
"""Who has sent nothing for so long is forgotten; Kafka's time for it."""
CHECK_MS: Final = 60_000
MAX_LINES: Final = 1_000
"""Clients on the metrics page, per resource: those throttled most."""
NS_TO_PERCENT: Final = 100.0 / 1_000_000_000

_USER_PREFIX = "User:"
_ABSENT: Final = "\0absent"  # cannot be a name that came from a client: NUL is refused in quota entities
_DEFAULT: Final = "\0default"
_Key = tuple[str, str]


class ClientRate:
    """The measured rate of one client for one resource, and its limit. Thread-safe."""

    __slots__ = ("_lock", "_samples", "_window_count", "_window_ms", "client_id", "last_throttle_ms", "limit", "user")

    def __init__(self, tags: _Key, limit: float, window_count: int, window_ms: int) -> None:
        self.user, self.client_id = tags
        self.limit = limit
        self.last_throttle_ms = 0
        self._window_count = window_count
        self._window_ms = window_ms
        self._lock = threading.Lock()
        # [start, last event, sum] in ms, oldest first. One more than the windows: the oldest may overlap their begin.
        self._samples: deque[list[float]] = deque(maxlen=window_count + 1)

    def record(self, value: float, now_ms: int) -> int:
        """Count `value`; the throttle time in ms, 0 when the rate is within the limit."""
        with self._lock:
            self._add(value, now_ms)
            window_ms = self._measured_ms(now_ms)
            rate = 1000.0 * sum(sample[2] for sample in self._samples) / window_ms
            limit = self.limit
            if rate <= limit:
                self.last_throttle_ms = 0
                return 0
            excess = (rate - limit) / limit * window_ms if limit > 0 else float(MAX_THROTTLE_MS)
            self.last_throttle_ms = throttle_ms = round(min(excess, MAX_THROTTLE_MS))  # a tiny limit makes it infinite
            return throttle_ms

    def unrecord(self, value: float, now_ms: int) -> None:
        """Take back what was counted for an answer that is not sent."""
        with self._lock:
            self._add(-value, now_ms)

    def rate(self, now_ms: int) -> float:
        with self._lock:
            self._purge(now_ms)
            return 1000.0 * sum(sample[2] for sample in self._samples) / self._measured_ms(now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """One that has counted nothing yet is about to."""
        with self._lock:
            return bool(self._samples) and now_ms - self._samples[-1][1] >= IDLE_MS

    def _add(self, value: float, now_ms: int) -> None:
        self._purge(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, now_ms, value])
        else:
            newest = samples[-1]
            newest[1] = now_ms
            newest[2] += value

    def _purge(self, now_ms: int) -> None:
        oldest_event = now_ms - self._window_count * self._window_ms
        samples = self._samples
        while samples and samples[0][1] <= oldest_event:
            samples.popleft()

    def _measured_ms(self, now_ms: int) -> float:
        """The time the samples stand for: never less than all windows but one, or the first burst would look endless."""
        elapsed = now_ms - self._samples[0][0] if self._samples else 0
        missing = self._window_count - 1 - elapsed // self._window_ms
        if missing > 0:
            elapsed += missing * self._window_ms
        return max(elapsed, 1)

    def __repr__(self) -> str:
        return f"<ClientRate user={self.user!r} client={self.client_id!r} limit={self.limit}>"


class ResourceQuota:
    """The limits of one resource and the rates of the clients they apply to. Thread-safe."""

    __slots__ = ("_clients", "_limits", "_lock", "_rates", "_window_count", "_window_ms", "enabled", "resource")

    def __init__(self, resource: str, window_count: int, window_ms: int) -> None:
        self.resource = resource
        self.enabled = False
        self._window_count = window_count
        self._window_ms = window_ms
        self._lock = threading.Lock()
        self._limits: dict[_Key, float] = {}
        self._clients: dict[_Key, ClientRate | None] = {}  # what `_resolve` found, until a limit changes
        self._rates: dict[_Key, ClientRate] = {}

    def set_limit(self, entity: Mapping[str, str | None], value: float | None) -> None:
        key = (_part(entity, "user"), _part(entity, "client-id"))
        with self._lock:
            if value is None:
                self._limits.pop(key, None)
            else:
                self._limits[key] = value
            self._clients = {}  # a client that is measured gets its new limit with its next charge
            self.enabled = bool(self._limits)

    def limit_of(self, user: str, client_id: str) -> float | None:
        """The limit that applies to a client, None when there is none."""
        with self._lock:
            found = self._resolve(user, client_id)
        return None if found is None else found[1]

    def rate_of(self, user: str, client_id: str) -> ClientRate | None:
        """Where to count a client, None when no limit applies to it."""
        key = (user, client_id)
        clients = self._clients
        if key in clients:
            return clients[key]
        with self._lock:
            found = self._resolve(user, client_id)
            rate = None if found is None else self._rate(*found)
            if len(self._clients) >= MAX_CLIENTS:
                self._clients = {}
            self._clients[key] = rate
            return rate

    def max_in_window(self, user: str, client_id: str) -> float:
        """What a client may use at once without certain throttling, were its windows empty."""
        rate = self.rate_of(user, client_id)
        return float("inf") if rate is None else rate.limit * (self._window_count - 1) * self._window_ms / 1000

    def rates(self) -> list[ClientRate]:
        """Of clients that a limit applies to."""
        with self._lock:
            rates = list(self._rates.items())
        return [rate for tags, rate in rates if self._applies(tags)]

    def forget_idle(self, now_ms: int) -> None:
        with self._lock:
            kept = {tags: rate for tags, rate in self._rates.items() if not rate.is_idle(now_ms)}
            if len(kept) < len(self._rates):
                self._rates = kept
                self._clients = {}

    def _applies(self, tags: _Key) -> bool:
        with self._lock:
            found = self._resolve(*tags)
        return found is not None and found[0] == tags

    # Under the lock.

    def _resolve(self, user: str, client_id: str) -> tuple[_Key, float] | None:
        """The most specific limit and whose rate it limits: Kafka's order of precedence."""
        limits = self._limits
        for key, tags in (
            ((user, client_id), (user, client_id)),
            ((user, _DEFAULT), (user, client_id)),
            ((user, _ABSENT), (user, "")),
            ((_DEFAULT, client_id), (user, client_id)),
            ((_DEFAULT, _DEFAULT), (user, client_id)),
            ((_DEFAULT, _ABSENT), (user, "")),
            ((_ABSENT, client_id), ("", client_id)),
            ((_ABSENT, _DEFAULT), ("", client_id)),
        ):
            if key in limits:
                return tags, limits[key]
        return None

    def _rate(self, tags: _Key, limit: float) -> ClientRate:
        rate = self._rates.get(tags)
        if rate is None:
            if len(self._rates) >= MAX_CLIENTS:
                # The one that was measured first goes; if it is still there it starts again with empty windows.
                del self._rates[next(iter(self._rates))]
                self._clients = {}
            rate = self._rates[tags] = ClientRate(tags, limit, self._window_count, self._window_ms)
        rate.limit = limit
        return rate

    def __repr__(self) -> str:
        return f"<ResourceQuota {self.resource} limits={len(self._limits)} clients={len(self._rates)}>"


class ClientQuotas:
    """The three client quotas of a broker. `enabled` is False as long as no limit is set for any of them."""

    __slots__ = ("_by_key", "_next_check_ms", "_now_ns", "_window_ms", "enabled", "fetch", "produce", "request")

    def __init__(self, clock: Clock, window_count: int = 11, window_seconds: int = 1) -> None:
        self._now_ns = clock.monotonic_ns
        self._window_ms = window_seconds * 1000
        self._next_check_ms = 0
        self.enabled = False
        self.produce = ResourceQuota("Produce", window_count, self._window_ms)
        self.fetch = ResourceQuota("Fetch", window_count, self._window_ms)
        self.request = ResourceQuota("Request", window_count, self._window_ms)
        self._by_key = {
            "producer_byte_rate": self.produce,
            "consumer_byte_rate": self.fetch,
            "request_percentage": self.request,
        }

    def update(self, entity: QuotaEntity | Mapping[str, str | None], key: str, value: float | None) -> None:
        """Set (None: remove) one quota of one entity. Entities by `ip` and other keys belong to other owners."""
        resource = self._by_key.get(key)
        parts = dict(entity)
        if resource is None or "ip" in parts or not parts:
            return
        resource.set_limit(parts, value)
        self.enabled = any(quota.enabled for quota in self._by_key.values())

    def load(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Take over what the catalog has stored, at start."""
        for entity, values in quotas.items():
            for key, value in values.items():
                self.update(entity, key, value)

    # Charges: ask `enabled` first.

    def charge_produce(self, request: Request, size: int, *, exempt: bool) -> int:
        """Bytes of a Produce request and, unless exempt (acks=0), its time; the throttle time in ms."""
        bandwidth = self._charge_bytes(self.produce, request, size)
        return max(bandwidth, 0 if exempt else self.charge_time(request))

    def charge_fetch(self, request: Request, size: int) -> int:
        """Bytes and time of a Fetch answer. When throttled the bytes are taken back: an empty answer goes out instead.

        A first batch larger than all windows together is charged as what they hold: it would never be sent otherwise.
        """
        used = self.charge_time(request)
        size = int(min(size, self.max_fetch_bytes(request)))
        throttle_ms = max(used, self._charge_bytes(self.fetch, request, size))
        if throttle_ms > 0 and self.fetch.enabled:
            rate = self.fetch.rate_of(*client_of(request))
            if rate is not None:
                rate.unrecord(size, self._now_ns() // 1_000_000)
        return throttle_ms

    def max_fetch_bytes(self, request: Request) -> float:
        """An answer above this would always be throttled, so a consumer would never get it."""
        return self.fetch.max_in_window(*client_of(request)) if self.fetch.enabled else float("inf")

    def charge_time(self, request: Request) -> int:
        """Request-percentage quota: the time that a handler has spent on this request. At most one window."""
        if not self.request.enabled:
            return 0
        rate = self.request.rate_of(*client_of(request))
        if rate is None:
            return 0
        now_ns = self._now_ns()
        self._forget_idle(now_ns // 1_000_000)
        busy_ns = (request.local_done_ns or now_ns) - request.dequeue_ns
        throttle_ms = min(rate.record(busy_ns * NS_TO_PERCENT, now_ns // 1_000_000), self._window_ms)
        if throttle_ms > 0:
            request.throttle(throttle_ms, "Request")
        return throttle_ms

    def charge_other(self, request: Request, message: Any) -> None:
        """For every API but Produce and Fetch: charge the time and put the throttle time into the answer."""
        throttle_ms = self.charge_time(request)
        if throttle_ms > 0 and hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = throttle_ms

    def _charge_bytes(self, quota: ResourceQuota, request: Request, size: int) -> int:
        if not quota.enabled:
            return 0
        rate = quota.rate_of(*client_of(request))
        if rate is None:
            return 0
        now_ms = self._now_ns() // 1_000_000
        self._forget_idle(now_ms)
        throttle_ms = rate.record(size, now_ms)
        if throttle_ms > 0:
            request.throttle(throttle_ms, quota.resource)
        return throttle_ms

    def _forget_idle(self, now_ms: int) -> None:
        """Now and then. Two threads may both find that it is time, which costs a second look and nothing else."""
        if now_ms >= self._next_check_ms:
            self._next_check_ms = now_ms + CHECK_MS
            for quota in self._by_key.values():
                quota.forget_idle(now_ms)

    # Metrics

    def register(self, registry: Registry) -> None:
        """Feed the row `kafka_server_quota_throttle_time{resource,user,clientId}`."""
        registry.register(rows.QUOTA_THROTTLE, self.samples)
        registry.gauge(rows.LEFT_OUT, self._left_out, label_text(what="clients"))

    def samples(self) -> Iterator[Sample]:
        """Clients whose names look the same once they are printable share a line."""
        self._forget_idle(self._now_ns() // 1_000_000)
        for quota in self._by_key.values():
            lines: dict[str, float] = {}
            for rate in heapq.nlargest(MAX_LINES, quota.rates(), attrgetter("last_throttle_ms")):
                labels = label_text(resource=quota.resource, user=rate.user, clientId=rate.client_id)
                lines[labels] = max(lines.get(labels, 0), rate.last_throttle_ms)
            for labels, throttle_ms in lines.items():
                yield Sample(throttle_ms, labels)

    def _left_out(self) -> int:
        return sum(max(0, len(quota.rates()) - MAX_LINES) for quota in self._by_key.values())

    def __repr__(self) -> str:
        return f"<ClientQuotas {list(self._by_key.values())}>"


def client_of(request: Request) -> _Key:
    """User and client id of a request, as quota entities name them."""
    return request.connection.principal.removeprefix(_USER_PREFIX), _short(request.header.client_id or "")


def _part(entity: Mapping[str, str | None], kind: str) -> str:
    if kind not in entity:
        return _ABSENT
    name = entity[kind]
    return _DEFAULT if name is None else _short(name)


def _short(name: str) -> str:
    if len(name) <= MAX_NAME:
        return name
    from hashlib import blake2b  # rare, and not cheap to load

    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[: MAX_NAME - 40]}…{digest}"
