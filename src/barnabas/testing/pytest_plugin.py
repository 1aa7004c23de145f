"""The pytest plugin (entry point `barnabas`): a real broker for tests, started in a fraction of a second.

Role: fixtures `kafka_broker` (one per session and xdist worker), `kafka_bootstrap_servers`, `kafka_topic` (unique per test),
`kafka_producer`, `kafka_consumer` (our clients)
and the marker `@pytest.mark.kafka(partitions=3, config={...})`; a failed test that used the broker shows the last requests.
Thread: pytest's main thread. Lock: none. Nothing of broker and clients is imported before a fixture asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas.consumer import Consumer
    from barnabas.producer import Producer
    from barnabas.testing.embedded import EmbeddedBroker

BROKER_KEY = pytest.StashKey["EmbeddedBroker"]()
CLOSE_SECONDS = 10.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "kafka_broker_config", "settings of the broker of `kafka_broker`, one key=value per line", type="linelist"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka(partitions=1, config={}): how `kafka_topic` is made for this test: its partitions and its topic configs",
    )


def broker_settings(config: pytest.Config) -> dict[str, str]:
    """The ini option `kafka_broker_config` as a dict."""
    pairs = (str(line).partition("=") for line in config.getini("kafka_broker_config"))
    return {key.strip(): value.strip() for key, _, value in pairs}


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker in this process, on a free port, with its data in memory where the system has such a place."""
    from barnabas.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(config=broker_settings(request.config)) as broker:
        request.config.stash[BROKER_KEY] = broker
        yield broker
    del request.config.stash[BROKER_KEY]


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(kafka_broker: EmbeddedBroker) -> str:
    """What a client calls `bootstrap.servers`."""
    return kafka_broker.bootstrap_servers


@pytest.fixture
def kafka_topic(kafka_broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic that only this test has; it is deleted afterwards."""
    marker = request.node.get_closest_marker("kafka")
    options: dict[str, Any] = dict(marker.kwargs) if marker else {}
    partitions = options.pop("partitions", 1)
    configs = options.pop("config", {})
    if options:
        raise pytest.UsageError(f"the marker kafka takes partitions and config, not {', '.join(sorted(options))}")
    name = kafka_broker.unique_topic_name(request.node.name)
    kafka_broker.create_topic(name, partitions, configs)
    yield name
    kafka_broker.delete_topic(name)


@pytest.fixture
def kafka_producer(kafka_bootstrap_servers: str) -> Iterator[Producer]:
    """A producer that sends at once; what was not sent is sent, then it is closed.

    def test_my_service(kafka_producer, kafka_topic):
        kafka_producer.send(kafka_topic, b"value").result(10)
    """
    from barnabas.producer import Producer

    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers, "linger.ms": 0})
    yield producer
    producer.close(CLOSE_SECONDS)


@pytest.fixture
def kafka_consumer(kafka_bootstrap_servers: str, kafka_broker: EmbeddedBroker, kafka_topic: str) -> Iterator[Consumer]:
    """A consumer that reads all partitions of `kafka_topic` from their beginning, unless the test assigns others.

    def test_my_service(kafka_consumer):
        assert [record.value for record in kafka_consumer.poll(timeout=5)] == [b"value"]
    """
    from barnabas.consumer import Consumer

    with Consumer({"bootstrap.servers": kafka_bootstrap_servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign((kafka_topic, number) for number in range(kafka_broker.topics()[kafka_topic]))
        yield consumer


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the last requests, with their times, to the report of a failed test that used the broker."""
    outcome: Any = yield
    broker = item.config.stash.get(BROKER_KEY, None)
    report: pytest.TestReport = outcome.get_result()
    if (
        broker is not None
        and report.when == "call"
        and report.failed
        and "kafka_broker" in getattr(item, "fixturenames", ())
    ):
        report.sections.append(("the last requests to kafka_broker", broker.request_report()))
