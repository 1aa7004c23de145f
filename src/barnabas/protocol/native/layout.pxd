# What of layout.pyx the other modules of the codec see below Python.

cdef enum Kind:
    BOOL, INT8, INT16, UINT16, INT32, INT64, FLOAT64, UUID, STRING, BYTES, RECORDS, STRUCT


cdef class Field:
    cdef Kind kind
    cdef bint is_array, on_wire, nullable, ignorable, makes_list
    cdef long long tag  # -1: a field in its place
    cdef Py_ssize_t place, smallest
    cdef object default, name
    cdef Layout inner


cdef class Layout:
    cdef object cls
    cdef list fields, tagged, with_errors
    cdef Field error_code  # None: it has none of its own
    cdef bint flexible
