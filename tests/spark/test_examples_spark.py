"""The examples with Spark run as they stand, each in processes of its own, and do what they say."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet
import pytest

from barnabas import Admin, Consumer, NewTopic, Producer
from tests.live_broker import own_live_broker
from tests.spark.conftest import ROOT, spark_environment
from tests.waiting import wait_until

SECONDS = 240
EXAMPLES = ROOT / "examples"
ORDERS = [
    {
        "id": number,
        "customer": f"customer-{number % 7}",
        "product": f"p-{1 + number % 12:02}",
        "quantity": 1 + number % 6,
        "ordered_at": "2026-11-16T08:00:00.000Z",
    }
    for number in range(300)
]
# Each starts a JVM: alone, so that nobody's time runs out.
pytestmark = [
    pytest.mark.serial,
    pytest.mark.timeout(SECONDS + 60),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]


@pytest.fixture
def servers() -> Iterator[str]:
    """A broker with the topics of the examples, which all have the same names: one each."""
    with own_live_broker() as broker:
        with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            admin.create_topics([NewTopic("orders", partitions=3), NewTopic("revenue"), NewTopic("large-orders")])
        yield broker.bootstrap


def environment(**more: str) -> dict[str, str]:
    """With SPARK_TESTING a Spark Connect server takes a free port, and its client asks for it, instead of 15002."""
    # A JVM that lives for seconds is better off without its second compiler.
    local = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "0",
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return {**os.environ, **spark_environment(), **local, "PYTHONWARNINGS": "ignore", **more}


def test_spark_connect(servers: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "spark_connect.py"), servers],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=tmp_path,
        env=environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "10000 rows written",
        "10000 rows read, their sum is 49995000",
        "10000 rows streamed in 4 batches",
    ]


def test_a_declarative_pipeline(servers: str, tmp_path: Path) -> None:
    send_orders(servers)
    project = shutil.copytree(EXAMPLES / "declarative_pipeline", tmp_path / "project")
    specification = project / "spark-pipeline.yml"
    text = specification.read_text()
    specification.write_text(text.replace("file:///tmp/orders-pipeline", f"file://{tmp_path / 'storage'}"))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "spark-pipelines"), "run"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=project,
        env=environment(BOOTSTRAP_SERVERS=servers),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    view = pyarrow.parquet.read_table(project / "spark-warehouse" / "pieces_by_product")
    expected: Counter[str] = Counter()
    for order in ORDERS:
        expected[str(order["product"])] += int(str(order["quantity"]))
    assert dict(zip(*(view[name].to_pylist() for name in ("product", "pieces")), strict=True)) == expected
    large = sorted(json.loads(value)["id"] for value in values(servers, "large-orders"))
    assert large == [order["id"] for order in ORDERS if int(str(order["quantity"])) >= 5]


def test_the_pipeline_of_the_demo_and_its_generator_run_by_themselves(servers: str, tmp_path: Path) -> None:
    """Until Ctrl-C, which both take as the wish to end."""
    lake = tmp_path / "data" / "lake"
    pipeline = [sys.executable, str(EXAMPLES / "orders_pipeline.py"), servers, str(tmp_path / "data")]
    generator = [sys.executable, str(EXAMPLES / "orders_generator.py"), servers, "500"]
    with in_background(pipeline, tmp_path) as first, in_background(generator, tmp_path) as second:
        wait_until(lambda: has_written(first, lake) and values(servers, "revenue"), SECONDS, "orders and revenue")
        for process in (second, first):
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
    totals = [json.loads(value) for value in values(servers, "revenue")]
    assert {total["category"] for total in totals} <= {"books", "desk", "office", "clothes", "food"}
    assert all(total["orders"] <= total["pieces"] for total in totals)


@contextmanager
def in_background(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    # A shell without job control starts what runs in the background deaf to Ctrl-C, and perhaps this suite with it.
    process = subprocess.Popen(
        ["env", "--default-signal=INT", *command],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)


def has_written(process: subprocess.Popen[bytes], lake: Path) -> bool:
    assert process.poll() is None, f"the pipeline ended with {process.returncode}"
    return any(lake.glob("*.parquet"))


def send_orders(servers: str) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        for order in ORDERS:
            producer.send("orders", json.dumps(order).encode(), key=str(order["customer"]).encode())


def values(servers: str, topic: str) -> list[bytes]:
    """Everything that is in the topic, which has one partition."""
    found: list[bytes] = []
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        end = consumer.end_offsets([(topic, 0)])[topic, 0]
        consumer.assign([(topic, 0)])
        while len(found) < end:
            found += [record.value for record in consumer.poll(timeout=1.0)]
    return found
