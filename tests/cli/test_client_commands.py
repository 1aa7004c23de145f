"""`barnabas topics | configs | produce | consume | offsets` against a broker: what they print, and their exit codes."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from barnabas.testing import EmbeddedBroker
from tests.both_brokers import Broker, ours_only
from tests.cli.shell import Shell
from tests.live_broker import AGAINST_KAFKA
from tests.waiting import wait_until

# Topics


def test_a_topic_is_created_described_grown_and_deleted(shell: Shell, broker: Broker) -> None:
    name = broker.unique_topic_name("life")
    made = shell.ok("topics", "--create", "--topic", name, "--partitions", 2, "--config", "retention.ms=60000")
    assert made == f"Created topic {name}.\n"
    assert name in shell.ok("topics", "--list").splitlines()
    (row,) = shell.rows("topics", "--describe", "--topic", name)
    assert row["configs"] == {"retention.ms": "60000"}
    assert [part["partition"] for part in row["partitions"]] == [0, 1]
    table = shell.ok("topics", "--describe", "--topic", name)
    assert "retention.ms=60000" in table
    assert "partition" in table
    shell.ok("topics", "--alter", "--topic", name, "--partitions", 5)
    wait_until(lambda: broker.topics()[name] == 5, what="five partitions")
    shell.ok("topics", "--delete", "--topic", name)
    wait_until(lambda: name not in broker.topics(), what="the end of the topic")


def test_a_regular_expression_means_the_topics_that_it_matches(shell: Shell, broker: Broker) -> None:
    first, second = broker.unique_topic_name("match-a"), broker.unique_topic_name("match-b")
    for name in (first, second):
        broker.create_topic(name)
    assert shell.ok("topics", "--topic", "match-[ab].*").splitlines() == [first, second]
    shell.ok("topics", "--delete", "--topic", "match-a.*")
    wait_until(lambda: first not in broker.topics(), what="the end of the topic")
    assert second in broker.topics()


def test_what_the_broker_refuses_is_one_line_and_exit_code_1(shell: Shell, topic: str) -> None:
    for arguments, words in (
        (("topics", "--create", "--topic", topic), topic),
        (("topics", "--delete", "--topic", "nothing-here"), "there is no topic nothing-here"),
        (("topics", "--create", "--topic", "x", "--config", "retention.ms=never"), "retention.ms"),
        (("consume", "--topic", "nothing-here"), "nothing-here"),
        (("consume", "--topic", topic, "--partition", 9), "has no partition 9"),
        (("offsets", "--topic", topic, "--partitions", "7"), "no partition 7"),
        (("configs", "--alter", "--topic", topic, "--add-config", "no.such.setting=1"), "no.such.setting"),
    ):
        result = shell(*arguments)
        assert result.exit_code == 1, result.output
        assert result.stderr.startswith("barnabas: ")
        assert result.stderr.count("\n") == 1
        assert words in result.stderr


def test_what_is_there_or_not_may_be_allowed(shell: Shell, topic: str) -> None:
    assert shell.ok("topics", "--create", "--topic", topic, "--if-not-exists") == ""
    assert shell.ok("topics", "--delete", "--topic", "nothing-here", "--if-exists") == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topics", "--create"], "--create needs --topic"),
        (["topics", "--alter", "--topic", "t"], "needs --partitions"),
        (["produce"], "--topic"),
        (["produce", "-t", "t", "--property", "parse.keys=true"], "parse.key,"),
        (["produce", "-t", "t", "-X", "acks"], "must be key=value"),
        (["produce", "-t", "t", "-X", "acks=7"], "acks"),
        (["produce", "-t", "t", "-F", "/no/such/file"], "cannot be read"),
        (["consume", "-t", "t", "-o", "middle"], "is no offset"),
        (["consume", "-t", "t", "-o", "stored"], "group"),
        (["consume", "-t", "t", "--group", "g"], "no consumer groups yet"),
        (["consume", "-t", "t", "-f", "%q"], "%q is not known"),
        (["consume", "-t", "t", "-f", "%s", "--format", "json"], "exclude each other"),
        (["configs"], "say whose settings"),
        (["configs", "--alter", "--topic", "t"], "--add-config"),
        (["offsets", "--time", "noon"], "is no time"),
    ],
)
def test_what_makes_no_sense_is_exit_code_2(shell: Shell, arguments: list[str], words: str) -> None:
    result = shell(*arguments, text="a\n")
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_a_broker_that_is_away_is_named(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = shell("topics", "-b", address, "-X", "default.api.timeout.ms=300")
    assert result.exit_code == 1
    assert address in result.stderr


def test_a_resource_is_named_in_words(shell: Shell, topic: str) -> None:
    for arguments, words in (
        (("--topic", "nothing-here"), "UNKNOWN_TOPIC_OR_PARTITION: topic nothing-here: "),
        (("--alter", "--topic", topic, "--add-config", "no.such.setting=1"), f"INVALID_CONFIG: topic {topic}: "),
        (("--alter", "--entity-type", "clients", "--entity-name", "app", "--add-config", "no=1"), ": client-id app: "),
    ):
        assert words in shell("configs", *arguments).stderr


def test_no_rows_are_a_sentence_on_standard_error(shell: Shell, topic: str) -> None:
    for arguments, words in (
        (
            ("configs", "--topic", topic),
            f"Nothing was set for topic {topic}; --all prints what has its default, too.\n",
        ),
        (("configs", "--entity-type", "users"), "There are no quotas of users.\n"),
        (("topics", "--delete", "--topic", "nothing-here", "--if-exists"), "Deleted no topic: there is none.\n"),
        (("topics", "--create", "--topic", topic, "--if-not-exists"), "Created no topic: all are there already.\n"),
    ):
        result = shell(*arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", words)
        assert shell.rows(*arguments) == []


@ours_only
def test_a_broker_without_topics() -> None:
    with EmbeddedBroker() as empty:
        shell = Shell(empty.bootstrap_servers)
        for arguments in (["topics"], ["topics", "--describe"], ["offsets"]):
            result = shell(*arguments)
            assert (result.exit_code, result.stdout, result.stderr) == (0, "", "There are no topics.\n")


# Produce and consume


def test_produce_says_how_much_it_sent(shell: Shell, topic: str) -> None:
    assert shell("produce", "-t", topic, text="one\ntwo\n").stderr == f"2 records sent to {topic}\n"
    assert shell("produce", "-t", topic, text="one\n").stderr == f"1 record sent to {topic}\n"
    assert shell("produce", "-t", topic, "--quiet", text="one\n").stderr == ""
    assert shell("cat", "-P", "-t", topic, text="one\n").stderr == ""


def test_a_setting_of_groups_is_said_to_do_nothing(shell: Shell, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    shell.ok("consume", "-t", topic, "-X", "group.id=g", "-e")
    assert "group.id: ignored, because there are no consumer groups yet" in caplog.text


def test_lines_become_records_and_lines_again(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("produce", "-t", topic, "-p", 1, text="one\ntwo\n\nlast without an end")
    assert [record.value for record in broker.records(topic, 1)] == [b"one", b"two", b"", b"last without an end"]
    result = shell("consume", "-t", topic, "--from-beginning", "-e")
    assert result.stdout == "one\ntwo\n\nlast without an end\n"
    assert result.stderr == "Processed a total of 4 messages\n"


def test_keys_and_headers_stand_before_the_value(shell: Shell, broker: Broker, topic: str) -> None:
    properties = [
        "parse.key=true",
        "key.separator=:",
        "parse.headers=true",
        "headers.key.separator=/",
        "null.marker=NIL",
    ]
    options = [word for text in properties for word in ("--property", text)]
    shell.ok("produce", "-t", topic, "-H", "all=yes", *options, text="a/1,b/NIL\tkey:NIL\n")
    (record,) = broker.records(topic)
    assert (record.key, record.value) == (b"key", None)
    assert record.headers == (("all", b"yes"), ("a", b"1"), ("b", None))
    result = shell("produce", "-t", topic, "--property", "parse.key=true", text="a\tb\nno key\n")
    assert result.exit_code == 1
    assert "standard input, line 2: no key" in result.stderr


def test_kcat_s_key_delimiter_is_lenient(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("produce", "-t", topic, "-p", 0, "-K", ":", text="k:v\nplain\n")
    assert [(record.key, record.value) for record in broker.records(topic)] == [(b"k", b"v"), (None, b"plain")]


def test_json_goes_round(shell: Shell, broker: Broker, topic: str) -> None:
    rows: list[dict[str, object]] = [
        {"key": "k", "value": "ä", "headers": [["h", {"hex": "ff00"}]], "timestamp": 1_700_000_000_000},
        {"key": {"hex": "fe"}, "value": None, "headers": [], "timestamp": 1_700_000_000_001},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    shell.ok("produce", "-t", topic, "-p", 0, "--format", "json", text=text)
    found = shell.records("-t", topic, "--from-beginning")
    assert [{name: record[name] for name in rows[0]} for record in found] == rows
    result = shell("produce", "-t", topic, "--format", "json", text="[]\n")
    assert result.exit_code == 1
    assert "line 1" in result.stderr


def test_everything_of_a_record_can_be_printed(shell: Shell, topic: str) -> None:
    row = {"key": "k", "value": "v", "headers": [["h", "x"]], "timestamp": 7}
    shell.ok("produce", "-t", topic, "-p", 1, "--format", "json", text=json.dumps(row))
    names = ("print.timestamp", "print.partition", "print.offset", "print.headers", "print.key")
    options = [word for name in names for word in ("--property", f"{name}=true")]
    printed = shell.ok("consume", "-t", topic, "--from-beginning", "-e", *options)
    assert printed == "CreateTime:7\tPartition:1\tOffset:0\th:x\tk\tv\n"
    template = r"%t %p %o %T %k(%K) %s(%S) %h %v 100%%\x21\n"
    printed = shell.ok("consume", "-t", topic, "--from-beginning", "-e", "-f", template)
    assert printed == f"{topic} 1 0 7 k(1) v(1) h=x v 100%!\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-o", "beginning"], "0 1 2 3 4"),
        (["-o", "end"], ""),
        (["-o", "3"], "3 4"),
        (["-o", "-2"], "3 4"),
        (["-o", "-9"], "0 1 2 3 4"),
        (["-o", "s@1002"], "2 3 4"),
        (["--from-beginning", "--max-messages", "2"], "0 1"),
        (["--from-beginning", "--max-messages", "0"], ""),
    ],
)
def test_reading_begins_and_ends_where_it_is_told(shell: Shell, topic: str, options: list[str], expected: str) -> None:
    rows = [{"value": str(number), "timestamp": 1000 + number} for number in range(5)]
    shell.ok("produce", "-t", topic, "-p", 0, "--format", "json", text="\n".join(map(json.dumps, rows)))
    assert shell.ok("consume", "-t", topic, "-p", 0, "-e", *options).split() == expected.split()


def test_reading_ends_when_nothing_comes_for_a_while(shell: Shell, topic: str) -> None:
    shell.ok("produce", "-t", topic, text="one\n")
    assert shell.ok("consume", "-t", topic, "--from-beginning", "--timeout-ms", 300) == "one\n"


def test_many_lines_of_files_are_all_there(shell: Shell, broker: Broker, topic: str, tmp_path: Path) -> None:
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text("".join(f"{file.name} {number}\n" for number in range(5000)))
    shell.ok("produce", "-t", topic, "-p", 0, "-z", "lz4", "-X", "buffer.memory=65536", *files)
    expected = [line for file in files for line in file.read_bytes().splitlines()]
    assert [record.value for record in broker.records(topic)] == expected


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(shell: Shell, topic: str) -> None:
    result = shell("produce", "-t", topic, "-X", "max.request.size=1000", text=b"short\n" + b"x" * 1_000_000)
    assert result.exit_code == 1
    assert "line 2: it has more than 4000 bytes" in result.stderr


def test_a_record_that_is_not_delivered_is_exit_code_1(shell: Shell, broker: Broker) -> None:
    name = broker.unique_topic_name("small")
    broker.create_topic(name, 1, {"max.message.bytes": 100})
    result = shell("produce", "-t", name, text="x" * 500 + "\n")
    assert result.exit_code == 1
    assert "1 of 1 records were not delivered: MESSAGE_TOO_LARGE" in result.stderr


def test_settings_come_from_a_file_too(shell: Shell, broker: Broker, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap_servers}\nclient.id=from-the-file\nmax.request.size=300\n")
    shell.ok("produce", "-t", topic, "--producer.config", file, text="x\n")
    if isinstance(broker, EmbeddedBroker):
        assert "from-the-file" in broker.request_report()
    result = shell("produce", "-t", topic, "--producer.config", file, text="x" * 500)
    assert "max.request.size = 300" in result.stderr


# Offsets and settings


def test_offsets_of_partitions_and_times(shell: Shell, topic: str) -> None:
    rows = [{"value": "x", "timestamp": 1000 + number} for number in range(3)]
    shell.ok("produce", "-t", topic, "-p", 1, "--format", "json", text="\n".join(map(json.dumps, rows)))
    found = shell.rows("offsets", "--topic", topic)
    assert [(row["partition"], row["earliest"], row["latest"], row["offsets"]) for row in found] == [
        (0, 0, 0, 0),
        (1, 0, 3, 3),
    ]
    assert [row["offset"] for row in shell.rows("offsets", "--topic", topic, "--time", 1001)] == [None, 1]
    assert [row["offset"] for row in shell.rows("offsets", "--topic", topic, "--time", "latest")] == [0, 3]
    (row,) = shell.rows("offsets", "--topic", topic, "--partitions", "1", "--time", "-2")
    assert row["offset"] == 0
    assert "earliest" in shell.ok("offsets", "--topic", topic)


def test_settings_of_a_topic_are_changed_and_taken_back(shell: Shell, topic: str) -> None:
    change = "retention.ms=60000,cleanup.policy=[compact,delete]"
    shell.ok("configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", change)
    shell.until(
        {"retention.ms": "60000", "cleanup.policy": "compact,delete"}, "configs", "--describe", "--topic", topic
    )
    shell.ok("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms,cleanup.policy")
    shell.until({}, "configs", "--topic", topic)
    assert "segment.bytes" in shell.ok("configs", "--topic", topic, "--all")


def test_settings_of_a_broker_are_changed(shell: Shell) -> None:
    # Kafka itself sets one for all brokers when its storage is formatted; it is shown for each of them too.
    for_all = {
        row["name"]: row["value"] for row in shell.rows("configs", "--entity-type", "brokers", "--entity-default")
    }
    assert for_all == ({"min.insync.replicas": "1"} if AGAINST_KAFKA else {})
    shell.ok("configs", "--alter", "--broker", 1, "--add-config", "num.io.threads=4")
    shell.until({**for_all, "num.io.threads": "4"}, "configs", "--broker", 1)
    (row,) = (row for row in shell.rows("configs", "--broker", 1) if row["name"] == "num.io.threads")
    assert row["source"] == "DYNAMIC_BROKER"
    shell.ok("configs", "--alter", "--broker", 1, "--delete-config", "num.io.threads")
    shell.until(for_all, "configs", "--broker", 1)


def test_quotas_of_clients_are_changed(shell: Shell) -> None:
    whose = ("--entity-type", "clients", "--entity-name", "app")
    shell.ok("configs", "--alter", *whose, "--add-config", "producer_byte_rate=1000")
    wait_until(lambda: shell.rows("configs", *whose), what="the quota")
    (row,) = shell.rows("configs", *whose)
    assert row == {"entity": "client-id app", "limits": {"producer_byte_rate": 1000.0}}
    assert "producer_byte_rate=1000" in shell.ok("configs", "--entity-type", "clients")
    shell.ok("configs", "--alter", *whose, "--delete-config", "producer_byte_rate")
    wait_until(lambda: shell.rows("configs", *whose) == [], what="the end of the quota")
