"""The life of topics: catalog and log directories agree, whatever happens between two steps."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.catalog import CATALOG_FILE_NAME, NewTopic, TopicInfo
from barnabas.errors import ErrorCode, KafkaError
from tests.broker.admin_broker import AdminBroker


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[AdminBroker]:
    with AdminBroker(data) as opened:
        yield opened


def expected_dirs(broker: AdminBroker) -> set[str]:
    topics = broker.catalog.snapshot.topics.values()
    return {f"{topic.name}-{partition}" for topic in topics for partition in range(topic.partition_count)}


def assert_agreement(broker: AdminBroker) -> None:
    assert broker.log_dirs() == expected_dirs(broker)
    for topic in broker.catalog.snapshot.topics.values():
        for partition in range(topic.partition_count):
            partition_log = broker.logs.get(topic.name, partition)
            assert partition_log is not None
            assert partition_log.topic_id == topic.topic_id


def test_topics_survive_a_clean_restart_with_their_ids_and_configs(data: Path) -> None:
    with AdminBroker(data) as broker:
        broker.topics.create([NewTopic("a", 2, {"retention.ms": "5"}), NewTopic("b", 1)])
        before = dict(broker.catalog.snapshot.topics)
    with AdminBroker(data) as broker:
        assert broker.catalog.snapshot.topics == before
        assert_agreement(broker)
        partition_log = broker.logs.get("a", 1)
        assert partition_log is not None
        assert partition_log.config.retention_ms == 5


def test_logs_that_a_kill_kept_from_being_made_are_made_at_start(data: Path) -> None:
    with AdminBroker(data) as broker:
        broker.topics.create([NewTopic("a", 1)])
        broker.catalog.create_topics([NewTopic("half", 3)])  # killed before the logs
    with AdminBroker(data) as broker:
        assert_agreement(broker)
        assert expected_dirs(broker) == {"a-0", "half-0", "half-1", "half-2"}


def test_logs_of_a_deleted_topic_that_a_kill_left_are_removed_at_start(data: Path) -> None:
    with AdminBroker(data) as broker:
        broker.topics.create([NewTopic("a", 2), NewTopic("b", 1)])
        broker.catalog.delete_topics(["a"])  # killed before the logs were removed
    with AdminBroker(data) as broker:
        assert_agreement(broker)
        assert set(broker.catalog.snapshot.topics) == {"b"}
        (made,) = broker.topics.create([NewTopic("a", 1)])
        assert isinstance(made, TopicInfo)
        assert_agreement(broker)
    with AdminBroker(data) as broker:
        assert_agreement(broker)
        assert not broker.catalog.deleted_topics()


def test_a_lost_catalog_costs_configs_but_no_data(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with AdminBroker(data) as broker:
        broker.topics.create([NewTopic("a", 2), NewTopic("b", 1)])
        ids = {topic.name: topic.topic_id for topic in broker.catalog.snapshot.topics.values()}
    for file in data.glob(CATALOG_FILE_NAME + "*"):
        file.unlink()
    with caplog.at_level(logging.WARNING), AdminBroker(data) as broker:
        assert {topic.name: topic.topic_id for topic in broker.catalog.snapshot.topics.values()} == ids
        assert_agreement(broker)
    assert "Adopting" in caplog.text


def test_a_deleted_topic_with_the_longest_name_is_removed_at_start(data: Path) -> None:
    with AdminBroker(data) as broker:
        broker.topics.create([NewTopic("x" * 249, 1)])
        broker.catalog.delete_topics(["x" * 249])
    with AdminBroker(data) as broker:
        assert_agreement(broker)


def test_directories_that_are_no_logs_are_left_alone(data: Path) -> None:
    (data / "backup-20240101").mkdir(parents=True)
    (data / "__cluster_metadata-0").mkdir()
    with AdminBroker(data) as broker:
        assert not broker.catalog.snapshot.topics
    assert {"backup-20240101", "__cluster_metadata-0"} <= {path.name for path in data.iterdir()}


def test_a_lost_log_directory_is_made_again(data: Path) -> None:
    with AdminBroker(data) as broker:
        broker.topics.create([NewTopic("a", 2)])
    shutil.rmtree(data / "a-1")
    with AdminBroker(data) as broker:
        assert_agreement(broker)


def test_one_name_asked_for_by_many_threads_becomes_one_topic(broker: AdminBroker) -> None:
    found: list[object] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait(10)
        found.append(broker.topics.auto_create(["fresh"])["fresh"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [broker.catalog.snapshot.topics["fresh"]] * 8


def test_a_collision_ends_with_the_topic(broker: AdminBroker) -> None:
    broker.topics.create([NewTopic("a.b", 1)])
    (refused,) = broker.topics.create([NewTopic("a_b", 1)])
    assert isinstance(refused, KafkaError)
    broker.topics.delete(["a.b"])
    (made,) = broker.topics.create([NewTopic("a_b", 1)])
    assert isinstance(made, TopicInfo)


def test_a_log_that_could_not_be_removed_does_not_become_the_log_of_a_new_topic(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    broker.topics.create([NewTopic("a", 1)])
    monkeypatch.setattr(broker.logs, "delete", fail, raising=False)
    assert [topic.name for topic in broker.topics.delete(["a"])] == ["a"]
    (refused,) = broker.topics.create([NewTopic("a", 1)])
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "a" not in broker.catalog.snapshot.topics


def test_changes_from_many_threads_leave_catalog_and_logs_in_agreement(broker: AdminBroker) -> None:
    def churn(prefix: str) -> None:
        for number in range(8):
            broker.topics.create([NewTopic(f"{prefix}{number}", 1)])
            if number % 2:
                broker.topics.add_partitions(f"{prefix}{number}", 3)
            if number % 3 == 0:
                broker.topics.delete([f"{prefix}{number}"])

    threads = [threading.Thread(target=churn, args=(prefix,)) for prefix in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(broker.catalog.snapshot.topics) == 15
    assert_agreement(broker)


CHURN = """
import sys
from pathlib import Path
from typing import Any
sys.path.insert(0, sys.argv[2])
from barnabas.broker.catalog import NewTopic
from tests.broker.admin_broker import AdminBroker
start = int(sys.argv[3])
with AdminBroker(Path(sys.argv[1])) as broker:
    for number in range(start, start + 100_000):
        broker.topics.create([NewTopic("same", 3), NewTopic(f"t{number}", 2)])
        broker.topics.add_partitions("same", 5)
        if number % 3:
            broker.topics.delete([f"t{number}"])
        print(number, broker.catalog.snapshot.topics["same"].topic_id, flush=True)
        broker.topics.delete(["same"])
