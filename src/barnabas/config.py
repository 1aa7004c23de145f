"""Configuration: a row per key, parsing of text, and values that may change while the broker runs.

Role: `ConfigKey` is the row; `ConfigDef` a table of rows that parses and validates; `Config` the values of one component, read by
attribute-free look-up (`config["num.io.threads"]`), with listeners for the keys that are dynamic. The rows themselves stand beside
the code that uses them (`broker/settings.py`).
Thread: any. Lock: `Config` guards its listeners and updates; reading is a look-up in an immutable dict that is swapped whole.
"""

from __future__ import annotations

import difflib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from barnabas.errors import ConfigError

log = logging.getLogger(__name__)


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

    def parse(self, text: object) -> Any:
        """The typed value of what a user wrote; raises `ConfigError` with key, value and what is allowed."""
        value = self._convert(text)
        limits = _LIMITS.get(self.type)
        if value is not None and limits and not limits[0] <= value <= limits[1]:
            raise ConfigError(self.name, text, f"must be from {limits[0]} to {limits[1]}")
        if value is not None and self.allowed and not self.allowed.test(value):
            raise ConfigError(self.name, text, self.allowed.words)
        return value

    def _convert(self, text: object) -> Any:
        if not isinstance(text, str):
            text = to_text(text)
        if text is None:
            return None
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
            return kind(text)
        except ValueError:
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


class ConfigDef:
    """A table of rows."""

    def __init__(self, what: str, rows: Iterable[ConfigKey]) -> None:
        self.what = what
        self.rows = {row.name: row for row in rows}

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self.rows.values())

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def __getitem__(self, name: str) -> ConfigKey:
        return self.rows[name]

    def parse(self, given: Mapping[str, object], accept: Callable[[str], bool] = lambda _: False) -> dict[str, Any]:
        """Every row's value: the given one or the default. Unknown keys are warned about, never an error."""
        values = {row.name: row.default for row in self}
        for name, text in given.items():
            row = self.rows.get(name)
            if row is not None:
                values[name] = row.parse(text)
            elif accept(name):
                values[name] = to_text(text)
            else:
                log.warning("%s setting %s is not known%s", self.what, name, self._nearest(name))
        return values

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.rows, n=1, cutoff=0.8)
        return f"; did you mean {near[0]}?" if near else ""


Listener = Callable[["Config"], None]


class Config:
    """The values of one component: those it was started with and, above them, those changed at run time."""

    def __init__(
        self, definition: ConfigDef, given: Mapping[str, object], accept: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.definition = definition
        self.given: dict[str, str | None] = {name: to_text(value) for name, value in given.items()}
        self._accept = accept
        self._static = definition.parse(given, accept)
        self._values = self._static
        self._dynamic: dict[str, str] = {}
        self._lock = threading.Lock()
        self._listeners: list[tuple[frozenset[str], Listener]] = []

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

    def names(self) -> Iterable[str]:
        return self._values.keys()

    def on_change(self, names: Iterable[str], listener: Listener) -> None:
        """Call `listener(config)` after any of these keys changed at run time."""
        with self._lock:
            self._listeners.append((frozenset(names), listener))

    def check_dynamic(self, changed: Mapping[str, str]) -> dict[str, Any]:
        """Parse a full set of run-time values; raises `ConfigError` and changes nothing when one cannot be used."""
        parsed = {}
        for name, text in changed.items():
            row = self.definition.rows.get(name)
            if row is None and not self._accept(name):
                raise ConfigError(name, text, "is not a setting of the broker")
            if row is not None and not row.dynamic:
                raise ConfigError(name, text, "cannot be changed while the broker runs")
            parsed[name] = row.parse(text) if row is not None else text
        return parsed

    def set_dynamic(self, changed: Mapping[str, str]) -> None:
        """Replace all run-time values, then tell the listeners of the keys that really changed."""
        parsed = self.check_dynamic(changed)
        with self._lock:
            before = self._values
            self._values = after = {**self._static, **parsed}
            self._dynamic = dict(changed)
            different = {name for name in after.keys() | before.keys() if after.get(name) != before.get(name)}
            listeners = [listener for names, listener in self._listeners if names & different]
        for listener in listeners:
            listener(self)

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
