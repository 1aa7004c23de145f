/* CRC-32C (Castagnoli) for the record kernel.

   x86-64 with SSE 4.2 and ARMv8 with CRC have an instruction for it. One chain of them is bound by its latency (3 cycles for 8
   bytes), so long inputs run three chains side by side, each over LANE bytes, and join the results: the checksum of A followed by B
   is shift(crc(A), length of B) xor crc(B), and a shift over a fixed length is four look-ups. Elsewhere: slicing by eight. */

#ifndef BARNABAS_CRC32C_H
#define BARNABAS_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#define BARNABAS_CRC_TARGET __attribute__((target("sse4.2")))
#define BARNABAS_CRC8(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
#define BARNABAS_CRC32(crc, word) _mm_crc32_u32((uint32_t)(crc), (word))
#define BARNABAS_CRC64(crc, word) _mm_crc32_u64((crc), (word))
#define barnabas_has_instruction() __builtin_cpu_supports("sse4.2")
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define BARNABAS_CRC_TARGET
#define BARNABAS_CRC8(crc, byte) __crc32cb((uint32_t)(crc), (byte))
#define BARNABAS_CRC32(crc, word) __crc32cw((uint32_t)(crc), (word))
#define BARNABAS_CRC64(crc, word) __crc32cd((uint32_t)(crc), (word))
#define barnabas_has_instruction() 1
#endif

#define BARNABAS_LANE 512

static uint32_t barnabas_slices[8][256];
static uint32_t barnabas_shift[4][256]; /* over BARNABAS_LANE bytes of zero */
static int barnabas_fast = 0;

static uint32_t barnabas_shift_over(uint32_t crc, const uint32_t table[4][256])
{
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^ table[3][crc >> 24];
}

/* Once, when the module is loaded, before any other thread can call. `fast` = 0 keeps to the tables: for tests. */
static void barnabas_crc32c_prepare(int fast)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
        barnabas_slices[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++) {
            uint32_t before = barnabas_slices[k - 1][n];
            barnabas_slices[k][n] = (before >> 8) ^ barnabas_slices[0][before & 0xff];
        }
    for (int k = 0; k < 4; k++)
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t crc = n << (8 * k);
            for (int zero = 0; zero < BARNABAS_LANE; zero++)
                crc = (crc >> 8) ^ barnabas_slices[0][crc & 0xff];
            barnabas_shift[k][n] = crc;
        }
#ifdef barnabas_has_instruction
    barnabas_fast = fast && barnabas_has_instruction();
#else
    (void)fast;
#endif
}

static uint32_t barnabas_crc_tables(uint32_t crc, const unsigned char *data, size_t length)
{
    for (; length >= 8; data += 8, length -= 8) {
        uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24);
        crc = barnabas_slices[7][low & 0xff] ^ barnabas_slices[6][(low >> 8) & 0xff] ^
              barnabas_slices[5][(low >> 16) & 0xff] ^ barnabas_slices[4][low >> 24] ^
              barnabas_slices[3][data[4]] ^ barnabas_slices[2][data[5]] ^ barnabas_slices[1][data[6]] ^
              barnabas_slices[0][data[7]];
    }
    for (; length; data++, length--)
        crc = (crc >> 8) ^ barnabas_slices[0][(crc ^ *data) & 0xff];
    return crc;
}

#ifdef barnabas_has_instruction
static inline uint64_t barnabas_word(const unsigned char *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

static inline uint32_t barnabas_half_word(const unsigned char *data)
{
    uint32_t word;
    memcpy(&word, data, 4);
    return word;
}

BARNABAS_CRC_TARGET static uint32_t barnabas_crc_instruction(uint32_t crc, const unsigned char *data, size_t length)
{
    uint64_t first = crc;
    for (; length >= 3 * BARNABAS_LANE; data += 3 * BARNABAS_LANE, length -= 3 * BARNABAS_LANE) {
        uint64_t second = 0, third = 0;
        for (size_t at = 0; at < BARNABAS_LANE; at += 8) {
            first = BARNABAS_CRC64(first, barnabas_word(data + at));
            second = BARNABAS_CRC64(second, barnabas_word(data + BARNABAS_LANE + at));
            third = BARNABAS_CRC64(third, barnabas_word(data + 2 * BARNABAS_LANE + at));
        }
        first = barnabas_shift_over((uint32_t)first, barnabas_shift) ^ second;
        first = barnabas_shift_over((uint32_t)first, barnabas_shift) ^ third;
    }
    for (; length >= 8; data += 8, length -= 8)
        first = BARNABAS_CRC64(first, barnabas_word(data));
    if (length & 4) {
        first = BARNABAS_CRC32(first, barnabas_half_word(data));
        data += 4;
    }
    for (length &= 3; length; data++, length--)
        first = BARNABAS_CRC8(first, *data);
    return (uint32_t)first;
}
#endif

/* The checksum of what `crc` is the checksum of (0: nothing), followed by these bytes. */
static uint32_t barnabas_crc32c_extend(uint32_t crc, const unsigned char *data, size_t length)
{
#ifdef barnabas_has_instruction
    if (barnabas_fast)
        return ~barnabas_crc_instruction(~crc, data, length);
#endif
    return ~barnabas_crc_tables(~crc, data, length);
}

#endif
