"""Writes the source of the decoder of one message in one version.

Role: one flat function, nested structs inlined; neighbouring fixed-size fields (and the length that follows them) are
read by one precompiled `Struct.unpack_from`, straight into the slots of the object.
Thread: the one that compiles. Lock: none.

Rules that every line keeps: a length is compared with the bytes that remain, and the sum of all lengths with what the caller allows,
before anything is allocated; reading past
the end raises `struct.error` or `IndexError`, which `codec` turns into `MalformedRequest`.
"""

from __future__ import annotations

from struct import unpack_from as _unpack_from

from barnabas.protocol.schema import FieldSpec, Message, Primitive
from barnabas.protocol.source import Source, minimum_size
from barnabas.protocol.wire import (
    MAX_REQUEST_ELEMENTS,
    MAX_RESPONSE_ELEMENTS,
    MAX_STRING,
    cached_uuid,
    malformed,
    read_tag,
    read_tag_count,
    read_uuid,
    read_uvarint,
    skip_tags,
    too_many,
)

_RUNTIME = {
    "new": object.__new__,
    "cached_uuid": cached_uuid,
    "malformed": malformed,
    "read_tag": read_tag,
    "read_tag_count": read_tag_count,
    "read_uuid": read_uuid,
    "read_uvarint": read_uvarint,
    "skip_tags": skip_tags,
    "too_many": too_many,
}


def decoder_source(cls: type[Message], version: int) -> tuple[str, dict[str, object]]:
    """The source of `decode(b, o, most)` and the names that it uses. `most` is how many list elements the message may have."""
    return _Decoder(version, version in cls.schema.flexible).function(cls)


