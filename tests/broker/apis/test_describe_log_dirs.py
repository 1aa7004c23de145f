"""DescribeLogDirs: where the logs are and how large."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.catalog import NewTopic
from barnabas.broker.log.results import LogDirDescription
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.broker.admin_broker import AdminBroker

VERSIONS = range(1, 6)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "data") as opened:
        yield opened


@pytest.mark.parametrize("version", VERSIONS)
def test_every_partition_is_listed_with_its_size(broker: AdminBroker, version: int) -> None:
    broker.topics.create([NewTopic("a", 2), NewTopic("b", 1)])
    answer = broker.ask(DescribeLogDirsRequest(topics=None), version)
    (directory,) = answer.results
    assert (answer.error_code, directory.error_code) == (0, 0)
    assert Path(directory.log_dir) == broker.directory.absolute()
    found = {topic.name: [part.partition_index for part in topic.partitions] for topic in directory.topics}
    assert {name: sorted(partitions) for name, partitions in found.items()} == {"a": [0, 1], "b": [0]}
    assert all(
        (part.partition_size, part.offset_lag, part.is_future_key) == (0, 0, False)
        for topic in directory.topics
        for part in topic.partitions
    )
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes
    assert directory.is_cordoned is False


def test_only_the_asked_partitions_are_listed(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("a", 3), NewTopic("b", 1)])
    topics = [DescribableLogDirTopic(topic="a", partitions=[1, 9]), DescribableLogDirTopic(topic="x", partitions=[0])]
    (directory,) = broker.ask(DescribeLogDirsRequest(topics=topics), 4).results
    ((topic),) = directory.topics
    assert (topic.name, [part.partition_index for part in topic.partitions]) == ("a", [1])


def test_a_failed_directory_is_told(broker: AdminBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = LogDirDescription("gone", True, {}, -1, -1)
    monkeypatch.setattr(broker.logs, "describe_dirs", lambda: [failed], raising=False)
    (directory,) = broker.ask(DescribeLogDirsRequest(topics=None), 5).results
    assert (directory.log_dir, directory.error_code) == ("gone", ErrorCode.KAFKA_STORAGE_ERROR)
