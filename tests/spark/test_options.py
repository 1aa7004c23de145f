"""The options: every row is read, every mistake is an error that names it."""

from __future__ import annotations

import pickle

import pytest

from barnabas.errors import ConfigError
from barnabas.spark.offsets import parse_partitions
from barnabas.spark.options import ROWS, Option, Options, Use, parse_options
from barnabas.spark.starting import AtEnd, AtOffsets, AtTime, AtTimes, RecordsBack, TimeBack, duration_ms

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def batch(**more: str) -> Options:
    return parse_options({**LEAST, **more}, Use.BATCH_READ)


def stream(**more: str) -> Options:
    return parse_options({**LEAST, **more}, Use.STREAM_READ)


def test_names_may_be_written_in_any_case() -> None:
    found = parse_options(
        {"KAFKA.bootstrap.servers": "a:1", "SUBSCRIBE": "a, b,a", "FailOnDataLoss": "False"}, Use.STREAM_READ
    )
    assert found["subscribe"] == ("a", "b")
    assert found["failOnDataLoss"] is False
    assert found.is_given("failOnDataLoss")
    assert found.client == {"bootstrap.servers": "a:1"}


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("localhost", "has no port; write localhost:9092"),
        ("a:1,b", "b: has no port; write b:9092"),
        ("a:b", "must be host:port"),
    ],
)
def test_brokers_are_written_with_their_port(servers: str, words: str) -> None:
    for use in Use:
        with pytest.raises(ConfigError, match=rf"^kafka\.bootstrap\.servers = '{servers}': {words}"):
            parse_options({**LEAST, "kafka.bootstrap.servers": servers}, use)


def test_defaults_are_those_of_sparks_own_connector() -> None:
    found = stream()
    assert found["failOnDataLoss"] is True
    assert found["includeHeaders"] is False
    assert found["maxTriggerDelay"] == 15 * 60_000
    assert found["fetchOffset.numRetries"] == 3
    assert found["startingOffsetsByTimestampStrategy"] == "error"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_has_a_text_and_a_use(row: Option) -> None:
    assert row.text.endswith(".")
    assert row.uses
    assert not row.uses & row.ignored_in
    assert row.default is None or row.default_value is not None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("startingOffset", "earliest", "did you mean startingOffsets?"),
        ("commitOffsetsToGroup", "true", "comes with consumer groups"),
        ("color", "red", "there is no such option"),
        ("startingOffsets", "yesterday", "must be earliest, latest"),
        ("startingOffsets", '{"orders":{"0":"x"}}', "orders 0"),
        ("startingOffsets", '{"orders":[0]}', "JSON like"),
        ("startingOffsets", '{"orders":{"-1":5}}', "not the number of a partition"),
        ("startingOffsets", '{"orders":{"0":-3}}', "-3"),
        ("startingOffsets", "-10q", "must be earliest"),
        ("startingTimestamp", "now", "whole number"),
        ("startingOffsetsByTimestamp", '{"orders":{"0":-5}}', "JSON like"),
        ("startingOffsetsByTimestampStrategy", "earliest", "error or latest"),
        ("failOnDataLoss", "yes", "true or false"),
        ("minPartitions", "0", "at least 1"),
        ("maxRecordsPerPartition", "-1", "whole number"),
        ("fetchOffset.numRetries", "x", "whole number"),
        ("kafkaConsumer.pollTimeoutMs", "0", "at least 1"),
        ("kafka.auto.offset.reset", "earliest", "use startingOffsets"),
        ("kafka.enable.auto.commit", "true", "checkpoint"),
        ("kafka.key.deserializer", "x", "not allowed"),
        ("kafka.value.deserializer", "x", "not allowed"),
        ("kafka.interceptor.classes", "x", "not allowed"),
    ],
)
def test_a_mistake_is_an_error_that_names_option_and_value(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        batch(**{name: value})
    assert name.lower() in str(caught.value).lower()
    assert words in str(caught.value)


def test_exactly_one_of_the_three_ways_to_name_topics() -> None:
    with pytest.raises(ConfigError, match="exactly one"):
        parse_options({"kafka.bootstrap.servers": "a:1"}, Use.BATCH_READ)
    with pytest.raises(ConfigError, match="subscribe / assign"):
        batch(assign='{"a":[0]}')
    with pytest.raises(ConfigError, match="must be given"):
        parse_options({"subscribe": "a"}, Use.BATCH_READ)
    with pytest.raises(ConfigError, match="must name a topic"):
        batch(subscribe=" , ")
    with pytest.raises(ConfigError, match="regular expression"):
        parse_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, Use.BATCH_READ)


