# What other kernel modules see of turns.py when compiled.

from cpython.pythread cimport PyThread_type_lock


cdef class Turns:
    cdef volatile int wanted
    cdef PyThread_type_lock _lock
    cdef bint _held

    cdef void begin(self) noexcept nogil
    cdef void give_way(self) noexcept
