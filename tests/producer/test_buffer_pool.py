"""The memory of a producer: Kafka's BufferPool behaviours (PP-6, row 31)."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from unittest import mock

import pytest

from barnabas.clock import SystemClock
from barnabas.producer.buffer_pool import BufferPool
from barnabas.producer.errors import BufferExhausted, ProducerClosed, RecordTooLarge
from tests.waiting import wait_until

LONG_MS = 20_000.0
SHORT_MS = 1000.0
"""For a wait that ends with a time-out: long enough for what the test does meanwhile, on a busy machine too."""


def pool(total: int = 64, poolable: int = 16) -> BufferPool:
    return BufferPool(total, poolable, SystemClock())


def in_thread(call: object, *arguments: object) -> Future[object]:
    """Run in a thread of its own, whose end is the future's."""
    executor = ThreadPoolExecutor(1)
    future: Future[object] = executor.submit(call, *arguments)
    executor.shutdown(wait=False)
    return future


def waiting(memory: BufferPool, count: int) -> None:
    wait_until(lambda: memory.queued == count, what=f"{count} callers wait")


class TestWithoutWaiting:
    def test_buffers_of_the_usual_size_are_used_again(self) -> None:
        """PP-6: a pool of `batch.size` buffers."""
        memory = pool()
        first = memory.allocate(16, 0)
        assert (len(first), memory.available) == (16, 48)
        memory.deallocate(first, 16)
        assert memory.allocate(16, 0) is first

    def test_other_sizes_are_made_and_dropped(self) -> None:
        memory = pool()
        odd = memory.allocate(30, 0)
        memory.deallocate(odd, 30)
        assert memory.available == 64
        assert memory.allocate(30, 0) is not odd

    def test_kept_buffers_make_room_for_other_sizes(self) -> None:
        memory = pool()
        for buffer in [memory.allocate(16, 0) for _ in range(4)]:
            memory.deallocate(buffer, 16)
        assert len(memory.allocate(40, 0)) == 40
        assert memory.available == 24

    def test_more_than_there_is_at_all_is_refused_at_once(self) -> None:
        with pytest.raises(RecordTooLarge, match=r"65 bytes are more than buffer\.memory = 64"):
            pool().allocate(65, LONG_MS)

    def test_totals_beyond_two_gigabytes(self) -> None:
        memory = pool(1 << 40, 1 << 10)
        memory.allocate(1 << 10, 0)
        assert memory.available == (1 << 40) - (1 << 10)

    def test_when_the_system_has_no_memory_the_account_gets_it_back(self) -> None:
        memory = pool()
        with (
            mock.patch("barnabas.producer.buffer_pool.bytearray", side_effect=MemoryError, create=True),
            pytest.raises(MemoryError),
        ):
            memory.allocate(16, 0)
        assert memory.available == 64


class TestWaiting:
    def test_exhaustion_raises_after_the_time_and_says_what_to_do(self) -> None:
        """PP-6: `send()` blocks up to `max.block.ms`, then raises."""
        memory = pool()
        memory.allocate(64, 0)
        with pytest.raises(
            BufferExhausted, match=r"no 16 bytes of memory within max\.block\.ms = 30: 0 of buffer\.memory = 64"
        ):
            memory.allocate(16, 30)
        assert (memory.queued, memory.available, memory.exhausted_count) == (0, 0, 1)
        assert memory.wait_ns >= 20_000_000

    def test_a_caller_gets_memory_as_soon_as_it_comes_back(self) -> None:
        memory = pool()
        everything = memory.allocate(64, 0)
        late = in_thread(memory.allocate, 16, LONG_MS)
        waiting(memory, 1)
        memory.deallocate(everything, 64)
        assert len(late.result(20)) == 16
        assert memory.available == 48

    def test_memory_is_gathered_piece_by_piece(self) -> None:
        memory = pool()
        parts = [memory.allocate(16, 0) for _ in range(4)]
        late = in_thread(memory.allocate, 40, LONG_MS)
        waiting(memory, 1)
        for part in parts[:3]:
            memory.deallocate(part, 16)
        assert len(late.result(20)) == 40
        assert memory.available == 8

    def test_callers_are_served_in_the_order_in_which_they_came(self) -> None:
        """PP-6: waiters are served in order; row 31. A small one that comes late does not overtake a large one."""
        memory = pool()
        parts = [memory.allocate(16, 0) for _ in range(4)]
        large = in_thread(memory.allocate, 48, LONG_MS)
        waiting(memory, 1)
        small = in_thread(memory.allocate, 16, LONG_MS)
        waiting(memory, 2)
        memory.deallocate(parts[0], 16)
        memory.deallocate(parts[1], 16)
        assert not large.done()
        assert not small.done()
        memory.deallocate(parts[2], 16)
        large.result(20)
        assert not small.done()
        memory.deallocate(parts[3], 16)
        small.result(20)

    def test_what_was_gathered_goes_back_after_a_time_out(self) -> None:
        """Row 31: no leak."""
        memory = pool()
        parts = [memory.allocate(16, 0) for _ in range(4)]
        late = in_thread(memory.allocate, 40, SHORT_MS)
        waiting(memory, 1)
        memory.deallocate(parts[0], 16)
        with pytest.raises(BufferExhausted):
            late.result(20)
        assert (memory.available, memory.queued) == (16, 0)

    def test_a_time_out_lets_the_next_one_have_what_is_there(self) -> None:
        memory = pool()
        parts = [memory.allocate(16, 0) for _ in range(4)]
        first = in_thread(memory.allocate, 40, SHORT_MS)
        waiting(memory, 1)
        second = in_thread(memory.allocate, 16, LONG_MS)
        waiting(memory, 2)
        memory.deallocate(parts[0], 16)
        with pytest.raises(BufferExhausted):
            first.result(20)
        assert len(second.result(20)) == 16

    def test_ctrl_c_while_waiting_leaves_nothing_behind(self) -> None:
        memory = pool()
        memory.allocate(64, 0)
        with (
            mock.patch.object(threading.Condition, "wait", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            memory.allocate(16, LONG_MS)
        assert memory.queued == 0

    def test_closing_wakes_those_who_wait_and_refuses_new_ones(self) -> None:
        """Row 31: close wakes all."""
        memory = pool()
        everything = memory.allocate(64, 0)
        late = [in_thread(memory.allocate, 16, LONG_MS) for _ in range(3)]
        waiting(memory, 3)
        memory.close()
        for one in late:
            with pytest.raises(ProducerClosed):
                one.result(20)
        with pytest.raises(ProducerClosed):
            memory.allocate(1, 0)
        memory.deallocate(everything, 64)
        assert memory.available == 64

    def test_many_threads_never_lose_or_invent_memory(self) -> None:
        memory = pool(1024, 64)

        def work(seed: int) -> None:
            for turn in range(150):
                size = 64 if (seed + turn) % 2 else 1 + (seed * 31 + turn * 17) % 512
                buffer = memory.allocate(size, LONG_MS)
                assert len(buffer) == size
                memory.deallocate(buffer, size)

        for one in [in_thread(work, seed) for seed in range(8)]:
            one.result(30)
        assert (memory.available, memory.queued) == (1024, 0)
