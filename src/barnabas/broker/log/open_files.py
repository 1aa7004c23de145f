"""The files of segments that are open: no more than the process has descriptors for, however many partitions there are.

Role: a second-chance queue. A segment that opens its file joins it; when there are too many, those that were not used since the last look
close theirs and open them again on use. What a response still sends stays open until it is sent; those files count too.
Thread: any.
Lock: `lock` guards which file a segment has. It is taken when a file is opened or given up, never for a use. Append locks of logs are tried
under it, never waited for, so it may be taken under any of them.

A file with bytes that are not flushed may be closed as well. A failed write-back is reported by the next flush, also through a descriptor
that is opened later (Linux since 4.17), as long as the kernel has not dropped the inode; `FileSystem.pin` sees to that.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from barnabas.descriptors import descriptor_limit

if TYPE_CHECKING:
    from barnabas.broker.log.files import OpenFile
    from barnabas.broker.log.segment import Segment

FEWEST = 16
_SHARE = 2
_LOOKS = 64
"""Per file that is opened: more would only hold up others."""
_CLOSED_AT_ONCE = 8


class OpenFiles:
    """Keeps the number of open files near `limit`. Thread-safe."""

    __slots__ = ("_held", "_queue", "limit", "lock")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit or max(FEWEST, descriptor_limit() // _SHARE)
        """May be set while nothing is open; by default half of what the process may have."""
        self.lock = threading.Lock()
        self._queue: dict[Segment, None] = {}
        """The segments that keep a file, longest unused first, about."""
        self._held: deque[None] = deque()
        """As long as there are open files: files are also closed by losing their last reference, where no lock may be taken."""

    def __len__(self) -> int:
        """The files that are open, with those that are only being sent."""
        return len(self._held)

    @property
    def short(self) -> bool:
        """Whether a file that need not be opened now should stay closed."""
        return len(self._held) >= self.limit

    def keep(self, segment: Segment, file: OpenFile) -> OpenFile:
        """The segment has opened its file. The file to use: another thread may have been quicker."""
        file.count_in(self._held)
        with self.lock:
            file = segment.adopt(file)
            if segment.is_open:  # not when it has left the log
                self._queue[segment] = None
            closed = self._close_some(self._most_kept())
        closed.clear()  # outside the lock: a file that was deleted is freed when it is closed, which takes time
        return file

    def _most_kept(self) -> int:
        """Three quarters; less while responses hold many that are not kept any more."""
        return self.limit // 4 if self.short else self.limit - self.limit // 4

    def _close_some(self, most: int) -> list[OpenFile]:
        closed: list[OpenFile] = []
        for _ in range(_LOOKS):
            if len(self._queue) <= most:
                break
            segment = next(iter(self._queue))
            del self._queue[segment]
            file = None if segment.used_since_last_look() else segment.give_up_file()
            if file is None:
                self._queue[segment] = None
            else:
                closed.append(file)
        return closed

    def make_room(self) -> bool:
        """The process has no descriptor left: close some files. False when there is none to close."""
        closed: list[OpenFile] = []
        with self.lock:
            for segment in list(self._queue):
                file = segment.give_up_file()
                if file is not None:
                    del self._queue[segment]
                    closed.append(file)
                    if len(closed) == _CLOSED_AT_ONCE:
                        break
        return bool(closed)

    def release(self, segment: Segment, for_good: bool) -> None:
        """The segment needs no file for now."""
        with self.lock:
            self._queue.pop(segment, None)
            file = segment.take_file(for_good)
        del file  # outside the lock

    def __repr__(self) -> str:
        return f"<OpenFiles {len(self._held)} open, {len(self._queue)} kept, limit {self.limit}>"
