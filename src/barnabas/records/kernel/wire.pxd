# The compiled form of wire.py: the same functions, inlined into each kernel module that cimports them. Big-endian integers,
# zig-zag varints and text, read from and written to plain memory; callers have checked that the bytes are there.

from libc.string cimport memcpy

cdef extern from * nogil:
    """
    #if defined(_MSC_VER)
    #include <stdlib.h>
    #define barnabas_big_endian64 _byteswap_uint64
    #define barnabas_big_endian32 _byteswap_ulong
    #elif __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define barnabas_big_endian64 __builtin_bswap64
    #define barnabas_big_endian32 __builtin_bswap32
    #else
    #define barnabas_big_endian64(value) (value)
    #define barnabas_big_endian32(value) (value)
    #endif
    """
    unsigned long long big_endian64 "barnabas_big_endian64" (unsigned long long value)
    unsigned int big_endian32 "barnabas_big_endian32" (unsigned int value)


cdef inline long long int64_at(const unsigned char* data, Py_ssize_t at) noexcept nogil:
    cdef unsigned long long raw
    memcpy(&raw, data + at, 8)
    return <long long> big_endian64(raw)


cdef inline int int32_at(const unsigned char* data, Py_ssize_t at) noexcept nogil:
    cdef unsigned int raw
    memcpy(&raw, data + at, 4)
    return <int> big_endian32(raw)


cdef inline int int16_at(const unsigned char* data, Py_ssize_t at) noexcept nogil:
    return <short> ((data[at] << 8) | data[at + 1])


cdef inline void put_int64(unsigned char* target, Py_ssize_t at, long long value) noexcept nogil:
    cdef unsigned long long raw = big_endian64(<unsigned long long> value)
    memcpy(target + at, &raw, 8)


cdef inline void put_int32(unsigned char* target, Py_ssize_t at, int value) noexcept nogil:
    cdef unsigned int raw = big_endian32(<unsigned int> value)
    memcpy(target + at, &raw, 4)


cdef inline void put_int16(unsigned char* target, Py_ssize_t at, int value) noexcept nogil:
    target[at] = (value >> 8) & 0xFF
    target[at + 1] = value & 0xFF


cdef inline void put_bytes(
    unsigned char* target, Py_ssize_t at, const unsigned char* data, Py_ssize_t start, Py_ssize_t length
) noexcept nogil:
    memcpy(target + at, data + start, length)


cdef inline (long long, Py_ssize_t) varint_at(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    # (value, position after it); the position is -1 when the varint is cut off or longer than ten bytes.
    cdef unsigned long long raw = 0
    cdef unsigned char byte
    cdef int shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        raw |= (<unsigned long long> (byte & 0x7F)) << shift
        if byte < 0x80:
            return <long long> (raw >> 1) ^ -<long long> (raw & 1), at
        shift += 7
    return 0, -1


cdef inline bint is_utf8(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    # Whether the bytes are text in UTF-8: the second byte of a character has a range of its own behind some first ones.
    cdef unsigned char first, low, high
    cdef int more
    while at < end:
        first = data[at]
        at += 1
        if first < 0x80:
            continue
        low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if first < 0xC2 or first > 0xF4 or end - at < more or data[at] < low or data[at] > high:
            return False
        at += 1
        while more > 1:
            if data[at] & 0xC0 != 0x80:
                return False
            at += 1
            more -= 1
    return True


cdef inline Py_ssize_t put_varint(unsigned char* target, Py_ssize_t at, long long value) noexcept nogil:
    # The position after it. At most ten bytes.
    cdef unsigned long long raw = (<unsigned long long> value << 1) ^ <unsigned long long> (value >> 63)
    while raw > 0x7F:
        target[at] = 0x80 | (raw & 0x7F)
        raw >>= 7
        at += 1
    target[at] = <unsigned char> raw
    return at + 1


cdef inline int varint_size(long long value) noexcept nogil:
    cdef unsigned long long raw = (<unsigned long long> value << 1) ^ <unsigned long long> (value >> 63)
    cdef int size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size
