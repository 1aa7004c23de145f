"""Records that wait to be sent: Kafka's RecordAccumulator behaviours (PP-6 .. PP-9, PP-11)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.backoff import ExponentialBackoff
from barnabas.client.cluster import Cluster, Node
from barnabas.errors import ErrorCode, KafkaError
from barnabas.producer.batch import ProducerBatch
from barnabas.producer.errors import BufferExhausted, ProducerClosed
from barnabas.records.compression import GZIP, ZSTD
from tests.producer.parts import Parts, cluster, record
from tests.producer.reading import read_batch
from tests.waiting import wait_until


def values(batch: ProducerBatch) -> list[bytes]:
    return [record.value for record in read_batch(batch.view)]


class TestAppending:
    def test_records_share_a_batch_until_it_is_full(self) -> None:
        """PP-7: append to the last, else allocate a new one."""
        parts = Parts({"batch_size": 512, "linger_ms": 1000})
        while not parts.ready_nodes():
            parts.append(b"x" * 50)
        queue = parts.accumulator.lanes["t"].queues[0]
        assert [batch.is_full for batch in queue] == [True, False]
        assert queue[0].record_count > 5
        assert queue[0].size <= 512

    def test_a_record_larger_than_a_batch_gets_one_of_its_own(self) -> None:
        """PP-7."""
        parts = Parts({"batch_size": 512})
        parts.append(b"x" * 2000)
        parts.append(b"y" * 100)
        drained = parts.drain()[0]
        assert values(drained[0]) == [b"x" * 2000]
        assert parts.pool.available == (1 << 20) - drained[0].limit - 512
        parts.accumulator.release(drained[0])
        assert parts.pool.available == (1 << 20) - 512

    def test_when_memory_is_used_up_append_raises_and_everything_is_due(self) -> None:
        """PP-6, PP-8: the pool is exhausted."""
        parts = Parts({"batch_size": 512, "linger_ms": 10_000}, memory=1024)
        parts.append(b"a")
        parts.close_batch()
        parts.append(b"b")
        parts.close_batch()
        assert parts.ready_nodes() == {0}  # two batches in a queue
        with pytest.raises(BufferExhausted):
            parts.append(b"c")

    def test_a_waiting_caller_makes_lingering_batches_due(self) -> None:
        """PP-8."""
        parts = Parts({"batch_size": 512, "linger_ms": 10_000}, memory=512)
        parts.append(b"a")
        assert not parts.ready_nodes()
        worker = threading.Thread(
            target=lambda: parts.accumulator.append("t", record(b"b", 1), cluster({"t": (0, 0)}), parts.now_ms, 10_000)
        )
        worker.start()
        wait_until(lambda: parts.pool.queued == 1)
        assert parts.ready_nodes() == {0}
        parts.accumulator.release(parts.drain()[0][0])
        worker.join(10)
        assert not worker.is_alive()

    def test_who_waits_for_memory_holds_up_nobody_who_needs_none(self) -> None:
        """PP-7: a new batch is allocated outside the lock."""
        parts = Parts({"batch_size": 512, "linger_ms": 10_000}, memory=512, known=cluster({"t": (0, 0)}))
        parts.append(b"a", 0)
        arguments = ("t", record(b"b", 1), parts.metadata.known, parts.now_ms, 20_000)
        worker = threading.Thread(target=parts.accumulator.append, args=arguments)
        worker.start()
        wait_until(lambda: parts.pool.queued == 1)
        parts.append(b"c", 0)
        (batch,) = parts.drain()[0]
        assert values(batch) == [b"a", b"c"]
        parts.accumulator.release(batch)
        worker.join(10)
        assert not worker.is_alive()

    def test_a_closed_accumulator_refuses(self) -> None:
        parts = Parts()
        parts.append(b"a")
        parts.accumulator.close()
        with pytest.raises(ProducerClosed):
            parts.append(b"b")

    def test_many_threads_append_and_nothing_is_lost(self) -> None:
        parts = Parts({"batch_size": 256}, memory=1 << 24, known=cluster({"t": (0, 0, 0)}))

        def work(name: int) -> None:
            for number in range(300):
                parts.append(b"%d/%d" % (name, number), number % 3)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        found: list[bytes] = []
        while drained := parts.drain().get(0):
            for batch in drained:
                found.extend(values(batch))
                batch.complete(0, -1)
                parts.accumulator.release(batch)
        assert sorted(found) == sorted(b"%d/%d" % (name, number) for name in range(5) for number in range(300))
        assert parts.pool.available == 1 << 24
        assert not parts.accumulator.has_incomplete


class TestReady:
    def test_a_batch_lingers(self) -> None:
        """PP-8: a lingered batch is due."""
        parts = Parts({"linger_ms": 10})
        parts.append(b"a")
        ready = parts.accumulator.ready(parts.metadata.known, parts.now_ms)
        assert (ready.nodes, ready.next_check_ms) == ({}, 10)
        parts.clock.advance(0.004)
        assert parts.accumulator.ready(parts.metadata.known, parts.now_ms).next_check_ms == 6
        parts.clock.advance(0.006)
        assert parts.ready_nodes() == {0}

    def test_the_next_look_is_the_earliest_of_all(self) -> None:
        parts = Parts({"linger_ms": 10}, known=cluster({"t": (0, 1)}))
        parts.append(b"a", 0)
        parts.clock.advance(0.005)
        parts.append(b"b", 1)
        assert parts.accumulator.ready(parts.metadata.known, parts.now_ms).next_check_ms == 5

    def test_a_partition_without_a_leader_is_reported(self) -> None:
        """PP-3: unknown leaders."""
        parts = Parts(known=cluster({"t": (-1,), "u": (0,)}))
        parts.append(b"a")
        ready = parts.accumulator.ready(parts.metadata.known, parts.now_ms)
        assert (ready.nodes, ready.unknown_leader_topics) == ({}, {"t"})

    def test_muted_partitions_are_skipped(self) -> None:
        """PP-8."""
        parts = Parts()
        parts.append(b"a")
        parts.accumulator.mute(("t", 0))
        assert not parts.ready_nodes()
        assert not parts.drain().get(0)
        parts.accumulator.unmute(("t", 0))
        assert parts.ready_nodes() == {0}

    def test_a_flush_makes_everything_due_and_waits_for_all_parts(self) -> None:
        """PP-8: flush is in progress."""
        parts = Parts({"linger_ms": 10_000})
        parts.append_batches(3)
        parts.append(b"last")
        parts.accumulator.begin_flush()
        waiter = threading.Thread(target=parts.accumulator.flush, args=(20,))
        waiter.start()
        for _ in range(4):
            assert parts.ready_nodes() == {0}
            batch = parts.drain()[0][0]
            assert waiter.is_alive()
            batch.complete(0, -1)
            parts.accumulator.release(batch)
        waiter.join(10)
        parts.accumulator.end_flush()
        assert not waiter.is_alive()
        parts.append(b"later")
        assert not parts.ready_nodes()

    def test_a_flush_that_takes_too_long_says_how_many_records_are_left(self) -> None:
        parts = Parts()
        parts.append(b"a")
        parts.append(b"b")
        assert parts.accumulator.flush(0.01) == 2

    def test_closing_makes_everything_due(self) -> None:
        """PP-8: the producer is closing."""
        parts = Parts({"linger_ms": 10_000})
        parts.append(b"a")
        parts.accumulator.close()
        assert parts.ready_nodes() == {0}

    def test_a_retried_batch_waits_for_its_back_off_unless_the_leader_changed(self) -> None:
        """PP-8: retried and backed off; KIP-951: not when there is a new leader."""
        parts = Parts()
        parts.append(b"a")
        batch = parts.drain()[0][0]
        batch.note_leader_epoch(0)
        batch.sent()
        parts.accumulator.reenqueue(batch, parts.now_ms)
        ready = parts.accumulator.ready(parts.metadata.known, parts.now_ms)
        assert (ready.nodes, ready.next_check_ms) == ({}, 100)
        assert not parts.drain().get(0)
        parts.clock.advance(0.05)
        assert not parts.ready_nodes()
        parts.metadata.known = cluster(epoch=1)
        assert parts.ready_nodes() == {0}
        parts.metadata.known = cluster(epoch=0)
        parts.clock.advance(0.05)
        assert parts.ready_nodes() == {0}

    def test_the_back_off_of_a_retried_batch_grows(self) -> None:
        """PP-8, PP-27: with each attempt, 20 % more or less, up to the maximum."""
        parts = Parts()
        parts.accumulator._backoff = ExponentialBackoff(100, 1000)
        parts.append(b"a")
        for expected in (100, 200, 400, 800, 1000):
            batch = parts.drain()[0][0]
            batch.note_leader_epoch(0)
            batch.sent()
            parts.accumulator.reenqueue(batch, parts.now_ms)
            wait_ms = parts.accumulator.ready(parts.metadata.known, parts.now_ms).next_check_ms
            assert expected * 0.8 <= wait_ms <= min(expected * 1.2, 1000)
            parts.clock.advance(wait_ms / 1000)


class TestLoad:
    def test_the_longer_queue_weighs_less_until_both_are_empty(self) -> None:
        """PP-11: and then every partition is as good as any other again, also if nothing is sent to the topic any more."""
        parts = Parts(known=cluster({"t": (0, 0)}))
        parts.append_batches(3, partition=0)
        parts.append_batches(1, partition=1)
        lane = parts.accumulator.lanes["t"]
        parts.ready_nodes()
        assert lane.partitioner.weighs
        while parts.drain():
            pass
        assert not lane.partitioner.weighs

    def test_a_topic_with_nothing_to_send_is_not_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A producer that has sent to a thousand topics looks at those that have something to send."""
        asked: list[str] = []
        leader_for = Cluster.leader_for

        def noted(known: Cluster, topic: str, partition: int) -> Node | None:
            asked.append(topic)
            return leader_for(known, topic, partition)

        monkeypatch.setattr(Cluster, "leader_for", noted)
        parts = Parts(known=cluster({"idle": (0, 0), "t": (0,)}))
        for partition in (0, 1):
            parts.append(partition=partition, topic="idle")
        while parts.drain():
            pass
        asked.clear()
        parts.append(topic="t")
        assert parts.ready_nodes() == {0}
        assert asked == ["t"]


