"""A disk that remembers what a power cut would leave.

`PowerCutDisk` does every call on real files and keeps, beside them, what is certainly on the disk: the bytes of a file by the sync
of that file, names (created, renamed, removed) by the sync of their directory, nothing else. `cut(target)` writes the disk as it might
be found after a power cut at this moment: of what was not synced a random part survives. File data survives sector by sector in any
order, or as a size without its data (zeros, or whatever was on the disk before); names survive in the order in which they were changed,
each directory for itself, as the journals of ext4, xfs and btrfs have it.

Thread: any; a sync covers what was there when it began, from when it ends. Lock: `_lock` guards the books, never held over a real sync.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from barnabas.broker.log.files import FileSystem, OpenFile
from barnabas.records.batch import Buffer

SECTOR = 512


class FileData:
    """A file's bytes: what is on the disk, and the changes since, each a write (position, bytes) or a new size."""

    def __init__(self, synced: bytes = b"") -> None:
        self.synced = bytearray(synced)
        self.changes: list[tuple[int, bytes] | int] = []

    def settle(self, count: int) -> None:
        """The first changes are on the disk now."""
        for change in self.changes[:count]:
            _apply(self.synced, change)
        del self.changes[:count]

    def after_cut(self, rng: random.Random, luck: float) -> bytes:
        """What is found: all that was synced, and by luck sectors and sizes of what was not."""
        content = bytearray(self.synced)
        sizes = [len(content)]
        for change in self.changes:
            sizes.append(change if isinstance(change, int) else max(sizes[-1], change[0] + len(change[1])))
            for piece in [change] if isinstance(change, int) else _sectors(*change):
                if rng.random() < luck:
                    _apply(content, piece)
        size = rng.choice(sizes) if rng.random() < 0.5 else sizes[-1 if rng.random() < luck else 0]
        missing = size - len(content)
        if missing > 0:
            content += rng.randbytes(missing) if rng.random() < 0.2 else bytes(missing)
        return bytes(content[:size])


class Names:
    """A directory: the names on the disk, as they are now, and the changes in between; each change is atomic."""

    def __init__(self) -> None:
        self.synced: dict[str, Node] = {}
        self.now: dict[str, Node] = {}
        self.changes: list[dict[str, Node | None]] = []

    def change(self, names: dict[str, Node | None]) -> None:
        self.changes.append(names)
        _rename(self.now, names)

    def settle(self, count: int) -> None:
        for change in self.changes[:count]:
            _rename(self.synced, change)
        del self.changes[:count]

    def after_cut(self, rng: random.Random, luck: float) -> dict[str, Node]:
        """The first few changes, as the journal of a file system leaves them."""
        found = dict(self.synced)
        for change in self.changes:
            if rng.random() > luck:
                break
            _rename(found, change)
        return found


Node: TypeAlias = FileData | Names


class PowerCutDisk(FileSystem):
    """Real files below `root`, and what a power cut would leave of them. What is there at the beginning counts as synced."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__()
        self._root = root
        self._lock = threading.RLock()
        self._rng = random.Random(seed)
        self._by_fd: dict[int, FileData] = {}
        self._top = _read_tree(root)
        self.on_step: Callable[[], None] = lambda: None
        """Called before and after every change and every sync: the moments at which the power may go."""

    # The power goes.

    def cut(self, target: Path) -> None:
        """Write what is found afterwards to a new directory."""
        with self._lock:
            luck = self._rng.choice([0.0, 0.5, 1.0, self._rng.random()])
            self._write_tree(self._top, target, luck)

    def _write_tree(self, names: Names, target: Path, luck: float) -> None:
        target.mkdir()
        for name, node in names.after_cut(self._rng, luck).items():
            if isinstance(node, Names):
                self._write_tree(node, target / name, luck)
            else:
                (target / name).write_bytes(node.after_cut(self._rng, luck))

    # Where things are.

    def _parent(self, path: str) -> tuple[Names, str]:
        *above, name = Path(path).relative_to(self._root).parts
        node: Node = self._top
        for part in above:
            assert isinstance(node, Names)
            node = node.now[part]
        assert isinstance(node, Names)
        return node, name

    def _directory(self, path: str) -> Names:
        if Path(path) == self._root:
            return self._top
        parent, name = self._parent(path)
        node = parent.now[name]
        assert isinstance(node, Names)
        return node

    # Data.

    def open(self, path: str, create: bool = False) -> OpenFile:
        self.on_step()
        with self._lock:
            file = super().open(path, create)
            parent, name = self._parent(path)
            if name not in parent.now:
                parent.change({name: FileData()})
            node = parent.now[name]
            assert isinstance(node, FileData)
            self._by_fd[file.fileno()] = node
        return file

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self.on_step()
        with self._lock:
            written = super().pwritev(fd, buffers, position)
            self._by_fd[fd].changes.append((position, b"".join(buffers)[:written]))
        self.on_step()
        return written

    def truncate(self, fd: int, size: int) -> None:
        self.on_step()
        with self._lock:
            super().truncate(fd, size)
            self._by_fd[fd].changes.append(size)

    def sync(self, fd: int) -> None:
        node = self._by_fd[fd]
        self._settle(node)

    def _settle(self, node: Node) -> None:
        count = len(node.changes)
        self.on_step()
        with self._lock:
            node.settle(count)
        self.on_step()

    # Names.

    def make_directory(self, path: str) -> None:
        self.on_step()
        if path == str(self._root):
            return
        with self._lock:
            super().make_directory(path)
            parent, name = self._parent(path)
            if name not in parent.now:
                parent.change({name: Names()})

    def sync_directory(self, path: str, opened: OpenFile | None = None) -> None:
        self._settle(self._directory(path))

    def rename(self, old: str, new: str) -> None:
        self.on_step()
        with self._lock:
            super().rename(old, new)
            (source, old_name), (target, new_name) = self._parent(old), self._parent(new)
            assert source is target, "the log renames within a directory only"
            source.change({old_name: None, new_name: source.now[old_name]})
        self.on_step()

    def remove(self, path: str) -> None:
        self.on_step()
        with self._lock:
            super().remove(path)
            parent, name = self._parent(path)
            if name in parent.now:
                parent.change({name: None})

    def remove_directory(self, path: str) -> None:
        self.on_step()
        with self._lock:
            super().remove_directory(path)
            parent, name = self._parent(path)
            parent.change({name: None})


def _apply(content: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        del content[change:]
        content += bytes(change - len(content))
        return
    position, data = change
    content += bytes(max(0, position - len(content)))
    content[position : position + len(data)] = data


def _sectors(position: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """A write as the disk sees it: each sector is written whole or not at all."""
    while data:
        room = SECTOR - position % SECTOR
        yield position, data[:room]
        position, data = position + room, data[room:]


def _rename(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _read_tree(path: Path) -> Names:
    names = Names()
    for entry in os.scandir(path):
        names.synced[entry.name] = (
            _read_tree(Path(entry.path)) if entry.is_dir() else FileData(Path(entry.path).read_bytes())
        )
    names.now = dict(names.synced)
    return names
