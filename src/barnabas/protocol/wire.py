"""What both forms of the codec call at run time: varints, tagged fields, UUIDs, limits and the errors they raise.

Role: everything of the wire format that is not worth inlining into every compiled function.
Thread: any. Lock: none; the UUID cache is a plain dict of immutable values, and losing an entry of it costs only time.
"""

from __future__ import annotations

import uuid
from typing import Final, NoReturn

from barnabas.errors import BarnabasError, MalformedRequest

Buffer = bytes | memoryview

MAX_VARINT_BYTES: Final = 5
MAX_STRING: Final = 32767
# The protocol sets no limit, but no struct has more than a handful; each costs a step of a Python loop.
MAX_TAGS: Final = 1024
# A list element of three bytes becomes an object of some 120: a frame of the largest allowed size could take gigabytes
# although every length in it is honest. No real request comes near a million elements; a response of a big cluster may.
MAX_REQUEST_ELEMENTS: Final = 1 << 20
MAX_RESPONSE_ELEMENTS: Final = 1 << 24
# So many elements a loop in C reads or writes before it lets other threads in: some 50 microseconds.
ELEMENTS_PER_SLICE: Final = 256
SMALL_RECORDS: Final = 4096
BUFFER_TYPES: Final = frozenset((bytes, bytearray, memoryview))


class EncodeError(BarnabasError):
    """A message cannot be written in the wanted version: our fault. The text names the field and its value."""


class TooManyElements(MalformedRequest):
    """A message has more list elements than the caller allows. Raised before anything is allocated for the list that goes too far;
    `elements` is what was announced up to and with it."""

    def __init__(self, what: str, size: int, elements: int, limit: int) -> None:
        super().__init__(f"{what} has length {size}, which makes {elements} list elements; {limit} are allowed")
        self.elements = elements


def absent(name: str, version: int, value: object) -> NoReturn:
    """Refuse a value that the version has no field for."""
    raise EncodeError(f"{name} = {value!r}, but version {version} has no such field")


def let_others_in() -> None:
    """Called now and then by long loops in C. Python looks whether another thread asks for the GIL when it enters a function, and hands it
    over then. To release and take it again would not do: who waits is woken too late to get it, and begins to wait anew each time."""


def malformed(what: str, size: int, rest: int) -> NoReturn:
    """Refuse a length that the rest of the request cannot hold."""
    raise MalformedRequest(f"{what} has length {size}, the request has {rest} bytes left")


def too_many(what: str, size: int, elements: int, limit: int) -> NoReturn:
    """Refuse a list although the request may well hold it."""
    raise TooManyElements(what, size, elements, limit)


def read_uvarint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """An unsigned varint of at most 5 bytes and 32 bits: the value and the offset behind it."""
    value = 0
    for index in range(MAX_VARINT_BYTES):
        byte = buffer[offset + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, offset + index + 1
    raise MalformedRequest(f"varint at byte {offset} is longer than 32 bits")


def write_uvarint(value: int) -> bytes:
    """The shortest unsigned varint of a value that fits 32 bits."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise EncodeError(f"{value} does not fit an unsigned 32-bit varint")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Nearly all lengths are small: one tuple look-up instead of a call.
UVARINTS: Final[tuple[bytes, ...]] = tuple(write_uvarint(n) for n in range(512))
UVARINTS_SIZE: Final = len(UVARINTS)


def read_tag(buffer: Buffer, offset: int, end: int) -> tuple[int, int, int]:
    """The head of one tagged field: its tag, where its value starts and where it stops."""
    tag, offset = read_uvarint(buffer, offset)
    size, offset = read_uvarint(buffer, offset)
    if size > end - offset:
        malformed(f"tagged field {tag}", size, end - offset)
    return tag, offset, offset + size


def read_tag_count(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
    """The number of tagged fields, checked: each takes two bytes at least."""
    count, offset = read_uvarint(buffer, offset)
    if count * 2 > end - offset or count > MAX_TAGS:
        malformed("tagged fields", count, end - offset)
    return count, offset


def skip_tags(buffer: Buffer, offset: int, end: int) -> int:
    """Step over a section of tagged fields that nobody here knows; returns the offset behind it."""
    try:
        count, offset = read_tag_count(buffer, offset, end)
        for _ in range(count):
            _, _, offset = read_tag(buffer, offset, end)
    except IndexError:
        raise MalformedRequest("the request ends inside its tagged fields") from None
    return offset


# uuid.UUID() takes 1.5 µs and refuses attribute assignment: the slots are filled directly, and since topic ids come
# again in every request, the finished objects are kept.
_MAX_CACHED_UUIDS: Final = 4096
_uuids: dict[bytes, uuid.UUID] = {}
cached_uuid = _uuids.get
_set_int = uuid.UUID.__dict__["int"].__set__
_set_is_safe = uuid.UUID.__dict__["is_safe"].__set__


def read_uuid(raw: bytes) -> uuid.UUID:
    """The UUID of 16 bytes, remembered for `cached_uuid`. A full cache is dropped: any peer can fill it."""
    value = uuid.UUID.__new__(uuid.UUID)
    _set_int(value, int.from_bytes(raw, "big"))
    _set_is_safe(value, uuid.SafeUUID.unknown)
    if len(_uuids) >= _MAX_CACHED_UUIDS:
        _uuids.clear()
    _uuids[raw] = value
    return value
