"""The choice of a partition (PP-12)."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from barnabas.producer.partitioner import BuiltInPartitioner, partition_for_key
from barnabas.records.kernel.builder import murmur2
from tests.producer.parts import Parts, cluster


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_java_s(key: bytes, java: int) -> None:
    """PP-12: the values of Kafka's own UtilsTest."""
    assert murmur2(key) == java & 0xFFFF_FFFF


def test_a_key_has_the_partition_that_java_gives_it() -> None:
    """PP-12: the sign bit is dropped, not negated."""
    assert partition_for_key(b"21", 10) == (-973932308 & 0x7FFF_FFFF) % 10


class TestBuiltInPartitioner:
    def test_without_load_figures_all_available_partitions_are_alike(self) -> None:
        drawn: list[int] = []
        partitioner = BuiltInPartitioner("t", lambda below: drawn.append(below) or below - 1)
        assert partitioner.next_partition(cluster({"t": (0, -1, 1)}), 3) == 2
        assert drawn == [2]

    def test_when_no_partition_is_available_any_will_do(self) -> None:
        assert BuiltInPartitioner("t", lambda below: below - 1).next_partition(cluster({"t": (-1, -1)}), 2) == 1

    def test_short_queues_are_chosen_more_often(self) -> None:
        """KIP-794: sizes 0 3 1 have weights 4 1 3."""
        numbers = iter(range(8))
        partitioner = BuiltInPartitioner("t", lambda below: next(numbers))
        partitioner.update_load([0, 3, 1], [5, 6, 7], 3)
        chosen = Counter(partitioner.next_partition(cluster(), 3) for _ in range(8))
        assert chosen == {5: 4, 6: 1, 7: 3}

    def test_equal_queues_need_no_weights_unless_a_partition_is_left_out(self) -> None:
        partitioner = BuiltInPartitioner("t", lambda below: 0)
        partitioner.update_load([2, 2], [0, 1], 2)
        assert partitioner.next_partition(cluster({"t": (-1, 0)}), 2) == 1
        partitioner.update_load([2], [0], 2)
        assert partitioner.next_partition(cluster({"t": (-1, 0)}), 2) == 0


class TestStickiness:
    def make(self, batch_size: int = 512) -> Parts:
        parts = Parts({"batch_size": batch_size}, known=cluster({"t": (0, 0, 0)}))
        turns = iter(range(1000))
        parts.append(b"", 0)
        parts.accumulator.lanes["t"].partitioner = BuiltInPartitioner("t", lambda below: next(turns) % below)
        return parts

    def test_records_without_a_key_stay_together_until_the_batch_is_full(self) -> None:
        """PP-12: sticky partitioning."""
        parts = self.make()
        lane = parts.accumulator.lanes["t"]
        seen = []
        for _ in range(40):
            parts.append(b"x" * 50, None)
            seen.append(lane.sticky)
        changes = [now for before, now in itertools.pairwise(seen) if before != now]
        assert changes == [1, 2, 0, 1][: len(changes)]
        assert 2 <= len(changes) <= 5

    def test_a_batch_with_room_is_not_left(self) -> None:
        """KIP-794: batches that are sent before they are full would become fractions of batches."""
        parts = self.make()
        lane = parts.accumulator.lanes["t"]
        parts.append(b"x" * 300, None)
        chosen = lane.sticky
        parts.drain()
        parts.append(b"x" * 300, None)  # more than batch.size by now, but this batch has room
        assert lane.sticky_bytes >= 512
        assert lane.sticky == chosen
        parts.append(b"x" * 20, None)
        assert lane.sticky == chosen
        parts.append(b"x" * 400, None)  # no room
        assert lane.sticky != chosen

    def test_beyond_twice_the_size_it_moves_in_any_case(self) -> None:
        parts = self.make()
        lane = parts.accumulator.lanes["t"]
        parts.append(b"x" * 100, None)
        lane.sticky_bytes = 2 * 512
        chosen = lane.sticky
        parts.append(b"x", None)
        assert lane.sticky != chosen

    def test_records_with_a_partition_do_not_move_it(self) -> None:
        parts = self.make()
        lane = parts.accumulator.lanes["t"]
        parts.append(b"x", None)
        before = lane.sticky_bytes
        parts.append(b"x" * 200, lane.sticky)
        assert lane.sticky_bytes == before

    def test_partitions_of_a_slow_node_are_left_out(self) -> None:
        """KIP-794: `partitioner.availability.timeout.ms`."""
        parts = Parts({"availability_timeout_ms": 10}, known=cluster({"t": (0, 1)}))
        parts.append(b"a", 0)
        parts.append(b"b", 1)
        parts.accumulator.note_node(1, parts.now_ms, True)
        parts.clock.advance(0.02)
        parts.accumulator.note_node(1, parts.now_ms, False)
        parts.ready_nodes()
        lane = parts.accumulator.lanes["t"]
        assert {lane.partitioner.next_partition(parts.metadata.known, 2) for _ in range(20)} == {0}

    def test_a_topic_that_grows_gets_more_queues(self) -> None:
        parts = self.make()
        parts.metadata.known = cluster({"t": (0,) * 5})
        parts.append(b"x", 4)
        assert parts.accumulator.lanes["t"].partition_count == 5
