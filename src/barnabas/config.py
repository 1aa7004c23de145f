"""Configuration: a row per key, parsing of text, and values that may change while the broker runs.

Role: `ConfigKey` is the row; `ConfigDef` a table of rows that parses and validates; `Config` the values of one component, read by
look-up (`config["num.io.threads"]`), with followers for the keys that are dynamic. The rows themselves stand beside the code that
uses them (`broker/settings.py`).
Thread: any. Lock: `Config._changing` makes one change at a time, and is held while its followers apply it; reading takes no lock, it is a
look-up in an immutable dict that is replaced as a whole.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from barnabas.errors import ConfigError, shown

log = logging.getLogger(__name__)

LONGEST_TEXT = 32_767
"""Characters of a value, as in Kafka: messages of old versions cannot carry more."""
_LONGEST_NAME = 100


class ConfigType(IntEnum):
    """The types of Kafka's DescribeConfigs, with its numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_LIMITS = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a value may be: a test and the words for it."""

    words: str
    test: Callable[[Any], bool]


def between(low: float, high: float) -> Allowed:
    return Allowed(f"must be from {low} to {high}", lambda v: low <= v <= high)


def at_least(low: float) -> Allowed:
    return Allowed(f"must be at least {low}", lambda v: v >= low)


def one_of(*values: str) -> Allowed:
    return Allowed("must be one of " + ", ".join(values), lambda v: v in values)


def each_of(*values: str) -> Allowed:
    return Allowed("each must be one of " + ", ".join(values), lambda v: all(item in values for item in v))


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting: everything that is ever said of it is computed from this row."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    allowed: Allowed | None = None
    dynamic: bool = False
    fallback: str = ""
    """Where the value comes from when it is not set: for a topic config, the broker setting of that name."""
    at_run_time: Allowed | None = None
    """What it may be changed to while the broker runs, where that is less: nobody shall lock out the administrator."""
    gradual: bool = False
    """One change at run time may at most double or halve the value, as with Kafka's thread counts."""
    read_on_use: bool = False
    """A dynamic setting without a follower: whoever needs it looks it up each time."""

    def parse(self, text: object) -> Any:
        """The typed value of what a user wrote; raises `ConfigError` with key, value and what is allowed."""
        value = self._convert(text)
        limits = _LIMITS.get(self.type)
        if value is not None and limits and not limits[0] <= value <= limits[1]:
            raise ConfigError(self.name, text, f"must be from {limits[0]} to {limits[1]}")
        if value is not None and self.allowed and not self.allowed.test(value):
            raise ConfigError(self.name, text, self.allowed.words)
        return value

    def parse_at_run_time(self, text: object) -> Any:
        """The same for a change while the broker runs."""
        if not self.dynamic:
            raise ConfigError(self.name, text, "cannot be changed while the broker runs")
        value = self.parse(text)
        if self.at_run_time and not self.at_run_time.test(value):
            raise ConfigError(self.name, text, f"{self.at_run_time.words} when it is changed while the broker runs")
        return value

    def check_step(self, before: Any, after: Any) -> None:
        """Raises `ConfigError` when the change goes too far at once."""
        if self.gradual and not before // 2 <= after <= 2 * before:
            words = f"must be from {max(1, before // 2)} to {2 * before}: at most half or double of what it is now"
            raise ConfigError(self.name, after, words)

    def _convert(self, text: object) -> Any:
        if not isinstance(text, str):
            text = to_text(text)
        if text is None:
            return None
        if len(text) > LONGEST_TEXT or "\0" in text:
            raise ConfigError(self.name, text, f"must have at most {LONGEST_TEXT} characters, and none of them NUL")
        text = text.strip()
        if self.type in _LIMITS:
            return self._number(text, int, "a whole number")
        if self.type is ConfigType.DOUBLE:
            return self._number(text, float, "a number")
        if self.type is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ConfigError(self.name, text, "must be true or false")
            return text.lower() == "true"
        if self.type is ConfigType.LIST:
            return tuple(item.strip() for item in text.split(",") if item.strip())
        return text

    def _number(self, text: str, kind: Callable[[str], Any], words: str) -> Any:
        try:
            if not text.isascii() or "_" in text:  # Python would take them
                raise ValueError(text)
            value = kind(text)
            if not math.isfinite(value):
                raise ValueError(text)
            return value
        except (ValueError, OverflowError):
            raise ConfigError(self.name, text, f"must be {words}") from None


