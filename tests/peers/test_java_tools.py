"""Kafka's own command-line tools work against the broker as they do against Apache Kafka, each in a JVM of its own."""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka import Producer

from bench.brokers import BrokerProcess
from bench.peers.tools import ProducerRun, ToolFailed, producer_performance
from tests.live_broker import fresh_topic, set_topic_config
from tests.peers.conftest import Tools

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def _offsets(tools: Tools, topic: str, time: str) -> dict[int, int]:
    output = tools("GetOffsetShell", "--topic", topic, "--time", time)
    return {
        int(partition): int(offset) for partition, offset in re.findall(rf"^{topic}:(\d+):(\d+)$", output, re.MULTILINE)
    }


def test_producer_performance_delivers_every_record_and_get_offset_shell_counts_them(
    broker: BrokerProcess, tools: Tools
) -> None:
    topic = fresh_topic(broker, partitions=3)
    rate = producer_performance(broker.bootstrap, ProducerRun(topic, 20_000, 100), timeout=50)
    assert rate > 0
    latest = _offsets(tools, topic, "latest")
    assert sorted(latest) == [0, 1, 2]
    assert sum(latest.values()) == 20_000
    assert _offsets(tools, topic, "earliest") == {0: 0, 1: 0, 2: 0}


def test_the_java_producer_and_console_consumer_agree_on_keys_headers_and_every_codec(tools: Tools, topic: str) -> None:
    codecs = ("gzip", "snappy", "lz4", "zstd")
    lines = [f"h1:a,h2:b\tkey-{n}\tvalue {n} {'x' * 50}" for n in range(200)]
    read = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    for codec in codecs:
        tools("ConsoleProducer", "--topic", topic, "--compression-codec", codec, *read, stdin="\n".join(lines) + "\n")
    shown = ("print.headers=true", "print.key=true", "print.offset=true")
    properties = [argument for each in shown for argument in ("--formatter-property", each)]
    bounds = ("--partition", "0", "--offset", "earliest", "--max-messages", "800", "--timeout-ms", "30000")
    output = tools(CONSOLE_CONSUMER, "--topic", topic, *bounds, *properties)
    assert output.splitlines() == [f"Offset:{n}\t{line}" for n, line in enumerate(lines * len(codecs))]


def test_console_consumer_begins_at_the_offset_that_it_is_told(tools: Tools, topic: str) -> None:
    tools("ConsoleProducer", "--topic", topic, stdin="".join(f"line {n}\n" for n in range(10)))
    output = tools(
        CONSOLE_CONSUMER,
        "--topic",
        topic,
        "--partition",
        "0",
        "--offset",
        "7",
        "--max-messages",
        "3",
        "--timeout-ms",
        "30000",
    )
    assert output.splitlines() == ["line 7", "line 8", "line 9"]


