"""The life of topics: create, delete, grow, configure; catalog and log directories kept in step.

Role: the only writer of both the catalog's topics and the logs. The catalog decides (see `catalog/catalog.py` for the
order); `reconcile` repairs at start what a kill left half done, before the logs are loaded.
Thread: any handler, and the main thread at start. Lock: `_lock` guards what is noted here and is never held while logs are made or
removed, which takes long for many partitions. Whoever does that claims the topics first (`_changing`), because the order catalog, logs
must not interleave; others are refused that topic meanwhile. No reader and no hot path takes the lock.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.catalog import Catalog, NewTopic, TopicInfo
from barnabas.broker.limit_settings import MIN_SEGMENT_BYTES_KEY
from barnabas.broker.log.config import LogConfig
from barnabas.broker.log.file_kinds import NotAFile
from barnabas.broker.log.files import FileSystem
from barnabas.broker.log.manager import LogManager, PartitionSpec
from barnabas.broker.topic_directories import PartitionDirectory, scan
from barnabas.broker.topic_names import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    check_name,
    collision_key,
    name_problem,
)
from barnabas.broker.topic_settings import TOPIC, topic_values
from barnabas.config import Config
from barnabas.errors import ConfigError, ErrorCode, KafkaError, shown
from barnabas.fair_lock import FairLock

if TYPE_CHECKING:
    from barnabas.broker.purgatory import Purgatory

log = logging.getLogger(__name__)

MOST_NAMES_LOGGED = 20
WAIT_SECONDS = 1.0
"""How long a request waits for a topic that another one is making; then its client has to ask again."""

ConfigEdit = Callable[[Mapping[str, str]], Mapping[str, str]]
DeleteListener = Callable[[TopicInfo], None]


class Topics:
    """Thread-safe."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        logs: LogManager,
        purgatories: Sequence[Purgatory] = (),
        files: FileSystem | None = None,
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._logs = logs
        self._purgatories = purgatories
        self._files = files or FileSystem()
        self._delete_listeners: list[DeleteListener] = []
        self._lock = FairLock()
        self._changing: set[str] = set()  # topics whose logs are being made or removed
        self._changed = threading.Condition(self._lock)  # type: ignore[arg-type]
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        self._collisions = {collision_key(name): name for name in catalog.snapshot.topics}
        unusable = unusable_configs(catalog.snapshot.topics.values())
        self._with_unusable_configs = set(unusable)
        catalog.leave_out_topic_configs(unusable)
        fallbacks = {row.fallback for row in TOPIC if row.fallback}
        config.follow(fallbacks, lambda _: self.apply_broker_defaults())

    def on_delete(self, listener: DeleteListener) -> None:
        """Call `listener(topic)` after a topic was deleted; for those who keep something by topic."""
        self._delete_listeners.append(listener)

    # -- create ----------------------------------------------------------------------------------------------------

    def create(
        self, new_topics: Sequence[NewTopic], validate_only: bool = False
    ) -> list[TopicInfo | KafkaError | None]:
        """Create those that can be; the answer stands at the same place: the topic, or why not (None: only validated)."""
        with self._lock:
            claimed: dict[str, str] = {}  # by collision key
            outcome: list[TopicInfo | KafkaError | None] = [self._refusal(new, claimed) for new in new_topics]
            good = [place for place, refused in enumerate(outcome) if refused is None]
            if validate_only or not good:
                return outcome
            self._collisions.update(claimed)
            self._changing.update(claimed.values())
        try:
            created = self._create_all([new_topics[place] for place in good])
        finally:
            self._end_change(claimed.values())
        for place, result in zip(good, created, strict=True):
            outcome[place] = result
        return outcome

    def _end_change(self, names: Collection[str]) -> None:
        """Let others change these topics again; those that do not exist leave their names to others."""
        with self._lock:
            self._changing.difference_update(names)
            self._changed.notify_all()
            topics = self._catalog.snapshot.topics
            for name in names:
                if name in topics:
                    self._apply_config(topics[name])  # it may have changed while logs were made with the old one
                else:
                    self._collisions.pop(collision_key(name), None)

    def is_changing(self, name: str) -> bool:
        """Whether another request is making or removing the logs of this topic. A hint, without the lock."""
        return name in self._changing

    def auto_create(self, names: Sequence[str]) -> dict[str, TopicInfo | KafkaError]:
        """The topics of these names, made with the broker's defaults where there are none (auto.create.topics.enable)."""
        count: int = self._config["num.partitions"]
        missing = [NewTopic(name, count) for name in names if name not in self._catalog.snapshot.topics]
        made = self.create(missing)
        with self._lock:
            # Another client may have asked for the same name a moment ago: then this is its topic.
            self._changed.wait_for(lambda: self._changing.isdisjoint(names), WAIT_SECONDS)
            topics = self._catalog.snapshot.topics
        failed = {new.name: error for new, error in zip(missing, made, strict=True) if isinstance(error, KafkaError)}
        return {name: topics.get(name) or _why_missing(failed.get(name)) for name in names}

    def _refusal(self, new: NewTopic, names: dict[str, str]) -> KafkaError | None:
        """Why this topic cannot be created; `names` are those of the topics before it in the same request."""
        try:
            self._check_new(new, names)
        except KafkaError as error:
            return error
        names[collision_key(new.name)] = new.name
        return None

    def _check_new(self, new: NewTopic, names: Mapping[str, str]) -> None:
        check_name(new.name)
        if new.name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {new.name} is prohibited.")
        if new.name in self._catalog.snapshot.topics or new.name in self._changing:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
        key = collision_key(new.name)
        other = self._collisions.get(key) or names.get(key)
        if other is not None:
            text = f"Topic '{new.name}' collides with existing topic: {other}"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        check_configs(self._config, new.configs)
        _check_segment_bytes(self._config, new.configs, {})

    def _create_all(self, new_topics: Sequence[NewTopic]) -> Sequence[TopicInfo | KafkaError]:
        if not new_topics:
            return []
        try:
            created = self._catalog.create_topics(new_topics, self._create_logs)
        except (OSError, KafkaError) as error:
            return [_storage_error(error)] * len(new_topics)
        names = ", ".join(f"{topic.name} ({topic.partition_count})" for topic in created[:MOST_NAMES_LOGGED])
        log.info("Created %d topics: %s%s", len(created), names, " …" if len(created) > MOST_NAMES_LOGGED else "")
        return created

    def _create_logs(self, topics: Sequence[TopicInfo]) -> None:
        """All of their logs, or none."""
        made: list[tuple[str, int]] = []
        try:
            for topic in topics:
                with self._lock:
                    config = self._log_config(topic.configs)
                for partition in range(topic.partition_count):
                    self._create_log(topic, partition, config, made)
        except BaseException:
            self._delete_logs(made)
            raise

    def _create_log(self, topic: TopicInfo, partition: int, config: LogConfig, made: list[tuple[str, int]]) -> None:
        """The log, unless the topic has it already."""
        existing = self._logs.get(topic.name, partition)
        if existing is None:
            self._logs.create(topic.name, partition, topic.topic_id, config)
            made.append((topic.name, partition))
        elif existing.topic_id != topic.topic_id:
            # A deleted topic of this name whose log could not be removed: its records must not become the new one's.
            text = f"The log of an older topic is still at {topic.name}-{partition}."
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)

    # -- delete and grow -------------------------------------------------------------------------------------------

    def delete(self, names: Iterable[str]) -> list[TopicInfo]:
        """Delete these topics, all in one commit; those that somebody else deletes or changes at the moment are left out."""
        with self._lock:
            topics = self._catalog.snapshot.topics
            present = [name for name in names if name in topics and name not in self._changing]
            self._changing.update(present)
        try:
            deleted = self._catalog.delete_topics(present) if present else []
            for topic in deleted:
                self._delete_logs((topic.name, partition) for partition in range(topic.partition_count))
        finally:
            self._end_change(present)
        for topic in deleted:
            log.info("Deleted %s with %d partitions", topic.name, topic.partition_count)
            self._tell_deleted(topic)
        return deleted

    def _delete_logs(self, partitions: Iterable[tuple[str, int]]) -> None:
        for name, partition in partitions:
            try:
                self._logs.delete(name, partition)
            except (OSError, KafkaError):
                # The topic is gone from the catalog all the same, and the next start removes what is left.
                log.exception("The log of %s-%d could not be removed", name, partition)

    def _tell_deleted(self, topic: TopicInfo) -> None:
        for partition in range(topic.partition_count):
            for purgatory in self._purgatories:
                purgatory.check_and_complete((topic.name, partition))
        for listener in self._delete_listeners:
            listener(topic)

    def add_partitions(self, name: str, partition_count: int) -> TopicInfo:
        """Let the topic have `partition_count` partitions in total."""
        with self._lock:
            if name in self._changing:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"Topic '{name}' is being changed by another request.")
            self._changing.add(name)
        try:
            topic = self._catalog.add_partitions(name, partition_count, self._create_logs)
        except OSError as error:
            raise _storage_error(error) from error
        finally:
            self._end_change([name])
        log.info("%s has now %d partitions", name, partition_count)
        return topic

    # -- configs ---------------------------------------------------------------------------------------------------

    def edit_configs(self, name: str, edit: ConfigEdit, validate_only: bool = False) -> None:
        """Replace the topic's configs by `edit(configs)`, if they are all valid (INVALID_CONFIG otherwise)."""
        with self._lock:
            topic = self._catalog.snapshot.topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
            configs = edit(topic.configs)
            check_configs(self._config, configs)
            _check_segment_bytes(self._config, configs, topic.configs)
            if validate_only or (configs == topic.configs and name not in self._with_unusable_configs):
                return
            self._log_config(configs)  # before anything is stored: this cannot fail afterwards
            self._apply_config(self._catalog.set_topic_configs(name, configs))
            self._with_unusable_configs.discard(name)
        log.info("Configs of %s are now %s", name, dict(configs))

    def apply_broker_defaults(self) -> None:
        """A broker setting that topics fall back to has changed: every log gets its new values."""
        with self._lock:
            self._log_configs.clear()
            for topic in self._catalog.snapshot.topics.values():
                self._apply_config(topic)

    def _apply_config(self, topic: TopicInfo) -> None:
        config = self._log_config(topic.configs)
        for partition in range(topic.partition_count):
            partition_log = self._logs.get(topic.name, partition)
            if partition_log is not None and partition_log.config != config:
                partition_log.update_config(config)

    def _log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """The log's settings; topics with the same configs share one object."""
        key = tuple(sorted(configs.items()))
        config = self._log_configs.get(key)
        if config is None:
            config = LogConfig.from_topic_config(topic_values(self._config, configs))
            self._log_configs[key] = config
        return config

    # -- start -----------------------------------------------------------------------------------------------------

    def reconcile(self) -> dict[tuple[str, int], PartitionSpec]:
        """Let log directories and catalog agree; what is returned is what `LogManager.startup` is to load or make.

        kill -9 can leave a created topic without some of its logs (`startup` makes them) and logs of a deleted topic
        (marked for removal here). Logs of topics that the catalog has never heard of come from a lost catalog or a copied
        directory: they are adopted, because the other choice would be to lose somebody's data.
        """
        with self._lock:
            self._settle_directories()
            return {
                (topic.name, partition): PartitionSpec(topic.topic_id, self._log_config(topic.configs))
                for topic in self._catalog.snapshot.topics.values()
                for partition in range(topic.partition_count)
            }

    def _settle_directories(self) -> None:
        deleted = self._catalog.deleted_topics()
        left: set[str] = set()
        unknown: dict[str, list[PartitionDirectory]] = {}
        for log_dir in self._logs.usable_dirs():
            try:
                self._settle(log_dir.path, deleted, left, unknown)
            except OSError as error:
                # The logs are loaded next and take a directory that cannot be read out of service.
                log.warning("%s could not be compared with the catalog: %s", log_dir.path, error)
                left.update(deleted.values())
        self._forget({topic_id for topic_id, name in deleted.items() if name not in left})
        self._adopt(unknown)

    def _forget(self, gone: set[uuid.UUID]) -> None:
        """An id is forgotten by a start that read every directory, saw no log of it, and knows that to be on the disk: neither a
        rename that is lost in a power cut nor a disk that was away for a while brings anything back."""
        log_dirs = self._logs.usable_dirs()
        if not gone or len(log_dirs) < len(self._logs.settings.log_dirs):
            return
        try:
            for log_dir in log_dirs:
                log_dir.sync_names()
        except OSError as error:
            log.warning("Deleted topics are remembered until the next start: %s", error)
        else:
            self._catalog.forget_deleted(gone)

    def _settle(
        self,
        log_dir: str,
        deleted: Mapping[uuid.UUID, str],
        left: set[str],
        unknown: dict[str, list[PartitionDirectory]],
    ) -> None:
        """One directory: mark what is left of deleted topics, gather what the catalog has never heard of."""
        # Directories of live topics need no look inside, unless a deleted topic had the same name.
        known = self._catalog.snapshot.topics.keys() - set(deleted.values())
        for directory in scan(self._files, log_dir, known):
            try:
                topic_id = directory.topic_id(self._files)
            except NotAFile as error:
                log.warning("%s: %s; whose it is cannot be said, so it is left alone", directory.path, error)
                left.add(directory.topic)
                continue
            lost_id = topic_id is None and directory.topic in deleted.values()
            if topic_id in deleted or lost_id:
                # Without an id it is of the deleted topic, or of a new one of that name whose first flush never came: a power
                # cut took the id, and with it went nothing that was ever called durable.
                left.add(directory.topic)
                directory.mark_deleted(self._files)
            elif topic_id is not None and directory.topic not in self._catalog.snapshot.topics:
                unknown.setdefault(directory.topic, []).append(directory)

    def _adopt(self, unknown: Mapping[str, Sequence[PartitionDirectory]]) -> None:
        adopted = [new for name, directories in unknown.items() if (new := self._adopted(name, directories))]
        if adopted:
            names = ", ".join(new.name for new in adopted)
            log.warning("Adopting topics that are on disk but not in the catalog: %s", names)
            self._catalog.create_topics(adopted)
            self._collisions.update({collision_key(new.name): new.name for new in adopted})

    def _adopted(self, name: str, directories: Sequence[PartitionDirectory]) -> NewTopic | None:
        """The topic that these directories hold; None when they do not look like the partitions of one topic."""
        ids = {directory.topic_id(self._files) for directory in directories}
        if len(ids) > 1 or name == CLUSTER_METADATA_TOPIC or name_problem(name):
            return None
        count = max(directory.partition for directory in directories) + 1
        return NewTopic(name, count, internal=name in INTERNAL_TOPICS, topic_id=ids.pop())

    def __repr__(self) -> str:
        return f"Topics({len(self._catalog.snapshot.topics)} topics, {len(self._log_configs)} distinct log configs)"


