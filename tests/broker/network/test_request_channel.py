"""The request channel: bounded, fair, and awake only as much as needed (RP-8, RP-27, RP-30)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.network.request import Request
from barnabas.broker.network.request_channel import SHUTDOWN, RequestChannel, Seat
from barnabas.clock import ManualClock
from barnabas.protocol.messages.metadata import MetadataResponse
from tests.broker.network.toy_broker import CollectingSink, toy_request
from tests.waiting import wait_until


class Worker:
    """A thread that sits at the channel and keeps what it takes; `gate` can hold it up in a request."""

    def __init__(self, channel: RequestChannel) -> None:
        self.channel = channel
        self.taken: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        self.wakeups = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        seat = self.channel.sit_down()
        try:
            while True:
                item = self.channel.take(5, seat)
                self.wakeups += 1
                if item is SHUTDOWN:
                    return
                if item is not None:
                    self.taken.append(item)
                    self.gate.wait(10)
        finally:
            self.channel.stand_up(seat)

    def join(self) -> None:
        self.gate.set()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def channel() -> RequestChannel:
    return RequestChannel(10)


@pytest.fixture
def workers(channel: RequestChannel) -> Iterator[list[Worker]]:
    """Three idle workers."""
    workers = []
    for count in range(3):
        workers.append(Worker(channel))
        wait_until(lambda count=count: channel.idle_handlers() == count + 1)
    yield workers
    for _ in workers:
        channel.put_shutdown()
    for worker in workers:
        worker.join()


def test_requests_are_taken_in_order(channel: RequestChannel) -> None:
    requests = [toy_request(channel) for _ in range(5)]
    for request in requests:
        assert channel.put(request)
    assert channel.depth() == 5
    assert [channel.take(0) for _ in range(5)] == requests
    assert channel.take(0) is None


def test_put_waits_while_the_queue_is_full_and_loses_nothing(channel: RequestChannel) -> None:
    """RP-27 and fault row 29: depth stays at the limit, everything arrives."""
    requests = [toy_request(channel) for _ in range(30)]
    putter = threading.Thread(target=lambda: [channel.put(request) for request in requests])
    putter.start()
    wait_until(lambda: channel.depth() == 10)
    assert putter.is_alive()
    taken = []
    while len(taken) < 30:
        assert channel.depth() <= channel.limit
        request = channel.take(5)
        assert request is not None
        taken.append(request)
    putter.join(5)
    assert taken == requests


def test_a_blocked_put_gives_up_when_it_is_no_longer_wanted(channel: RequestChannel) -> None:
    for _ in range(10):
        channel.put(toy_request(channel))
    wanted = iter([True, False])
    assert channel.put(toy_request(channel), lambda: next(wanted)) is False
    assert channel.depth() == 10


def test_a_closed_channel_takes_no_request_but_gives_out_what_it_has(channel: RequestChannel) -> None:
    request = toy_request(channel)
    channel.put(request)
    channel.close()
    assert channel.put(toy_request(channel)) is False
    assert channel.take(0) is request


def test_closing_ends_a_blocked_put(channel: RequestChannel) -> None:
    for _ in range(10):
        channel.put(toy_request(channel))
    results: list[bool] = []
    putter = threading.Thread(target=lambda: results.append(channel.put(toy_request(channel))))
    putter.start()
    wait_until(lambda: channel._putters == 1)
    channel.close()
    putter.join(5)
    assert results == [False]


def test_shutdown_comes_after_what_is_queued_and_is_not_bounded(channel: RequestChannel) -> None:
    for _ in range(10):
        channel.put(toy_request(channel))
    channel.put_shutdown()
    assert [channel.take(0) is SHUTDOWN for _ in range(11)] == [False] * 10 + [True]


def test_one_request_wakes_one_handler_and_always_the_last_that_parked(
    channel: RequestChannel, workers: list[Worker]
) -> None:
    for number in range(20):
        channel.put(toy_request(channel))
        wait_until(lambda number=number: len(workers[2].taken) == number + 1 and channel.idle_handlers() == 3)
    assert [worker.wakeups for worker in workers] == [0, 0, 20]


def test_while_a_handler_is_awake_no_other_is_woken(channel: RequestChannel, workers: list[Worker]) -> None:
    workers[2].gate.clear()
    channel.put(toy_request(channel))
    wait_until(lambda: len(workers[2].taken) == 1)
    channel.put(toy_request(channel))
    assert channel.has_backlog()
    assert channel.idle_handlers() == 2
    workers[2].gate.set()
    wait_until(lambda: len(workers[2].taken) == 2)


def test_a_blocked_handler_does_not_hold_up_the_queue(channel: RequestChannel, workers: list[Worker]) -> None:
    """The first nudge notes where the queue is, a later one sees that it has not moved."""
    workers[2].gate.clear()
    channel.put(toy_request(channel))
    wait_until(lambda: len(workers[2].taken) == 1)
    channel.put(toy_request(channel))
    assert not channel.nudge()
    wait_until(channel.nudge)
    wait_until(lambda: len(workers[1].taken) == 1)
    # From now on the blocked one does not count as awake: the next request needs no nudge.
    wait_until(lambda: channel.idle_handlers() == 2)
    channel.put(toy_request(channel))
    wait_until(lambda: len(workers[1].taken) == 2)
    # And it counts again when it comes back.
    workers[2].gate.set()
    wait_until(lambda: channel.idle_handlers() == 3)
    assert channel._awake == 0


def test_an_old_request_wakes_a_further_handler_although_the_queue_moves() -> None:
    clock = ManualClock()
    channel = RequestChannel(10, clock=clock)
    worker = Worker(channel)
    wait_until(lambda: channel.idle_handlers() == 1)
    busy = channel.sit_down()
    channel.put(toy_request(channel))
    channel.put(toy_request(channel))
    assert channel.nudge() is False
    clock.advance(0.01)
    assert channel.take(0, busy) is not None  # the queue moves, but the next one has waited for too long
    assert channel.nudge() is True
    wait_until(lambda: len(worker.taken) == 1)
    assert not busy.blocked
    channel.stand_up(busy)
    channel.put_shutdown()
    worker.join()


def test_a_queue_that_moves_is_left_to_those_who_are_awake() -> None:
    clock = ManualClock()
    channel = RequestChannel(100, clock=clock)
    worker = Worker(channel)
    wait_until(lambda: channel.idle_handlers() == 1)
    busy = channel.sit_down()
    for _ in range(3):
        channel.put(toy_request(channel))
    for _ in range(2):
        for _ in range(20):
            assert channel.nudge() is False
        clock.advance(0.002)
        assert channel.take(0, busy) is not None
    assert worker.taken == []
    channel.stand_up(busy)
    channel.put_shutdown()
    worker.join()


def test_nudging_without_backlog_or_without_idle_handlers_does_nothing(channel: RequestChannel) -> None:
    assert channel.nudge() is False
    channel.put(toy_request(channel))
    assert not channel.has_backlog()
    assert channel.nudge() is False


def test_a_full_queue_wakes_every_idle_handler() -> None:
    channel = RequestChannel(1)
    workers = [Worker(channel) for _ in range(3)]
    wait_until(lambda: channel.idle_handlers() == 3)
    for worker in workers:
        worker.gate.clear()
    for _ in range(3):
        assert channel.put(toy_request(channel))
    wait_until(lambda: sum(len(worker.taken) for worker in workers) >= 2)
    for worker in workers:
        worker.gate.set()
    for _ in workers:
        channel.put_shutdown()
    for worker in workers:
        worker.join()
    assert sum(len(worker.taken) for worker in workers) == 3


def test_eager_channels_wake_a_handler_for_each_request() -> None:
    """For builds without the GIL."""
    channel = RequestChannel(10, eager=True)
    workers = [Worker(channel) for _ in range(2)]
    wait_until(lambda: channel.idle_handlers() == 2)
    for worker in workers:
        worker.gate.clear()
    channel.put(toy_request(channel))
    channel.put(toy_request(channel))
    wait_until(lambda: all(len(worker.taken) == 1 for worker in workers))
    for _ in workers:
        channel.put_shutdown()
    for worker in workers:
        worker.join()


def test_a_handler_that_leaves_passes_the_queue_on(channel: RequestChannel) -> None:
    worker = Worker(channel)
    wait_until(lambda: channel.idle_handlers() == 1)
    leaving = channel.sit_down()
    channel.put(toy_request(channel))  # the awake one is expected to take it
    channel.stand_up(leaving)
    wait_until(lambda: len(worker.taken) == 1)
    channel.put_shutdown()
    worker.join()


def test_a_handler_whose_ring_is_late_does_not_wait_for_it(channel: RequestChannel) -> None:
    """A processor chooses a handler and rings just before it sleeps. The handler's wait ended in between, and it waited for the ring with
    the channel's lock, which the processor needed for its next request: the broker stood still, and could not be stopped."""
    seat = channel.sit_down()
    taken: list[Any] = []
    handler = threading.Thread(target=lambda: taken.append(channel.take(0.2, seat)))
    handler.start()
    wait_until(lambda: channel.idle_handlers() == 1)
    request = toy_request(channel)
    queued, chosen = channel.post(request)
    assert queued
    assert chosen is seat
    handler.join(30)
    assert taken == [request], "it has not waited for the ring"
    seat.ring()
    assert channel.take(30, seat) is None, "the late ring ends one wait"
    assert channel.take(0, seat) is None
    channel.stand_up(seat)
    assert (channel._awake, channel.idle_handlers()) == (0, 0)


