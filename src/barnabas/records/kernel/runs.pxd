# The C fields of the classes of runs.py. The memory behind the pointers belongs to the objects beside them.


cdef class Sizes:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t key_bytes
    cdef readonly Py_ssize_t value_bytes
    cdef readonly Py_ssize_t headers
    cdef readonly Py_ssize_t name_bytes
    cdef readonly Py_ssize_t header_bytes

    cdef int clear(self) noexcept nogil
    cdef int add(self, Sizes other) noexcept nogil


cdef class Run:
    cdef readonly object data
    cdef readonly Py_ssize_t start
    cdef readonly Py_ssize_t stop
    cdef readonly long long first_offset
    cdef readonly long long next_offset
    cdef readonly Sizes sizes
    cdef readonly object kept
    cdef Sizes _batch

    cdef bint _take_batch(self, const unsigned char* data, Py_ssize_t end, int refused, bint check_crcs) noexcept nogil
    cdef bint _measure_records(
        self, const unsigned char* data, Py_ssize_t at, Py_ssize_t end, long long base_offset, Py_ssize_t count
    ) noexcept nogil
    cdef bint _measure_record(self, const unsigned char* data, Py_ssize_t at, Py_ssize_t stop, bint wanted) noexcept nogil
    cdef bint _measure_headers(
        self, const unsigned char* data, Py_ssize_t at, Py_ssize_t stop, long long count, bint wanted
    ) noexcept nogil


cdef class Cells:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t nulls
    cdef readonly object ends
    cdef readonly bytearray valid
    cdef readonly bytearray data
    cdef Py_ssize_t _size
    cdef int[::1] _ends
    cdef unsigned char* _valid
    cdef unsigned char* _data

    cdef Py_ssize_t put(self, const unsigned char* source, Py_ssize_t at, long long length) noexcept nogil


cdef class RunColumns:
    cdef readonly Py_ssize_t rows
    cdef readonly object offsets
    cdef readonly object timestamps
    cdef readonly bytearray types
    cdef readonly object header_ends
    cdef readonly Cells keys
    cdef readonly Cells values
    cdef readonly Cells names
    cdef readonly Cells header_values
    cdef long long[::1] _offsets
    cdef long long[::1] _timestamps
    cdef unsigned char* _types
    cdef int[::1] _header_ends

    cdef int _add_batch(self, const unsigned char* data, Py_ssize_t at, long long first_offset) noexcept nogil
    cdef int _add_bytes(self, const unsigned char* data, Py_ssize_t at, Py_ssize_t stop) noexcept nogil
