"""Sends: buffers and file regions through small socket buffers (RP-24, RP-26)."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.net.send import FileRegion, Part, Send, framed
from barnabas.net.transport import PlaintextTransport
from tests.net.peers import read_exactly


def deliver(send: Send, transport: PlaintextTransport, peer: socket.socket) -> bytes:
    """Write and read in turns until the send is done; what the peer got."""
    got = bytearray()
    while not send.done:
        send.write_to(transport)
        got += read_exactly(peer, send.written - len(got))
    return bytes(got)


def small_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    theirs.settimeout(10)
    return ours, theirs


def test_framed_puts_the_size_in_front_and_joins_a_small_first_part() -> None:
    """RP-24: one buffer, one system call."""
    assert framed([b"abc"]) == [b"\0\0\0\3abc"]
    assert framed([]) == [b"\0\0\0\0"]
    big = bytes(5000)
    assert framed([big, b"x"]) == [b"\0\0\x13\x89", big, b"x"]
    assert framed([memoryview(b"abc")])[0] == b"\0\0\0\3"


def test_one_small_buffer_is_one_send_call() -> None:
    """RP-24."""
    calls: list[bytes] = []

    class Recording:
        ready, wants_write, buffers = True, False, False

        def send(self, data: bytes, flags: int = 0) -> int:
            calls.append(data)
            return len(data)

    send = Send([b"hello"])
    assert send.write_to(Recording()) == 5  # type: ignore[arg-type]
    assert (calls, send.done, send.written, send.size) == ([b"hello"], True, 5, 5)
    assert "size=5" in repr(send)


def test_a_socket_that_takes_nothing_is_no_error() -> None:
    """RP-24: would block = zero bytes written."""
    ours, theirs = small_pair()
    with ours, theirs:
        transport = PlaintextTransport(ours)
        send = Send([bytes(1_000_000)])
        assert 0 < send.write_to(transport) < 1_000_000
        while send.write_to(transport):
            pass
        assert not send.done
        assert Send([b"x", b"y"]).write_to(transport) == 0
        assert Send([b"x"]).write_to(transport) == 0


PARTS = st.lists(st.tuples(st.sampled_from(["bytes", "view", "array", "file"]), st.binary(max_size=6000)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(PARTS)
def test_any_mix_of_parts_arrives_in_order(parts: list[tuple[str, bytes]]) -> None:
    """RP-26: file regions go by sendfile between the small buffers around them."""
    makers: dict[str, Callable[[bytes], Part]] = {"bytes": bytes, "view": memoryview, "array": bytearray}
    ours, theirs = small_pair()
    with ours, theirs, tempfile.TemporaryFile() as file:
        made: list[Part] = []
        for kind, data in parts:
            if kind == "file":
                position = file.seek(0, os.SEEK_END)
                file.write(data)
                file.flush()
                made.append(FileRegion(file, position, len(data)))
            else:
                made.append(makers[kind](data))
        send = Send(made)
        expected = b"".join(data for _, data in parts)
        assert send.size == len(expected)
        assert deliver(send, PlaintextTransport(ours), theirs) == expected


@pytest.mark.parametrize("sizes", [[3_000_000], [10, 2_000_000, 500_000], [300_000, 300_000, 1]])
def test_a_send_that_is_cut_anywhere_goes_on_there(sizes: list[int]) -> None:
    """RP-24: partial writes inside the first, a middle and the last buffer."""
    parts = [os.urandom(size) for size in sizes]
    ours, theirs = small_pair()
    with ours, theirs:
        assert deliver(Send(parts), PlaintextTransport(ours), theirs) == b"".join(parts)


def test_more_buffers_than_one_call_takes_are_all_written() -> None:
    """RP-24: the OS gathers at most 1024 buffers."""
    ours, theirs = small_pair()
    with ours, theirs:
        parts = [bytes([number % 256]) for number in range(3000)]
        assert deliver(Send(parts), PlaintextTransport(ours), theirs) == b"".join(parts)


def test_a_large_file_region_is_sent_whole_and_the_file_stays_open() -> None:
    """RP-26: the region holds the file, so a deleted segment is still readable."""
    data = os.urandom(3_000_000)
    ours, theirs = small_pair()
    with ours, theirs, tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        region = FileRegion(file, 1000, len(data) - 1000)
        os.unlink(file.name)
        assert deliver(Send(framed([b"head", region, b"tail"])), PlaintextTransport(ours), theirs)[8:-4] == data[1000:]
        assert "position=1000" in repr(region)
        with open(file.name, "w"):  # the context manager wants to delete it
            pass


def test_a_file_that_is_too_short_is_an_error_and_no_endless_loop() -> None:
    """RP-26: a truncated segment breaks that connection only."""
    ours, theirs = small_pair()
    with ours, theirs, tempfile.TemporaryFile() as file:
        file.write(b"abc")
        file.flush()
        send = Send([FileRegion(file, 0, 10)])
        with pytest.raises(OSError, match="file ended 7 bytes before"):
            deliver(send, PlaintextTransport(ours), theirs)