def test_two_rings_that_nobody_has_heard_are_one(channel: RequestChannel) -> None:
    seat = channel.sit_down()
    seat.ring()
    seat.ring()
    assert channel.take(30, seat) is None
    assert not seat.bell.acquire(blocking=False)
    channel.stand_up(seat)


def _take_until(done: threading.Event, channel: RequestChannel, taken: list[Any]) -> None:
    seat: Seat = channel.sit_down()
    while not done.is_set():
        item = channel.take(0.0005, seat)
        while item is not None:
            taken.append(item)
            item = channel.take_more(seat)
    channel.stand_up(seat)


def _nudge_until(done: threading.Event, channel: RequestChannel) -> None:
    while not done.wait(0.001):
        channel.nudge()


def test_many_putters_and_takers_with_tiny_waits_lose_and_double_nothing() -> None:
    channel = RequestChannel(8)
    requests = [toy_request(channel) for _ in range(1200)]
    taken: list[Request] = []
    done = threading.Event()

    def put(part: list[Request]) -> None:
        for request in part:
            assert channel.put(request)

    putters = [threading.Thread(target=put, args=(requests[i::3],)) for i in range(3)]
    others = [threading.Thread(target=_take_until, args=(done, channel, taken)) for _ in range(4)]
    others.append(threading.Thread(target=_nudge_until, args=(done, channel)))
    for thread in putters + others:
        thread.start()
    for thread in putters:
        thread.join(20)
    wait_until(lambda: len(taken) == len(requests), 20)
    done.set()
    for thread in others:
        thread.join(10)
    assert set(taken) == set(requests)
    assert channel._awake == 0
    assert channel.idle_handlers() == 0


