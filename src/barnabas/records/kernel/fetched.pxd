# The C fields of the classes of fetched.py. A record keeps no reference that could lead back to it, so the collector need not know it.

cimport cython


@cython.no_gc
@cython.freelist(512)
cdef class Record:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly long long offset
    cdef readonly long long timestamp
    cdef readonly int timestamp_type
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers


cdef class Columns:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t key_bytes
    cdef readonly Py_ssize_t value_bytes
    cdef readonly Py_ssize_t key_nulls
    cdef readonly Py_ssize_t value_nulls
    cdef readonly Py_ssize_t rows_with_headers
    cdef readonly object offsets
    cdef readonly object timestamps
    cdef readonly object key_ends
    cdef readonly object value_ends
    cdef readonly bytearray keys
    cdef readonly bytearray values
    cdef readonly bytearray key_valid
    cdef readonly bytearray value_valid
