"""The codec in C: one table per message and version, and one reader and one writer that follow it.

Role: what decode_source.py and encode_source.py write as Python source for each message and version, done here by walking a `Plan`:
the fields in their order, each with its kind and with the place of its slot in the object (layout.pyx). A message is made and read without
an attribute look-up. Used by `codec` when the package was compiled; the generated source is the other form, and tests hold both to the
same oracle.
Thread: any; a plan never changes once it is made. Lock: none. The GIL is held, but after each slice of list elements whoever waits for it
gets it: a message may have a million. Nobody else may change a message that is being written; who does gets an error, not a crash.

The rules of decode_source.py hold here too: a length is compared with the bytes that remain, and the sum of all lengths with what the
caller allows, before anything is allocated, and whatever the bytes, the result is a message or `MalformedRequest`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.string cimport memcpy, memmove

from barnabas.protocol.native.layout cimport (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    STRUCT,
    UINT16,
    UUID,
    Field,
    Kind,
    Layout,
)
from barnabas.protocol.native.slots cimport (
    float64_at,
    get_slot,
    int16_at,
    int32_at,
    int64_at,
    is_of,
    make_empty,
    put_int16,
    put_int32,
    put_int64,
    set_slot,
)

from operator import index

from barnabas.errors import MalformedRequest
from barnabas.protocol.wire import ELEMENTS_PER_SLICE as _ELEMENTS_PER_SLICE
from barnabas.protocol.wire import MAX_REQUEST_ELEMENTS as _MAX_REQUEST_ELEMENTS
from barnabas.protocol.wire import MAX_RESPONSE_ELEMENTS as _MAX_RESPONSE_ELEMENTS
from barnabas.protocol.wire import MAX_STRING as _MAX_STRING
from barnabas.protocol.wire import MAX_TAGS as _MAX_TAGS
from barnabas.protocol.wire import SMALL_RECORDS as _SMALL_RECORDS
from barnabas.protocol.wire import absent, cached_uuid, let_others_in, read_uuid, too_many

cdef Py_ssize_t ELEMENTS_PER_SLICE = _ELEMENTS_PER_SLICE
cdef Py_ssize_t MAX_STRING = _MAX_STRING
cdef Py_ssize_t MAX_TAGS = _MAX_TAGS
cdef Py_ssize_t SMALL_RECORDS = _SMALL_RECORDS
cdef Py_ssize_t FIRST_ROOM = 512
cdef Py_ssize_t FRAME_V0 = 8
cdef Py_ssize_t FRAME_V1 = 9


cdef class Plan:
    """How one message is written and read in one version. `decode` and `encode` are what `codec` calls."""

    cdef Layout layout
    cdef object name
    cdef int version
    cdef Py_ssize_t most_elements
    cdef bint is_request

    def __init__(self, cls, int version):
        self.name = cls.schema.name
        self.version = version
        self.is_request = self.name.endswith("Request")
        self.most_elements = _MAX_REQUEST_ELEMENTS if self.is_request else _MAX_RESPONSE_ELEMENTS
        self.layout = Layout(cls, version, version in cls.schema.flexible)

    def decode(self, source, Py_ssize_t offset, Py_ssize_t most_elements=-1):
        """The message that fills `source` from `offset` on."""
        cdef Py_buffer view
        cdef Reader reader
        PyObject_GetBuffer(source, &view, PyBUF_SIMPLE)
        try:
            reader.data = <const unsigned char*> view.buf
            reader.at = offset
            reader.end = view.len
            reader.most = reader.left = self.most_elements if most_elements < 0 else most_elements
            reader.slice = ELEMENTS_PER_SLICE
            if not 0 <= offset <= reader.end:
                raise MalformedRequest(f"{self.name} begins behind its end")
            message = read_struct(self.layout, &reader, source)
            # librdkafka 2.x leaves bytes behind the body of some requests (Metadata v13), and Kafka does not look at them.
            if reader.at != reader.end and not self.is_request:
                refuse(f"the rest after {self.name}", reader.end - reader.at, reader.end - reader.at)
            return message
        finally:
            PyBuffer_Release(&view)

    def encode(self, message):
        """The body as a list of parts; small neighbours are joined, large records stand alone."""
        return write_message(self, message, 0, 0)

    def encode_frame(self, message, int correlation_id, int header_version):
        """A whole response: size, header and body."""
        return write_message(self, message, FRAME_V1 if header_version else FRAME_V0, correlation_id)

    def __repr__(self):
        return f"<Plan {self.name} v{self.version}>"


# ---- reading --------------------------------------------------------------------------------------------------------

cdef struct Reader:
    const unsigned char* data
    Py_ssize_t at
    Py_ssize_t end
    Py_ssize_t most  # how many list elements this message may have
    Py_ssize_t left  # how many more of them
    Py_ssize_t slice  # how many until other threads are let in


cdef int refuse(what, long long size, Py_ssize_t rest) except -1:
    raise MalformedRequest(f"{what} has length {size}, the request has {rest} bytes left")


cdef inline int need(Reader* reader, Py_ssize_t size, Field field) except -1:
    if reader.end - reader.at < size:
        raise MalformedRequest(f"{field.name} needs {size} bytes, the request has {reader.end - reader.at} left")
    return 0


cdef unsigned int read_uvarint(Reader* reader) except? 0xFFFFFFFF:
    cdef unsigned long long value = 0
    cdef unsigned char byte
    cdef int index
    for index in range(5):
        if reader.at + index >= reader.end:
            raise MalformedRequest("the request ends inside a varint")
        byte = reader.data[reader.at + index]
        value |= (<unsigned long long> (byte & 0x7F)) << (7 * index)
        if byte < 0x80:
            if value > 0xFFFFFFFFu:
                break
            reader.at += index + 1
            return <unsigned int> value
    raise MalformedRequest(f"varint at byte {reader.at} is longer than 32 bits")


cdef inline long long read_length(Reader* reader, Field field, bint flexible, bint short) except? -1:
    """A length; null is -1 in both encodings."""
    cdef unsigned char byte
    cdef long long size
    if flexible:
        if reader.at < reader.end:
            byte = reader.data[reader.at]
            if byte < 0x80:
                reader.at += 1
                return <long long> byte - 1
        return <long long> read_uvarint(reader) - 1
    if short:
        need(reader, 2, field)
        size = int16_at(reader.data + reader.at)
        reader.at += 2
    else:
        need(reader, 4, field)
        size = int32_at(reader.data + reader.at)
        reader.at += 4
    return size


cdef object read_struct(Layout layout, Reader* reader, source):
    cdef Field field
    made = make_empty(layout.cls)
    for field in layout.fields:
        if field.on_wire and field.tag < 0:
            set_slot(made, field.place, read_field(field, reader, source, layout.flexible))
        else:
            set_slot(made, field.place, [] if field.makes_list else field.default)
    if layout.flexible:
        if reader.at >= reader.end:
            raise MalformedRequest("the request ends before its tagged fields")
        if not reader.data[reader.at]:
            reader.at += 1
        else:
            read_tags(layout, reader, source, made)
    return made


cdef int read_tags(Layout layout, Reader* reader, source, made) except -1:
    """The known ones are read, the others stepped over."""
    cdef Field field
    cdef Py_ssize_t stop
    cdef unsigned int tag, size
    cdef unsigned int count = read_uvarint(reader)
    if <Py_ssize_t> count * 2 > reader.end - reader.at or count > MAX_TAGS:
        refuse("tagged fields", count, reader.end - reader.at)
    for _ in range(count):
        tag = read_uvarint(reader)
        size = read_uvarint(reader)
        if size > reader.end - reader.at:
            refuse(f"tagged field {tag}", size, reader.end - reader.at)
        stop = reader.at + size
        for field in layout.tagged:
            if field.tag == tag:
                set_slot(made, field.place, read_field(field, reader, source, True))
                break
        else:
            reader.at = stop
        if reader.at != stop:
            refuse(f"tagged field {tag}", stop - reader.at, reader.end - reader.at)
    return 0


cdef object read_field(Field field, Reader* reader, source, bint flexible):
    cdef long long size
    if field.is_array:
        size = read_length(reader, field, flexible, False)
        if size == -1 and field.nullable:
            return None
        return read_list(field, reader, source, flexible, size)
    if field.kind == STRUCT and field.nullable:
        need(reader, 1, field)
        reader.at += 1
        if <signed char> reader.data[reader.at - 1] < 0:
            return None
    return read_one(field, reader, source, flexible)


cdef list read_list(Field field, Reader* reader, source, bint flexible, long long size):
    cdef Py_ssize_t index
    if size < 0 or size * field.smallest > reader.end - reader.at:
        refuse(field.name, size, reader.end - reader.at)
    if size > reader.left:
        too_many(field.name, size, reader.most - reader.left + size, reader.most)
    reader.left -= size
    found = []
    for index in range(size):
        found.append(read_one(field, reader, source, flexible))
        reader.slice -= 1
        if reader.slice == 0:
            reader.slice = ELEMENTS_PER_SLICE
            let_others_in()
    return found


cdef object read_one(Field field, Reader* reader, source, bint flexible):
    """A value that is no list and not null."""
    cdef const unsigned char* data = reader.data + reader.at
    cdef Kind kind = field.kind
    if kind == STRUCT:
        return read_struct(field.inner, reader, source)
    if kind >= STRING:
        return read_sized(field, reader, source, flexible)
    if kind == INT32:
        need(reader, 4, field)
        reader.at += 4
        return int32_at(data)
    if kind == INT64:
        need(reader, 8, field)
        reader.at += 8
        return int64_at(data)
    if kind == INT16 or kind == UINT16:
        need(reader, 2, field)
        reader.at += 2
        return int16_at(data) if kind == INT16 else <unsigned short> int16_at(data)
    if kind == INT8 or kind == BOOL:
        need(reader, 1, field)
        reader.at += 1
        return <signed char> data[0] if kind == INT8 else data[0] != 0
    if kind == FLOAT64:
        need(reader, 8, field)
        reader.at += 8
        return float64_at(data)
    need(reader, 16, field)
    reader.at += 16
    raw = PyBytes_FromStringAndSize(<const char*> data, 16)
    value = cached_uuid(raw)
    return read_uuid(raw) if value is None else value


cdef object read_sized(Field field, Reader* reader, source, bint flexible):
    """A string, bytes or records."""
    cdef Py_ssize_t start
    cdef long long size = read_length(reader, field, flexible, field.kind == STRING)
    if size == -1 and field.nullable and not field.is_array:  # a list that may be null has no elements that may
        return None
    if size < 0 or size > reader.end - reader.at or (field.kind == STRING and size > MAX_STRING):
        refuse(field.name, size, reader.end - reader.at)
    start = reader.at
    reader.at += size
    if field.kind == RECORDS:
        return memoryview(source)[start : reader.at]
    if field.kind == BYTES:
        return PyBytes_FromStringAndSize(<const char*> reader.data + start, size)
    try:
        return PyUnicode_DecodeUTF8(<const char*> reader.data + start, size, NULL)
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"{field.name}: {error}") from None


# ---- writing --------------------------------------------------------------------------------------------------------

cdef class Writer:
    """The bytes of the part that is being written, and the parts before it."""

    cdef unsigned char* memory
    cdef Py_ssize_t size, room
    cdef Py_ssize_t slice  # how many list elements until other threads are let in
    cdef list parts

    def __cinit__(self):
        self.slice = ELEMENTS_PER_SLICE
        self.room = FIRST_ROOM
        self.memory = <unsigned char*> PyMem_Malloc(self.room)
        if self.memory == NULL:
            raise MemoryError
        self.parts = []

    def __dealloc__(self):
        PyMem_Free(self.memory)

    cdef inline unsigned char* take(self, Py_ssize_t size) except NULL:
        """Room for `size` bytes more, which count as written."""
        if self.room - self.size < size:
            self.grow(size)
        self.size += size
        return self.memory + self.size - size

    cdef int grow(self, Py_ssize_t size) except -1:
        cdef Py_ssize_t room = max(2 * self.room, self.size + size)
        cdef unsigned char* larger = <unsigned char*> PyMem_Realloc(self.memory, room)
        if larger == NULL:
            raise MemoryError
        self.memory = larger
        self.room = room
        return 0

    cdef int end_part(self) except -1:
        if self.size:
            self.parts.append(PyBytes_FromStringAndSize(<const char*> self.memory, self.size))
            self.size = 0
        return 0


cdef list write_message(Plan plan, message, Py_ssize_t header, int correlation_id):
    """`header` bytes in front are a frame's: size, correlation id and, in version 1, no tagged fields."""
    cdef Writer writer = Writer()
    cdef unsigned char* head
    cdef Py_ssize_t total = 0
    if header:
        head = writer.take(header)
        put_int32(head + 4, correlation_id)
        if header == FRAME_V1:
            head[8] = 0
    write_struct(plan.layout, message, writer, plan)
    if not writer.parts and not header:
        return [PyBytes_FromStringAndSize(<const char*> writer.memory, writer.size)]
    writer.end_part()
    if header:
        for part in writer.parts:
            total += len(part)
        put_int32(<unsigned char*> PyBytes_AS_STRING(writer.parts[0]), check_int32(total - 4))
    return writer.parts


