# The C fields of the class of fetched.py. A record keeps no reference that could lead back to it, so the collector need not know it.

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
