"""The options of source and sink: each is declared once, as a row, with Spark's names and meanings.

Role: reads what Spark hands over (texts, names in any case) into typed values. An option that nobody knows, a value that cannot be or a
combination that cannot work is a `ConfigError` that names it. The reference page is computed from the rows.
Thread: any; rows are read-only. Lock: none.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from barnabas.client.addresses import parse_bootstrap
from barnabas.errors import ConfigError
from barnabas.spark.offsets import parse_partitions
from barnabas.spark.starting import AtEnd, AtTime, duration_ms, parse_ending, parse_starting, parse_times

__all__ = ["CLIENT_PREFIX", "ROWS", "STRATEGIES", "Option", "Options", "Use", "parse_options"]

CLIENT_PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"
_NOT_OURS = frozenset({"path", "checkpointlocation", "queryname", "serialization.format"})
"""What Spark itself adds to the options of a source or sink."""


class Use(Enum):
    """What the options are for."""

    BATCH_READ = "batch read"
    STREAM_READ = "streaming read"
    BATCH_WRITE = "batch write"
    STREAM_WRITE = "streaming write"


_READ = frozenset({Use.BATCH_READ, Use.STREAM_READ})
_BATCH = frozenset({Use.BATCH_READ})
_STREAM = frozenset({Use.STREAM_READ})
_WRITE = frozenset({Use.BATCH_WRITE, Use.STREAM_WRITE})
_ALL = _READ | _WRITE


@dataclass(frozen=True, slots=True)
class Option:
    """One option: everything that is ever said of it is computed from this row."""

    name: str
    kind: str
    """What a value is, for the reference."""
    parse: Callable[[str], Any]
    """The value of a text; ValueError says what is allowed."""
    default: str | None
    """As a user would write it; None: no value."""
    uses: frozenset[Use]
    text: str
    ours: bool = False
    """Whether Spark's own connector does not have it."""
    ignored_in: frozenset[Use] = frozenset()
    """Where it does nothing, with a warning, as in Spark's own connector; elsewhere it is refused."""

    @property
    def default_value(self) -> Any:
        return None if self.default is None else self.parse(self.default)


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def _servers(value: str) -> str:
    try:
        parse_bootstrap(_text(value), BOOTSTRAP)
    except ConfigError as error:
        raise ValueError(error.allowed if error.value == value else f"{error.value}: {error.allowed}") from None
    return value.strip()


