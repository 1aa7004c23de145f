"""The socket server: composes the request path of a broker (the picture at the top of the specification).

Role:    per listener one acceptor and N processors; one request channel and handler pool for the data plane and, when
         `control.plane.listener.name` is set, a second set for the control plane (RP-36). Starts, resizes and stops them.
Thread:  `bind`, `start` and `shutdown` from any one thread at a time; the resizes from any.
Lock:    `_resizing` makes one resize at a time; neither start nor shutdown takes it. `_lock` guards whether the server has started or
         stopped, for a few byte codes.

Shutdown (RP-3): stop accepting, stop reading, drain the handlers, answer what waits in a purgatory, flush the responses, close.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.broker.budget import Budget
from barnabas.broker.handlers import RequestHandlerPool
from barnabas.broker.listeners import Listener
from barnabas.broker.network.acceptor import Acceptor, SocketOptions
from barnabas.broker.network.baton import Baton
from barnabas.broker.network.connection_quotas import ConnectionQuotas
from barnabas.broker.network.plane import CONTROL, DATA, Plane
from barnabas.broker.network.processor import Processor
from barnabas.broker.network.request_channel import RequestChannel, Schedule
from barnabas.broker.network.shared_core import SharedCore
from barnabas.broker.network.stand_in import GroupCommit, StandIn
from barnabas.broker.request_metrics import RequestMetrics
from barnabas.broker.settings import gil_enabled, inline_requests
from barnabas.clock import Clock, SharedTimeout, SystemClock
from barnabas.config import Config
from barnabas.errors import BarnabasError
from barnabas.net.deadlines import Deadlines
from barnabas.net.memory_pool import MemoryPool, SimpleMemoryPool, UnlimitedMemoryPool
from barnabas.net.read_on import READ_ON_PER_PROCESSOR
from barnabas.net.sending import UnsentMemory
from barnabas.threads import FatalHandler

if TYPE_CHECKING:
    from barnabas.broker.apis.table import ApiRow

log = logging.getLogger(__name__)

CONTROL_QUEUE = 20
LEAST_HANDLERS = 2
"""A slow request always leaves a handler to the others, also where num.io.threads is 1."""
MS = 1_000_000
RESIZE_SECONDS = 10.0
"""For processors that end because there are to be fewer; each sends its responses for a second at most."""


class SocketServer:
    """See the file header."""

    def __init__(
        self,
        config: Config,
        listeners: Iterable[Listener],
        apis: Mapping[int, ApiRow],
        schedule: Schedule,
        *,
        clock: Clock | None = None,
        on_fatal: FatalHandler | None = None,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._on_fatal = on_fatal
        self._lock = threading.Lock()
        self._resizing = threading.Lock()
        self._ids = itertools.count()
        self._started = False
        self._stopped = False
        self.on_drained: Callable[[], None] = lambda: None
        """Called during shutdown, after the last handler ended: whoever still holds a request answers it now."""
        self.group_commit: GroupCommit | None = None
        """Set before the start: what processors that run requests themselves do between two turns."""
        self._schedule = schedule
        self.quotas = ConnectionQuotas(config, self._clock)
        self.request_metrics = RequestMetrics(config["barnabas.request.log.threshold.ms"])
        self.memory_pool = _memory_pool(config["queued.max.request.bytes"])
        self._unsent = UnsentMemory(config["barnabas.response.unsent.bytes"])
        self.data_plane = self._new_plane(DATA, config["queued.max.requests"], apis)
        self.control_plane: Plane | None = None
        self.pools: dict[str, RequestHandlerPool] = {}
        self.acceptors: dict[str, Acceptor] = {}
        control = (config["control.plane.listener.name"] or "").upper()
        for listener in listeners:
            if listener.name == control:
                self.control_plane = self._new_plane(CONTROL, CONTROL_QUEUE, apis)
            self._add_acceptor(listener)

    def _new_plane(self, name: str, limit: int, apis: Mapping[int, ApiRow]) -> Plane:
        config, budget = self._config, Budget.of(self._config)
        data = name == DATA
        return Plane(
            RequestChannel(limit, clock=self._clock, schedule=self._schedule, eager=not gil_enabled(), budget=budget),
            self.quotas,
            self.request_metrics,
            apis,
            name,
            config["node.id"],
            self._clock,
            # The control plane must not wait for memory that data requests hold.
            self.memory_pool if data else UnlimitedMemoryPool(),
            config["socket.request.max.bytes"],
            config["connections.max.idle.ms"] * MS,
            Deadlines(
                first_frame_ns=config["barnabas.connection.first.request.ms"] * MS,
                frame_ns=config["barnabas.request.read.ms"] * MS,
                write_ns=config["barnabas.response.write.ms"] * MS,
                authentication_ns=config["barnabas.connection.first.request.ms"] * MS,
                failed_authentication_delay_ns=config["connection.failed.authentication.delay.ms"] * MS,
                stuck_ns=config["barnabas.response.stuck.ms"] * MS,
            ),
            budget,
            _read_on(config),
            self._unsent,
            inline_requests(config) and data,
            baton=Baton(gil_enabled() and data),
            shared_core=SharedCore(
                gil_enabled() and data and not inline_requests(config) and config["barnabas.request.shared.core"]
            ),
            on_fatal=self._on_fatal,
        )

    def _add_acceptor(self, listener: Listener) -> None:
        config = self._config
        options = SocketOptions(
            config["socket.send.buffer.bytes"],
            config["socket.receive.buffer.bytes"],
            config["socket.listen.backlog.size"],
        )
        plane = self.plane_of(listener)
        self.acceptors[listener.name] = Acceptor(
            listener, self.quotas, options, self._clock, plane.name, self._on_fatal
        )

    def plane_of(self, listener: Listener) -> Plane:
        control = (self._config["control.plane.listener.name"] or "").upper()
        return self.control_plane if self.control_plane and listener.name == control else self.data_plane

    @property
    def planes(self) -> list[Plane]:
        return [self.data_plane] if self.control_plane is None else [self.data_plane, self.control_plane]

    # ---- start ---------------------------------------------------------------------------------------------------

    def bind(self) -> dict[str, tuple[str, int]]:
        """Open every listening socket; raises `BindFailed`. Listener name → (host, port), with the port that the system chose
        for 0. Nobody can connect before `start`."""
        try:
            return {name: (a.listener.host, a.open()) for name, a in self.acceptors.items()}
        except BaseException:
            self._close_acceptors()
            raise

    def start(self, services: Any) -> None:
        """Start handlers, then processors, then acceptors: who takes is there before who gives."""
        with self._lock:
            if self._started or self._stopped:
                raise BarnabasError("the socket server was started or stopped before")
            self._started = True
        try:
            self.bind()
            self._start(services)
        except BaseException:
            self.shutdown()
            raise

    def _start(self, services: Any) -> None:
        for plane in self.planes:
            plane.services = services
            self.pools[plane.name] = RequestHandlerPool(plane)
        if self.control_plane is not None:
            self.pools[CONTROL].start(LEAST_HANDLERS)
        follow = self._config.follow
        follow(("num.io.threads",), lambda config: self.resize_handlers(config["num.io.threads"]))
        follow(("num.network.threads", "num.io.threads"), self._choose_path)
        if self.group_commit is not None and self.data_plane.inline:
            self.data_plane.stand_in = StandIn(DATA, self.group_commit, self._clock, self._on_fatal)
            self.data_plane.stand_in.start()
        for name in self.acceptors:
            self.quotas.add_listener(name)
        self.quotas.follow_config()
        for acceptor in self.acceptors.values():
            if self.plane_of(acceptor.listener) is not self.data_plane:
                self._add_processor(acceptor)
        follow(("num.network.threads",), lambda config: self.resize_processors(config["num.network.threads"]))
        follow(("barnabas.request.log.threshold.ms",), self._set_log_threshold)
        for acceptor in self.acceptors.values():
            acceptor.start()

    def _choose_path(self, config: Config) -> None:
        """The short cut is off as soon as a thread count is set, also at run time."""
        self.data_plane.inline = inline_requests(config)

    def _set_log_threshold(self, config: Config) -> None:
        self.request_metrics.set_log_threshold(config["barnabas.request.log.threshold.ms"])

    # ---- thread counts -------------------------------------------------------------------------------------------

    @property
    def _serving(self) -> bool:
        with self._lock:
            return self._started and not self._stopped

    def resize_handlers(self, count: int) -> None:
        """`num.io.threads` handlers for the data plane (RP-35), at least two."""
        with self._resizing:
            if self._serving:
                pool = self.pools[DATA]
                pool.resize(max(LEAST_HANDLERS, count))
                log.info("%d request handlers", pool.size)

    def resize_processors(self, count: int) -> None:
        """`num.network.threads` processors for each listener of the data plane (RP-8)."""
        with self._resizing:
            for acceptor in self.acceptors.values():
                if self.plane_of(acceptor.listener) is self.data_plane:
                    self._resize_listener(acceptor, count)

    def _resize_listener(self, acceptor: Acceptor, count: int) -> None:
        while self._serving and len(acceptor.processors) < count:
            self._add_processor(acceptor)
        surplus = max(0, len(acceptor.processors) - count) if self._serving else 0
        self._end_processors(acceptor.take_processors(surplus), self.data_plane, RESIZE_SECONDS)
        log.info("%d network threads for %s", count, acceptor.listener.name)

    def _add_processor(self, acceptor: Acceptor) -> None:
        """Start one more; when that fails, nothing of it is left."""
        plane = self.plane_of(acceptor.listener)
        try:
            processor = Processor(next(self._ids), acceptor.listener, plane)
        except OSError as error:  # no descriptor left
            text = f"a network thread of {acceptor.listener.name} cannot be started: {error.strerror or error}"
            raise BarnabasError(text) from error
        plane.request_channel.add_processor(processor)
        try:
            processor.start()
        except BaseException:
            plane.request_channel.remove_processor(processor.id)
            processor.selector.close_all()
            raise
        acceptor.add_processor(processor)
        if not self._serving:  # a shutdown may have looked for processors before this one was there
            self._end_processors([processor], plane, RESIZE_SECONDS)

    def _end_processors(self, processors: list[Processor], plane: Plane, timeout: float) -> None:
        patience = SharedTimeout(self._clock, timeout)
        for processor in processors:
            processor.initiate_shutdown()
        for processor in processors:
            processor.await_shutdown(patience.left)
            plane.request_channel.remove_processor(processor.id)

    # ---- stop ----------------------------------------------------------------------------------------------------

    def stop_accepting(self, timeout: float = 30.0) -> None:
        """No further connection."""
        patience = SharedTimeout(self._clock, timeout)
        for acceptor in self.acceptors.values():
            acceptor.initiate_shutdown()
        for acceptor in self.acceptors.values():
            acceptor.await_shutdown(patience.left)

    def shutdown(self, timeout: float = 30.0) -> bool:
        """See the file header. False when something was still busy after `timeout` seconds.

        Nothing here waits for a resize: it may run on a handler that is waited for here. It sees that the server has stopped before
        it starts the next thread.
        """
        with self._lock:
            if self._stopped:
                return True
            self._stopped = True
        if not self._started:
            self._close_acceptors()
            return True
        patience = SharedTimeout(self._clock, timeout)
        self.stop_accepting(timeout)
        for processor in self.processors:
            processor.stop_reading()
        ended = [pool.shutdown(patience.left) for pool in self.pools.values()]
        self.on_drained()
        for plane in self.planes:
            plane.request_channel.close()
        for acceptor in self.acceptors.values():
            plane = self.plane_of(acceptor.listener)
            self._end_processors(acceptor.processors, plane, patience.left)
            self.quotas.remove_listener(acceptor.listener.name)
        if self.data_plane.stand_in is not None:
            self.data_plane.stand_in.shutdown(patience.left)
        self._close_acceptors()
        return all(ended)

    def _close_acceptors(self) -> None:
        for acceptor in self.acceptors.values():
            if not acceptor.is_alive():
                acceptor.close()

    # ---- figures -------------------------------------------------------------------------------------------------

    @property
    def processors(self) -> list[Processor]:
        return [processor for acceptor in self.acceptors.values() for processor in acceptor.processors]

    @property
    def ports(self) -> dict[str, int]:
        return {name: acceptor.port for name, acceptor in self.acceptors.items()}

    def connection_count(self, listener: str | None = None) -> int:
        """Open connections, as the processors have them."""
        return sum(p.connection_count() for p in self.processors if listener in (None, p.listener.name))

    def network_idle_share(self) -> float:
        """NetworkProcessorAvgIdlePercent, 0 to 1."""
        processors = self.processors
        return sum(p.idle.share() for p in processors) / len(processors) if processors else 1.0

    def handler_idle_share(self, plane: str = DATA) -> float:
        """RequestHandlerAvgIdlePercent, 0 to 1."""
        pool = self.pools.get(plane)
        return pool.idle_share() if pool is not None else 1.0

    def __repr__(self) -> str:
        return f"<SocketServer {', '.join(repr(acceptor) for acceptor in self.acceptors.values())}>"


def _read_on(config: Config) -> tuple[int, int]:
    """What is read while a response is stuck counts beside a bounded memory pool: it may be an eighth of that at most."""
    bound = config["queued.max.request.bytes"]
    total = min(READ_ON_PER_PROCESSOR, bound // 8) if bound > 0 else READ_ON_PER_PROCESSOR
    return min(config["barnabas.connection.read.on.bytes"], total), total


def _memory_pool(size: int) -> MemoryPool:
    return SimpleMemoryPool(size) if size > 0 else UnlimitedMemoryPool()