class TestDrain:
    def test_a_node_without_partitions_gets_nothing(self) -> None:
        parts = Parts()
        parts.append(b"a")
        ready = parts.accumulator.ready(parts.metadata.known, parts.now_ms)
        drained = parts.accumulator.drain(parts.metadata.known, ready, [0, 1], 1 << 20, parts.now_ms)
        assert (len(drained[0]), drained.get(1, [])) == (1, [])

    def test_it_rotates_so_that_no_partition_starves(self) -> None:
        """PP-9."""
        parts = Parts({"batch_size": 512}, known=cluster({"t": (0, 0, 0, 0)}), memory=1 << 22)
        for partition in range(4):
            for _ in range(3):
                parts.append(b"x" * 400, partition)
                parts.close_batch(partition)
        order = [batch.place[1] for _ in range(6) for batch in parts.drain(max_size=1000)[0]]
        assert order == [0, 1, 2, 3] * 3

    def test_one_batch_of_a_partition_per_request(self) -> None:
        parts = Parts()
        parts.append_batches(3)
        assert [len(parts.drain()[0]) for _ in range(3)] == [1, 1, 1]

    def test_a_batch_larger_than_the_request_still_leaves_alone(self) -> None:
        parts = Parts(known=cluster({"t": (0, 0)}))
        parts.append(b"x" * 5000, 0)
        parts.append(b"y", 1)
        assert [[batch.place[1] for batch in parts.drain(max_size=100)[0]] for _ in range(2)] == [[0], [1]]

    def test_each_node_gets_its_own(self) -> None:
        parts = Parts(known=cluster({"t": (0, 1), "u": (1,)}))
        parts.append(b"a", 0)
        parts.append(b"b", 1)
        parts.append(b"c", 0, "u")
        found = {node: sorted(batch.place for batch in batches) for node, batches in parts.drain().items()}
        assert found == {0: [("t", 0)], 1: [("t", 1), ("u", 0)]}

    def test_a_drained_batch_takes_no_more_records(self) -> None:
        parts = Parts()
        parts.append(b"a")
        batch = parts.drain()[0][0]
        parts.append(b"b")
        assert values(batch) == [b"a"]
        assert values(parts.drain()[0][0]) == [b"b"]