def _boolean(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.strip().lower() == "true"


def _whole(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        text = value.strip()
        if not (text.isascii() and text.isdigit()) or int(text) < least or int(text) >= 1 << 63:
            raise ValueError(f"must be a whole number, at least {least}")
        return int(text)

    return parse


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not topics:
        raise ValueError("must name a topic, several with commas")
    return topics


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(_text(value))
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from None


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip().lower() not in words:
            raise ValueError(f"must be {' or '.join(words)}")
        return value.strip().lower()

    return parse


def _time(value: str) -> AtTime:
    return AtTime(_whole(0)(value))


_JSON_OFFSETS = "JSON of offsets"
_JSON_TIMES = "JSON of times"
_MS = "milliseconds since 1970"

ROWS: tuple[Option, ...] = (
    Option(
        BOOTSTRAP, "text", _servers, None, _ALL, "Brokers to begin with: host:port, several with commas. Must be given."
    ),
    Option("subscribe", "names", _topics, None, _READ, "The topics to read, several with commas."),
    Option(
        "subscribePattern",
        "regular expression",
        _pattern,
        None,
        _READ,
        "The topics to read are those whose whole name matches; in a stream, topics that appear later join.",
    ),
    Option(
        "assign",
        "JSON of partitions",
        parse_partitions,
        None,
        _READ,
        'The partitions to read: `{"orders":[0,1]}`. Exactly one of subscribe, subscribePattern and assign must be given.',
    ),
    Option(
        "startingOffsets",
        "`earliest`, `latest`, JSON of offsets, or back from the end",
        parse_starting,
        None,
        _READ,
        "Where to begin: default `earliest` in batch, `latest` in a stream (which later goes on from its checkpoint). "
        '`{"orders":{"0":23,"1":-2}}`: -2 is the earliest, -1 the latest. Ours besides: `-10m`, so long ago; `-100`, so many '
        "offsets before the end of each partition.",
    ),
    Option(
        "startingTimestamp",
        _MS,
        _time,
        None,
        _READ,
        "Begin at the first record at or after; goes before the other two.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        _JSON_TIMES,
        parse_times,
        None,
        _READ,
        "The same for each partition; goes before startingOffsets.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error` or `latest`",
        _one_of("error", "latest"),
        "error",
        _READ,
        "Where a partition has no record that young: an error, or begin at its end.",
    ),
    Option(
        "endingOffsets",
        "`latest` or JSON of offsets",
        parse_ending,
        "latest",
        _BATCH,
        "Where to end, exclusive. -1 is the latest.",
    ),
    Option(
        "endingTimestamp",
        _MS,
        _time,
        None,
        _BATCH,
        "End at the first record at or after, or at the latest without one.",
    ),
    Option("endingOffsetsByTimestamp", _JSON_TIMES, parse_times, None, _BATCH, "The same for each partition."),
    Option(
        "maxOffsetsPerTrigger",
        "number",
        _whole(1),
        None,
        _STREAM,
        "How many offsets a micro-batch may hold, shared among the partitions in proportion to what waits.",
        ignored_in=_BATCH,
    ),
    Option(
        "minOffsetsPerTrigger",
        "number",
        _whole(1),
        None,
        _STREAM,
        "A micro-batch waits until there are so many, at most maxTriggerDelay.",
        ignored_in=_BATCH,
    ),
    Option(
        "maxTriggerDelay",
        "time span",
        duration_ms,
        "15m",
        _STREAM,
        "How long minOffsetsPerTrigger may hold a micro-batch back.",
        ignored_in=_BATCH,
    ),
    Option(
        "maxBytesPerTrigger",
        "number",
        _whole(1),
        None,
        _STREAM,
        "About how many bytes, as the broker stores them, a micro-batch may hold.",
        ours=True,
        ignored_in=_BATCH,
    ),
    Option(
        "minPartitions",
        "number",
        _whole(1),
        None,
        _READ,
        "At least about so many tasks: large partitions are split. Default: a task per partition.",
    ),
    Option(
        "maxRecordsPerPartition", "number", _whole(1), None, _READ, "No task reads more offsets: partitions are split."
    ),
    Option(
        "failOnDataLoss",
        "boolean",
        _boolean,
        "true",
        _READ,
        "Whether records that are gone before they were read fail the query; false: go on at the earliest, with a warning.",
    ),
    Option("includeHeaders", "boolean", _boolean, "false", _READ, "Whether there is a column headers."),
    Option(
        "groupIdPrefix",
        "text",
        _text,
        None,
        _READ,
        "Begins the client.id of this query's clients; groups are not joined.",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "number",
        _whole(1),
        "120000",
        _READ,
        "A task fails when no record comes for so long.",
    ),
    Option(
        "fetchOffset.numRetries",
        "number",
        _whole(1),
        "3",
        _READ,
        "How often offsets are asked for before the query fails.",
    ),
    Option("fetchOffset.retryIntervalMs", "number", _whole(0), "1000", _READ, "The wait between these."),
    Option(
        "topic",
        "name",
        _text,
        None,
        _WRITE,
        "The topic of all rows; goes before the column topic, which then does nothing.",
    ),
    Option(
        "deliveryGuarantee",
        "`at-least-once`",
        _one_of("at-least-once", "exactly-once"),
        "at-least-once",
        _WRITE,
        "What is promised when tasks or queries fail and run again. `exactly-once` is refused until there are transactions.",
        ours=True,
    ),
)

_BY_NAME = {row.name.lower(): row for row in ROWS}
_FORBIDDEN = {
    "auto.offset.reset": "use startingOffsets: the query itself knows where to go on",
    "enable.auto.commit": "offsets are in the query's checkpoint",
    "key.deserializer": "keys are binary; cast or decode the column",
    "value.deserializer": "values are binary; cast or decode the column",
    "key.serializer": "keys are written as they are; cast or encode the column",
    "value.serializer": "values are written as they are; cast or encode the column",
    "interceptor.classes": "interceptors could change what is read or written",
}
_LATER = {
    "commitoffsetstogroup": "comes with consumer groups, which are not here yet; the query's checkpoint has its offsets",
    "transactionalidprefix": "comes with transactions, which are not here yet",
}
STRATEGIES = ("subscribe", "subscribePattern", "assign")


class Options(Mapping[str, Any]):
    """The values of the options for one use, by their names as the rows spell them; `client` has what is for the client (kafka.*)."""

    def __init__(self, use: Use, values: dict[str, Any], given: frozenset[str], client: dict[str, str]) -> None:
        self.use = use
        self.client = client
        self._values = values
        self._given = given

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def is_given(self, name: str) -> bool:
        """Whether the user wrote it, and not the default."""
        return name in self._given

    @property
    def ignored(self) -> list[str]:
        """What was given and does nothing here."""
        return sorted(name for name in self._given if self.use in _BY_NAME[name.lower()].ignored_in)


def parse_options(given: Mapping[str, str], use: Use) -> Options:
    """The values for one use; ConfigError for what is unknown, refused or wrong."""
    values: dict[str, Any] = {row.name: row.default_value for row in ROWS if use in row.uses | row.ignored_in}
    client: dict[str, str] = {}
    seen: set[str] = set()
    for name, text in given.items():
        key = name.lower()
        row = _BY_NAME.get(key)
        if row is not None:
            values[row.name] = _value(row, text, use)
            seen.add(row.name)
        if key.startswith(CLIENT_PREFIX):
            client[_client_setting(key, text)] = text
        elif row is None and key not in _NOT_OURS:
            reason = _LATER.get(key) or f"there is no such option of a {use.value}{_nearest(key, use)}"
            raise ConfigError(name, text, reason)
    if BOOTSTRAP not in seen:
        raise ConfigError(BOOTSTRAP, None, "must be given")
    found = Options(use, values, frozenset(seen), client)
    if use in _READ:
        _check_read(found)
    return found


def _value(row: Option, text: str, use: Use) -> Any:
    if use not in row.uses | row.ignored_in:
        allowed = " or ".join(sorted(found.value for found in row.uses))
        raise ConfigError(row.name, text, f"is an option of a {allowed}, not of a {use.value}")
    try:
        return row.parse(text)
    except ValueError as error:
        raise ConfigError(row.name, text, str(error)) from None


def _client_setting(key: str, text: str) -> str:
    name = key.removeprefix(CLIENT_PREFIX)
    if name in _FORBIDDEN:
        raise ConfigError(key, text, f"is not allowed: {_FORBIDDEN[name]}")
    return name


def _nearest(key: str, use: Use) -> str:
    names = {row.name.lower(): row.name for row in ROWS if use in row.uses}
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.7)
    return f"; did you mean {names[near[0]]}?" if near else ""


def _check_read(options: Options) -> None:
    """What cannot work together."""
    strategies = [name for name in STRATEGIES if options.is_given(name)]
    if len(strategies) != 1:
        raise ConfigError(
            " / ".join(strategies or STRATEGIES), None, f"exactly one must be given of {', '.join(STRATEGIES)}"
        )
    least, most = options["minOffsetsPerTrigger"], options["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise ConfigError("minOffsetsPerTrigger", least, f"must not be above maxOffsetsPerTrigger = {most}")
    if options.use is Use.BATCH_READ:
        _check_batch(options)


def _check_batch(options: Options) -> None:
    start = options["startingOffsets"]
    late = _latest_of(start)
    if late:
        raise ConfigError("startingOffsets", late, "a batch read cannot begin at the latest")


def _latest_of(start: Any) -> str:
    if start == AtEnd(-1):
        return "latest"
    offsets: Iterable[tuple[tuple[str, int], int]] = getattr(start, "offsets", {}).items()
    return ", ".join(f"{topic}-{number}" for (topic, number), offset in offsets if offset == -1)
