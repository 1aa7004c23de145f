# The types of send_path.py when compiled.

cimport cython
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from barnabas.records.kernel.builder cimport BatchBuilder
from barnabas.records.kernel.turns cimport Turns


cdef inline long long wall_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return now.tv_sec * 1000LL + now.tv_nsec // 1000000


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class RecordMetadata:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly long long offset
    cdef readonly long long timestamp


cdef class BatchResult:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly bint settled
    cdef readonly bint finished
    cdef readonly long long base_offset
    cdef readonly long long append_time
    cdef readonly object error
    cdef object _record_errors
    cdef object _event
    cdef list _watched
    cdef readonly list parts


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class RecordFuture:
    cdef BatchResult _result
    cdef int _index
    cdef long long _timestamp
    cdef object _on_delivery
    cdef object _callbacks

    cdef object _begin(self, BatchResult result, int index, long long timestamp, object on_delivery)
    cdef RecordMetadata _metadata(self)
    cdef object _tell(self)


cdef class OpenBatch(BatchBuilder):
    cdef readonly BatchResult result

    cdef RecordFuture append_watched(
        self, long long timestamp, bytes key, bytes value, bytes headers, object on_delivery
    )


cdef class TopicLane:
    cdef readonly str topic
    cdef public list open
    cdef public int partition_count
    cdef public int sticky
    cdef public long long sticky_bytes
    cdef public long long switch_at
    cdef cython.pymutex _lock

    cdef RecordFuture append_now(self, bytes key, bytes value, object on_delivery)


cdef class SendPath:
    cdef public dict _lanes
    cdef public bint _direct
    cdef public bint _direct_keys
    cdef Turns _turns