def test_a_second_processor_of_one_id_is_warned_about_and_ignored(
    channel: RequestChannel, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-30."""
    first, second = CollectingSink(3), CollectingSink(3)
    channel.add_processor(first)
    channel.add_processor(second)
    assert channel.processors[3] is first
    assert "processor 3 is registered already" in caplog.text


def test_a_response_for_a_removed_processor_is_dropped_with_a_warning(
    channel: RequestChannel, caplog: pytest.LogCaptureFixture
) -> None:
    """RP-8."""
    sink = CollectingSink()
    channel.add_processor(sink)
    channel.remove_processor(0)
    request = toy_request(channel)
    request.respond(MetadataResponse())
    later = toy_request(channel)
    response = later.prepare(MetadataResponse())
    assert response is not None
    assert later.deliver(response) is None
    assert sink.responses == []
    warnings = [record for record in caplog.records if "its processor was removed" in record.message]
    assert [record.levelname for record in warnings] == ["WARNING", "WARNING"]


def test_figures_add_up(channel: RequestChannel) -> None:
    """RP-30, RP-32: queue sizes in total."""
    for number in range(2):
        sink = CollectingSink(number)
        sink.responses = [None] * (number + 1)
        channel.add_processor(sink)
    channel.put(toy_request(channel))
    assert channel.response_queue_size() == 3
    assert "1/10" in repr(channel)
    assert len(channel.clear()) == 1
    assert channel.wait_until_empty(0.1)
