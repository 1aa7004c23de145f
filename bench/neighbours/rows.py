"""The rows: what the hostile client does, to a broker with which settings and topics, and who the bystander is. No I/O.

The first rows are those of the attack that the limits come from (docs/limits.md), the others each API's worst legal requests in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.protocol.api import APIS
from bench.neighbours import payloads
from bench.neighbours.attacks import (
    Attack,
    Connects,
    Flush,
    HangUp,
    Hold,
    Repeat,
    Scrapes,
    Sessions,
    SlowScrapes,
)
from bench.worst_requests import WorstRequest, worst_requests

__all__ = ["ROWS", "Row", "Topics", "row_named", "selected"]

FULL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics that are there before the attack: `count` of them, named `name` or `name-0` and so on."""

    name: str
    count: int = 1
    partitions: int = 1

    def names(self) -> Sequence[str]:
        return [self.name] if self.count == 1 else [f"{self.name}-{number}" for number in range(self.count)]


@dataclass(frozen=True, slots=True)
class Row:
    """One attack. `probe` is the kind of bystander; `seconds` how long the attack lasts at most."""

    name: str
    work: str
    attack: Attack
    topics: tuple[Topics, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    probe: str = "produce"
    seconds: float = FULL_SECONDS
    asked: tuple[int, int] | None = None
    """API key and version of what is sent, if its answers are to be looked at."""
    worst: bool = False
    """Whether it needs the topics of `bench.worst_requests`."""
    descriptors: bool = False
    """Whether the broker must have given back its descriptors a second after the attack."""
    not_on_kafka: str = ""
    """Why Apache Kafka has no such thing."""


WIDE = (Topics(payloads.WIDE, 1, payloads.WIDE_PARTITIONS),)
VERY_WIDE = (Topics(payloads.VERY_WIDE, 1, payloads.VERY_WIDE_PARTITIONS),)
METRICS_PORT = "has no metrics port"
POOL = {"queued.max.request.bytes": str(100 << 20)}

FOUND = (
    Row(
        "C0",
        "librdkafka: a record to each of 10 000 partitions that were just created, flush",
        Flush(),
        (Topics("flushed", Flush.TOPICS, Flush.PARTITIONS),),
        seconds=25.0,
    ),
    Row("H1-wait", "500 Fetch that wait for ever on the bystander's partition", Hold(payloads.endless_fetch, 500)),
    Row(
        "H1-hang-up",
        "the same, 100 at a time, each reset at once",
        HangUp(payloads.endless_fetch),
        descriptors=True,
    ),
    Row(
        "H2-zstd",
        "116 kB of Produce: 200 zstd batches of 15 MiB of zeros",
        Repeat(payloads.zstd_bombs),
        WIDE,
        asked=(0, 7),
    ),
    Row("H2-dense", "9 MB of Produce: 10⁶ null records", Repeat(payloads.dense_records), WIDE, asked=(0, 7)),
    Row("H2-gzip", "50 corrupt gzip batches of 15 MiB", Repeat(payloads.corrupt_gzip), WIDE, asked=(0, 7)),
    Row("H2-fetch", "Fetch of 10⁶ unknown partitions", Repeat(lambda: [payloads.fetch(1_000_000)]), asked=(1, 12)),
    Row("H2-keys", "FindCoordinator with 10⁶ keys", Repeat(payloads.many_keys), asked=(10, 4)),
    Row("H2-session", "50 bytes of Fetch on a session of 10⁵ unknown partitions", Sessions(100_000, incremental=True)),
    Row(
        "H2-existing",
        "the same on a session of 5000 partitions that exist",
        Sessions(payloads.VERY_WIDE_PARTITIONS, True, payloads.VERY_WIDE),
        VERY_WIDE,
    ),
    Row(
        "H3",
        "DescribeConfigs that names this broker 150 000 times",
        Repeat(payloads.broker_again_and_again),
        asked=(32, 4),
    ),
    Row(
        "H4", "fetch sessions of 240 000 unknown partitions, one after the other", Sessions(240_000, incremental=False)
    ),
    Row(
        "H4-existing",
        "the same of 5000 partitions that exist",
        Sessions(payloads.VERY_WIDE_PARTITIONS, False, payloads.VERY_WIDE),
        VERY_WIDE,
    ),
    Row(
        "M1",
        "three connections announce 90 MiB of a pool of 100 and send 4 bytes",
        Hold(payloads.announced_only, 3),
        settings=POOL,
    ),
    Row("M2", "48 slow connections to the metrics port", SlowScrapes(), probe="health", not_on_kafka=METRICS_PORT),
    Row(
        "M4",
        "Metadata that auto-creates a topic of 10 000 partitions",
        Repeat(payloads.topics_that_are_created),
        settings={"num.partitions": "10000"},
        asked=(3, 5),
    ),
    Row("M5", "1000 connects in a row", Connects(), probe="newcomer"),
    Row(
        "M6",
        "scrapes with 20 000 topics",
        Scrapes(),
        (Topics("scraped", 20_000),),
        not_on_kafka=METRICS_PORT,
    ),
)
REPEATS_OF_A_CHANGE = 20


def _frames(requests: Sequence[WorstRequest]) -> Callable[[], Sequence[bytes]]:
    """All of them in turn; those that can do their harm only once, built several times."""

    def build() -> Sequence[bytes]:
        frames = [request.payload() for request in requests]
        for request in requests:
            if request.changes:
                frames += [request.payload() for _ in range(REPEATS_OF_A_CHANGE)]
        return frames

    return build


def _api_row(key: int, requests: Sequence[WorstRequest]) -> Row:
    """A connection for each of the API's requests, at least two."""
    name = APIS[key].name
    kinds = "; ".join(request.name.rpartition(": ")[2] for request in requests)
    attack = Repeat(_frames(requests), connections=max(2, len(requests)))
    asked = (key, requests[0].version)
    return Row(name, f"worst legal requests: {kinds}", attack, asked=asked, worst=True)


def _api_rows() -> tuple[Row, ...]:
    """They share a broker: those that leave something behind come last."""
    by_api: dict[int, list[WorstRequest]] = {}
    for request in worst_requests():
        by_api.setdefault(int(request.api_key), []).append(request)
    last = {key: any(request.changes for request in requests) for key, requests in by_api.items()}
    return tuple(_api_row(key, by_api[key]) for key in sorted(by_api, key=lambda key: (last[key], key)))


ROWS: tuple[Row, ...] = (*FOUND, *_api_rows())


def row_named(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


def selected(only: Sequence[str]) -> tuple[Row, ...]:
    """The rows that `--only` asks for: a name, or the beginning of names up to a dash (`H2`)."""
    unknown = [name for name in only if not any(_fits(row, name) for row in ROWS)]
    if unknown:
        raise KeyError(f"{', '.join(unknown)}: choose from {', '.join(row.name for row in ROWS)}")
    return tuple(row for row in ROWS if not only or any(_fits(row, name) for name in only))


def _fits(row: Row, name: str) -> bool:
    return name.lower() in (row.name.lower(), row.name.partition("-")[0].lower())