cdef inline int check_int32(long long value) except? -1:
    if not -0x80000000LL <= value <= 0x7FFFFFFFLL:
        raise ValueError(f"{value} does not fit 32 bits")
    return <int> value


cdef int write_uvarint(Writer writer, unsigned long long value) except -1:
    if value > 0xFFFFFFFFu:
        raise ValueError(f"{value} does not fit an unsigned 32-bit varint")
    while value > 0x7F:
        writer.take(1)[0] = <unsigned char> (value & 0x7F | 0x80)
        value >>= 7
    writer.take(1)[0] = <unsigned char> value
    return 0


cdef inline int write_length(Writer writer, long long size, bint flexible, bint short) except -1:
    """A length; null is -1 in both encodings."""
    if flexible:
        write_uvarint(writer, size + 1)
    elif short:
        if size > MAX_STRING:
            raise ValueError(f"a string of {size} bytes is too long")
        put_int16(writer.take(2), <int> size)
    else:
        put_int32(writer.take(4), check_int32(size))
    return 0


cdef inline bint differs(Field field, value) except -1:
    """Whether it is not the default. Shared defaults are told by identity."""
    if value is field.default:
        return False
    return value != field.default


cdef int write_struct(Layout layout, message, Writer writer, Plan plan) except -1:
    cdef Field field
    if not is_of(message, layout.cls):
        raise TypeError(f"{message!r} is not a {layout.cls.__name__}")
    for field in layout.fields:
        if field.on_wire:
            if field.tag < 0:
                write_field(field, get_slot(message, field.place), writer, layout.flexible, plan)
        elif not field.ignorable:
            value = get_slot(message, field.place)
            if differs(field, value):
                absent(f"{layout.cls.schema.name}.{field.name}", plan.version, value)
    if layout.tagged:
        write_tags(layout, message, writer, plan)
    elif layout.flexible:
        writer.take(1)[0] = 0
    return 0


