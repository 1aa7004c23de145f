"""A disk on which chosen calls fail, write short or take long, by rules that a test sets.

`FaultyDisk` is for logs in the test's own process; `ControlledDisk` reads its rules from a file, so that a test can break the disk of a
broker in another process while it runs (faulty_broker.py). A rule is in force from the moment at which its file has been replaced.

Thread: any. Lock: none; the list of rules is replaced whole.
"""

from __future__ import annotations

import errno
import json
import os
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

from barnabas.broker.log.files import FileSystem, OpenFile, SyncFailed
from barnabas.records.batch import Buffer

CHANGES = ("create", "open", "pwritev", "truncate", "make_directory", "rename", "remove")
SYNCS = ("sync", "sync_directory")
READS = ("pread", "list", "open_read_only")


@dataclass(frozen=True)
class Rule:
    """What happens to calls on paths that match a pattern: first a delay, then a short write, or an error."""

    calls: tuple[str, ...]
    path: str = "*"
    error: str = ""
    """The name of an errno; for a write with `short`, what comes after the short one is up to the next rule."""
    short: int = 0
    delay: tuple[float, float] = (0.0, 0.0)
    """Seconds, between the two."""
    plain: bool = False
    """A sync fails before it has begun (there is no descriptor for the directory), not in the middle."""

    def matches(self, call: str, path: str) -> bool:
        return call in self.calls and fnmatch(path, self.path)


FULL = Rule(("create", "pwritev", "make_directory"), error="ENOSPC")
BROKEN = Rule((*CHANGES, *SYNCS, *READS), error="EIO")
READ_ONLY = Rule(CHANGES, error="EROFS")


class FaultyDisk(FileSystem):
    """Real files; the first rule that matches a call decides about it."""

    def __init__(self, *rules: Rule) -> None:
        super().__init__()
        self.rules: Sequence[Rule] = rules
        self._paths: dict[int, str] = {}

    def current_rules(self) -> Sequence[Rule]:
        return self.rules

    def _meet(self, call: str, path: str) -> Rule | None:
        """Wait and fail as the rule says; the rule, if it lets the call through after all."""
        for rule in self.current_rules():
            if rule.matches(call, path):
                time.sleep(random.uniform(*rule.delay))
                if rule.error and not rule.short:
                    kind = SyncFailed if call in SYNCS and not rule.plain else OSError
                    number = getattr(errno, rule.error)
                    raise kind(number, os.strerror(number), path)
                return rule
        return None

    def _remember(self, file: OpenFile) -> OpenFile:
        self._paths[file.fileno()] = file.path
        return file

    def open(self, path: str, create: bool = False) -> OpenFile:
        self._meet("create" if create and not os.path.exists(path) else "open", path)
        return self._remember(super().open(path, create))

    def open_read_only(self, path: str) -> OpenFile:
        self._meet("open_read_only", path)
        return self._remember(super().open_read_only(path))

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        rule = self._meet("pwritev", self._paths[fd])
        if rule is not None and rule.short:
            buffers = [b"".join(buffers)[: rule.short]]
        return super().pwritev(fd, buffers, position)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        self._meet("pread", self._paths[fd])
        return super().pread(fd, length, position)

    def truncate(self, fd: int, size: int) -> None:
        self._meet("truncate", self._paths[fd])
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._meet("sync", self._paths[fd])
        super().sync(fd)

    def make_directory(self, path: str) -> None:
        self._meet("make_directory", path)
        super().make_directory(path)

    def sync_directory(self, path: str, opened: OpenFile | None = None) -> None:
        self._meet("sync_directory", path)
        super().sync_directory(path, opened)

    def list_directory(self, path: str) -> list[str]:
        self._meet("list", path)
        return super().list_directory(path)

    def list_sizes(self, path: str, suffix: str) -> tuple[list[str], dict[str, int]]:
        self._meet("list", path)
        return super().list_sizes(path, suffix)

    def rename(self, old: str, new: str) -> None:
        self._meet("rename", new)
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._meet("remove", path)
        super().remove(path)


class ControlledDisk(FaultyDisk):
    """Follows a file of rules, which `write_rules` replaces."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._seen: tuple[int, int] | None = None

    def current_rules(self) -> Sequence[Rule]:
        try:
            found = os.stat(self._file)
        except FileNotFoundError:
            return ()
        if (found.st_ino, found.st_mtime_ns) != self._seen:
            self.rules = [
                Rule(**{**entry, "calls": tuple(entry["calls"]), "delay": tuple(entry["delay"])})
                for entry in json.loads(self._file.read_text())
            ]
            self._seen = (found.st_ino, found.st_mtime_ns)
        return self.rules


def write_rules(file: Path, *rules: Rule) -> None:
    """From now on these are the rules."""
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps([asdict(rule) for rule in rules]))
    temporary.replace(file)
