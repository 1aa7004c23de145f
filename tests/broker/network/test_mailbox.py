"""The mailbox of a processor (RP-6, RP-13): bounded connections, and one wake-up for many responses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from barnabas.broker.network.mailbox import NEW_CONNECTIONS, Mailbox
from tests.waiting import wait_until

RESPONSE = cast(Any, object())


class Box:
    def __init__(self) -> None:
        self.wakes = 0
        self.mail = Mailbox(self._wakeup)

    def _wakeup(self) -> None:
        self.wakes += 1


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket() as one:
        yield one


def test_only_a_sleeping_processor_is_woken_and_only_once(box: Box) -> None:
    assert not box.mail.put_response(RESPONSE)
    box.mail.wake()
    assert box.wakes == 0
    assert not box.mail.fall_asleep()  # a response is here
    box.mail.responses.clear()
    assert box.mail.fall_asleep()
    assert box.mail.put_response(RESPONSE)
    assert box.mail.put_response(RESPONSE)
    box.mail.wake()
    box.mail.wake()
    assert box.wakes == 1
    assert len(box.mail.responses) == 2


def test_a_processor_that_was_woken_otherwise_needs_no_wake_up(box: Box) -> None:
    assert box.mail.fall_asleep()
    box.mail.awake()
    assert not box.mail.put_response(RESPONSE)


def test_connections_are_taken_in_order_up_to_a_bound(box: Box, sock: socket.socket) -> None:
    for number in range(NEW_CONNECTIONS):
        assert box.mail.put_connection(sock, f"peer {number}")
    assert not box.mail.put_connection(sock, "one too many")
    assert not box.mail.fall_asleep()
    assert [box.mail.take_connection()[1] for _ in range(box.mail.connections_waiting())] == [
        f"peer {number}" for number in range(NEW_CONNECTIONS)
    ]


def test_who_waits_for_room_gets_in_when_there_is_some_and_gives_up_when_asked_to(
    box: Box, sock: socket.socket
) -> None:
    for _ in range(NEW_CONNECTIONS):
        box.mail.put_connection(sock, "early")
    assert not box.mail.put_connection_waiting(sock, "unwanted", lambda: False)
    results: list[bool] = []
    waiter = threading.Thread(
        target=lambda: results.append(box.mail.put_connection_waiting(sock, "late", lambda: True)), daemon=True
    )
    waiter.start()
    box.mail.take_connection()
    wait_until(lambda: results == [True])
    assert box.mail.connections_waiting() == NEW_CONNECTIONS


def test_a_closed_mailbox_takes_nothing_and_gives_back_what_waits(box: Box, sock: socket.socket) -> None:
    for _ in range(NEW_CONNECTIONS):
        box.mail.put_connection(sock, "early")
    results: list[bool] = []
    waiter = threading.Thread(
        target=lambda: results.append(box.mail.put_connection_waiting(sock, "late", lambda: True)), daemon=True
    )
    waiter.start()
    assert [address for _, address in box.mail.close()] == ["early"] * NEW_CONNECTIONS
    wait_until(lambda: results == [False])
    assert not box.mail.put_connection(sock, "later")