cdef int write_tags(Layout layout, message, Writer writer, Plan plan) except -1:
    """Tagged fields with another value than the default, each with its size in front."""
    cdef Field field
    cdef Py_ssize_t start
    cdef int count = 0
    for field in layout.tagged:
        count += differs(field, get_slot(message, field.place))
    write_uvarint(writer, count)
    if not count:
        return 0
    for field in layout.tagged:
        value = get_slot(message, field.place)
        if differs(field, value):
            write_uvarint(writer, field.tag)
            start = writer.size
            write_field(field, value, writer, True, plan)
            put_size_before(writer, start)
    return 0


cdef int put_size_before(Writer writer, Py_ssize_t start) except -1:
    """What was written from `start` on gets its size in front: the size is written behind it, and both change places."""
    cdef Py_ssize_t size = writer.size - start
    cdef unsigned char prefix[5]
    cdef Py_ssize_t width
    write_uvarint(writer, size)
    width = writer.size - start - size
    memcpy(prefix, writer.memory + start + size, width)
    memmove(writer.memory + start + width, writer.memory + start, size)
    memcpy(writer.memory + start, prefix, width)
    return 0


cdef int write_field(Field field, value, Writer writer, bint flexible, Plan plan) except -1:
    if field.is_array:
        if value is None and field.nullable:
            return write_length(writer, -1, flexible, False)
        return write_list(field, value, writer, flexible, plan)
    if field.kind == STRUCT and field.nullable:
        writer.take(1)[0] = 0xFF if value is None else 1
        if value is None:
            return 0
    return write_one(field, value, writer, flexible, plan)


