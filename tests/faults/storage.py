"""The storage of a broker without its network: catalog, topics and logs on a file system of the test's choice, two log directories, a clock
that stands still and no threads; and a writer that knows what it was told, to compare with what is found after a fault.
"""

from __future__ import annotations

import copy
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.broker.catalog import CATALOG_FILE_NAME, Catalog, NewTopic, TopicInfo
from barnabas.broker.log.config import LogConfig, LogManagerSettings
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.manager import LogManager
from barnabas.broker.log.partition_log import PartitionLog
from barnabas.broker.settings import broker_config
from barnabas.broker.topic_settings import topic_values
from barnabas.broker.topics import Topics
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.records.batch import iterate_batches
from tests.broker.log.stores import region_bytes
from tests.records.batches import Batch

SETTINGS = {"barnabas.topic.min.segment.bytes": 1024, "log.segment.bytes": 6000, "log.index.interval.bytes": 600}
FLUSH_INTERVAL_MS = 1000
STEP_SECONDS = 0.1
NAMES = ("alpha", "beta", "gamma")


class Storage:
    """Catalog, topics and logs below `root`."""

    def __init__(self, root: Path, files: FileSystem, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.root = root
        directories = (str(root / "a"), str(root / "b"))
        config = broker_config({"log.dirs": ",".join(directories), **SETTINGS})
        settings = LogManagerSettings(
            directories,
            defaults=LogConfig.from_topic_config(topic_values(config, {})),
            flush_interval_ms=FLUSH_INTERVAL_MS,
        )
        self.logs = LogManager(settings, self.clock, files)
        self.logs.lock_directories()
        self.catalog = Catalog.open(root / "a" / CATALOG_FILE_NAME, self.clock)
        try:
            self.topics = Topics(config, self.catalog, self.logs, (), files)
            self.logs.startup(self.topics.reconcile(), threads=False)
        except BaseException:
            self.kill()
            raise

    def log(self, topic: str, partition: int) -> PartitionLog:
        found = self.logs.get(topic, partition)
        assert found is not None, f"{topic}-{partition} has no log"
        return found

    def stop(self) -> None:
        self.logs.shutdown()
        self.catalog.close()

    def kill(self) -> None:
        """What is in memory is gone, files stay as they are."""
        for directory in self.logs._dirs:
            directory.close()
        self.catalog.close()


@dataclass
class PartitionTruth:
    """What a client knows of a partition: every batch that it sent, by offset, and what it was told."""

    sent: dict[int, bytes] = field(default_factory=dict)
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)
    """(sequence, first offset, monotonic time of the answer); one list that only grows."""
    acknowledged_end: int = 0
    start: int = 0
    sequence: int = 0

    def frozen(self) -> PartitionTruth:
        """As it is now; `sent` may grow, because what was sent later cannot be found."""
        return PartitionTruth(self.sent, list(self.acknowledged), self.acknowledged_end, self.start, self.sequence)


@dataclass
class TopicTruth:
    """What a client knows of a topic."""

    topic_id: uuid.UUID
    configs: Mapping[str, str]
    partitions: list[PartitionTruth]


@dataclass
class Truth:
    """All topics that the client was told of, and the one change that it has no answer for yet."""

    topics: dict[str, TopicTruth] = field(default_factory=dict)
    creating: str = ""
    deleting: str = ""
    configuring: tuple[str, Mapping[str, str]] = ("", {})
    truncating: tuple[str, int, int] = ("", 0, 0)
    now_ns: int = 0

    def frozen(self, now_ns: int) -> Truth:
        taken = copy.copy(self)
        taken.now_ns = now_ns
        taken.topics = {
            name: TopicTruth(topic.topic_id, topic.configs, [each.frozen() for each in topic.partitions])
            for name, topic in self.topics.items()
        }
        return taken


