"""Declarations: version ranges, constructors, equality, and defaults that cannot be changed by accident."""

from __future__ import annotations

import pytest

from barnabas.protocol.api import APIS
from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.fetch import EpochEndOffset, FetchResponse, LeaderIdAndEpoch, PartitionData
from barnabas.protocol.messages.produce import ProduceRequest, TopicProduceData
from barnabas.protocol.schema import ZERO_UUID, Message, Versions, struct
from barnabas.protocol.wire import read_uuid


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", [3, 4, 99], [2, -1]), ("0-12", [0, 12], [13, -1]), ("4", [4], [3, 5]), ("none", [], [0, -1, 5])],
)
def test_version_ranges_are_written_as_in_kafka(text: str, inside: list[int], outside: list[int]) -> None:
    assert all(version in Versions(text) for version in inside)
    assert not any(version in Versions(text) for version in outside)


def test_fields_have_kafkas_defaults() -> None:
    partition = PartitionData()
    assert (partition.partition_index, partition.last_stable_offset, partition.records) == (0, -1, None)
    assert partition.aborted_transactions == []
    assert partition.diverging_epoch == EpochEndOffset(epoch=-1, end_offset=-1)
    assert TopicProduceData().topic_id == ZERO_UUID


def test_lists_are_not_shared_between_messages() -> None:
    first, second = ProduceRequest(), ProduceRequest()
    first.topic_data.append(TopicProduceData())
    assert second.topic_data == []


def test_a_shared_default_struct_cannot_be_changed() -> None:
    partition = PartitionData()
    with pytest.raises(AttributeError, match="shared"):
        partition.current_leader.leader_id = 5
    partition.current_leader = LeaderIdAndEpoch(leader_id=5)
    assert PartitionData().current_leader.leader_id == -1


def test_messages_are_compared_by_value() -> None:
    assert ProduceRequest(acks=1) == ProduceRequest(acks=1)
    assert ProduceRequest(acks=1) != ProduceRequest(acks=0)
    assert EpochEndOffset() != LeaderIdAndEpoch()
    assert ProduceRequest() != "ProduceRequest"
    with pytest.raises(TypeError):
        hash(ProduceRequest())


def test_a_message_prints_its_fields() -> None:
    assert repr(LeaderIdAndEpoch(leader_id=3)) == "LeaderIdAndEpoch(leader_id=3, leader_epoch=-1)"


def test_values_may_be_given_by_place_and_by_name() -> None:
    """Calling a class is one of the things that the codec in C does by itself, from the first message of that class on."""
    encode_request(FetchResponse(), 17)
    assert LeaderIdAndEpoch(3, leader_epoch=4) == LeaderIdAndEpoch(leader_id=3, leader_epoch=4)
    made_up = "".join(["leader", "_epoch"])
    assert LeaderIdAndEpoch(**{made_up: 7}).leader_epoch == 7
    for arguments, named in (((1, 2, 3), {}), ((1,), {"leader_id": 1}), ((), {"leader": 1})):
        with pytest.raises(TypeError):
            LeaderIdAndEpoch(*arguments, **named)


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(TypeError):
        ProduceRequest(ack=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        ProduceRequest().ack = 1  # type: ignore[attr-defined]


def test_every_declared_class_is_slotted() -> None:
    for api in APIS.values():
        for cls in (api.request, api.response):
            assert not hasattr(cls(), "__dict__")


def test_a_plain_default_in_a_declaration_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong.number is not declared"):

        @struct
        class Wrong(Message):
            number: int = 5


def test_a_fast_uuid_is_a_real_one() -> None:
    import copy
    import pickle
    import uuid

    made, real = read_uuid(bytes(range(16))), uuid.UUID(bytes=bytes(range(16)))
    assert made == real
    assert hash(made) == hash(real)
    assert str(made) == str(real)
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == real


def test_many_different_uuids_do_not_pile_up() -> None:
    from barnabas.protocol import wire

    for number in range(10_000):
        read_uuid(number.to_bytes(16, "big"))
    assert len(wire._uuids) <= wire._MAX_CACHED_UUIDS