cdef int write_list(Field field, value, Writer writer, bint flexible, Plan plan) except -1:
    cdef Py_ssize_t size = len(value)
    cdef Py_ssize_t written = 0
    write_length(writer, size, flexible, False)
    for item in value:
        write_one(field, item, writer, flexible, plan)
        written += 1
        writer.slice -= 1
        if writer.slice == 0:
            writer.slice = ELEMENTS_PER_SLICE
            let_others_in()
    if written != size:
        raise ValueError(f"{field.name} had {size} elements, and {written} while it was written")
    return 0


cdef int write_one(Field field, value, Writer writer, bint flexible, Plan plan) except -1:
    """A value that is no list."""
    cdef Kind kind = field.kind
    cdef long long number
    cdef double real
    if kind == STRUCT:
        return write_struct(field.inner, value, writer, plan)
    if kind >= STRING:
        return write_sized(field, value, writer, flexible)
    if kind == BOOL:
        writer.take(1)[0] = 1 if value else 0
        return 0
    if kind == UUID:
        raw = <bytes?> value.int.to_bytes(16, "big")
        memcpy(writer.take(16), PyBytes_AS_STRING(raw), 16)
        return 0
    if kind == FLOAT64:
        real = value
        memcpy(&number, &real, 8)
        put_int64(writer.take(8), number)
        return 0
    return write_number(kind, value, writer)


