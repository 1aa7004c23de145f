"""`barnabas cat` with kcat's flags, and `barnabas perf`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.both_brokers import Broker
from tests.cli.shell import Shell


def test_lines_with_keys_go_round(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("cat", "-P", "-t", topic, "-p", 1, "-K", ":", "-Z", "-H", "h=x", text="k:v\nk2:\nplain\n")
    found = [(record.key, record.value, record.headers) for record in broker.records(topic)]
    header = (("h", b"x"),)
    assert found == [(b"k", b"v", header), (b"k2", None, header), (None, b"plain", header)]
    assert shell.ok("cat", "-C", "-t", topic, "-e", "-K", "%", "-Z") == "k%v\nk2%NULL\nNULL%plain\n"
    assert shell.ok("cat", "-C", "-t", topic, "-e", "-p", 1, "-c", 1, "-f", r"%k=%s\x21%h\t%%\n") == "k=v!h=x\t%\n"
    rows = [json.loads(line) for line in shell.ok("cat", "-C", "-t", topic, "-e", "-J", "-o", "1").splitlines()]
    assert [(row["key"], row["payload"], row["headers"]) for row in rows] == [
        ("k2", None, ["h", "x"]),
        (None, "plain", ["h", "x"]),
    ]


def test_without_a_mode_and_a_terminal_it_produces(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("cat", "-t", topic, "-p", 0, "-D", ";", text="a;b;c")
    assert [record.value for record in broker.records(topic)] == [b"a", b"b", b"c"]


def test_a_file_is_a_record_unless_its_lines_are_asked_for(
    shell: Shell, broker: Broker, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"one\ntwo\n")
    shell.ok("cat", "-P", "-t", topic, "-p", 0, file)
    shell.ok("cat", "-P", "-t", topic, "-p", 0, "-l", file)
    assert [record.value for record in broker.records(topic)] == [b"one\ntwo\n", b"one", b"two"]
    result = shell("cat", "-P", "-t", topic, "-X", "max.request.size=1", file)
    assert result.exit_code == 1
    assert "max.request.size" in result.stderr


def test_reading_between_two_times(shell: Shell, topic: str) -> None:
    rows = [{"value": str(number), "timestamp": 1000 + number} for number in range(6)]
    shell.ok("produce", "-t", topic, "-p", 0, "--format", "json", text="\n".join(map(json.dumps, rows)))
    printed = shell.ok("cat", "-C", "-t", topic, "-o", "s@1002", "-o", "e@1004")
    assert printed.split() == ["2", "3"]


def test_metadata_and_queries(shell: Shell, broker: Broker, topic: str) -> None:
    shell.ok("produce", "-t", topic, "-p", 1, "--format", "json", text='{"value": "x", "timestamp": 1000}')
    (listed,) = json.loads(shell.ok("cat", "-L", "-J", "-t", topic))
    assert [row["address"] for row in listed["brokers"]] == [broker.bootstrap_servers]
    assert [row["partition"] for row in listed["partitions"]] == [0, 1]
    assert broker.bootstrap_servers in shell.ok("cat", "-L")
    queries = [word for time in (999, 1001, -1, -2) for word in ("-t", f"{topic}:1:{time}")]
    assert [row["offset"] for row in json.loads(shell.ok("cat", "-Q", "-J", *queries))] == [0, None, 1, 0]
    assert "has no partition 5" in shell("cat", "-Q", "-t", f"{topic}:5:-1").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-C"], "needs one -t"),
        (["-C", "-t", "a", "-t", "b"], "needs one -t"),
        (["-C", "-t", "a", "-o", "1", "-o", "2"], "one place to begin"),
        (["-C", "-t", "a", "-o", "e@noon"], "is no time"),
        (["-G", "group", "a"], "no consumer groups yet"),
        (["-Q", "-t", "a"], "TOPIC:PARTITION:TIME"),
        (["-Q"], "needs -t"),
    ],
)
def test_what_makes_no_sense_is_refused(shell: Shell, arguments: list[str], words: str) -> None:
    result = shell("cat", *arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


# Perf


def test_perf_measures_what_it_sends_and_reads(shell: Shell, broker: Broker, topic: str) -> None:
    size, count = 50, 3000
    options = ["--num-records", count, "--record-size", size, "--format", "json"]
    (sent,) = json.loads(
        shell.ok("perf", "produce", "-t", topic, *options, "--producer-props", "acks=all", "linger.ms=1")
    )
    records = broker.records(topic)
    assert (sent["records"], len(records), {len(record.value or b"") for record in records}) == (count, count, {size})
    assert 0 < sent["p50_ms"] <= sent["p99_ms"] <= sent["max_ms"] <= 1000 * sent["seconds"]
    for way in ([], ["--arrow"]):
        (read,) = json.loads(shell.ok("perf", "consume", "-t", topic, "--messages", count, *way, "--format", "json"))
        assert read["records"] == count
        assert read["mb"] == round(size * count / 1024 / 1024, 2)
    assert "records per second" in shell.ok("perf", "consume", "-t", topic, "--messages", 1)


def test_perf_keeps_to_the_rate_that_is_asked_for(shell: Shell, topic: str) -> None:
    options = ["--num-records", 100, "--throughput", 400, "--format", "json"]
    (sent,) = json.loads(shell.ok("perf", "produce", "-t", topic, *options))
    assert sent["records_per_second"] <= 410


def test_perf_says_when_fewer_records_came(shell: Shell, topic: str) -> None:
    shell.ok("produce", "-t", topic, text="one\n")
    result = shell("perf", "consume", "-t", topic, "--messages", 2, "--timeout", 2000)
    assert result.exit_code == 1
    assert "only 1 of 2 records came" in result.stderr