def to_text(value: object) -> str | None:
    """A value as a properties file has it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


RowOf = Callable[[str], ConfigKey | None]
Check = Callable[[Mapping[str, Any]], None]


class ConfigDef:
    """A table of rows. `derived` makes the row of a name that is in no table, such as `listener.name.<name>.<key>`; `check` raises
    `ConfigError` for values that cannot work together."""

    def __init__(
        self, what: str, rows: Iterable[ConfigKey], derived: RowOf = lambda _: None, check: Check = lambda _: None
    ) -> None:
        self.what = what
        self.rows = {row.name: row for row in rows}
        self.check = check
        self._derived = derived

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self.rows.values())

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def __getitem__(self, name: str) -> ConfigKey:
        return self.rows[name]

    def row_of(self, name: str) -> ConfigKey | None:
        """The row of a name, also of one that is derived from another."""
        return self.rows.get(name) or self._derived(name)

    def parse(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Every row's value: the given one or the default. Unknown keys are warned about, never an error."""
        values = {row.name: row.default for row in self}
        for name, text in given.items():
            row = self.row_of(name)
            if row is not None:
                values[name] = row.parse(text)
            else:
                log.warning("%s setting %s is not known%s", self.what, shown(name), self._nearest(name))
        self.check(values)
        return values

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name[:_LONGEST_NAME], self.rows, n=1, cutoff=0.8)
        return f"; did you mean {near[0]}?" if near else ""


Follower = Callable[["Config"], None]


