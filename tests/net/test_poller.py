"""Wake-ups and the fallback without epoll (RP-23)."""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading

import pytest

from barnabas.net.poller import READ, WRITE, PortablePoller, Waker, default_poller


def test_epoll_is_used_where_it_exists() -> None:
    """RP-23: no limit of 1024 descriptors."""
    poller = default_poller()
    poller.close()
    assert isinstance(poller, select.epoll)


def test_without_epoll_the_portable_poller_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """RP-23."""
    monkeypatch.delattr(select, "epoll")
    monkeypatch.setattr(selectors, "DefaultSelector", selectors.PollSelector)
    poller = default_poller()
    poller.close()
    assert isinstance(poller, PortablePoller)


@pytest.mark.parametrize("kind", [selectors.PollSelector, selectors.SelectSelector, selectors.DefaultSelector])
def test_the_portable_poller_speaks_epolls_language(kind: type[selectors.BaseSelector]) -> None:
    """RP-23: the same four methods."""
    poller = PortablePoller(kind())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller.register(ours.fileno(), READ)
        assert poller.poll(0, 10) == []
        poller.modify(ours.fileno(), READ | WRITE)
        assert poller.poll(0, 10) == [(ours.fileno(), WRITE)]
        theirs.send(b"x")
        assert poller.poll(1, 10) == [(ours.fileno(), READ | WRITE)]
        poller.unregister(ours.fileno())
        assert poller.poll(0, 10) == []
    poller.close()


@pytest.mark.parametrize("with_eventfd", [True, False])
def test_many_wakes_are_one_signal(with_eventfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """RP-23: coalesced, and usable again after each drain."""
    if not with_eventfd:
        monkeypatch.delattr(os, "eventfd")
    signals: list[None] = []
    signal = Waker._signal
    monkeypatch.setattr(Waker, "_signal", lambda self: signals.append(None) or signal(self))
    waker = Waker()
    with select.epoll() as epoll:
        epoll.register(waker.fd, READ)
        for _ in range(3):
            for _ in range(5):
                waker.wake()
            assert epoll.poll(1) == [(waker.fd, READ)]
            waker.drain()
            assert epoll.poll(0) == []
        waker.drain()
    assert len(signals) == 3
    waker.close()
    waker.wake()
    waker.close()
    assert len(signals) == 3


def test_no_wake_up_is_lost_between_threads() -> None:
    """RP-23: what was queued before `wake` is always seen; walks the race of `drain` against `wake`."""
    waker = Waker()
    queue: list[int] = []
    seen = 0

    def produce() -> None:
        for number in range(3000):
            queue.append(number)
            waker.wake()

    thread = threading.Thread(target=produce)
    with select.epoll() as epoll:
        epoll.register(waker.fd, READ)
        thread.start()
        while seen < 3000:
            assert epoll.poll(10), "a wake-up was lost"
            waker.drain()
            seen = len(queue)
        thread.join(10)
    waker.close()
