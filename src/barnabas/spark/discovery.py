"""What there is to read: the partitions that an option names, and their offsets, asked for anew with each call.

Role: the driver's client. It is made when it is first needed, because readers are pickled, and made anew after a failure.
Thread: one at a time (the planner process of one query). Lock: none.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.spark.offsets import EARLIEST, LATEST, Partition, PartitionOffsets, names_of
from barnabas.spark.options import Options

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin_results import TopicDescription

__all__ = ["Discovery"]

log = logging.getLogger(__name__)

Found = TypeVar("Found")
_FINAL = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)


class Discovery:
    """See the file header. Pickled without its client."""

    def __init__(self, options: Options) -> None:
        self._client_settings = options.client
        self._client_id = client_id(options, "driver")
        self._read_committed = options.client.get("isolation.level", "").strip().lower() == "read_committed"
        self._topics: tuple[str, ...] | None = options["subscribe"]
        self._pattern: re.Pattern[str] | None = options["subscribePattern"]
        self._assigned: list[Partition] | None = options["assign"]
        self._attempts: int = options["fetchOffset.numRetries"]
        self._pause_s: float = options["fetchOffset.retryIntervalMs"] / 1000
        self._admin: Admin | None = None
        self.topic_ids: dict[str, str] = {}
        """Of the topics that were found last; a topic that was deleted and made anew has another one."""

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_admin": None}

    # ---------------------------------------------------------------- what is there

    def partitions(self) -> list[Partition]:
        """The partitions that the query reads, as they are now."""
        return self._try(self._find_partitions)

    def _find_partitions(self, admin: Admin) -> list[Partition]:
        if self._assigned is not None:
            return self._check_assigned(self._assigned, admin)
        names = self._topics
        if self._pattern is not None:
            names = tuple(name for name in admin.list_topics() if self._pattern.fullmatch(name))
        return sorted(self._describe(names or (), admin))

    def _check_assigned(self, assigned: list[Partition], admin: Admin) -> list[Partition]:
        if gone := set(assigned) - self._describe({topic for topic, _ in assigned}, admin):
            raise BarnabasError(f"assign names partitions that are not there: {names_of(gone)}")
        return assigned

    def _describe(self, names: Collection[str], admin: Admin) -> set[Partition]:
        """The partitions of these topics."""
        topics: dict[str, TopicDescription] = admin.describe_topics(names) if names else {}
        self.topic_ids = {name: str(found.id) for name, found in topics.items() if found.id is not None}
        return {(name, row.partition) for name, found in topics.items() for row in found.partitions}

    # ---------------------------------------------------------------- where they begin and end

    def earliest(self, partitions: Collection[Partition]) -> PartitionOffsets:
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Collection[Partition]) -> PartitionOffsets:
        """The ends; with read_committed, the last stable offsets."""
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """The first offset at or after each time; None where no record is that young."""
        return {part: None if offset < 0 else offset for part, offset in self._offsets(times).items()}

    def _offsets(self, times: Mapping[Partition, int]) -> PartitionOffsets:
        if not times:
            return {}
        found = self._try(lambda admin: admin.list_offsets(times, read_committed=self._read_committed))
        return {partition: place.offset for partition, place in found.items()}

    def sizes(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """How many bytes each partition has on the disk of a broker; what no broker tells is left out."""
        wanted = set(partitions)
        found: dict[Partition, int] = {}
        for directories in self._try(lambda admin: admin.describe_log_dirs()).values():
            for directory in directories:
                for part, replica in directory.replicas.items():
                    if part in wanted:
                        found[part] = max(replica.size, found.get(part, 0))
        return found

    # ---------------------------------------------------------------- the client

    def _try(self, ask: Callable[[Admin], Found]) -> Found:
        """The answer, tried again with a new client as often as `fetchOffset.numRetries` says."""
        for attempt in range(1, self._attempts + 1):
            try:
                return ask(self._client())
            except KafkaError as error:
                self.close()
                if attempt == self._attempts or error.code in _FINAL:
                    raise
                log.warning("Asking for offsets, attempt %d of %d: %s", attempt, self._attempts, error)
                time.sleep(self._pause_s)
        raise AssertionError("fetchOffset.numRetries is at least 1")

    def _client(self) -> Admin:
        if self._admin is None:
            from barnabas.client.admin import Admin
            from barnabas.client.admin_config import ADMIN_ROWS
            from barnabas.client.config import COMMON_ROWS

            known = {row.name for row in (*COMMON_ROWS, *ADMIN_ROWS)}  # the rest is for the consumers of the tasks
            settings = {name: value for name, value in self._client_settings.items() if name in known}
            self._admin = Admin({"client.id": self._client_id, **settings})
        return self._admin

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def client_id(options: Options, role: str) -> str:
    """The name by which the brokers know the clients of a query."""
    return f"{options['groupIdPrefix'] or 'barnabas-spark'}-{role}"