class Workload:
    """Random use of a storage: append, flush, roll, delete records, create, grow, configure and delete topics, stop, be killed.

    With `durable`, an append is acknowledged when it is on disk; else at once.
    """

    def __init__(self, root: Path, files: FileSystem, seed: int, durable: bool) -> None:
        self.truth = Truth()
        self._rng = random.Random(seed)
        self._root = root
        self._files = files
        self._durable = durable
        self.storage = Storage(root, files)
        self._create("alpha")

    @property
    def clock(self) -> ManualClock:
        return self.storage.clock

    def step(self) -> None:
        """One random thing."""
        doings = {
            self._append: 60,
            self._pass_time: 20,
            self._delete_records: 4,
            self._create_or_delete: 5,
            self._configure: 3,
            self._grow: 1,
            self._keep_house: 4,
            self._restart: 2,
        }
        self._rng.choices(list(doings), list(doings.values()))[0]()

    def _topic(self) -> str:
        return self._rng.choice(sorted(self.truth.topics))

    def _append(self) -> None:
        if not self.truth.topics:
            return
        name = self._topic()
        number = self._rng.randrange(len(self.truth.topics[name].partitions))
        partition = self.truth.topics[name].partitions[number]
        log = self.storage.log(name, number)
        values = [self._rng.randbytes(self._rng.choice([10, 300, 900])) for _ in range(self._rng.randint(1, 3))]
        records = Batch(values, producer_id=7, producer_epoch=0, base_sequence=partition.sequence).build()
        sequence, partition.sequence = partition.sequence, partition.sequence + len(values)
        partition.sent[log.log_end_offset] = bytes(records)
        result = log.append(records)

        def acknowledge(code: ErrorCode) -> None:
            if code == ErrorCode.NONE:
                entry = (sequence, result.base_offset, self.clock.monotonic_ns())
                partition.acknowledged.append(entry)
                partition.acknowledged_end = max(partition.acknowledged_end, result.last_offset + 1)

        if self._durable:
            log.on_durable(result.last_offset + 1, acknowledge)
        else:
            acknowledge(ErrorCode.NONE)

    def _pass_time(self) -> None:
        self.clock.advance(STEP_SECONDS)
        self.storage.logs.flusher.flush_now()

    def _delete_records(self) -> None:
        name = self._topic()
        number = self._rng.randrange(len(self.truth.topics[name].partitions))
        partition = self.truth.topics[name].partitions[number]
        offset = self._rng.randint(partition.start, max(partition.start, partition.acknowledged_end))
        self.truth.truncating = (name, number, offset)
        partition.start = max(partition.start, self.storage.log(name, number).delete_records_before(offset))
        self.truth.truncating = ("", 0, 0)

    def _create_or_delete(self) -> None:
        name = self._rng.choice(NAMES)
        if name not in self.truth.topics:
            self._create(name)
        elif len(self.truth.topics) > 1:
            self.truth.deleting = name
            self.storage.topics.delete([name])
            del self.truth.topics[name]
            self.truth.deleting = ""

    def _create(self, name: str) -> None:
        self.truth.creating = name
        (created,) = self.storage.topics.create([NewTopic(name, self._rng.randint(1, 2))])
        assert isinstance(created, TopicInfo), created
        partitions = [PartitionTruth() for _ in range(created.partition_count)]
        self.truth.topics[name] = TopicTruth(created.topic_id, created.configs, partitions)
        self.truth.creating = ""
        self.storage.logs.housekeeper.run_due()

    def _configure(self) -> None:
        name = self._topic()
        configs = {"segment.bytes": str(self._rng.randint(4000, 9000)), "max.message.bytes": "4000"}
        self.truth.configuring = (name, configs)
        self.storage.topics.edit_configs(name, lambda _: configs)
        self.truth.topics[name].configs = configs
        self.truth.configuring = ("", {})

    def _grow(self) -> None:
        name = self._topic()
        partitions = self.truth.topics[name].partitions
        if len(partitions) < 3:
            self.storage.topics.add_partitions(name, len(partitions) + 1)
            partitions.append(PartitionTruth())
            self.storage.logs.housekeeper.run_due()

    def _keep_house(self) -> None:
        for directory in self.storage.logs._dirs:
            directory.write_checkpoints()
        self.storage.logs.housekeeper.run_due()

    def _restart(self) -> None:
        clock = self.clock
        if self._rng.random() < 0.5:
            self.storage.stop()
        else:
            self.storage.kill()
        self.storage = Storage(self._root, self._files, clock)
        self.storage.logs.housekeeper.run_due()


def check(storage: Storage, truth: Truth, durable: bool) -> int:
    """Compare what was found with what the client was told; how many acknowledged batches were looked for."""
    found = storage.catalog.snapshot.topics
    uncertain = {truth.creating, truth.deleting}
    assert truth.topics.keys() - uncertain <= found.keys(), "a topic is lost"
    assert found.keys() <= truth.topics.keys() | uncertain, "a deleted topic is back"
    return sum(_check_topic(storage, truth, name, durable) for name in truth.topics.keys() & found.keys())


def _check_topic(storage: Storage, truth: Truth, name: str, durable: bool) -> int:
    topic, found = truth.topics[name], storage.catalog.snapshot.topics[name]
    assert found.topic_id == topic.topic_id
    assert found.configs in [topic.configs, truth.configuring[1] if truth.configuring[0] == name else topic.configs]
    assert found.partition_count >= len(topic.partitions)
    looked_for = 0
    for number, partition in enumerate(topic.partitions):
        truncating = truth.truncating[2] if truth.truncating[:2] == (name, number) else 0
        where = f"{name}-{number}"
        looked_for += _check_partition(storage.log(name, number), partition, truncating, where)
        wanted = partition.acknowledged_end if durable else _older_end(partition, truth.now_ns)
        assert storage.log(name, number).log_end_offset >= wanted, f"{where}: acknowledged records are lost"
    return looked_for


def _older_end(partition: PartitionTruth, now_ns: int) -> int:
    """Without durable acks: what was acknowledged longer ago than the interval of the flusher (and one turn of it)."""
    limit = now_ns - int((FLUSH_INTERVAL_MS / 1000 + STEP_SECONDS) * 1e9)
    old = [offset for _, offset, when in partition.acknowledged if when <= limit]
    return max(old, default=-1) + 1


def _check_partition(log: PartitionLog, partition: PartitionTruth, truncating: int, where: str) -> int:
    """A valid prefix of what was sent, from a start that never goes back; and it can be written again."""
    start, end = log.log_start_offset, log.log_end_offset
    assert partition.start <= start <= max(partition.start, truncating), where
    offset, last = start, None
    while offset < end:
        before = offset
        for header, view in iterate_batches(region_bytes(log.read(offset, 1 << 20))):
            sent = partition.sent.get(header.base_offset)
            assert sent is not None, f"{where}: nobody sent a batch with offset {header.base_offset}"
            assert bytes(view)[21:] == sent[21:], f"{where}: another value at offset {header.base_offset}"
            assert header.base_offset <= offset
            offset, last = header.base_offset + header.record_count, sent
        assert offset > before, f"{where}: nothing at offset {offset}, the log ends at {end}"
    if last is not None:
        assert log.append(memoryview(last)).duplicate, f"{where}: a retry is not recognised"
    assert log.append(Batch([b"next"]).build()).base_offset == end
    return len(partition.acknowledged)