class TestExpiry:
    def test_batches_expire_in_the_order_of_sending(self) -> None:
        parts = Parts({"delivery_timeout_ms": 100, "linger_ms": 10_000})
        parts.append(b"a")
        parts.close_batch()
        parts.clock.advance(0.06)
        parts.append(b"b")
        parts.clock.advance(0.05)
        assert [batch.created_ms for batch in parts.accumulator.expired(parts.now_ms)] == [parts.now_ms - 110]
        parts.accumulator.reset_next_expiry()
        assert parts.accumulator.expired(parts.now_ms) == []
        assert parts.accumulator.next_expiry_ms == parts.now_ms + 50

    def test_a_very_long_time_out_never_expires(self) -> None:
        parts = Parts({"delivery_timeout_ms": 2**31 - 1})
        parts.append(b"a")
        parts.clock.advance(3600)
        assert parts.accumulator.expired(parts.now_ms) == []


class TestCompression:
    def test_the_estimate_decides_how_much_goes_into_a_batch(self) -> None:
        """PP-11: `has_room_for` uses the estimate, which is updated when a batch closes."""
        parts = Parts({"batch_size": 2048, "codec": ZSTD}, memory=1 << 24)
        counts, sizes = [], []
        for _ in range(40):
            queue = None
            while queue is None or len(queue) < 2:
                parts.append(b"abcdefgh" * 12)
                queue = parts.accumulator.lanes["t"].queues[0]
            batch = parts.drain()[0][0]
            counts.append(batch.record_count)
            sizes.append(batch.size)
            batch.complete(0, -1)
            parts.accumulator.release(batch)
        assert counts == sorted(counts)
        assert counts[-1] > counts[0]
        assert max(sizes) <= 2048
        assert parts.accumulator.ratios.estimate("t") < 0.9

    def test_records_that_do_not_compress_are_sent_as_they_are(self) -> None:
        import os

        parts = Parts({"batch_size": 2048, "codec": GZIP})
        parts.append(os.urandom(200))
        batch = parts.drain()[0][0]
        assert batch.codec == 0
        assert len(values(batch)) == 1

    @given(observed=st.lists(st.floats(0.01, 3), max_size=50))
    @settings(max_examples=30)
    def test_the_estimate_is_never_below_what_was_just_seen(self, observed: list[float]) -> None:
        """PP-11: it rises at once and falls slowly."""
        ratios = Parts().accumulator.ratios
        for ratio in observed:
            before = ratios.estimate("t")
            after = ratios.update("t", ratio)
            assert after >= min(ratio, before)
            assert before - after <= 0.005 + 1e-9


