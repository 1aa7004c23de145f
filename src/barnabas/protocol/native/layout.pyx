"""The fields of a message class in one version: what each is, where its slot lies, and what it is when it is not on the wire.

Role: what plan.pyx follows when it reads and writes. Whoever knows where slots lie can also make a message without its `__init__`, and
count the error codes in one: both are here. Only compiled, because a slot has no place in plain Python.
Thread: any; nothing changes once it is made. Lock: none; two threads that meet make the same layout twice, and either is right.
"""

from cpython.object cimport PyObject

from barnabas.protocol.native.slots cimport get_slot, has_slot, is_of, make_empty, set_slot, set_vectorcall, slot_place

from barnabas.protocol.schema import Primitive, default_of
from barnabas.protocol.source import minimum_size

_KINDS = {
    "BOOL": BOOL, "INT8": INT8, "INT16": INT16, "UINT16": UINT16, "INT32": INT32, "INT64": INT64, "FLOAT64": FLOAT64, "UUID": UUID,
    "STRING": STRING, "BYTES": BYTES, "RECORDS": RECORDS,
}

cdef dict _layouts = {}  # of each message class one, for `construct` and `count_errors`


cdef class Field:
    """One field in one version: what it is, where its slot lies, and what it is when it is not on the wire."""

    def __cinit__(self, cls, spec, int version, bint flexible):
        self.name = spec.name
        self.place = slot_place(getattr(cls, spec.name))
        if self.place < 0:
            raise TypeError(f"{cls.__name__}.{spec.name} is no slot")
        self.is_array = spec.is_array
        self.on_wire = version in spec.versions
        self.nullable = version in spec.nullable
        self.ignorable = spec.ignorable
        self.tag = spec.tag if spec.tag is not None and flexible and self.on_wire else -1
        self.default = default_of(spec)
        self.makes_list = isinstance(self.default, list)
        self.smallest = minimum_size(spec.kind, version, flexible)
        if isinstance(spec.kind, Primitive):
            self.kind = _KINDS[spec.kind.name]
        else:
            self.kind = STRUCT
            self.inner = Layout(spec.kind, version, flexible)


cdef class Layout:
    """The fields of one struct in one version; those with a tag stand in `tagged`, in the order of their tags."""

    def __cinit__(self, cls, int version, bint flexible):
        self.cls = cls
        self.flexible = flexible
        self.fields = [Field(cls, spec, version, flexible) for spec in cls.schema.fields]
        self.tagged = sorted((f for f in self.fields if (<Field> f).tag >= 0), key=tag_of)
        if any(holds_records(f) for f in self.tagged):
            raise TypeError(f"{cls.__name__} has records in a tagged field, which the writer cannot size")
        self.error_code = next((f for f in self.fields if (<Field> f).name == "error_code"), None)
        self.with_errors = [f for f in self.fields if (<Field> f).is_array and has_errors((<Field> f).inner)]
        if cls not in _layouts:  # the fields, their slots and defaults are the same in every version
            _layouts[cls] = self
            set_vectorcall(cls, construct)


def tag_of(Field field):
    return field.tag


cdef bint holds_records(Field field):
    return field.kind == RECORDS or (field.inner is not None and any(holds_records(f) for f in field.inner.fields))


cdef bint has_errors(Layout layout):
    return layout is not None and (layout.error_code is not None or bool(layout.with_errors))


# ---- making ---------------------------------------------------------------------------------------------------------

cdef object construct(cls, PyObject* const* arguments, size_t count, PyObject* names):
    """What `__init__` of a message class does, without a frame, a tuple or a dict: four times as fast. Who replaces the `__init__` of
    one of these classes is not asked any more."""
    cdef Layout layout = _layouts[cls]
    cdef Py_ssize_t given = <Py_ssize_t> (count & ~(<size_t> 1 << (8 * sizeof(size_t) - 1)))
    cdef Py_ssize_t index
    cdef Field field
    made = make_empty(cls)
    if given > len(layout.fields):
        raise TypeError(f"{cls.__name__} has {len(layout.fields)} fields, {given} values were given")
    for index in range(given):
        set_slot(made, (<Field> layout.fields[index]).place, <object> arguments[index])
    if names != NULL:
        for index, name in enumerate(<tuple> names):
            field = field_named(layout, name)
            if has_slot(made, field.place):
                raise TypeError(f"{cls.__name__}.{field.name} was given twice")
            set_slot(made, field.place, <object> arguments[given + index])
    for field in layout.fields:
        if not has_slot(made, field.place):
            set_slot(made, field.place, [] if field.makes_list else field.default)
    return made


cdef Field field_named(Layout layout, name):
    cdef Field field
    for field in layout.fields:  # both names are interned, but for callers that make up theirs
        if field.name is name:
            return field
    for field in layout.fields:
        if field.name == name:
            return field
    raise TypeError(f"{layout.cls.__name__} has no field {name!r}")


# ---- counting -------------------------------------------------------------------------------------------------------

def count_errors(message, dict counts):
    """Count every error code of a response and of the lists in it."""
    cdef Layout layout = _layouts.get(type(message))
    if layout is None:
        layout = Layout(type(message), message.schema.versions.high, False)
    add_errors(layout, message, counts)


cdef int add_errors(Layout layout, message, dict counts) except -1:
    cdef Field field
    if not is_of(message, layout.cls):
        raise TypeError(f"{message!r} is not a {layout.cls.__name__}")
    if layout.error_code is not None:
        code = get_slot(message, layout.error_code.place)
        counts[code] = counts.get(code, 0) + 1
    for field in layout.with_errors:
        items = get_slot(message, field.place)
        if items is not None:
            for item in items:
                add_errors(field.inner, item, counts)
    return 0
