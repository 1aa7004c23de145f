"""Row 26: every connection dies after 0.5 to 1.5 s, and a consume-process-produce chain still writes every result exactly once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from barnabas import Producer
from tests.both_brokers import Broker, own_broker
from tests.faults.chains import CHAINS, END, QUICK, processed
from tests.faults.conftest import Report
from tests.faults.proxy import FaultyProxy

FULL_ROUNDS = 20
LEAST_RECORDS = 100
DEATHS = {True: 12, False: 4}
LIFETIME = {True: (0.5, 1.5), False: (0.2, 0.5)}


@pytest.fixture(scope="module")
def line() -> Iterator[tuple[FaultyProxy, Broker]]:
    """A broker that is reached through the proxy only."""
    with FaultyProxy() as proxy, own_broker(config={"advertised.listeners": proxy.advertised}) as broker:
        proxy.target = broker.port
        yield proxy, broker


@pytest.fixture(params=CHAINS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Feeder:
    """Writes numbers to the source until so many connections have been made, then END; `count` says how many numbers it were."""

    def __init__(self, proxy: FaultyProxy, topic: str, connections: int) -> None:
        self._proxy = proxy
        self._topic = topic
        self._until = connections
        self.count = 0
        self._thread = threading.Thread(target=self._feed, name="feeder")

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _feed(self) -> None:
        with Producer({"bootstrap.servers": self._proxy.address, **QUICK}) as producer:
            while self._proxy.connections < self._until or self.count < LEAST_RECORDS:
                producer.send(self._topic, b"%d" % self.count)
                self.count += 1
                producer.flush(0.005)
            producer.send(self._topic, END)


@pytest.mark.timeout(1800)
def test_the_chain_goes_on(line: tuple[FaultyProxy, Broker], name: str, full: bool, report: Report) -> None:
    """PP-21, PP-27, PP-31: our clients and other people's, over connections none of which lives long."""
    proxy, broker = line
    rounds = FULL_ROUNDS if full else 1
    records = connections = 0
    for _ in range(rounds):
        source, target = broker.unique_topic_name("source"), broker.unique_topic_name("target")
        proxy.heal()
        for topic in (source, target):
            broker.create_topic(topic)
        proxy.lifetime = LIFETIME[full]
        with Feeder(proxy, source, proxy.connections + 2 * DEATHS[full]) as feeder:
            CHAINS[name](proxy.address, source, target)
        expected = [*(b"%d" % number for number in range(feeder.count)), END]
        assert [record.value for record in broker.records(source)] == expected
        assert [record.value for record in broker.records(target)] == [processed(value) for value in expected]
        records += len(expected)
        connections += proxy.connections
    report(26, f"{name}: {rounds} of {rounds} chains exactly once, {records} records over {connections} connections")
