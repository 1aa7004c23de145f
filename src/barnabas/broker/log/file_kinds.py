"""Something else where a regular file should be: a directory, a FIFO, a link that leads nowhere.

Role: finds such things without opening them and names them, so that one misplaced name is an error with a path in it and not a broken disk.
Thread: any; functions of the file system alone. Lock: none.
"""

from __future__ import annotations

import errno
import os
import re
import stat

_LOG_FILE = re.compile(
    r"(\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.(cleaned|swap|deleted))?|leader-epoch-checkpoint|partition\.metadata)(\.tmp)?\Z"
)
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a plain file",
}
_FILE = "a file"
DANGLING = "a link to nothing"
LOOP = "a loop of links"


class NotAFile(OSError):
    """What has the name of a file is none. The disk is in order: somebody has to move the thing away."""

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


def not_a_file(path: str, kind: str, wanted: str = _FILE) -> NotAFile:
    return NotAFile(errno.EINVAL, f"is {kind}, not {wanted}", path)


def kind_of(path: str) -> str:
    """What is there, as a text, following links; empty when there is nothing. OSError when the disk does not say."""
    try:
        return kind_of_mode(os.stat(path).st_mode)
    except FileNotFoundError:
        return DANGLING if os.path.islink(path) else ""
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return LOOP


def kind_of_mode(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def wrong_kind(path: str) -> str:
    """What is there instead of a regular file; empty when it is one, or when nothing is there."""
    kind = kind_of(path)
    return "" if kind == _KINDS[stat.S_IFREG] else kind


def require_file(path: str) -> None:
    """NotAFile when something is there that is no regular file."""
    kind = wrong_kind(path)
    if kind:
        raise not_a_file(path, kind)


def is_misplaced(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a partition's directory has the name of a file of the log and is none. Costs nothing for regular files."""
    return not entry.is_file(follow_symlinks=False) and _LOG_FILE.match(entry.name) is not None and not is_file(entry)


def is_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a regular file, or a link that leads to one."""
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False
