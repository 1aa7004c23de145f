"""Bytes known from the protocol's description, parts around records, what encoding refuses, and the printed source."""

from __future__ import annotations

import enum
import struct
import subprocess
import sys
import threading
import uuid

import pytest

from barnabas.errors import MalformedRequest
from barnabas.protocol.codec import (
    compile_decoder,
    compile_encoder,
    decode_request,
    decode_response,
    encode_request,
    encode_request_frame,
    encode_response,
    encode_response_frame,
    main,
    source_of,
)
from barnabas.protocol.header import parse_request_header
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse, EntryData, ValueData
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.protocol.schema import BYTES, RECORDS, STRING, UINT16, UUID, Message, array, field, message
from barnabas.protocol.wire import EncodeError

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


class Region:
    """Stands for a region of a file: it has a length and is no buffer."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def body(message: Message, version: int) -> bytes:
    return b"".join(encode_request(message, version))  # type: ignore[arg-type]


def produce_request(records: bytes | None) -> ProduceRequest:
    view = None if records is None else memoryview(records)
    partition = PartitionProduceData(index=2, records=view)
    topic = TopicProduceData(name="logs", topic_id=TOPIC_ID, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


def fetch_response(*records: object) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=r) for i, r in enumerate(records)]  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=partitions)])


def test_produce_version_7_has_the_bytes_of_the_protocol_description() -> None:
    expected = (
        b"\xff\xff"  # transactional id: null
        b"\xff\xff"  # acks -1
        b"\x00\x00\x05\xdc"  # timeout 1500
        b"\x00\x00\x00\x01\x00\x04logs"
        b"\x00\x00\x00\x01\x00\x00\x00\x02"  # one partition, index 2
        b"\x00\x00\x00\x05batch"
    )
    assert body(produce_request(b"batch"), 7) == expected
    decoded = decode_request(0, 7, expected, 0)
    assert isinstance(decoded, ProduceRequest)
    records = decoded.topic_data[0].partition_data[0].records
    assert type(records) is memoryview
    assert records.obj is expected  # zero copy
    assert bytes(records) == b"batch"


def test_produce_version_13_has_the_bytes_of_the_protocol_description() -> None:
    expected = (
        b"\x00\xff\xff\x00\x00\x05\xdc\x02" + TOPIC_ID.bytes + b"\x02\x00\x00\x00\x02\x06batch"
        b"\x00\x00\x00"  # the tagged fields of partition, topic and request
    )
    assert body(produce_request(b"batch"), 13) == expected
    decoded = decode_request(0, 13, expected, 0)
    assert isinstance(decoded, ProduceRequest)
    assert decoded.topic_data[0].name == ""  # version 13 has no names
    assert decoded.topic_data[0].topic_id == TOPIC_ID
    assert {decoded.topic_data[0].topic_id: 1}[TOPIC_ID] == 1


def test_produce_response_version_7_has_the_bytes_of_the_protocol_description() -> None:
    partition = PartitionProduceResponse(index=2, base_offset=77, log_start_offset=3)
    response = ProduceResponse(responses=[TopicProduceResponse(name="logs", partition_responses=[partition])])
    frame = encode_response_frame(response, 7, correlation_id=9, header_version=0)
    payload = (
        b"\x00\x00\x00\x09"
        b"\x00\x00\x00\x01\x00\x04logs\x00\x00\x00\x01"
        b"\x00\x00\x00\x02\x00\x00" + struct.pack(">qqq", 77, -1, 3) + b"\x00\x00\x00\x00"
    )
    assert frame == [struct.pack(">i", len(payload)) + payload]
    assert decode_response(0, 7, payload, 4) == response


def test_the_first_frame_of_a_java_client_is_read() -> None:
    """ApiVersions version 3 with header version 2."""
    frame = b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x05admin\x00" + b"\x12apache-kafka-java\x064.3.1\x00"
    header = parse_request_header(frame)
    request = decode_request(header.api_key, header.api_version, frame, header.body_offset)
    expected = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.3.1")
    assert request == expected
    assert encode_request_frame(expected, 3, 1, "admin") == [struct.pack(">i", len(frame)) + frame]


def test_api_versions_version_0_is_what_any_client_can_read() -> None:
    response = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    assert encode_response(response, 0) == [b"\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x04"]
    assert encode_request(ApiVersionsRequest(), 0) == [b""]


def test_metadata_version_1_tells_all_topics_from_none() -> None:
    assert decode_request(3, 1, b"\xff\xff\xff\xff", 0) == MetadataRequest(topics=None)
    assert decode_request(3, 1, b"\x00\x00\x00\x00", 0) == MetadataRequest(topics=[])
    one = decode_request(3, 1, b"\x00\x00\x00\x01\x00\x01t", 0)
    assert one == MetadataRequest(topics=[MetadataRequestTopic(name="t")])


def test_metadata_response_version_1_has_the_bytes_of_the_protocol_description() -> None:
    response = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)], controller_id=1)
    expected = b"\x00\x00\x00\x01\x00\x00\x00\x01\x00\x01h\x00\x00\x23\x84\xff\xff\x00\x00\x00\x01\x00\x00\x00\x00"
    assert encode_response(response, 1) == [expected]


def test_a_nullable_struct_has_a_byte_in_front() -> None:
    without = body(DescribeTopicPartitionsRequest(), 0)
    with_cursor = body(DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=1)), 0)
    assert without == b"\x01\x00\x00\x07\xd0\xff\x00"
    assert with_cursor == b"\x01\x00\x00\x07\xd0\x01\x02t\x00\x00\x00\x01\x00\x00"


def test_null_records_stay_null() -> None:
    for version in (7, 13):
        decoded = decode_request(0, version, body(produce_request(None), version), 0)
        assert isinstance(decoded, ProduceRequest)
        assert decoded.topic_data[0].partition_data[0].records is None


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_a_file_region_is_a_part_of_its_own(version: int) -> None:
    region = Region(10)
    parts = encode_response(fetch_response(region), version)
    assert parts[1] is region
    assert all(type(part) is bytes for part in parts if part is not region)
    joined = b"".join(b"x" * 10 if part is region else part for part in parts)  # type: ignore[misc]
    assert joined == body(fetch_response(b"x" * 10), version)


def test_small_records_are_joined_and_large_ones_stand_alone() -> None:
    large = b"y" * 100_000
    assert len(encode_response(fetch_response(b"a", memoryview(b"bc"), bytearray(b"d")), 12)) == 1
    parts = encode_response(fetch_response(b"a", large, b"b", Region(5)), 12)
    assert parts[1] is large
    assert isinstance(parts[3], Region)
    assert len(parts) == 5


def test_an_empty_region_leaves_no_part() -> None:
    assert len(encode_response(fetch_response(Region(0)), 12)) == 1
    assert encode_response(fetch_response(Region(0)), 12) == encode_response(fetch_response(b""), 12)


@pytest.mark.parametrize("header_version", [0, 1])
def test_the_size_of_a_frame_counts_every_part(header_version: int) -> None:
    parts = encode_response_frame(fetch_response(Region(5000), b"x" * 9000), 12, 3, header_version)
    (size, correlation_id) = struct.unpack_from(">ii", parts[0])  # type: ignore[arg-type]
    assert size == sum(len(part) for part in parts) - 4
    assert correlation_id == 3


class Names(enum.StrEnum):
    LOGS = "logs"


def test_what_is_a_str_or_an_int_by_inheritance_is_written_as_one() -> None:
    plain = ProduceRequest(transactional_id="logs", acks=1)
    assert body(ProduceRequest(transactional_id=Names.LOGS, acks=True), 9) == body(plain, 9)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [1, 4])
def test_a_list_that_may_be_null_has_no_elements_that_may(version: int) -> None:
    def request(keys: list[str | None] | None) -> DescribeConfigsRequest:
        resource = DescribeConfigsResource(resource_name="t", configuration_keys=keys)  # type: ignore[arg-type]
        return DescribeConfigsRequest(resources=[resource])

    assert decode_request(32, version, body(request(None), version), 0) == request(None)
    with pytest.raises(EncodeError, match=r"null|None"):
        body(request([None]), version)
    empty = body(request([""]), version)
    at = empty.index(b"t") + (2 if version == 4 else 5)
    null = b"\x00" if version == 4 else b"\xff\xff"
    with pytest.raises(MalformedRequest, match="length -1"):
        decode_request(32, version, empty[:at] + null + empty[at + len(null) :], 0)


def test_records_in_a_tagged_field_are_refused_by_the_form_in_c(form: str) -> None:
    """Nobody declares them; the writer could not put their size in front."""

    @message(api_key=0, versions="0", flexible="0+")
    class Odd(Message):
        data: bytes | None = field(RECORDS, "0+", nullable="0+", default=None, tag=0)

    if form == "native":
        with pytest.raises(TypeError, match="records in a tagged field"):
            encode_request(Odd(data=b"x"), 0)


@pytest.mark.parametrize(
    ("wrong", "version", "text"),
    [
        (ProduceRequest(timeout_ms=1.5), 9, r"timeout_ms = 1.5 is not an int"),
        (fetch_response(memoryview(b"abcd")[::2]), 12, r"FetchResponse"),
        (ProduceRequest(acks=40000), 7, r"ProduceRequest.acks = 40000 is outside INT16"),
        (ProduceRequest(timeout_ms=-(1 << 31) - 1), 9, r"timeout_ms = -2147483649 is outside INT32"),
        (MetadataRequest(topics=None), 0, r"MetadataRequest.topics may not be null in version 0"),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9, r"topics\[0\].name may not be null"),
        (MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)]), 1, r"name has 32768 bytes"),
        (MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)]), 12, r"name has 32768 bytes"),
        (MetadataRequest(topics=[MetadataRequestTopic(name="\ud800")]), 1, r"cannot be written as UTF-8"),
        (CreateTopicsRequest(topics=[CreatableTopic(name=5)]), 2, r"name = 5 is not a str"),  # type: ignore[arg-type]
        (ProduceRequest(acks="all"), 7, r"acks = 'all' is not an int"),  # type: ignore[arg-type]
        (ProduceRequest(topic_data=5), 7, r"topic_data = 5 is not a list"),  # type: ignore[arg-type]
        (ProduceRequest(topic_data=[5]), 7, r"topic_data\[0\] = 5 is not a Topic"),  # type: ignore[list-item]
        (
            DescribeClientQuotasResponse(entries=[EntryData(values=[ValueData(value="x")])]),  # type: ignore[arg-type]
            1,
            r"entries\[0\].values\[0\].value = 'x' is not a float",
        ),
    ],
)
def test_encoding_names_the_field_that_does_not_fit(wrong: Message, version: int, text: str) -> None:
    with pytest.raises(EncodeError, match=text):
        encode_request(wrong, version)


def test_a_value_for_a_field_that_the_version_lacks_is_refused_unless_ignorable() -> None:
    with pytest.raises(EncodeError, match=r"FetchRequest.replica_id = 7, but version 15 has no such field"):
        encode_request(FetchRequest(replica_id=7), 15)
    assert encode_request(FetchRequest(rack_id="r"), 10) == encode_request(FetchRequest(), 10)


def test_a_version_outside_the_table_is_refused() -> None:
    for version in (2, 14, -1):
        with pytest.raises(EncodeError, match=f"ProduceRequest has no version {version}"):
            encode_request(ProduceRequest(), version)


@message(api_key=9999, versions="0-2", flexible="1+")
class Everything(Message):
    """The kinds of field that no message of the table uses yet."""

    data: bytes = field(BYTES, "0+")
    maybe: bytes | None = field(BYTES, "0+", nullable="0+")
    ids: list[uuid.UUID] = array(UUID, "0+")
    names: list[str] | None = array(STRING, "0+", nullable="0+")
    port: int = field(UINT16, "0+")
    late: list[str] = array(STRING, "2+", tag=3)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_kinds_that_later_messages_need_work_too(version: int) -> None:
    value = Everything(data=b"\0\1", maybe=None, ids=[TOPIC_ID, uuid.UUID(int=0)], names=["a", ""], port=65535)
    if version == 2:
        value.late = ["z"]
    parts = compile_encoder(Everything, version)(value)
    decoded = compile_decoder(Everything, version)(memoryview(parts[0]), 0)
    assert decoded == value
    assert type(decoded.data) is bytes  # type: ignore[attr-defined]


def test_many_threads_may_meet_on_first_use() -> None:
    barrier = threading.Barrier(4)
    results: list[list[object]] = []

    def run() -> None:
        barrier.wait(10)
        results.append([encode_request(CreateTopicsRequest(), version) for version in range(2, 8)])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(results) == 4
    assert all(result == results[0] for result in results)


def test_the_compiled_source_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "9"]) == 0
    printed = capsys.readouterr().out
    assert source_of(ProduceRequest, 9) in printed
    assert "def decode(b, o, most=" in printed
    assert main(["produce", "99"]) == 2
    assert main([]) == 2
    assert "Produce:3-13" in capsys.readouterr().err


def test_the_module_runs_as_a_program() -> None:
    command = [sys.executable, "-W", "error", "-m", "barnabas.protocol.codec", "Fetch", "12"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert "# FetchResponse version 12" in done.stdout
