"""What a sink refuses before anything is written: columns, options and settings of the producer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from barnabas.errors import ConfigError
from barnabas.spark.sink import batch_writer, stream_writer
from barnabas.spark.sink.columns import WrongColumns, sink_columns
from barnabas.spark.sink.settings import producer_settings

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
HEADERS = "array<struct<key:string,value:binary>>"


TYPES: dict[str, DataType] = {
    kind.simpleString(): kind
    for kind in (
        StringType(),
        BinaryType(),
        IntegerType(),
        LongType(),
        DateType(),
        MapType(StringType(), BinaryType()),
        ArrayType(StructType().add("key", StringType(), False).add("value", BinaryType()), False),
        ArrayType(StructType().add("k", StringType()).add("v", BinaryType())),
    )
}


def schema(text: str) -> StructType:
    """`name type, name type`; Spark's own parser of such texts needs a session."""
    made = StructType()
    for column in text.split(", "):
        name, kind = column.split(" ")
        made = made.add(name, TYPES[kind])
    return made


def test_all_columns_of_sparks_connector_are_sent_and_others_left_out() -> None:
    found = sink_columns(
        schema(f"key string, value binary, topic string, headers {HEADERS}, partition int, offset bigint, other date"),
        None,
    )
    assert set(found.sent) == {"key", "value", "headers", "partition"}
    assert found.topic is None


def test_the_option_topic_goes_before_the_column_of_whatever_type() -> None:
    found = sink_columns(schema("value string, topic int"), "orders")
    assert (found.sent, found.topic) == (("value",), "orders")


def test_a_value_alone_is_enough() -> None:
    assert sink_columns(schema("value string"), "orders").sent == ("value",)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("key string", "the column value is missing; the data frame has key"),
        ("value int", "the column value is int; it must be binary or string"),
        ("value string, key bigint", "the column key is bigint; it must be binary or string"),
        ("value string, partition bigint", "the column partition is bigint; it must be int"),
        ("value string, headers map<string,binary>", f"the column headers is map<string,binary>; it must be {HEADERS}"),
        ("value string, headers array<struct<k:string,v:binary>>", "the column headers is"),
        ("value string, timestamp bigint", "the column timestamp is bigint; it must be timestamp or double"),
        ("value string, Key string", "the column Key must be written key"),
        ("VALUE string", "the column VALUE must be written value"),
    ],
)
def test_wrong_and_missing_columns_are_named(columns: str, words: str) -> None:
    with pytest.raises(WrongColumns) as caught:
        sink_columns(schema(columns), "orders")
    assert words in str(caught.value)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(WrongColumns) as caught:
        sink_columns(schema("key date, Partition int"), None)
    text = str(caught.value)
    assert all(name in text for name in ("value is missing", "no topic", "key is date", "Partition must be written"))


def test_the_topic_of_rows_must_be_text() -> None:
    with pytest.raises(WrongColumns, match="the column topic is int; it must be string"):
        sink_columns(schema("value string, topic int"), None)


@pytest.mark.parametrize("writer", [batch_writer, stream_writer])
class TestOptions:
    def test_the_writer_can_be_pickled(self, writer: Callable[..., Any]) -> None:
        made = writer(SERVERS | {"topic": " orders "}, schema("value string"))
        assert pickle.loads(pickle.dumps(made))._columns.topic == "orders"

    def test_exactly_once_says_what_it_waits_for(self, writer: Callable[..., Any]) -> None:
        with pytest.raises(ConfigError, match=r"deliveryGuarantee.*exactly-once.*transactions"):
            writer(SERVERS | {"topic": "orders", "deliveryguarantee": "Exactly-Once"}, schema("value string"))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"topic": "orders"}, "kafka.bootstrap.servers"),
            (SERVERS | {"topik": "orders"}, "topik.*did you mean topic"),
            (SERVERS | {"topic": ""}, "topic.*empty"),
            (SERVERS | {"topic": "t", "startingOffsets": "earliest"}, "startingOffsets.*is an option of a batch read"),
            (SERVERS | {"topic": "t", "deliveryGuarantee": "twice"}, "deliveryGuarantee.*twice.*at-least-once"),
            (SERVERS | {"topic": "t", "kafka.value.serializer": "x"}, r"kafka\.value\.serializer.*not allowed"),
            (SERVERS | {"topic": "t", "kafka.interceptor.classes": "x"}, r"kafka\.interceptor\.classes.*not allowed"),
            (SERVERS | {"topic": "t", "kafka.linger.ms": "soon"}, r"kafka\.linger\.ms.*soon.*whole number"),
        ],
    )
    def test_a_bad_option_is_named(self, writer: Callable[..., Any], options: dict[str, str], words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            writer(options, schema("value string"))


def test_bulk_settings_are_the_default_and_the_user_has_the_last_word() -> None:
    servers = {"bootstrap.servers": "localhost:9092"}
    assert int(producer_settings(servers)["batch.size"]) > 100_000
    assert (
        producer_settings(servers | {"batch.size": "16384", "compression.type": "lz4"}).items()
        >= {
            "batch.size": "16384",
            "compression.type": "lz4",
        }.items()
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("partitioner.class", "my.Partitioner", "is not allowed.*column partition"),
        ("transactional.id", "mine", "is not allowed.*exactly-once"),
        ("compresion.type", "lz4", r"did you mean kafka\.compression\.type"),
        ("acks", "2", "one of"),
        ("security.protocol", "SSL", "PLAINTEXT"),
        ("max.in.flight.requests.per.connection", "6", "at most 5"),
        ("bootstrap.servers", "host:port", "host:port"),
    ],
)
def test_a_bad_setting_of_the_producer_is_named_with_its_prefix(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name}.*{words}"):
        producer_settings({"bootstrap.servers": "localhost:9092", name: value})


@pytest.mark.parametrize("name", ["session.timeout.ms", "sasl.mechanism", "fetch.max.bytes", "ssl.truststore.location"])
def test_settings_that_only_other_clients_have_are_passed_on(name: str) -> None:
    """Many jobs keep one set of kafka.* options for all they do."""
    assert name in producer_settings({"bootstrap.servers": "localhost:9092", name: "1"})
