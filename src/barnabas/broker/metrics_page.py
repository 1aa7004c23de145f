"""One rendering of /metrics, made in slices and read by everybody who asked while it was being made.

Role: holds the text as bytes, in pieces of about `PIECE_BYTES`. A page of 20 000 topics has 7 MB: it is made once for all who wait, not
once for each, and the thread that makes it looks after its sockets, and rests, between two slices.
Thread: that of the metrics server. Lock: none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

PIECE_BYTES = 65_536


class MetricsPage:
    """Not thread-safe."""

    __slots__ = ("_length", "_source", "_text", "done", "pieces", "size")

    def __init__(self, source: Iterator[str]) -> None:
        self._source = source
        self._text: list[str] = []
        self._length = 0
        self.pieces: list[bytes] = []
        self.size = 0
        self.done = False

    def go_on(self, now_ns: Callable[[], int], until_ns: int) -> None:
        """Make more of it, until a time or the end."""
        for text in self._source:
            self._text.append(text)
            self._length += len(text)
            if self._length >= PIECE_BYTES:
                self._cut()
            if now_ns() >= until_ns:
                return
        self._cut()
        self.done = True

    def _cut(self) -> None:
        piece = "".join(self._text).encode()
        if piece:
            self.pieces.append(piece)
            self.size += len(piece)
        self._text, self._length = [], 0

    def __repr__(self) -> str:
        return f"<MetricsPage {self.size} bytes{'' if self.done else ', being made'}>"