def test_a_batch_cannot_begin_at_the_latest_nor_end_at_the_earliest() -> None:
    for value in ("latest", '{"orders":{"0":-1}}'):
        with pytest.raises(ConfigError, match="cannot begin at the latest"):
            batch(startingOffsets=value)
        stream(startingOffsets=value)
    with pytest.raises(ConfigError, match="must be latest or JSON"):
        batch(endingOffsets="earliest")
    with pytest.raises(ConfigError, match="must not end at the earliest"):
        batch(endingOffsets='{"orders":{"0":-2}}')


def test_a_stream_has_no_end() -> None:
    for name, value in (("endingOffsets", "latest"), ("endingTimestamp", "5"), ("endingOffsetsByTimestamp", "{}")):
        with pytest.raises(ConfigError, match="not of a streaming read"):
            stream(**{name: value})


def test_limits_of_triggers_do_nothing_in_a_batch_and_must_not_contradict_each_other() -> None:
    assert batch(maxOffsetsPerTrigger="5", maxBytesPerTrigger="9").ignored == [
        "maxBytesPerTrigger",
        "maxOffsetsPerTrigger",
    ]
    with pytest.raises(ConfigError, match="must not be above maxOffsetsPerTrigger = 5"):
        stream(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="6")


def test_what_spark_adds_is_no_mistake_and_the_rest_goes_to_the_client() -> None:
    found = stream(path="x", checkpointLocation="y", **{"kafka.fetch.min.bytes": "3"})
    assert found.client == {"bootstrap.servers": "localhost:9092", "fetch.min.bytes": "3"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", AtEnd(-2)),
        (" LATEST ", AtEnd(-1)),
        ("-100", RecordsBack(100)),
        ("-10m", TimeBack(600_000)),
        ("-1h", TimeBack(3_600_000)),
        ("-250ms", TimeBack(250)),
        ('{"orders":{"0":23,"1":-2}}', AtOffsets({("orders", 0): 23, ("orders", 1): -2})),
    ],
)
def test_places_to_start(text: str, place: object) -> None:
    assert stream(startingOffsets=text)["startingOffsets"] == place


def test_times_to_start() -> None:
    assert stream(startingTimestamp="5")["startingTimestamp"] == AtTime(5)
    assert stream(startingOffsetsByTimestamp='{"o":{"0":7}}')["startingOffsetsByTimestamp"] == AtTimes({("o", 0): 7})


def test_partitions_to_assign() -> None:
    assert parse_partitions('{"b":[1,0],"a":[2]}') == [("a", 2), ("b", 0), ("b", 1)]
    for text in ("{}", '{"a":0}', '{"a":[-1]}', "a:0", "[1]"):
        with pytest.raises(ValueError, match="JSON like"):
            parse_partitions(text)


def test_time_spans_are_sparks() -> None:
    spans = ["15m", "2min", "3 s", "4", "5ms", "1h", "1d", "6000us"]
    assert [duration_ms(text) for text in spans] == [900_000, 120_000, 3000, 4, 5, 3_600_000, 86_400_000, 6]
    for text in ("", "m", "-5m", "1.5h", "5 weeks"):
        with pytest.raises(ValueError, match="must be a number with a unit"):
            duration_ms(text)


def test_options_survive_being_pickled() -> None:
    found = parse_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "a.*"}, Use.STREAM_READ)
    again = pickle.loads(pickle.dumps(found))
    assert again["subscribePattern"].fullmatch("abc")
    assert again.client == found.client
