# SipHash-2-4 with 128 bits: the hash of a key with a secret seed, for tables of keys. compaction.py has another hash for the plain form;
# the two need not agree, because no table outlives a cleaning.

cdef extern from * nogil:
    """
    #if defined(_MSC_VER)
    #include <stdlib.h>
    #define barnabas_rotate_left(value, bits) _rotl64(value, bits)
    #else
    #define barnabas_rotate_left(value, bits) (((value) << (bits)) | ((value) >> (64 - (bits))))
    #endif
    #define barnabas_sip_round(v0, v1, v2, v3) do { \
        v0 += v1; v1 = barnabas_rotate_left(v1, 13); v1 ^= v0; v0 = barnabas_rotate_left(v0, 32); \
        v2 += v3; v3 = barnabas_rotate_left(v3, 16); v3 ^= v2; \
        v0 += v3; v3 = barnabas_rotate_left(v3, 21); v3 ^= v0; \
        v2 += v1; v1 = barnabas_rotate_left(v1, 17); v1 ^= v2; v2 = barnabas_rotate_left(v2, 32); \
    } while (0)
    """
    void sip_round "barnabas_sip_round" (
        unsigned long long v0, unsigned long long v1, unsigned long long v2, unsigned long long v3
    )


cdef inline unsigned long long _word(const unsigned char* data) noexcept nogil:
    cdef unsigned long long word = 0
    cdef int number
    for number in range(8):
        word |= (<unsigned long long> data[number]) << (8 * number)
    return word


cdef inline void _put_word(unsigned char* target, unsigned long long word) noexcept nogil:
    cdef int number
    for number in range(8):
        target[number] = (word >> (8 * number)) & 0xFF


cdef inline void hash_key(
    const unsigned char* seed, const unsigned char* data, Py_ssize_t start, Py_ssize_t length, unsigned char* target
) noexcept nogil:
    # The 16 bytes of the hash of data[start : start + length] into `target`; the seed has 16 bytes.
    cdef unsigned long long k0 = _word(seed)
    cdef unsigned long long k1 = _word(seed + 8)
    cdef unsigned long long v0 = <unsigned long long> 0x736f6d6570736575 ^ k0
    cdef unsigned long long v1 = <unsigned long long> 0x646f72616e646f6d ^ k1 ^ 0xEE
    cdef unsigned long long v2 = <unsigned long long> 0x6c7967656e657261 ^ k0
    cdef unsigned long long v3 = <unsigned long long> 0x7465646279746573 ^ k1
    cdef unsigned long long word
    cdef const unsigned char* at = data + start
    cdef const unsigned char* end = at + (length - length % 8)
    cdef int number
    while at < end:
        word = _word(at)
        v3 ^= word
        sip_round(v0, v1, v2, v3)
        sip_round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    word = (<unsigned long long> length) << 56
    for number in range(length % 8):
        word |= (<unsigned long long> at[number]) << (8 * number)
    v3 ^= word
    sip_round(v0, v1, v2, v3)
    sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= 0xEE
    for number in range(4):
        sip_round(v0, v1, v2, v3)
    _put_word(target, v0 ^ v1 ^ v2 ^ v3)
    v1 ^= 0xDD
    for number in range(4):
        sip_round(v0, v1, v2, v3)
    _put_word(target + 8, v0 ^ v1 ^ v2 ^ v3)
