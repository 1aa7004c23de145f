"""The four memory pools of RP-25."""

from __future__ import annotations

import gc
import logging
import random
import threading

import pytest

from barnabas.net.memory_pool import (
    FixedSizeMemoryPool,
    LeakTrackingMemoryPool,
    MemoryPool,
    OversizedClaim,
    SimpleMemoryPool,
    UnlimitedMemoryPool,
)

BOUNDED = [
    lambda: SimpleMemoryPool(1000),
    lambda: LeakTrackingMemoryPool(1000),
    lambda: FixedSizeMemoryPool(1000, 100),
]
BOUNDED_NAMES = ["simple", "leak-tracking", "fixed-size"]


@pytest.fixture(params=BOUNDED, ids=BOUNDED_NAMES)
def pool(request: pytest.FixtureRequest) -> MemoryPool:
    made: MemoryPool = request.param()
    return made


def test_the_unlimited_pool_never_refuses_and_counts_nothing() -> None:
    """RP-25: unlimited."""
    pool = UnlimitedMemoryPool()
    buffer = pool.try_allocate(1 << 40)
    buffer.release()
    pool.add_listener(lambda: None)
    pool.remove_listener(lambda: None)
    assert pool.unlimited
    assert (pool.used(), pool.size) == (0, 0)
    assert pool.available() > 1 << 60
    assert "Unlimited" in repr(pool)


def test_a_claim_is_counted_whole_before_any_byte_arrives() -> None:
    """RP-25: the claim counts, the memory does not exist yet."""
    pool = SimpleMemoryPool(1_000_000)
    buffer = pool.try_allocate(900_000)
    assert buffer is not None
    assert (pool.used(), pool.available(), len(buffer.data)) == (900_000, 100_000, 0)


def test_a_claim_succeeds_while_anything_is_free() -> None:
    """RP-25: as in Kafka the bound is not strict, else a large request could wait for ever."""
    pool = SimpleMemoryPool(100)
    first = pool.try_allocate(99)
    second = pool.try_allocate(5000)
    assert first is not None
    assert second is not None
    assert pool.available() == 100 - 99 - 5000
    assert pool.try_allocate(1) is None
    second.release()
    assert pool.available() == 1


def test_release_counts_once(pool: MemoryPool) -> None:
    """RP-25: a buffer released twice gives its bytes back once."""
    buffer = pool.try_allocate(100)
    other = pool.try_allocate(100)
    assert buffer is not None
    assert other is not None
    assert "released=False" in repr(buffer)
    buffer.release()
    buffer.release()
    assert "released=True" in repr(buffer)
    assert pool.used() == 100
    other.release()
    assert (pool.used(), pool.available()) == (0, 1000)
    assert "used=0" in repr(pool)


def test_two_threads_that_release_at_the_same_moment_count_once(pool: MemoryPool) -> None:
    """RP-25: both saw the buffer unreleased; the pool's lock decides."""
    buffer = pool.try_allocate(100)
    other = pool.try_allocate(100)
    assert buffer is not None
    assert other is not None
    counted = buffer._pool
    assert counted is not None
    counted.give_back(buffer)
    counted.give_back(buffer)
    assert pool.used() == 100
    other.release()


def test_listeners_hear_that_memory_came_back_while_somebody_waits(pool: MemoryPool) -> None:
    """RP-25: not of every release."""
    calls: list[int] = []

    def listener() -> None:
        calls.append(pool.available())

    pool.add_listener(listener)
    buffers = [pool.try_allocate(100) for _ in range(10)]
    assert pool.try_allocate(100) is None
    waiting = pool.open(100)
    assert not pool.claim(waiting)
    assert pool.is_short()
    for buffer in buffers[:2]:
        assert buffer is not None
        buffer.release()
    assert calls == [100, 200]
    while waiting.room < waiting.size:
        assert pool.claim(waiting)
    assert not pool.is_short()
    for buffer in buffers[2:5]:
        assert buffer is not None
        buffer.release()
    assert calls == [100, 200]
    more = [pool.try_allocate(100) for _ in range(4)]
    assert not pool.claim(pool.open(100))
    pool.remove_listener(listener)
    more[0].release()  # type: ignore[union-attr]
    assert calls == [100, 200]


@pytest.mark.parametrize("size", [0, -1])
def test_a_claim_must_be_positive(pool: MemoryPool, size: int) -> None:
    """RP-25."""
    with pytest.raises(ValueError, match="positive"):
        pool.try_allocate(size)


def test_a_pool_must_have_a_size() -> None:
    """RP-25."""
    with pytest.raises(ValueError, match="positive"):
        SimpleMemoryPool(0)
    with pytest.raises(ValueError, match="cannot hold"):
        FixedSizeMemoryPool(10, 11)


def test_a_leaked_buffer_is_logged_and_its_bytes_come_back(caplog: pytest.LogCaptureFixture) -> None:
    """RP-25: leak-tracking."""
    pool = LeakTrackingMemoryPool(100)
    heard: list[None] = []
    pool.add_listener(lambda: heard.append(None))
    buffer = pool.try_allocate(100)
    assert pool.used() == 100
    with caplog.at_level(logging.ERROR):
        del buffer
        gc.collect()
        assert pool.used() == 0
    assert pool.leaks == 1
    assert heard
    assert "100 bytes was garbage-collected without release" in caplog.text
    again = pool.try_allocate(100)
    assert again is not None
    again.release()


def test_a_leak_is_noticed_by_the_next_claim() -> None:
    """RP-25: the claim that would have failed succeeds."""
    pool = LeakTrackingMemoryPool(100)
    pool.try_allocate(100)
    gc.collect()
    buffer = pool.try_allocate(60)
    assert buffer is not None
    buffer.release()
    assert (pool.leaks, pool.used()) == (1, 0)


def test_a_released_buffer_is_no_leak_when_it_is_collected() -> None:
    """RP-25."""
    pool = LeakTrackingMemoryPool(100)
    buffer = pool.try_allocate(100)
    assert buffer is not None
    buffer.release()
    del buffer
    gc.collect()
    assert (pool.leaks, pool.used()) == (0, 0)


def test_the_fixed_size_pool_uses_its_buffers_again() -> None:
    """RP-25: fixed-size."""
    pool = FixedSizeMemoryPool(250, 100)
    assert pool.size == 200
    first = pool.try_allocate(10)
    assert first is not None
    memory = first.data
    assert (len(memory), pool.used()) == (100, 100)
    first.release()
    second = pool.try_allocate(100)
    assert second is not None
    assert second.data is memory
    third = pool.try_allocate(1)
    assert third is not None
    assert third.data is not memory
    assert pool.try_allocate(1) is None


def test_the_fixed_size_pool_refuses_larger_claims() -> None:
    """RP-25: a refusal that waiting cannot cure is not "no memory now"."""
    pool = FixedSizeMemoryPool(200, 100)
    with pytest.raises(OversizedClaim, match=r"101 bytes .* at most 100"):
        pool.try_allocate(101)
    assert pool.used() == 0


def test_pools_stay_exact_under_threads(pool: MemoryPool) -> None:
    """RP-25: processors claim, handlers release, also the same buffer twice at once."""
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        generator = random.Random(seed)
        try:
            for _ in range(400):
                buffer = pool.try_allocate(generator.randint(1, 100))
                if buffer is None:
                    continue
                other = threading.Thread(target=buffer.release) if generator.random() < 0.02 else None
                if other is not None:
                    other.start()
                buffer.release()
                if other is not None:
                    other.join()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors
    assert (pool.used(), pool.available()) == (0, 1000)
