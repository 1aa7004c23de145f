"""The pytest plugin, as somebody else's project sees it: each test runs pytest on a small test file."""

from __future__ import annotations

import os

import pytest

PRODUCE = """
import pytest
from tests import wire
from tests.waiting import wait_until

def produce(broker, topic, values):
    with wire.connect(broker.port) as sock:
        return wire.produce_result(wire.ask(sock, wire.produce(topic, wire.batch(values))), topic)
"""


@pytest.fixture
def project(
    pytester: pytest.Pytester, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """A project with nothing of ours but the installed plugin (and our hand-written frames)."""
    root = request.config.rootpath
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "src"), str(root)]))
    pytester.makeini("[pytest]\n")
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider", *arguments)


def test_a_topic_is_made_for_each_test_and_its_records_can_be_seen(project: pytest.Pytester) -> None:
    project.makepyfile(
        PRODUCE
        + """
def test_one(kafka_broker, kafka_topic, kafka_bootstrap_servers):
    assert kafka_bootstrap_servers == kafka_broker.bootstrap_servers
    assert produce(kafka_broker, kafka_topic, [b"a"]) == (0, 0)
    assert [r.value for r in kafka_broker.records(kafka_topic)] == [b"a"]

def test_two(kafka_broker, kafka_topic):
    assert kafka_broker.topics() == {kafka_topic: 1}
    assert kafka_broker.records(kafka_topic) == []
"""
    )
    run(project).assert_outcomes(passed=2)


def test_the_marker_says_how_the_topic_is_made(project: pytest.Pytester) -> None:
    project.makepyfile(
        PRODUCE
        + """
@pytest.mark.kafka(partitions=3, config={"max.message.bytes": 500})
def test_marked(kafka_broker, kafka_topic):
    assert kafka_broker.topics() == {kafka_topic: 3}
    assert produce(kafka_broker, kafka_topic, [b"x" * 1000])[0] == 10
"""
    )
    run(project, "--strict-markers").assert_outcomes(passed=1)


def test_our_clients_are_fixtures_too(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
import pytest

@pytest.mark.kafka(partitions=2)
@pytest.mark.parametrize("turn", range(2))
def test_round_trip(kafka_producer, kafka_consumer, kafka_topic, turn):
    for partition in range(2):
        kafka_producer.send(kafka_topic, b"%d" % partition, partition=partition).result(10)
    found = []
    while len(found) < 2:
        found += [record.value for record in kafka_consumer.poll(timeout=10)]
    assert sorted(found) == [b"0", b"1"]

def test_nothing_of_them_is_left(kafka_topic):
    import threading
    assert not [thread for thread in threading.enumerate() if "producer" in thread.name]
"""
    )
    run(project).assert_outcomes(passed=3)


def test_a_wrong_option_of_the_marker_is_named(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
import pytest

@pytest.mark.kafka(partition=3)
def test_marked(kafka_topic):
    pass
"""
    )
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the marker kafka takes partitions and config, not partition*"])


def test_a_failed_test_shows_the_last_requests(project: pytest.Pytester) -> None:
    project.makepyfile(
        PRODUCE
        + """
def test_fails(kafka_broker, kafka_topic):
    produce(kafka_broker, kafka_topic, [b"a"])
    wait_until(lambda: "Produce" in kafka_broker.request_report())
    assert kafka_broker.records(kafka_topic) == []

def test_fails_without_it():
    assert False
"""
    )
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*the last requests to kafka_broker*", "*Produce v7*total*"])
    assert result.stdout.str().count("the last requests to kafka_broker") == 1


def test_settings_of_the_broker_come_from_the_ini_file(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nkafka_broker_config =\n    num.partitions = 4\n    message.max.bytes=500\n")
    project.makepyfile(
        """
def test_settings(kafka_broker):
    assert kafka_broker.server.services.config["num.partitions"] == 4
    assert kafka_broker.server.services.config["message.max.bytes"] == 500
"""
    )
    run(project).assert_outcomes(passed=1)


def test_workers_of_xdist_have_a_broker_each(project: pytest.Pytester) -> None:
    project.makepyfile(
        PRODUCE
        + """
@pytest.mark.parametrize("number", range(4))
def test_many(kafka_broker, kafka_topic, number):
    assert produce(kafka_broker, kafka_topic, [b"a"]) == (0, 0)
    assert kafka_broker.topics() == {kafka_topic: 1}
"""
    )
    run(project, "-n", "2").assert_outcomes(passed=4)


def test_a_run_that_uses_no_fixture_imports_no_broker(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
import sys

def test_nothing_is_imported():
    ours = ("barnabas.broker", "barnabas.client", "barnabas.consumer", "barnabas.producer")
    assert not [name for name in sys.modules if name.startswith(ours)]
"""
    )
    run(project).assert_outcomes(passed=1)