"""


def test_after_kill_9_in_the_middle_of_changes_catalog_and_log_directories_agree(data: Path) -> None:
    """RP-3's harder sister: no orderly shutdown, several rounds on the same directory."""
    root = str(Path(__file__).parents[2])
    confirmed: set[int] = set()
    ids: list[str] = []
    for round_number in range(4):
        command = [sys.executable, "-c", CHURN, str(data), root, str(round_number * 100_000)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as churn:
            assert churn.stdout is not None
            for _ in range(3 + 4 * round_number):
                number, topic_id = churn.stdout.readline().split()
                confirmed.add(int(number))
                ids.append(topic_id)
            churn.send_signal(signal.SIGKILL)
        with AdminBroker(data) as broker:
            assert_agreement(broker)
            kept = {f"t{number}" for number in confirmed if number % 3 == 0}
            assert kept <= set(broker.catalog.snapshot.topics)
            gone = {f"t{number}" for number in confirmed if number % 3}
            assert not gone & set(broker.catalog.snapshot.topics)
            broker.topics.delete(["same"])
    assert len(ids) == len(set(ids))


def test_a_topic_that_takes_long_to_make_holds_up_nothing_else(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = broker.logs.create
    begun, go_on = threading.Event(), threading.Event()

    def create_slowly(topic: str, *rest: Any) -> object:
        if topic == "slow":
            begun.set()
            assert go_on.wait(50)
        return create(topic, *rest)

    monkeypatch.setattr(broker.logs, "create", create_slowly, raising=False)
    monkeypatch.setattr("barnabas.broker.topics.WAIT_SECONDS", 0.01)
    maker = threading.Thread(target=broker.topics.create, args=([NewTopic("slow", 2)],))
    maker.start()
    with ThreadPoolExecutor(1) as others:
        try:
            assert begun.wait(30)
            found = others.submit(change_others, broker).result(30)
        finally:
            go_on.set()
            maker.join(30)
    assert found == {
        "fast": None,
        "slow again": ErrorCode.TOPIC_ALREADY_EXISTS,
        "slow asked for": ErrorCode.LEADER_NOT_AVAILABLE,
        "another": None,
    }
    assert broker.topics.auto_create(["slow"])["slow"] == broker.catalog.snapshot.topics["slow"]
    assert_agreement(broker)


def change_others(broker: AdminBroker) -> dict[str, ErrorCode | None]:
    """All that can be changed while "slow" is being made; the errors by what was tried."""

    def code(made: object) -> ErrorCode | None:
        return made.code if isinstance(made, KafkaError) else None

    topics = broker.topics
    found = {"fast": code(topics.create([NewTopic("fast", 1)])[0])}
    topics.add_partitions("fast", 2)
    topics.edit_configs("fast", lambda _: {"retention.ms": "1000"})
    assert [topic.name for topic in topics.delete(["fast", "slow"])] == ["fast"]
    broker.services.dynamic_config.edit("", lambda _: {"log.segment.bytes": "3000000"})
    found["slow again"] = code(topics.create([NewTopic("slow", 1)])[0])
    found["slow asked for"] = code(topics.auto_create(["slow"])["slow"])
    found["another"] = code(topics.create([NewTopic("another", 1)])[0])
    return found


def test_logs_that_are_made_while_their_configs_change_get_the_new_ones(
    broker: AdminBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topics.create([NewTopic("grows", 1)])
    create = broker.logs.create

    def change_meanwhile(topic: str, *rest: Any) -> object:
        broker.topics.edit_configs(topic, lambda _: {"retention.ms": "77777"})
        return create(topic, *rest)

    monkeypatch.setattr(broker.logs, "create", change_meanwhile, raising=False)
    broker.topics.add_partitions("grows", 2)
    grown = broker.catalog.snapshot.topics["grows"]
    assert (grown.partition_count, dict(grown.configs)) == (2, {"retention.ms": "77777"})
    assert [log.config.retention_ms for log in broker.logs.logs() if log.topic == "grows"] == [77777, 77777]


def test_a_creation_that_failed_leaves_its_name_to_others(broker: AdminBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(broker.logs, "create", fail, raising=False)
        (refused,) = broker.topics.create([NewTopic("a.b", 1)])
        assert isinstance(refused, KafkaError)
    (made,) = broker.topics.create([NewTopic("a_b", 1)])
    assert isinstance(made, TopicInfo)


def test_a_topic_is_not_given_tiny_segments(data: Path) -> None:
    """Each takes four files. What a topic has already stays, and does not keep it from other changes."""
    tiny = {"segment.bytes": "65536"}
    with AdminBroker(data, barnabas_topic_min_segment_bytes=1024) as broker:
        broker.topics.create([NewTopic("old", 1, tiny)])
    with AdminBroker(data) as broker:
        (refused,) = broker.topics.create([NewTopic("new", 1, tiny)])
        assert isinstance(refused, KafkaError)
        assert refused.code == ErrorCode.INVALID_CONFIG
        assert "barnabas.topic.min.segment.bytes" in refused.message
        broker.topics.create([NewTopic("new", 1, {"segment.bytes": "1048576"})])
        with pytest.raises(KafkaError):
            broker.topics.edit_configs("new", lambda _: tiny)
        broker.topics.edit_configs("old", lambda configs: {**configs, "retention.ms": "5"})
        assert broker.catalog.snapshot.topics["old"].configs == {**tiny, "retention.ms": "5"}