class TestSplit:
    @pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
    def test_the_parts_come_back_at_the_head_in_order(self, codec: int) -> None:
        """PP-26."""
        parts = Parts({"batch_size": 1024, "codec": codec}, memory=1 << 24)
        with parts.accumulator.open_batch(parts.accumulator.lane("t", cluster()), 0, 8000, 0, 0):
            pass
        futures = [parts.append(b"%03d" % number * 30, headers=b"\x00") for number in range(40)]
        told: list[tuple[object, object]] = []
        futures[-1].add_done_callback(lambda future: told.append((future.exception(), future.result().offset)))
        big = parts.drain()[0][0]
        assert big.record_count == 40
        count = parts.accumulator.split(big)
        parts.accumulator.release(big)
        assert count >= 4
        assert parts.accumulator.ratios.estimate("t") >= 1.0
        found: list[bytes] = []
        offset = 100
        while drained := parts.drain().get(0):
            assert drained[0].limit <= 1024
            found += values(drained[0])
            drained[0].complete(offset, -1)
            offset += drained[0].record_count
            parts.accumulator.release(drained[0])
        assert found == [b"%03d" % number * 30 for number in range(40)]
        assert [future.result(1).offset for future in futures] == list(range(100, 140))
        assert told == [(None, 139)]
        assert parts.pool.available == 1 << 24

    def test_a_record_larger_than_a_batch_stays_whole(self) -> None:
        parts = Parts({"batch_size": 256})
        with parts.accumulator.open_batch(parts.accumulator.lane("t", cluster()), 0, 4000, 0, 0):
            pass
        parts.append(b"x" * 1000)
        parts.append(b"y" * 1000)
        big = parts.drain()[0][0]
        assert parts.accumulator.split(big) == 2
        assert values(parts.drain()[0][0]) == [b"x" * 1000]


