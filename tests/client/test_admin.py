"""The admin client against a live broker: ours, or Apache Kafka with BARNABAS_TEST_AGAINST=kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from barnabas.client.admin import Admin
from barnabas.client.admin_results import AdminError, ConfigResource, ConfigSource, NewTopic
from barnabas.client.errors import ClientClosed, ClientTimeout, UnknownPartition
from barnabas.errors import ErrorCode, KafkaError
from bench.brokers import BrokerProcess
from tests.waiting import wait_until


@pytest.fixture
def admin(live: BrokerProcess) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": live.bootstrap, "default.api.timeout.ms": 30_000}) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"admin-{uuid.uuid4().hex[:10]}"


def until_described(admin: Admin, name: str, partitions: int) -> None:
    """On Apache Kafka a broker hears of a new topic a moment after the controller has answered."""

    def described() -> bool:
        try:
            return len(admin.describe_topics([name])[name].partitions) == partitions
        except AdminError:
            return False

    wait_until(described, what=f"the description of {name}")


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, what="the change")


def write(live: BrokerProcess, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": live.bootstrap})
    for number in range(count):
        producer.produce(topic, value=b"x", partition=0, timestamp=1000 * (number + 1))
    assert producer.flush(30) == 0


def test_the_life_of_a_topic(admin: Admin, name: str) -> None:
    created = admin.create_topics([NewTopic(name, partitions=2, replication_factor=1, configs={"retention.ms": "999"})])
    assert created[name].id is not None
    until_described(admin, name, 2)
    described = admin.describe_topics([name])[name]
    assert described.id == created[name].id
    assert [(info.partition, info.leader_id >= 0) for info in described.partitions] == [(0, True), (1, True)]
    assert name in admin.list_topics()
    admin.create_partitions({name: 5})
    until_described(admin, name, 5)
    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics())


def test_a_part_that_fails_does_not_hold_back_the_rest(admin: Admin, name: str) -> None:
    with pytest.raises(AdminError) as caught:
        admin.create_topics([NewTopic(name, 1, 1), NewTopic("not a legal name!", 1, 1)])
    assert caught.value.failures["not a legal name!"].code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert list(caught.value.results) == [name]
    with pytest.raises(AdminError, match=name) as caught:
        admin.create_topics([name])
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(AdminError) as caught:
        admin.delete_topics([name, "no-such-topic"])
    assert list(caught.value.results) == [name]
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("call", ["create_topics", "delete_topics", "describe_topics"])
def test_a_single_name_is_not_taken_for_its_letters(admin: Admin, call: str) -> None:
    with pytest.raises(TypeError, match=r"give a list: \['orders'\]"):
        getattr(admin, call)("orders")


def test_validation_changes_nothing(admin: Admin, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)
    with pytest.raises(AdminError) as caught:
        admin.describe_topics([name])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_settings_of_a_topic(admin: Admin, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])
    until_described(admin, name, 1)
    topic = ConfigResource.topic(name)
    before = admin.describe_configs([topic])[topic]
    assert before["retention.ms"].source is not ConfigSource.TOPIC
    admin.alter_configs(topic, {"retention.ms": "12345"})
    until(lambda: admin.describe_configs([topic])[topic]["retention.ms"].value == "12345")
    assert admin.describe_configs([topic])[topic]["retention.ms"].source is ConfigSource.TOPIC
    admin.alter_configs(topic, {"retention.ms": None})
    until(lambda: admin.describe_configs([topic])[topic]["retention.ms"] == before["retention.ms"])
    with pytest.raises(AdminError, match=f"^INVALID_CONFIG: topic {name}: "):
        admin.alter_configs(topic, {"retention.ms": "soon"})


def test_settings_of_a_broker(admin: Admin) -> None:
    (node, *_) = admin.describe_cluster().nodes
    broker = ConfigResource.broker(node.id)
    found = admin.describe_configs([broker])[broker]
    assert found["num.io.threads"].value is not None
    with pytest.raises(KafkaError, match="no broker 4711"):
        admin.describe_configs([ConfigResource.broker(4711)])


def test_records_and_offsets(admin: Admin, live: BrokerProcess, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])
    until_described(admin, name, 1)
    write(live, name, 5)
    place = (name, 0)
    assert admin.list_offsets({place: -1})[place].offset == 5
    assert admin.list_offsets({place: 2500})[place] == (2, 3000)
    assert admin.delete_records({place: 3}) == {place: 3}
    assert admin.list_offsets({place: -2})[place].offset == 3
    with pytest.raises(AdminError, match=f": {name}-0: ") as caught:
        admin.delete_records({place: 99})
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_partition_that_the_topic_does_not_have_is_not_waited_for(admin: Admin, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])
    until_described(admin, name, 1)
    words = f"no partition 7 of {name}, which has one partition, number 0"
    with pytest.raises(UnknownPartition, match=words):
        admin.list_offsets({(name, 7): -1}, timeout=600)
    with pytest.raises(UnknownPartition, match=words):
        admin.delete_records({(name, 7): 0}, timeout=600)


def test_times_are_whole_milliseconds(admin: Admin, name: str) -> None:
    seconds: Any = 1.7e9
    with pytest.raises(TypeError, match="whole milliseconds since 1970, not 1700000000"):
        admin.list_offsets({(name, 0): seconds})


def test_where_nobody_listens_is_said_at_once() -> None:
    with (
        Admin({"bootstrap.servers": "127.0.0.1:1"}) as admin,
        pytest.raises(KafkaError, match=r"nobody listens at 127\.0\.0\.1:1: connection refused") as caught,
    ):
        admin.reach(timeout=600)
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_a_broker_that_answers_is_reached(admin: Admin) -> None:
    admin.reach(timeout=30)


def test_the_cluster_and_its_directories(admin: Admin, live: BrokerProcess, name: str) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert [node.address for node in cluster.nodes] == [live.bootstrap]
    admin.create_topics([NewTopic(name, 1, 1)])
    until_described(admin, name, 1)
    write(live, name, 1)
    node_id = cluster.nodes[0].id
    (directory,) = admin.describe_log_dirs()[node_id]
    assert directory.error is None
    assert directory.replicas[name, 0].size > 0
    assert admin.describe_log_dirs([node_id]).keys() == {node_id}


def test_quotas(admin: Admin, name: str) -> None:
    entity = {"client-id": name}
    admin.alter_quotas(entity, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0})
    until(lambda: len(admin.describe_quotas(entity)) == 1)
    (quota,) = admin.describe_quotas(entity)
    assert (quota.entity, quota.limits) == (entity, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0})
    assert quota in admin.describe_quotas()
    admin.alter_quotas(entity, {"producer_byte_rate": None, "consumer_byte_rate": None})
    until(lambda: admin.describe_quotas(entity) == [])
    with pytest.raises(AdminError, match=f"client-id {name}: "):
        admin.alter_quotas(entity, {"nonsense_rate": 1.0})


def test_nobody_there_is_named() -> None:
    with Admin({"bootstrap.servers": "127.0.0.1:1"}) as admin, pytest.raises(ClientTimeout, match=r"127\.0\.0\.1:1"):
        admin.list_topics(timeout=1)


def test_a_closed_client_says_so(admin: Admin) -> None:
    admin.close()
    with pytest.raises(ClientClosed):
        admin.list_topics()
