# What turns.py does below Python: waiting for a descriptor and for a lock, without the GIL.

from cpython.pythread cimport PyThread_type_lock

cdef extern from * nogil:
    """
    #include "pythread.h"
    #if defined(_WIN32)
    static int barnabas_wait_readable(int fd, int timeout_ms) { return -1; }
    static int barnabas_readable_within(int fd, long long nanoseconds) { return 0; }
    #else
    #include <poll.h>
    #include <time.h>
    static long long barnabas_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    static int barnabas_readable_within(int fd, long long nanoseconds) {
        struct pollfd waiting = {fd, POLLIN, 0};
        long long end = barnabas_now() + nanoseconds;
        do {
            if (poll(&waiting, 1, 0) != 0) return 1;
        } while (barnabas_now() < end);
        return 0;
    }
    static int barnabas_wait_readable(int fd, int timeout_ms) {
        struct pollfd waiting = {fd, POLLIN, 0};
        return poll(&waiting, 1, timeout_ms);
    }
    #endif
    static int barnabas_lock_within(PyThread_type_lock lock, long long microseconds) {
        return PyThread_acquire_lock_timed(lock, microseconds, 0) == PY_LOCK_ACQUIRED;
    }
    """
    int wait_readable "barnabas_wait_readable" (int fd, int timeout_ms)
    int readable_within "barnabas_readable_within" (int fd, long long nanoseconds)
    int lock_within "barnabas_lock_within" (PyThread_type_lock lock, long long microseconds)
