"""What is written to a channel: `Send`, made of buffers and file regions (RP-24, RP-26).

Role: writes its parts in order through a transport, with as few system calls as possible: one `send` for one buffer, one `sendmsg`
for neighbours, `sendfile` for a file region. Parts are exactly the bytes on the wire; `framed` puts the 4-byte size before them.
Thread: built by any thread, then owned by the selector's thread; no lock.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Protocol, TypeAlias

from barnabas.errors import BarnabasError
from barnabas.net.transport import Transport

if TYPE_CHECKING:
    from barnabas.net.channel import Channel

__all__ = ["FileRegion", "Part", "Send", "SendInProgress", "framed"]

# Frame on the wire:  size  int32 big-endian, bytes after it | payload
_pack_size = Struct(">i").pack
_MORE = getattr(socket, "MSG_MORE", 0)  # more follows at once: let the kernel put both in one packet
_JOIN_BELOW = 2048  # copying less than this costs less than a second buffer in sendmsg
_MAX_BUFFERS = 512  # the OS accepts 1024 (IOV_MAX)


class SendInProgress(BarnabasError):
    """One send at a time per channel (RP-24): a bug of the owner."""


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class FileRegion:
    """`length` bytes of an open file from `position`. Holds the file, so a rolled or deleted segment stays readable."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: HasFileno, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileRegion(position={self.position}, length={self.length})"


Part: TypeAlias = bytes | bytearray | memoryview | FileRegion


def framed(parts: Sequence[Part]) -> list[Part]:
    """The parts with their total size in front, joined with the first part when that is small."""
    if not parts:
        return [_pack_size(0)]
    first = parts[0]
    total = len(first)
    small = total < _JOIN_BELOW and type(first) is bytes
    if len(parts) == 1:
        return [_pack_size(total) + first] if small else [_pack_size(total), first]  # type: ignore[operator]
    for part in parts[1:]:
        total += len(part)
    if small:
        return [_pack_size(total) + first, *parts[1:]]  # type: ignore[operator]
    return [_pack_size(total), *parts]


class Send:
    """Bytes on their way to one channel; `attachment` belongs to whoever built it. With `more` the kernel may keep a single buffer
    until the next send or `Transport.push`, 200 ms at most."""

    __slots__ = ("_index", "_offset", "attachment", "channel", "more", "parts", "size", "written")

    def __init__(self, parts: Sequence[Part], attachment: object = None) -> None:
        self.parts = parts
        self.attachment = attachment
        self.channel: Channel | None = None
        self.more = False
        self.written = 0
        self._index = 0
        self._offset = 0
        if len(parts) == 1:
            self.size = len(parts[0])
        else:
            size = 0
            for part in parts:
                size += len(part)
            self.size = size

    def memory(self) -> int:
        """The bytes that are held in memory; regions of files are not."""
        return sum(len(part) for part in self.parts if not isinstance(part, FileRegion))

    @property
    def done(self) -> bool:
        return self.written >= self.size

    def write_to(self, transport: Transport) -> int:
        """Write what the socket takes now; the number of bytes, 0 when it takes none. OSErrors of the connection pass."""
        parts = self.parts
        if not self.written and len(parts) == 1:
            part = parts[0]
            if type(part) is not FileRegion:
                # The common answer: one buffer, one system call.
                try:
                    count = transport.send(part, _MORE if self.more else 0)
                except BlockingIOError:
                    return 0
                self.written = self._offset = count
                return count
        return self._write_parts(transport)

    def _write_parts(self, transport: Transport) -> int:
        before = self.written
        try:
            while self.written < self.size:
                part = self.parts[self._index]
                wanted, count = (
                    self._write_region(transport, part)
                    if isinstance(part, FileRegion)
                    else self._write_buffers(transport)
                )
                self._advance(count)
                if count < wanted:
                    break
        except BlockingIOError:
            pass
        return self.written - before

    def _write_region(self, transport: Transport, region: FileRegion) -> tuple[int, int]:
        wanted = region.length - self._offset
        if not wanted:
            return 0, 0
        count = transport.sendfile(region.file.fileno(), region.position + self._offset, wanted)
        if not count:
            raise OSError(f"file ended {wanted} bytes before the end of {region!r}")
        return wanted, count

    def _write_buffers(self, transport: Transport) -> tuple[int, int]:
        """Gather the buffers up to the next file region."""
        buffers: list[bytes | bytearray | memoryview] = []
        more = 0
        for part in self.parts[self._index : self._index + _MAX_BUFFERS]:
            if isinstance(part, FileRegion):
                more = _MORE
                break
            buffers.append(part)
        if self._offset:
            buffers[0] = memoryview(buffers[0])[self._offset :]
        wanted = sum(map(len, buffers))
        if len(buffers) == 1:
            return wanted, transport.send(buffers[0], more)
        return wanted, transport.sendmsg(buffers, (), more)

    def _advance(self, count: int) -> None:
        self.written += count
        offset = self._offset + count
        index = self._index
        while index < len(self.parts) and offset >= len(self.parts[index]):
            offset -= len(self.parts[index])
            index += 1
        self._index = index
        self._offset = offset

    def __repr__(self) -> str:
        return f"<Send size={self.size} written={self.written} parts={len(self.parts)}>"