def test_topic_command_creates_lists_describes_extends_and_deletes(broker: BrokerProcess, tools: Tools) -> None:
    name = "made-by-topic-command"
    tools("TopicCommand", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=3600000")
    assert name in tools("TopicCommand", "--list").split()
    described = tools("TopicCommand", "--describe", "--topic", name)
    assert re.search(rf"Topic: {name}\s+TopicId: \S{{22}}\s+PartitionCount: 2\s+ReplicationFactor: 1", described)
    assert "retention.ms=3600000" in described
    assert len(re.findall(r"Partition: \d+\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 2
    tools("TopicCommand", "--alter", "--topic", name, "--partitions", "5")
    assert "PartitionCount: 5" in tools("TopicCommand", "--describe", "--topic", name)
    tools("TopicCommand", "--delete", "--topic", name)
    assert name not in tools("TopicCommand", "--list").split()


def test_topic_command_reports_a_topic_that_exists_already(tools: Tools, topic: str) -> None:
    with pytest.raises(ToolFailed, match=r"TopicExistsException|already exists"):
        tools("TopicCommand", "--create", "--topic", topic)


def test_config_command_changes_and_describes_a_topic(tools: Tools, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools(CONFIG_COMMAND, "--alter", *entity, "--add-config", "retention.ms=7200000,max.message.bytes=2000000")
    described = tools(CONFIG_COMMAND, "--describe", *entity)
    assert re.search(r"retention\.ms=7200000 .*DYNAMIC_TOPIC_CONFIG", described)
    assert "max.message.bytes=2000000" in described
    tools(CONFIG_COMMAND, "--alter", *entity, "--delete-config", "retention.ms")
    described = tools(CONFIG_COMMAND, "--describe", *entity)
    assert "retention.ms=" not in described
    assert "max.message.bytes=2000000" in described


def test_config_command_refuses_a_value_that_is_not_allowed(tools: Tools, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    with pytest.raises(ToolFailed, match=r"InvalidConfigurationException|Invalid value|InvalidRequestException"):
        tools(CONFIG_COMMAND, "--alter", *entity, "--add-config", "retention.ms=soon")


def test_config_command_changes_thread_counts_of_the_running_broker(tools: Tools) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    tools(CONFIG_COMMAND, "--alter", *entity, "--add-config", "num.io.threads=4")
    described = tools(CONFIG_COMMAND, "--describe", *entity)
    assert re.search(r"num\.io\.threads=4 .*DYNAMIC_BROKER_CONFIG:num\.io\.threads=4", described)
    tools(CONFIG_COMMAND, "--alter", *entity, "--delete-config", "num.io.threads")
    assert "num.io.threads" not in tools(CONFIG_COMMAND, "--describe", *entity)


def test_config_command_sets_and_shows_client_quotas(tools: Tools) -> None:
    entity = ("--entity-type", "clients", "--entity-name", "metered")
    tools(CONFIG_COMMAND, "--alter", *entity, "--add-config", "producer_byte_rate=1048576,consumer_byte_rate=2097152")
    described = tools(CONFIG_COMMAND, "--describe", *entity)
    assert "producer_byte_rate=1048576" in described
    assert "consumer_byte_rate=2097152" in described
    tools(CONFIG_COMMAND, "--alter", *entity, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert "byte_rate" not in tools(CONFIG_COMMAND, "--describe", *entity)


def test_log_dirs_command_reports_the_size_of_a_partition(broker: BrokerProcess, tools: Tools, topic: str) -> None:
    producer_performance(broker.bootstrap, ProducerRun(topic, 1000, 100), timeout=50)
    output = tools("LogDirsCommand", "--describe", "--topic-list", topic)
    document = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    [directory] = document["brokers"][0]["logDirs"]
    assert directory["error"] is None
    [partition] = directory["partitions"]
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] > 1000 * 100
    assert partition["isFuture"] is False


def test_broker_api_versions_command_finds_every_api_usable(tools: Tools) -> None:
    output = tools("BrokerApiVersionsCommand")
    assert re.search(r"Produce\(0\): \d+ to 13 \[usable: 13\]", output)
    assert re.search(r"Fetch\(1\): \d+ to 18 \[usable: 18\]", output)
    assert re.search(r"ApiVersions\(18\): 0 to \d+ \[usable: \d+\]", output)


def test_get_offset_shell_finds_an_offset_by_time(tools: Tools, topic: str) -> None:
    tools("ConsoleProducer", "--topic", topic, stdin="one\ntwo\n")
    assert _offsets(tools, topic, "0") == {0: 0}
    assert _offsets(tools, topic, "-1") == {0: 2}
    assert _offsets(tools, topic, "max-timestamp") in ({0: 0}, {0: 1})


def test_console_consumer_reads_every_codec_that_the_broker_wrote_itself(
    broker: BrokerProcess, tools: Tools, topic: str
) -> None:
    """Java refuses, for example, lz4 with linked blocks, which other clients read."""
    lines = [f"line {number} {'of text ' * 40}" for number in range(300)]
    for codec in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        set_topic_config(broker, topic, "compression.type", codec)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "none", "linger.ms": 50})
        for line in lines:
            producer.produce(topic, line.encode(), partition=0)
        assert producer.flush(30) == 0
    bounds = ("--partition", "0", "--offset", "earliest", "--max-messages", "1500", "--timeout-ms", "30000")
    assert tools(CONSOLE_CONSUMER, "--topic", topic, *bounds).splitlines() == lines * 5