cdef int write_number(Kind kind, value, Writer writer) except -1:
    cdef long long number = value if isinstance(value, int) else index(value)  # a float is no number of the protocol's
    if kind == INT64:
        put_int64(writer.take(8), number)
    elif kind == INT32:
        put_int32(writer.take(4), check_int32(number))
    elif kind == INT8:
        if not -0x80 <= number <= 0x7F:
            raise ValueError(f"{number} does not fit 8 bits")
        writer.take(1)[0] = <unsigned char> number
    else:
        if not (-0x8000 <= number <= 0x7FFF if kind == INT16 else 0 <= number <= 0xFFFF):
            raise ValueError(f"{number} does not fit 16 bits")
        put_int16(writer.take(2), <int> number)
    return 0


cdef int write_sized(Field field, value, Writer writer, bint flexible) except -1:
    """A string, bytes or records; null is -1."""
    cdef const char* data
    cdef Py_ssize_t size
    if value is None:
        if field.is_array or not field.nullable:  # a list that may be null has no elements that may
            raise TypeError(f"{field.name} may not be null")
        return write_length(writer, -1, flexible, field.kind == STRING)
    if field.kind == RECORDS:
        return write_records(value, writer, flexible)
    if field.kind == BYTES:
        return write_buffer(value, writer, flexible)
    if not isinstance(value, str):
        raise TypeError(f"{field.name} is not a str")
    data = PyUnicode_AsUTF8AndSize(value, &size)
    if size > MAX_STRING:
        raise ValueError(f"{field.name} is too long")
    write_length(writer, size, flexible, True)
    memcpy(writer.take(size), data, size)
    return 0


cdef int write_buffer(value, Writer writer, bint flexible) except -1:
    cdef Py_buffer view
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        write_length(writer, view.len, flexible, False)
        memcpy(writer.take(view.len), view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int write_records(value, Writer writer, bint flexible) except -1:
    """Small buffers are joined with their neighbours; anything else becomes a part of its own."""
    cdef Py_ssize_t size = len(value)
    if size <= SMALL_RECORDS and isinstance(value, (bytes, bytearray, memoryview)):
        return write_buffer(value, writer, flexible)
    write_length(writer, size, flexible, False)
    if not size:
        return 0
    writer.end_part()
    writer.parts.append(value)
    return 0
