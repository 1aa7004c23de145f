"""How a Kafka message is declared: one class per message, with version ranges on its fields.

Role: turns declarations into slotted classes and into the field tables that `codec` compiles.
Thread: import time only; the tables never change afterwards. Lock: none, everything is immutable.

    @message(api_key=0, versions="3-13", flexible="9+")
    class ProduceRequest(Message):
        transactional_id: str | None = field(STRING, "3+", nullable="3+", default=None)

Version ranges are written as in Kafka's message JSON: "3+", "0-12", "4" or "none".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar, cast, dataclass_transform

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "MISSING",
    "RECORDS",
    "STRING",
    "UINT16",
    "UUID",
    "ZERO_UUID",
    "FieldSpec",
    "Message",
    "Primitive",
    "Schema",
    "Versions",
    "array",
    "field",
    "message",
    "struct",
]

ZERO_UUID: Final = uuid.UUID(int=0)
NO_UPPER_LIMIT: Final = 32767


class _Missing:
    """The type of `MISSING`: "this argument was not given", where None is a legal value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


class Versions:
    """An inclusive range of versions; "none" is the empty range."""

    __slots__ = ("high", "low")

    def __init__(self, text: str) -> None:
        if text == "none":
            self.low, self.high = 0, -1
        elif text.endswith("+"):
            self.low, self.high = int(text[:-1]), NO_UPPER_LIMIT
        else:
            low, _, high = text.partition("-")
            self.low, self.high = int(low), int(high or low)

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __repr__(self) -> str:
        return f"Versions({self.low}-{self.high})"


class Primitive:
    """A wire type without fields. `code` is its struct format letter, or "" when its size varies."""

    __slots__ = ("code", "name", "size", "zero")

    def __init__(self, name: str, code: str, size: int, zero: object) -> None:
        self.name = name
        self.code = code
        self.size = size
        self.zero = zero

    def __repr__(self) -> str:
        return self.name


BOOL: Final = Primitive("BOOL", "?", 1, False)
INT8: Final = Primitive("INT8", "b", 1, 0)
INT16: Final = Primitive("INT16", "h", 2, 0)
UINT16: Final = Primitive("UINT16", "H", 2, 0)
INT32: Final = Primitive("INT32", "i", 4, 0)
INT64: Final = Primitive("INT64", "q", 8, 0)
FLOAT64: Final = Primitive("FLOAT64", "d", 8, 0.0)
UUID: Final = Primitive("UUID", "16s", 16, ZERO_UUID)
STRING: Final = Primitive("STRING", "", 0, "")
BYTES: Final = Primitive("BYTES", "", 0, b"")
RECORDS: Final = Primitive("RECORDS", "", 0, None)


class FieldSpec:
    """One declared field. `name` is filled in by the class decorator."""

    __slots__ = ("default", "ignorable", "is_array", "kind", "name", "nullable", "tag", "versions")

    def __init__(self, kind: Primitive | type[Message], versions: str, *, is_array: bool) -> None:
        self.name = ""
        self.kind = kind
        self.is_array = is_array
        self.versions = Versions(versions)
        self.nullable = Versions("none")
        self.default: object = MISSING
        self.tag: int | None = None
        self.ignorable = False

    def __repr__(self) -> str:
        brackets = "[]" if self.is_array else ""
        return f"FieldSpec({self.name}: {brackets}{self.kind!r}, {self.versions!r})"


