"""The table of `make bench-clients`: which work of ours stands beside which of a peer, and the bound. No I/O, no clock.

A work (`bench.client_works`) that stands in several rows of a group is measured once per round.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.rows import Bound, Row


@dataclass(frozen=True, slots=True)
class Group:
    """What is measured on one broker per round. `pure`: our side runs as plain Python; `reads`: of a topic that is filled before."""

    name: str
    count: int
    pure: bool = False
    reads: bool = False


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A row and the works whose figures it has; without a peer the bound is ours alone."""

    row: Row
    ours: str
    peer: str = ""


GROUPS = (
    Group("send", 2_000_000),
    Group("read", 3_000_000, reads=True),
    Group("pure-send", 100_000, pure=True),
    Group("pure-read", 200_000, pure=True, reads=True),
    Group("latency", 50_000),
    Group("memory", 500_000),
)


def _ratio(name: str, group: str, work: str, limit: float, sides: tuple[str, str]) -> ClientRow:
    return ClientRow(Row(name, group, work, "records/s", Bound.RATIO_AT_LEAST, limit), *sides)


ROWS = (
    _ratio(
        "callbacks",
        "send",
        "send(), a callback each, to confluent-kafka with on_delivery",
        1.0,
        ("ours-callbacks", "confluent-callbacks"),
    ),
    _ratio("plain", "send", "send(), no results, to confluent-kafka without callbacks", 1.0, ("ours", "confluent")),
    _ratio("arrow", "send", "send_arrow, to the same", 3.0, ("ours-arrow", "confluent")),
    _ratio(
        "defaults",
        "send",
        "send(), no results, each with its own defaults",
        1.0,
        ("ours-defaults", "confluent-defaults"),
    ),
    _ratio(
        "poll",
        "read",
        "poll, record by record, to confluent-kafka consume(10000)",
        1.5,
        ("ours-poll", "confluent-read"),
    ),
    _ratio("poll-arrow", "read", "poll_arrow, to the same", 8.0, ("ours-poll-arrow", "confluent-read")),
    ClientRow(
        Row("poll-tuned", "read", "poll, to the same with a longer queue", "records/s", Bound.NONE, 0),
        "ours-poll",
        "confluent-long-queue",
    ),
    ClientRow(
        Row("poll-arrow-tuned", "read", "poll_arrow, to that one", "records/s", Bound.NONE, 0),
        "ours-poll-arrow",
        "confluent-long-queue",
    ),
    _ratio(
        "pure-callbacks",
        "pure-send",
        "plain Python: send(), a callback each, to kafka-python",
        1.0,
        ("ours-callbacks", "kafka-python-callbacks"),
    ),
    _ratio("pure-plain", "pure-send", "plain Python: send(), no results", 1.0, ("ours", "kafka-python")),
    _ratio("pure-arrow", "pure-send", "plain Python: send_arrow", 1.0, ("ours-arrow", "kafka-python")),
    _ratio("pure-poll", "pure-read", "plain Python: poll, to kafka-python's", 1.0, ("ours-poll", "kafka-python-read")),
    _ratio("pure-poll-arrow", "pure-read", "plain Python: poll_arrow", 1.0, ("ours-poll-arrow", "kafka-python-read")),
    ClientRow(
        Row(
            "latency",
            "latency",
            "p99 at 10 000 records/s, linger 0, to confluent-kafka",
            "ms",
            Bound.RATIO_AT_MOST,
            1.0,
        ),
        "ours-latency",
        "confluent-latency",
    ),
    ClientRow(
        Row("memory", "memory", "memory beyond buffer.memory under back-pressure", "MB", Bound.OURS_AT_MOST, 50),
        "ours-memory",
    ),
)


def chosen(only: tuple[str, ...]) -> tuple[ClientRow, ...]:
    """The rows for `--only` names, each the name of a group or of a row; without names all of them. KeyError for another name."""
    names = {row.row.name for row in ROWS} | {group.name for group in GROUPS}
    unknown = [name for name in only if name not in names]
    if unknown:
        raise KeyError(f"{', '.join(unknown)}: choose from {', '.join(sorted(names))}")
    return tuple(row for row in ROWS if not only or row.row.name in only or row.row.group in only)


def works_of(group: Group, rows: tuple[ClientRow, ...]) -> list[str]:
    """The works that these rows need of a group, each once."""
    needed = [name for row in rows if row.row.group == group.name for name in (row.ours, row.peer) if name]
    return list(dict.fromkeys(needed))
