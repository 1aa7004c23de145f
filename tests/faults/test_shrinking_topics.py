"""Row 37 with the standard load: retention, DeleteRecords and compaction at work while clients write and read and the broker is killed.

The history knows each record's key and the start of each partition in the end. What compaction may take (a later record has its key)
and what is below the start is not missed; everything else must be there, at its offset, in order.
"""

from __future__ import annotations

import contextlib
import random
import re
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.brokers import BrokerProcess
from tests import wire
from tests.faults.compacting import earliest
from tests.faults.conftest import Report
from tests.history import Workload, WorkloadPlan
from tests.live_broker import live_broker
from tests.waiting import wait_until

KEYS = 40
SHRINKING = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": "40000",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.bytes": "200000",
    "file.delete.delay.ms": "50",
}
BUSY = {"log.cleaner.backoff.ms": "20", "log.retention.check.interval.ms": "100"}
PLAN = WorkloadPlan(
    writers=3,
    partitions=2,
    sends_per_second=250,
    topic_config=SHRINKING,
    writer_config={"batch.size": 10_000},
    key=lambda seq: str(seq % KEYS),
    shrinks=True,
)


SECONDS = 30.0


@pytest.mark.timeout(1000)
def test_row_37_what_may_go_goes_and_the_rest_stays(full: bool, report: Report, tmp_path: Path) -> None:
    kills, cleanings = 50 if full else 4, 0
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    starts = [0] * PLAN.partitions
    with live_broker(BUSY) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "reconnect.backoff.max.ms": 500})
        with Workload(broker.bootstrap, tmp_path / "history.jsonl", PLAN) as load:
            for _ in range(kills):
                load.await_acked(dice.randint(300, 1000))
                delete_some(admin, load.topic, starts, dice.randint(0, 100))
                starts = not_back(starts, starts_of(broker, load.topic))
                if not cleanings:  # otherwise the kills come whenever they come
                    wait_until(lambda: cleanings_of(broker), SECONDS, "a compaction")
                cleanings += cleanings_of(broker)
                load.fault("kill -9")
                broker.kill()
                broker.start()
                load.await_resumed(5.0)
                starts = not_back(starts, starts_of(broker, load.topic))
        found = load.check()
    assert found.ok, f"seed {seed}:\n{found.text()}"
    assert all(starts), "nothing was deleted: the test shows nothing"
    assert cleanings, "nothing was compacted: the test shows nothing"
    report(
        37,
        f"the standard load: {kills} kills, {cleanings} compactions, starts moved to {starts} and never back, {found.figures()}",
    )


def not_back(before: list[int], after: list[int]) -> list[int]:
    assert all(new >= old for old, new in zip(before, after, strict=True)), f"a start went back: {before}, {after}"
    return after


def starts_of(broker: BrokerProcess, topic: str) -> list[int]:
    with wire.connect(broker.place.port) as sock:
        return [earliest(sock, topic, number) for number in range(PLAN.partitions)]


def delete_some(admin: AdminClient, topic: str, starts: list[int], count: int) -> None:
    """DeleteRecords a little behind the starts that were seen last; an error says that retention has been further already, or that the
    client has not found the broker again."""
    wanted = [TopicPartition(topic, number, start + count) for number, start in enumerate(starts)]
    for each, done in admin.delete_records(wanted).items():
        with contextlib.suppress(KafkaException):
            assert done.result(SECONDS).low_watermark >= each.offset


def cleanings_of(broker: BrokerProcess) -> int:
    with urllib.request.urlopen(broker.metrics_url, timeout=10) as page:
        found = re.search(rb"^barnabas_log_cleanings_total (\S+)$", page.read(), re.MULTILINE)
    return int(float(found[1])) if found else 0