def unusable_configs(topics: Iterable[TopicInfo]) -> dict[str, list[str]]:
    """By topic, the configs that no change would accept: stored by an older program, or edited by hand. Each gets a line in the log."""
    found: dict[str, list[str]] = {}
    for topic in topics:
        for name, value in topic.configs.items():
            try:
                check_config(name, value)
            except KafkaError as error:
                log.warning("a stored config of topic %s is left out: %s", topic.name, error.message)
                found.setdefault(topic.name, []).append(name)
    return found


def check_configs(config: Config, configs: Mapping[str, str | None]) -> None:
    """Raises INVALID_CONFIG when a topic cannot have these configs."""
    for name, value in configs.items():
        check_config(name, value)
    _check_compaction_lag(config, configs)


def check_config(name: str, value: str | None) -> None:
    if name not in TOPIC:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {shown(name)}")
    if value is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
    try:
        TOPIC[name].parse(value)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value for configuration {error}") from error


def _check_segment_bytes(config: Config, configs: Mapping[str, str | None], before: Mapping[str, str]) -> None:
    """What the topic has already stays."""
    name = "segment.bytes"
    wanted, least = configs.get(name), config[MIN_SEGMENT_BYTES_KEY]
    if wanted is not None and wanted != before.get(name) and int(wanted) < least:
        text = f"Invalid value {wanted} for configuration {name}: it must be at least {least} ({MIN_SEGMENT_BYTES_KEY})"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _check_compaction_lag(config: Config, configs: Mapping[str, Any]) -> None:
    if not configs.keys() & {"min.compaction.lag.ms", "max.compaction.lag.ms"}:
        return
    values = topic_values(config, configs)
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if low > high:
        text = f"min.compaction.lag.ms ({low}) cannot be higher than max.compaction.lag.ms ({high})"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _why_missing(failure: KafkaError | None) -> KafkaError:
    """Why there is no topic although it was to be created: another request is still making it, or removes the old one."""
    if failure is None or failure.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "The topic is being created or deleted.")
    return failure


def _storage_error(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    log.error("The logs of a topic could not be made: %s", error)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The topic's logs could not be made: {error}")
