"""Writes the source of the encoder of one message in one version.

Role: one flat function, nested structs inlined; neighbouring fixed-size fields (and the length that follows them) are
written by one precompiled `Struct.pack`, and a stretch without branches becomes one `+=` on the list of pieces.
Thread: the one that compiles. Lock: none.

Around large or non-buffer `records` the pieces are joined and a new part is begun, so that nothing big is copied.
"""

from __future__ import annotations

from struct import pack as _pack

from barnabas.protocol.schema import FieldSpec, Message, Primitive
from barnabas.protocol.source import Source
from barnabas.protocol.wire import (
    BUFFER_TYPES,
    MAX_STRING,
    SMALL_RECORDS,
    UVARINTS,
    UVARINTS_SIZE,
    absent,
    write_uvarint,
)

_RUNTIME = {
    "BUFFER_TYPES": BUFFER_TYPES,
    "UVARINTS": UVARINTS,
    "absent": absent,
    "join": b"".join,
    "pack": _pack,
    "write_uvarint": write_uvarint,
}


def encoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, object]]:
    """The source of `encode(m)`, which returns the list of parts, and the names that it uses."""
    return _Encoder(version, version in cls.schema.flexible).function(cls)


class _Encoder:
    __slots__ = ("_list", "_out", "_pieces", "_run", "_splits")

    def __init__(self, version: int, flexible: bool) -> None:
        self._out = Source(version, flexible)
        self._list = "w"  # the list that pieces go to; tagged fields have their own
        self._run: list[tuple[str, str]] = []  # fixed-size values not packed yet
        self._pieces: list[str] = []  # expressions not appended yet
        self._splits = False

    def function(self, cls: type[Message]) -> tuple[str, dict[str, object]]:
        out = self._out
        out.constants.update(_RUNTIME)
        self._splits = _has_records(cls, out.version)
        with out.block("def encode(m):"):
            out.emit("w = []")
            if self._splits:
                out.emit("parts = []")
            self._struct(cls, "m")
            self._flush()
            if self._splits:
                with out.block("if w:"):
                    out.emit("parts.append(join(w))")
                out.emit("return parts")
            else:
                out.emit("return [join(w)]")
        return out.text(), out.constants

    def _struct(self, cls: type[Message], variable: str) -> None:
        out = self._out
        tagged = []
        for spec in cls.schema.fields:
            source = f"{variable}.{spec.name}"
            if out.version not in spec.versions:
                self._refuse_absent(cls, spec, source)
            elif out.is_tagged(spec):
                tagged.append(spec)
            else:
                self._field(spec, source)
        if tagged:
            self._tags(sorted(tagged, key=lambda spec: spec.tag or 0), variable)
        elif out.flexible:
            self._run.append(("x", ""))

    def _refuse_absent(self, cls: type[Message], spec: FieldSpec, source: str) -> None:
        if spec.ignorable:
            return
        with self._out.block(f"if {self._differs(spec, source)}:"):
            self._out.emit(f'absent("{cls.schema.name}.{spec.name}", {self._out.version}, {source})')

    def _differs(self, spec: FieldSpec, source: str) -> str:
        """A condition: the value is not the default. Shared defaults are told by identity first."""
        default = self._out.default(spec)
        if default == "None":
            return f"{source} is not None"
        if default.startswith(("ZERO", "DEFAULT")):
            return f"{source} is not {default} and {source} != {default}"
        return f"{source} != {default}"

    def _field(self, spec: FieldSpec, source: str) -> None:
        kind = spec.kind
        if spec.is_array:
            self._array(spec, source)
        elif not isinstance(kind, Primitive):
            self._nested(spec, kind, source)
        elif kind.name == "UUID":
            self._run.append((kind.code, f'{source}.int.to_bytes(16, "big")'))
        elif kind.code:
            self._run.append((kind.code, source))
        elif kind.name == "RECORDS":
            self._records(spec, source)
        else:
            self._sized(spec, kind, source)

    def _pack_run(self) -> None:
        """Turn the gathered fixed-size values into one piece."""
        if self._run:
            codes = "".join(code for code, _ in self._run)
            values = ", ".join(value for _, value in self._run if value)
            piece = f"{self._out.packer(codes, 'pack')}({values})" if values else repr(b"\0" * len(codes))
            self._pieces.append(piece)
            self._run.clear()

    def _flush(self) -> None:
        """Append the gathered pieces; needed before every branch and loop."""
        self._pack_run()
        if len(self._pieces) == 1:
            self._out.emit(f"{self._list}.append({self._pieces[0]})")
        elif self._pieces:
            self._out.emit(f"{self._list} += ({', '.join(self._pieces)})")
        self._pieces.clear()

    def _length(self, code: str, value: str) -> None:
        """Write a length held in a variable, where null is -1."""
        if not self._out.flexible:
            self._run.append((code, value))
            return
        self._pack_run()
        self._out.emit(f"{value} += 1")
        self._pieces.append(f"UVARINTS[{value}] if {value} < {UVARINTS_SIZE} else write_uvarint({value})")

    def _sized(self, spec: FieldSpec, kind: Primitive, source: str) -> None:
        out = self._out
        data, size = out.fresh("d"), out.fresh("n")
        convert = f"{source}.encode()" if kind.name == "STRING" else source
        if out.version in spec.nullable:
            with out.block(f"if {source} is None:"):
                out.emit(f'{data} = b""')
                out.emit(f"{size} = -1")
            with out.block("else:"):
                out.emit(f"{data} = {convert}")
                out.emit(f"{size} = len({data})")
        else:
            out.emit(f"{data} = {convert}")
            out.emit(f"{size} = len({data})")
        if kind.name == "STRING" and out.flexible:
            with out.block(f"if {size} > {MAX_STRING}:"):
                out.emit(f'raise ValueError("{spec.name} is too long")')
        self._length("h" if kind.name == "STRING" else "i", size)
        self._pack_run()
        self._pieces.append(data)

    def _records(self, spec: FieldSpec, source: str) -> None:
        """Small buffers are joined with their neighbours; anything else becomes a part of its own."""
        out = self._out
        data, size, length = out.fresh("d"), out.fresh("n"), out.fresh("n")
        out.emit(f"{data} = {source}")
        out.emit(f"{size} = {length} = -1 if {data} is None else len({data})")
        self._length("i", length)
        self._flush()
        with out.block(f"if {size} > 0:"):
            with out.block(f"if {size} <= {SMALL_RECORDS} and {data}.__class__ in BUFFER_TYPES:"):
                out.emit(f"w.append({data})")
            with out.block("else:"):
                out.emit(f"parts += (join(w), {data})")
                out.emit("w.clear()")
        if out.version not in spec.nullable:
            with out.block(f"elif {size} < 0:"):
                out.emit(f'raise TypeError("{spec.name} may not be null")')

    def _array(self, spec: FieldSpec, source: str) -> None:
        out, kind = self._out, spec.kind
        items, size = out.fresh("l"), out.fresh("n")
        out.emit(f"{items} = {source}")
        nullable = out.version in spec.nullable
        out.emit(f"{size} = -1 if {items} is None else len({items})" if nullable else f"{size} = len({items})")
        iterable = f"{items} or ()" if nullable else items
        self._length("i", size)
        if isinstance(kind, Primitive) and kind.code and kind.name != "UUID":
            self._pack_run()
            count = f"len({items} or ())" if nullable else f"len({items})"
            starred = f"*({iterable})" if nullable else f"*{items}"
            self._pieces.append(f'pack(f">{{{count}}}{kind.code}", {starred})')
            return
        self._flush()
        item = out.fresh("e")
        with out.block(f"for {item} in {iterable}:"):
            if isinstance(kind, Primitive):
                self._field(FieldSpec(kind, "0+", is_array=False), item)
            else:
                self._struct(kind, item)
            self._flush()

    def _nested(self, spec: FieldSpec, kind: type[Message], source: str) -> None:
        out = self._out
        item = out.fresh("e")
        out.emit(f"{item} = {source}")
        if out.version not in spec.nullable:
            self._struct(kind, item)
            return
        self._flush()
        with out.block(f"if {item} is None:"):
            out.emit(f'{self._list}.append(b"\\xff")')
        with out.block("else:"):
            self._pieces.append(r'b"\x01"')
            self._struct(kind, item)
            self._flush()

    def _tags(self, tagged: list[FieldSpec], variable: str) -> None:
        """Tagged fields with another value than the default, each with its size in front."""
        out = self._out
        self._flush()
        conditions = [self._differs(spec, f"{variable}.{spec.name}") for spec in tagged]
        with out.block(f"if {' or '.join(conditions)}:"):
            count, entries, outer = out.fresh("n"), out.fresh("t"), self._list
            out.emit(f"{count} = 0")
            out.emit(f"{entries} = []")
            for spec, condition in zip(tagged, conditions, strict=True):
                with out.block(f"if {condition}:"):
                    self._list = out.fresh("v")
                    out.emit(f"{self._list} = []")
                    self._field(spec, f"{variable}.{spec.name}")
                    self._flush()
                    value = out.fresh("d")
                    out.emit(f"{value} = join({self._list})")
                    out.emit(f"{entries} += (write_uvarint({spec.tag}), write_uvarint(len({value})), {value})")
                    out.emit(f"{count} += 1")
            self._list = outer
            out.emit(f"{outer}.append(write_uvarint({count}))")
            out.emit(f"{outer} += {entries}")
        with out.block("else:"):
            out.emit(f'{self._list}.append(b"\\0")')


def _has_records(cls: type[Message], version: int) -> bool:
    for spec in cls.schema.fields:
        if version in spec.versions:
            if isinstance(spec.kind, Primitive):
                if spec.kind.name == "RECORDS":
                    return True
            elif _has_records(spec.kind, version):
                return True
    return False
