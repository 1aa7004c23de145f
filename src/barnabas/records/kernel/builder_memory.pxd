# The compiled form of builder_memory.py: the same functions, inlined. Arrow's buffers are plain memory here.

from libc.string cimport memcpy

from barnabas.records.kernel.checksum cimport extend
from barnabas.records.kernel.wire cimport put_int32


cdef struct Column:
    const long long* offsets
    const unsigned char* data
    const unsigned char* valid
    Py_ssize_t first


cdef inline Column column(buffers):
    cdef Column made
    cdef object offsets, data, valid
    offsets, data, valid, made.first = buffers
    made.offsets = <const long long*> <size_t> offsets.address + made.first
    made.data = NULL if data is None else <const unsigned char*> <size_t> data.address
    made.valid = NULL if valid is None else <const unsigned char*> <size_t> valid.address
    return made


cdef inline const long long* int64_memory(buffer, Py_ssize_t first):
    return <const long long*> <size_t> buffer.address + first


cdef inline Py_ssize_t span_length(Column column, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t bit = column.first + row
    if column.valid != NULL and not (column.valid[bit >> 3] >> (bit & 7)) & 1:
        return -1
    return column.offsets[row + 1] - column.offsets[row]


cdef inline Py_ssize_t span_start(Column column, Py_ssize_t row) noexcept nogil:
    return column.offsets[row]


cdef inline const unsigned char* span_data(Column column) noexcept nogil:
    return column.data


cdef inline int native_int32_at(const unsigned char* data, Py_ssize_t at) noexcept nogil:
    cdef int value
    memcpy(&value, data + at, 4)
    return value


cdef inline void put_native_int32(unsigned char* target, Py_ssize_t at, int value) noexcept nogil:
    memcpy(target + at, &value, 4)


cdef inline void put_unsigned32(unsigned char* target, Py_ssize_t at, unsigned int value) noexcept nogil:
    put_int32(target, at, <int> value)


cdef inline unsigned int checksum_of(const unsigned char* data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    return extend(0, data, start, end)