class TestTheEnd:
    def test_aborting_fails_every_open_batch_and_frees_the_memory(self) -> None:
        parts = Parts(memory=1 << 16)
        futures = parts.append_batches(3)
        sent = parts.drain()[0][0]
        sent.sent()
        parts.accumulator.abort_all(ProducerClosed("closed"))
        for future in futures:
            assert isinstance(future.exception(0), ProducerClosed)
        assert parts.pool.available == (1 << 16) - 1024  # the one whose request is on its way
        sent.in_flight = False
        parts.accumulator.release(sent)
        assert parts.pool.available == 1 << 16

    def test_aborting_what_was_never_sent_leaves_the_rest(self) -> None:
        parts = Parts(idempotent=True)
        parts.keeper.set_id(1, 0)
        first, second = parts.append_batches(2)
        parts.drain()
        parts.accumulator.abort_undrained(ProducerClosed("aborted"))
        assert not first.done()
        assert second.done()

    def test_memory_is_given_back_once(self) -> None:
        """PP-30: no double deallocation."""
        parts = Parts(memory=1 << 16)
        parts.append(b"a")
        batch = parts.drain()[0][0]
        assert batch.complete(0, -1)
        assert not batch.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        parts.accumulator.release(batch)
        parts.accumulator.release(batch)
        assert parts.pool.available == 1 << 16

    def test_of_many_threads_that_end_a_batch_one_wins(self) -> None:
        """PP-30: its final state changes once, whichever thread comes first."""
        for _ in range(100):
            parts = Parts()
            told: list[object] = []
            future = parts.append(b"a", on_delivery=lambda error, _, told=told: told.append(error))
            batch = parts.drain()[0][0]
            start = threading.Barrier(3)

            def end(call: Callable[..., bool], *arguments: object, start: threading.Barrier = start) -> bool:
                start.wait(10)
                return call(*arguments)

            with ThreadPoolExecutor(3) as threads:
                ends = [
                    threads.submit(end, batch.complete, 5, -1),
                    threads.submit(end, batch.fail, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)),
                    threads.submit(end, batch.fail, ProducerClosed("aborted")),
                ]
            assert sorted(one.result(0) for one in ends) == [False, False, True]
            assert told == [future.exception(0)]