def field(
    kind: Primitive | type[Message],
    versions: str,
    nullable: str = "none",
    default: object = MISSING,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a scalar or struct field. Without a default it has the zero value of its type.

    `tag` makes it a tagged field in every version that has it. `ignorable` lets a value other
    than the default be dropped silently in versions without the field; otherwise that is an error.
    """
    spec = FieldSpec(kind, versions, is_array=False)
    spec.nullable = Versions(nullable)
    spec.default = default
    spec.tag = tag
    spec.ignorable = ignorable
    return spec


def array(
    element: Primitive | type[Message],
    versions: str,
    nullable: str = "none",
    default: object = MISSING,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a list field; the default is the empty list, also when null is allowed."""
    spec = FieldSpec(element, versions, is_array=True)
    spec.nullable = Versions(nullable)
    spec.default = default
    spec.tag = tag
    spec.ignorable = ignorable
    return spec


class Schema:
    """What the codec needs to know about one class. `api_key` is None for a nested struct."""

    __slots__ = ("api_key", "fields", "flexible", "name", "versions")

    def __init__(self, name: str, fields: tuple[FieldSpec, ...]) -> None:
        self.name = name
        self.fields = fields
        self.api_key: int | None = None
        self.versions = Versions("none")
        self.flexible = Versions("none")

    def __repr__(self) -> str:
        return f"Schema({self.name}, key={self.api_key}, {self.versions!r})"


class Message:
    """Base of all messages and nested structs: plain slots, compared and printed by value."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # mutable

    schema: ClassVar[Schema]

    def __eq__(self, other: object) -> bool:
        # The schema decides, not the class: a shared default is an instance of a frozen subclass.
        if not isinstance(other, Message) or other.schema is not self.schema:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.schema.fields)

    def __repr__(self) -> str:
        inner = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.schema.fields)
        return f"{self.schema.name}({inner})"


_M = TypeVar("_M", bound=Message)


@dataclass_transform(kw_only_default=True)
def struct(cls: type[_M]) -> type[_M]:
    """Class decorator for a struct that is nested in messages of one API."""
    return _slotted(cls)


@dataclass_transform(kw_only_default=True)
def message(*, api_key: int, versions: str, flexible: str = "none") -> Callable[[type[_M]], type[_M]]:
    """Class decorator for a request or response of `api_key`."""

    def decorate(cls: type[_M]) -> type[_M]:
        built = _slotted(cls)
        built.schema.api_key = api_key
        built.schema.versions = Versions(versions)
        built.schema.flexible = Versions(flexible)
        return built

    return decorate


def default_of(spec: FieldSpec) -> object:
    """The value a field has when it is not given or not on the wire; a list is always a new one."""
    if spec.default is not MISSING:
        return spec.default
    if spec.is_array:
        return []
    return spec.kind.zero if isinstance(spec.kind, Primitive) else frozen_default(spec.kind)


_frozen_defaults: dict[type[Message], Message] = {}


def frozen_default(cls: type[Message]) -> Message:
    """The one shared, read-only default instance of a struct.

    Fetch answers carry three such structs per partition, so building them anew would cost more
    than the rest of the partition; being read-only, the shared one cannot leak a change.
    """
    found = _frozen_defaults.get(cls)
    if found is None:
        source = type("Frozen" + cls.__name__, (cls,), {"__slots__": ()})
        instance = cast(Message, source())

        def refuse(self: object, name: str, value: object) -> None:
            raise AttributeError(f"the default {cls.__name__} is shared: assign a new one instead")

        source.__setattr__ = refuse  # type: ignore[method-assign,assignment]
        found = _frozen_defaults.setdefault(cls, instance)
    return found


def _slotted(cls: type[_M]) -> type[_M]:
    """Rebuild `cls` with slots instead of the declarations, and with a generated constructor."""
    specs = []
    namespace = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    for name in cls.__annotations__:
        spec = namespace.pop(name)
        if not isinstance(spec, FieldSpec):
            raise TypeError(f"{cls.__name__}.{name} is not declared with field() or array()")
        spec.name = name
        specs.append(spec)
    namespace["__slots__"] = tuple(spec.name for spec in specs)
    namespace["__init__"] = _constructor(specs)
    namespace["schema"] = Schema(cls.__name__, tuple(specs))
    return cast(type[_M], type(cls.__name__, cls.__bases__, namespace))


def _constructor(specs: list[FieldSpec]) -> Callable[..., None]:
    """A flat __init__ for these fields; positional use is for the codec, in declared order."""
    names: dict[str, object] = {"MISSING": MISSING}
    arguments, body = ["self"], []
    for spec in specs:
        default = default_of(spec)
        if isinstance(default, list):
            arguments.append(f"{spec.name}=MISSING")
            body.append(f"self.{spec.name} = [] if {spec.name} is MISSING else {spec.name}")
        else:
            names[f"default_{spec.name}"] = default
            arguments.append(f"{spec.name}=default_{spec.name}")
            body.append(f"self.{spec.name} = {spec.name}")
    source = f"def __init__({', '.join(arguments)}):\n    " + "\n    ".join(body or ["pass"])
    exec(compile(source, "<constructor>", "exec"), names)
    return cast(Callable[..., None], names["__init__"])