class _Decoder:
    __slots__ = ("_out", "_run", "_uuids")

    def __init__(self, version: int, flexible: bool) -> None:
        self._out = Source(version, flexible)
        self._run: list[tuple[str, str]] = []
        self._uuids: list[tuple[str, str]] = []

    def function(self, cls: type[Message]) -> tuple[str, dict[str, object]]:
        out = self._out
        out.constants.update(_RUNTIME)
        request = cls.schema.name.endswith("Request")
        with out.block(f"def decode(b, o, most={MAX_REQUEST_ELEMENTS if request else MAX_RESPONSE_ELEMENTS}):"):
            out.emit("end = len(b)")
            if _has_list(cls, out.version):
                out.emit("left = most")
            self._struct(cls, "m")
            self._flush()
            # librdkafka 2.x leaves bytes behind the body of some requests (Metadata v13), and Kafka does not look at them.
            with out.block("if o > end:" if request else "if o != end:"):
                out.emit(f'malformed("the rest after {cls.schema.name}", end - o, end - o)')
            out.emit("return m")
        return out.text(), out.constants

    def _struct(self, cls: type[Message], variable: str) -> None:
        out = self._out
        out.emit(f"{variable} = new({out.class_name(cls)})")
        tagged = []
        for spec in cls.schema.fields:
            target = f"{variable}.{spec.name}"
            if out.version not in spec.versions:
                out.emit(f"{target} = {out.default(spec)}")
            elif out.is_tagged(spec):
                out.emit(f"{target} = {out.default(spec)}")
                tagged.append(spec)
            else:
                self._field(spec, target)
        if out.flexible:
            self._flush()
            self._tags(tagged, variable)

    def _field(self, spec: FieldSpec, target: str) -> None:
        kind = spec.kind
        if spec.is_array:
            self._array(spec, target)
        elif not isinstance(kind, Primitive):
            self._nested(spec, kind, target)
        elif kind.name == "UUID":
            raw = self._out.fresh("u")
            self._run.append((kind.code, raw))
            self._uuids.append((raw, target))
        elif kind.code:
            self._run.append((kind.code, target))
        else:
            self._sized(spec, kind, target)

    def _flush(self) -> None:
        """Read the fixed-size fields that have gathered."""
        if not self._run:
            return
        out = self._out
        codes = "".join(code for code, _ in self._run)
        name = out.packer(codes, "unpack")
        out.emit(f"{', '.join(target for _, target in self._run)}, = {name}(b, o)")
        sizes = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "q": 8, "d": 8, "16s": 16}
        out.emit(f"o += {sum(sizes[code] for code, _ in self._run)}")
        for raw, target in self._uuids:
            out.emit(f"{target} = cached_uuid({raw}) or read_uuid({raw})")
        self._run.clear()
        self._uuids.clear()

    def _length(self, code: str) -> str:
        """Read a length; null is -1 in both encodings. In the old encoding it ends the run of fixed fields."""
        out = self._out
        size = out.fresh("n")
        if not out.flexible:
            self._run.append((code, size))
            self._flush()
            return size
        self._flush()
        out.emit(f"{size} = b[o] - 1")
        with out.block(f"if {size} < 127:"):
            out.emit("o += 1")
        with out.block("else:"):
            out.emit(f"{size}, o = read_uvarint(b, o)")
            out.emit(f"{size} -= 1")
        return size

    def _sized(self, spec: FieldSpec, kind: Primitive, target: str) -> None:
        out = self._out
        size = self._length("h" if kind.name == "STRING" else "i")
        if out.version in spec.nullable:
            with out.block(f"if {size} == -1:"):
                out.emit(f"{target} = None")
            with out.block("else:"):
                self._slice(spec, kind, size, target)
        else:
            self._slice(spec, kind, size, target)

    def _slice(self, spec: FieldSpec, kind: Primitive, size: str, target: str) -> None:
        out = self._out
        out.emit(f"p = o + {size}")
        # The old encoding cannot even express a longer string than Kafka allows.
        too_long = f" or {size} > {MAX_STRING}" if kind.name == "STRING" and out.flexible else ""
        with out.block(f"if not o <= p <= end{too_long}:"):
            out.emit(f'malformed("{spec.name}", {size}, end - o)')
        view = {"STRING": 'str(b[o:p], "utf-8")', "BYTES": "bytes(b[o:p])", "RECORDS": "memoryview(b)[o:p]"}
        out.emit(f"{target} = {view[kind.name]}")
        out.emit("o = p")

    def _array(self, spec: FieldSpec, target: str) -> None:
        out = self._out
        size = self._length("i")
        if out.version in spec.nullable:
            with out.block(f"if {size} == -1:"):
                out.emit(f"{target} = None")
            with out.block("else:"):
                self._elements(spec, size, target)
        else:
            self._elements(spec, size, target)

    def _elements(self, spec: FieldSpec, size: str, target: str) -> None:
        out, kind = self._out, spec.kind
        smallest = minimum_size(kind, out.version, out.flexible)
        with out.block(f"if not 0 <= {size} * {smallest} <= end - o:"):
            out.emit(f'malformed("{spec.name}", {size}, end - o)')
        out.emit(f"left -= {size}")
        with out.block("if left < 0:"):
            out.emit(f'too_many("{spec.name}", {size}, most - left, most)')
        if isinstance(kind, Primitive) and kind.code and kind.name != "UUID":
            out.constants["unpack_from"] = _unpack_from
            out.emit(f'{target} = list(unpack_from(f">{{{size}}}{kind.code}", b, o))')
            out.emit(f"o += {size} * {kind.size}")
            return
        items, item = out.fresh("l"), out.fresh("e")
        out.emit(f"{items} = {target} = []")
        with out.block(f"for _ in range({size}):"):
            if isinstance(kind, Primitive):
                self._field(_element_of(spec), item)
            else:
                self._struct(kind, item)
            self._flush()
            out.emit(f"{items}.append({item})")

    def _nested(self, spec: FieldSpec, kind: type[Message], target: str) -> None:
        """A struct in its place; one that may be null has a byte in front, negative for null."""
        out = self._out
        item = out.fresh("e")
        if out.version not in spec.nullable:
            self._struct(kind, item)
            out.emit(f"{target} = {item}")
            return
        present = out.fresh("n")
        self._run.append(("b", present))
        self._flush()
        with out.block(f"if {present} < 0:"):
            out.emit(f"{target} = None")
        with out.block("else:"):
            self._struct(kind, item)
            self._flush()
            out.emit(f"{target} = {item}")

    def _tags(self, tagged: list[FieldSpec], variable: str) -> None:
        """The tagged fields at the end of a struct: the known ones are read, the others stepped over."""
        out = self._out
        with out.block("if not b[o]:"):
            out.emit("o += 1")
        with out.block("else:"):
            if tagged:
                self._known_tags(tagged, variable)
            else:
                out.emit("o = skip_tags(b, o, end)")

    def _known_tags(self, tagged: list[FieldSpec], variable: str) -> None:
        out = self._out
        count, tag, stop = out.fresh("n"), out.fresh("t"), out.fresh("s")
        out.emit(f"{count}, o = read_tag_count(b, o, end)")
        with out.block(f"for _ in range({count}):"):
            out.emit(f"{tag}, o, {stop} = read_tag(b, o, end)")
            for index, spec in enumerate(tagged):
                with out.block(f"{'elif' if index else 'if'} {tag} == {spec.tag}:"):
                    self._field(spec, f"{variable}.{spec.name}")
                    self._flush()
            with out.block("else:"):
                out.emit(f"o = {stop}")
            with out.block(f"if o != {stop}:"):
                out.emit(f'malformed(f"tagged field {{{tag}}}", {stop} - o, end - o)')


def _has_list(cls: type[Message], version: int) -> bool:
    return any(spec.is_array for spec in cls.schema.fields if version in spec.versions)


def _element_of(spec: FieldSpec) -> FieldSpec:
    """The field that stands for one element of a list of primitives."""
    element = FieldSpec(spec.kind, "0+", is_array=False)
    element.name = spec.name
    return element