class Config:
    """The values of one component: those it was started with and, above them, those changed at run time."""

    def __init__(self, definition: ConfigDef, given: Mapping[str, object]) -> None:
        self.definition = definition
        self.given: dict[str, str | None] = {name: to_text(value) for name, value in given.items()}
        self._static = definition.parse(given)
        self._values = self._static
        self._dynamic: Mapping[str, str] = {}
        self.left_out: frozenset[str] = frozenset()
        """Keys whose values from run time were not applied at the start."""
        self._changing = threading.RLock()
        self._followers: list[tuple[frozenset[str], Follower]] = []

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def is_set(self, name: str) -> bool:
        """Whether somebody chose the value, at the start or at run time."""
        return name in self.given or name in self._dynamic

    @property
    def dynamic(self) -> Mapping[str, str]:
        """What was changed at run time, as text."""
        return self._dynamic

    @property
    def followed(self) -> frozenset[str]:
        """The keys whose changes somebody applies."""
        return frozenset().union(*(names for names, _ in self._followers))

    def names(self) -> Iterable[str]:
        return self._values.keys()

    def follow(self, names: Iterable[str], apply: Follower) -> None:
        """Call `apply(config)` now, so that values count that were changed before, and after each change of one of these keys.

        When values from run time cannot be applied now, they are left out, with a warning: they must not prevent a start. At a later
        change an exception refuses the change.
        """
        followed = frozenset(names)
        with self._changing:
            try:
                apply(self)
            except Exception as error:
                self._leave_out(followed, error)
                apply(self)
            self._followers.append((followed, apply))

    def load_dynamic(self, stored: Mapping[str, str]) -> None:
        """As `set_dynamic`, at the start: a value that cannot be used or applied is left out, with a warning that names it."""
        with self._changing:
            try:
                self.set_dynamic(stored)
                return
            except Exception:
                log.debug("stored settings of the %s cannot be applied together", self.definition.what, exc_info=True)
            for name, text in stored.items():
                try:
                    self.set_dynamic({**self._dynamic, name: text})
                except Exception as error:
                    self._note_left_out({name: text}, error)

    def _leave_out(self, names: frozenset[str], error: Exception) -> None:
        """Go on without the run-time values of these keys; raises the error when there are none."""
        changed = {name: text for name, text in self._dynamic.items() if name in names}
        if not changed:
            raise error
        self._note_left_out(changed, error)
        self.set_dynamic({name: value for name, value in self._dynamic.items() if name not in changed})

    def _note_left_out(self, changed: Mapping[str, str], error: Exception) -> None:
        text = ", ".join(f"{name}={shown(value)}" for name, value in changed.items())
        log.warning("a stored %s setting cannot be applied and is left out: %s: %s", self.definition.what, text, error)
        self.left_out |= changed.keys()

    def check_dynamic(self, changed: Mapping[str, str]) -> dict[str, Any]:
        """All values as they would be with these run-time values; raises `ConfigError` when one cannot be used."""
        values = dict(self._static)
        for name, text in changed.items():
            row = self.definition.row_of(name)
            if row is None:
                raise ConfigError(name, text, f"is not a setting of the {self.definition.what}")
            values[name] = row.parse_at_run_time(text)
        self.definition.check(values)
        return values

    def check_steps(self, changed: Mapping[str, str]) -> None:
        """As `check_dynamic`, and raises `ConfigError` also when a value would change too much at once."""
        after = self.check_dynamic(changed)
        for row in self.definition:
            row.check_step(self._values[row.name], after[row.name])

    def set_dynamic(self, changed: Mapping[str, str]) -> None:
        """Replace all run-time values, and let the followers of the keys that really changed apply them. When one of them cannot,
        the values are again what they were, and its exception is raised."""
        with self._changing:
            self._switch(self.check_dynamic(changed), dict(changed))
            self.left_out -= changed.keys()

    @contextlib.contextmanager
    def changed(self, changed: Mapping[str, str]) -> Iterator[None]:
        """As `set_dynamic`, and undone when the block raises."""
        with self._changing:
            before = self._values, self._dynamic
            self.set_dynamic(changed)
            try:
                yield
            except BaseException:
                self._switch(*before)
                raise

    def _switch(self, values: dict[str, Any], dynamic: Mapping[str, str]) -> None:
        before = self._values, self._dynamic
        different = {key for key in values.keys() | before[0].keys() if values.get(key) != before[0].get(key)}
        self._values, self._dynamic = values, dynamic
        asked: list[Follower] = []
        try:
            for names, apply in self._followers:
                if names & different:
                    asked.append(apply)
                    apply(self)
        except Exception:
            self._values, self._dynamic = before
            self._restore(asked)
            raise

    def _restore(self, followers: list[Follower]) -> None:
        for apply in reversed(followers):
            try:
                apply(self)
            except Exception:
                log.exception("the earlier value of a setting could not be applied again")

    def __repr__(self) -> str:
        return f"<Config {self.definition.what} given={len(self.given)} dynamic={len(self._dynamic)}>"


def load_properties(text: str) -> dict[str, str]:
    """Read the `server.properties` form: key=value or key: value, comments, continued lines."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        cut = min((i for i in (line.find("="), line.find(":")) if i >= 0), default=-1)
        key, value = (line, "") if cut < 0 else (line[:cut], line[cut + 1 :])
        found[key.strip()] = value.strip()
    return found


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        yield line
    if pending:
        yield pending


def from_environment(environ: Mapping[str, str], prefix: str = "KAFKA_") -> dict[str, str]:
    """`KAFKA_NUM_IO_THREADS` → `num.io.threads`: `_` is a dot, `__` a dash, `___` an underscore."""
    found = {}
    for name, value in environ.items():
        if name.startswith(prefix) and len(name) > len(prefix):
            key = (
                name[len(prefix) :].lower().replace("___", "\0").replace("__", "-").replace("_", ".").replace("\0", "_")
            )
            found[key] = value
    return found
