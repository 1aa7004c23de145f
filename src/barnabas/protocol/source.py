"""A growing piece of Python source, as the codec compiler writes it.

Role: lines, indentation, fresh variable names and the constants that the source refers to.
Thread: the one that compiles; an instance is never shared. Lock: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

from barnabas.protocol.schema import FieldSpec, Message, Primitive, default_of


class Source:
    """The source of one function for one version of one message."""

    __slots__ = ("_counter", "_depth", "_lines", "constants", "flexible", "version")

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.constants: dict[str, object] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._counter = 0

    def emit(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines inside are indented under `head`; an empty block gets a `pass`."""
        self.emit(head)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.emit("pass")
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def packer(self, codes: str, method: str) -> str:
        """The name of the precompiled `Struct(codes).method`."""
        name = f"{method}_{codes.replace('?', 'B')}"
        self.constants[name] = getattr(Struct(">" + codes), "unpack_from" if method == "unpack" else "pack")
        return name

    def class_name(self, cls: type[Message]) -> str:
        self.constants[cls.__name__] = cls
        return cls.__name__

    def default(self, spec: FieldSpec) -> str:
        """An expression for the default of a field: a literal, or a constant that holds the shared object."""
        value = default_of(spec)
        if isinstance(value, int | float | str | bytes | list) or value is None:
            return repr(value)
        name = f"ZERO_{spec.kind}" if isinstance(spec.kind, Primitive) else f"DEFAULT_{spec.kind.__name__}"
        self.constants[name] = value
        return name

    def is_tagged(self, spec: FieldSpec) -> bool:
        return spec.tag is not None and self.flexible

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def minimum_size(kind: Primitive | type[Message], version: int, flexible: bool) -> int:
    """The fewest bytes that one array element can take; at least 1, so that it bounds the number of elements."""
    if isinstance(kind, Primitive):
        if kind.size:
            return kind.size
        return 1 if flexible else 2 if kind.name == "STRING" else 4
    total = 1 if flexible else 0
    for spec in kind.schema.fields:
        if version not in spec.versions or (spec.tag is not None and flexible):
            continue
        if spec.is_array:
            total += 1 if flexible else 4
        elif not isinstance(spec.kind, Primitive) and version in spec.nullable:
            total += 1
        else:
            total += minimum_size(spec.kind, version, flexible)
    return max(total, 1)
