# What other kernel modules see of builder.py when compiled.

from barnabas.records.kernel.builder_memory cimport Column


cdef unsigned int _murmur2(const unsigned char* data, Py_ssize_t at, Py_ssize_t length) noexcept nogil


cdef class RowSource:
    cdef object _owners
    cdef bint _has_keys
    cdef bint _has_headers
    cdef bint _has_times
    cdef Column _keys
    cdef Column _values
    cdef Column _headers
    cdef const long long* _times

    cdef int _partition(self, Py_ssize_t row, unsigned int count) noexcept nogil


cdef class BatchBuilder:
    cdef readonly bytearray buffer
    cdef unsigned char* _memory
    cdef readonly Py_ssize_t limit
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t plain_size
    cdef readonly int record_count
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp
    cdef readonly bint closed

    cdef int append_record(self, long long timestamp, bytes key, bytes value, bytes headers) noexcept
    cdef Py_ssize_t _begin_record(
        self, long long timestamp, Py_ssize_t key_length, Py_ssize_t value_length, Py_ssize_t header_length
    ) noexcept nogil
    cdef int _end_record(self, long long timestamp, Py_ssize_t end) noexcept nogil
    cdef Py_ssize_t _append_span(
        self, RowSource source, Py_ssize_t start, Py_ssize_t stop, long long now, bint listed, const unsigned char* rows
    ) noexcept nogil
    cdef bint _append_row(self, RowSource source, Py_ssize_t row, long long now) noexcept nogil
