"""The broker: wires every part, starts them in order and stops them in the opposite order.

Role: the only composition root. Start: catalog and logs (with recovery), purgatories, socket server, metrics page. Stop (RP-3): the
socket server drains first, so that nothing is acknowledged after the logs are flushed and closed.
Thread: `start`, `shutdown` and `wait` from the owner's thread; `on_fatal` from any thread.
Lock: `_lock` serialises start and shutdown.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.broker import client_quota_entities
from barnabas.broker.apis.table import TABLE
from barnabas.broker.catalog import CATALOG_FILE_NAME, Catalog
from barnabas.broker.cleaner_settings import CLEANER_KEYS, cleaner_settings
from barnabas.broker.dynamic_config import DynamicBrokerConfig
from barnabas.broker.fetch_sessions import FetchSessionCache
from barnabas.broker.listeners import advertised, join_address, parse_listeners
from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.results import ForeignLogDir
from barnabas.broker.metrics_registration import register_broker_metrics
from barnabas.broker.network.socket_server import SocketServer
from barnabas.broker.purgatory import Purgatory, Timer, TimerThread
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.services import BrokerServices, Node
from barnabas.broker.settings import log_directories
from barnabas.broker.topic_metrics import TopicMetrics
from barnabas.broker.topic_settings import topic_values
from barnabas.broker.topics import Topics
from barnabas.clock import Clock, SharedTimeout, SystemClock
from barnabas.errors import BarnabasError
from barnabas.metrics import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.metrics_http import MetricsServer
    from barnabas.broker.request_metrics import RequestMetrics
    from barnabas.config import Config

log = logging.getLogger(__name__)

# Kafka's numbers for the metric brokerstate.
NOT_RUNNING, STARTING, RECOVERY, RUNNING, STOPPING = 0, 1, 2, 3, 6

FATAL_EXIT_CODE = 1


class BrokerServer:
    """One broker. `start()` returns when it serves; `shutdown()` when everything is flushed and closed."""

    def __init__(self, config: Config, clock: Clock | None = None, files: FileSystem | None = None) -> None:
        """`files`: the file system under the logs, for tests of broken disks; by default the operating system's."""
        self.config = config
        self._files = files or FileSystem()
        self.clock: Clock = clock or SystemClock()
        self.registry = Registry()
        self.state = NOT_RUNNING
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._exit_code = 0
        self._closers: list[tuple[str, Callable[[float], object]]] = []
        self._socket_server: SocketServer | None = None
        self._services: BrokerServices | None = None
        self._metrics_server: MetricsServer | None = None
        self._timer_thread: TimerThread | None = None

    # ---- start -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything; raises `ConfigError` or another `BarnabasError`, and then nothing is left behind."""
        with self._lock:
            if self.state != NOT_RUNNING or self._ended.is_set():
                raise BarnabasError("the broker was started before")
            self.state = STARTING
            try:
                self._start()
            except BaseException:
                self._close_all(5.0)
                self.state = NOT_RUNNING
                raise
            self.state = RUNNING

    def _start(self) -> None:
        self._timer = Timer(self.clock)
        listeners = parse_listeners(self.config)
        sockets = self._socket_server = SocketServer(
            self.config, listeners, TABLE, self._timer.schedule, clock=self.clock, on_fatal=self.on_fatal
        )
        # A port that is taken is found before recovery begins, which may take long.
        self._on_close("socket server", sockets.shutdown)
        bound = sockets.bind()
        node = Node(self.config["node.id"], self.config["broker.rack"], advertised(self.config, bound))
        services = self._services = self._open_services(node)
        self._start_timer(services)
        register_broker_metrics(self)
        self._start_metrics_server()
        sockets.start(services)

    def _open_services(self, node: Node) -> BrokerServices:
        config, clock = self.config, self.clock
        logs, catalog = self._open_storage()
        purgatories = [Purgatory(name, self._timer) for name in ("Produce", "Fetch", "DeleteRecords")]
        topics = Topics(config, catalog, logs, purgatories, self._files)
        topic_metrics = TopicMetrics()
        topics.on_delete(lambda topic: topic_metrics.remove(topic.name))
        quotas = ClientQuotas(clock, config["quota.window.num"], config["quota.window.size.seconds"])
        client_quota_entities.load(quotas, self.socket_server.quotas, catalog.snapshot.quotas)
        dynamic_config = DynamicBrokerConfig(config, catalog, node.id)
        dynamic_config.load()
        self._recover(logs, topics, catalog)
        return BrokerServices(
            config=config,
            clock=clock,
            node=node,
            metrics=self.registry,
            apis=TABLE,
            catalog=catalog,
            logs=logs,
            topics=topics,
            topic_metrics=topic_metrics,
            dynamic_config=dynamic_config,
            quotas=quotas,
            connection_quotas=self.socket_server.quotas,
            fetch_sessions=FetchSessionCache(
                clock,
                config["max.incremental.fetch.session.cache.slots"],
                config["barnabas.fetch.session.cache.partitions"],
            ),
            produce_purgatory=purgatories[0],
            fetch_purgatory=purgatories[1],
            delete_purgatory=purgatories[2],
        )

    def _open_storage(self) -> tuple[LogManager, Catalog]:
        """Lock the directories first: nothing in them is read, the catalog included, before they are ours."""
        config = self.config
        directories = log_directories(config)
        settings = LogManagerSettings(
            directories,
            node_id=config["node.id"],
            defaults=LogConfig.from_topic_config(topic_values(config, {})),
            flush_interval_ms=config["log.flush.interval.ms"],
            checkpoint_interval_ms=config["log.flush.offset.checkpoint.interval.ms"],
            retention_check_interval_ms=config["log.retention.check.interval.ms"],
            producer_id_expiration_ms=config["producer.id.expiration.ms"],
            recovery_threads=config["num.recovery.threads.per.data.dir"],
            max_open_files=config["barnabas.log.max.open.files"],
            cleaner=cleaner_settings(config),
        )
        logs = LogManager(settings, self.clock, self._files, self.on_fatal)
        config.follow(CLEANER_KEYS, lambda _: logs.cleaner.reconfigure(cleaner_settings(config)))
        config.follow(("log.flush.interval.ms", "producer.id.expiration.ms"), lambda _: _set_intervals(logs, config))
        logs.lock_directories()
        self.socket_server.group_commit = logs.flusher
        self._on_close("log", logs.shutdown)
        # As Kafka's metadata.log.dir, the first directory must work: the catalog is there, and nowhere else.
        file, wanted = Path(directories[0]) / CATALOG_FILE_NAME, config["cluster.id"] or ""
        catalog = Catalog.open(file, self.clock, wanted or logs.stored_cluster_id())
        self._on_close("catalog", catalog.close)
        cluster_id = catalog.snapshot.cluster_id
        logs.claim_directories(cluster_id, wanted)
        if wanted and wanted != cluster_id:
            raise ForeignLogDir("cluster.id", wanted, cluster_id, str(file.absolute()))
        return logs, catalog

    def _recover(self, logs: LogManager, topics: Topics, catalog: Catalog) -> None:
        self.state = RECOVERY
        logs.startup(topics.reconcile(), cluster_id=catalog.snapshot.cluster_id)
        catalog.skip_producer_ids(max((each.largest_producer_id() for each in logs.logs()), default=-1))
        self.state = STARTING

    def _start_timer(self, services: BrokerServices) -> None:
        thread = self._timer_thread = TimerThread(self._timer, services.node.id, self.on_fatal)
        thread.start()
        self._on_close("timer", thread.shutdown)
        self.socket_server.on_drained = self._answer_waiting_requests

    def _answer_waiting_requests(self) -> None:
        """Shutdown: what waits for the disk is acknowledged after a last flush, what waits for data gets what there is."""
        for partition_log in self.services.logs.logs():
            partition_log.flush()
        for purgatory in self.services.purgatories:
            purgatory.complete_all()

    def _start_metrics_server(self) -> None:
        from barnabas.broker.metrics_http import MetricsServer, known_hosts, metrics_address

        address = metrics_address(self.config)
        if address is None:
            return
        hosts = known_hosts(self.config, [host for host, _ in self.services.node.endpoints.values()])
        server = MetricsServer(self.registry.pieces, self.is_healthy, address, hosts=hosts)
        server.start()
        self._metrics_server = server
        self._on_close("metrics page", server.shutdown)

    # ---- stop ------------------------------------------------------------------------------------------------------

    def _on_close(self, what: str, close: Callable[[float], object]) -> None:
        self._closers.append((what, close))

    def shutdown(self, timeout: float = 30.0) -> bool:
        """Drain, flush, close (RP-3). True when everything ended in order; a second call does nothing."""
        with self._lock:
            if self.state != RUNNING:
                return not self._exit_code
            self.state = STOPPING
            self.services.logs.stop_by(timeout)
            orderly = self._close_all(timeout)
            self.state = NOT_RUNNING
            self._ended.set()
            return orderly

    def _close_all(self, timeout: float) -> bool:
        """The socket server first, whoever opened it; the rest in the opposite order of opening. All share the time."""
        orderly = True
        patience = SharedTimeout(self.clock, timeout)
        closers, self._closers = self._closers, []
        closers.sort(key=lambda closer: closer[0] == "socket server")
        for what, close in reversed(closers):
            try:
                if close(patience.left) is False:
                    log.error("the %s did not end in order", what)
                    orderly = False
            except Exception:
                log.exception("an error while closing the %s", what)
                orderly = False
        return orderly

    def on_fatal(self, who: str, error: BaseException) -> None:
        """A thread met something that the broker cannot survive: let `wait` return a non-zero exit code."""
        log.critical("the broker ends because of %s: %s", who, error)
        self._exit_code = FATAL_EXIT_CODE
        self._ended.set()

    def wait(self, timeout: float | None = None) -> int | None:
        """Until the broker was stopped (0) or met a fatal error (non-zero); None when it still runs after `timeout` seconds."""
        return self._exit_code if self._ended.wait(timeout) else None

    # ---- what others ask -------------------------------------------------------------------------------------------

    @property
    def services(self) -> BrokerServices:
        if self._services is None:
            raise BarnabasError("the broker is not running")
        return self._services

    @property
    def socket_server(self) -> SocketServer:
        if self._socket_server is None:
            raise BarnabasError("the broker is not running")
        return self._socket_server

    @property
    def request_metrics(self) -> RequestMetrics:
        return self.socket_server.request_metrics

    @property
    def bootstrap_servers(self) -> str:
        """The address that clients of the first data listener use."""
        control = (self.config["control.plane.listener.name"] or "").upper()
        endpoints = self.services.node.endpoints
        return ",".join(join_address(*address) for name, address in endpoints.items() if name != control)

    def port(self, listener: str | None = None) -> int:
        """The bound port of a listener, by default of the first one."""
        ports = self.socket_server.ports
        return ports[listener] if listener else next(iter(ports.values()))

    @property
    def metrics_address(self) -> str:
        """`host:port` of the metrics page, or "" when it is off."""
        return self._metrics_server.address if self._metrics_server else ""

    @property
    def metrics_port(self) -> int | None:
        return self._metrics_server.port if self._metrics_server else None

    def is_healthy(self) -> bool:
        return self.state == RUNNING and not self._exit_code

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self._services else "not started"
        return f"<BrokerServer {where} state={self.state}>"


def _set_intervals(logs: LogManager, config: Config) -> None:
    logs.flusher.interval_ms = config["log.flush.interval.ms"]
    logs.housekeeper.producer_id_expiration_ms = config["producer.id.expiration.ms"]
