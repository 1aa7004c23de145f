/* CRC-32C (Castagnoli) for the record kernel.

   x86-64 with SSE 4.2 and ARMv8 with CRC have an instruction for it. One chain of them is bound by its latency (3 cycles for 8
   bytes), so long inputs run three chains side by side, each over LANE bytes, and join the results: the checksum of A followed by B
   is shift(crc(A), length of B) xor crc(B), and a shift over a fixed length is four look-ups. Elsewhere: slicing by eight.

   x86-64 with AVX-512 and VPCLMULQDQ folds instead: as polynomials, A followed by B is A * x^(length of B) + B, and instead of that power
   its remainder modulo the CRC's polynomial will do. Eight multiplications in two instructions move 64 bytes over those 256 bytes later,
   three to four times as fast as the chains. (Gopal et al., Fast CRC Computation Using PCLMULQDQ Instruction, Intel 2009.) */

#ifndef BARNABAS_CRC32C_H
#define BARNABAS_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define BARNABAS_CRC_TARGET __attribute__((target("sse4.2")))
#define BARNABAS_CRC8(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
#define BARNABAS_CRC32(crc, word) _mm_crc32_u32((uint32_t)(crc), (word))
#define BARNABAS_CRC64(crc, word) _mm_crc32_u64((crc), (word))
#define barnabas_has_instruction() __builtin_cpu_supports("sse4.2")
#if defined(__clang__) ? __clang_major__ >= 8 : __GNUC__ >= 9
#define BARNABAS_WIDE_TARGET __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))
#define barnabas_has_folding() \
    (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("avx512f") && \
     __builtin_cpu_supports("vpclmulqdq"))
#endif
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
static int barnabas_way = 0;

enum { BARNABAS_TABLES, BARNABAS_INSTRUCTION, BARNABAS_FOLDING };

static uint32_t barnabas_shift_over(uint32_t crc, const uint32_t table[4][256])
{
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^ table[3][crc >> 24];
}

#ifdef barnabas_has_folding
#define BARNABAS_WORTH_FOLDING 512 /* bytes; a turn of the folding takes 256 */

enum { BARNABAS_OVER_2048, BARNABAS_OVER_512, BARNABAS_OVER_384, BARNABAS_OVER_256, BARNABAS_OVER_128, BARNABAS_POWERS };
static uint64_t barnabas_power[BARNABAS_POWERS][2]; /* what moves the low and the high half of 16 bytes over so many bits */

static uint64_t barnabas_power_of_x(int exponent)
{
    uint32_t power = 0x80000000u; /* bit 31 is x^0 */
    while (exponent--)
        power = (power >> 1) ^ (power & 1 ? 0x82f63b78u : 0);
    return (uint64_t)power << 1;
}

static void barnabas_prepare_powers(void)
{
    static const int bits[BARNABAS_POWERS] = {2048, 512, 384, 256, 128};
    for (int k = 0; k < BARNABAS_POWERS; k++) {
        barnabas_power[k][0] = barnabas_power_of_x(bits[k] + 32);
        barnabas_power[k][1] = barnabas_power_of_x(bits[k] - 32);
    }
}
#endif

/* Once, when the module is loaded, before any other thread can call. `best` is the best way that may be taken: less for tests. */
static void barnabas_crc32c_prepare(int best)
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
    barnabas_way = BARNABAS_TABLES;
#ifdef barnabas_has_instruction
    if (best >= BARNABAS_INSTRUCTION && barnabas_has_instruction())
        barnabas_way = BARNABAS_INSTRUCTION;
#endif
#ifdef barnabas_has_folding
    barnabas_prepare_powers();
    if (best >= BARNABAS_FOLDING && barnabas_has_folding())
        barnabas_way = BARNABAS_FOLDING;
#endif
    (void)best;
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

#ifdef barnabas_has_folding
#define BARNABAS_LOAD(data) _mm512_loadu_si512((const void *)(data))
#define BARNABAS_POWER(number) _mm_set_epi64x((long long)barnabas_power[number][1], (long long)barnabas_power[number][0])
#define BARNABAS_WIDE_POWER(number) _mm512_broadcast_i32x4(BARNABAS_POWER(number))

BARNABAS_WIDE_TARGET static inline __m512i barnabas_fold(__m512i bytes, __m512i power, __m512i later)
{
    return _mm512_xor_si512(
        _mm512_xor_si512(_mm512_clmulepi64_epi128(bytes, power, 0x00), _mm512_clmulepi64_epi128(bytes, power, 0x11)), later);
}

BARNABAS_WIDE_TARGET static inline __m128i barnabas_fold_narrow(__m128i bytes, __m128i power, __m128i later)
{
    return _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128(bytes, power, 0x00), _mm_clmulepi64_si128(bytes, power, 0x11)), later);
}

/* At least 256 bytes. */
BARNABAS_WIDE_TARGET static uint32_t barnabas_crc_folding(uint32_t crc, const unsigned char *data, size_t length)
{
    __m512i first = _mm512_xor_si512(BARNABAS_LOAD(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i second = BARNABAS_LOAD(data + 64), third = BARNABAS_LOAD(data + 128), last = BARNABAS_LOAD(data + 192);
    __m512i power = BARNABAS_WIDE_POWER(BARNABAS_OVER_2048);
    for (data += 256, length -= 256; length >= 256; data += 256, length -= 256) {
        first = barnabas_fold(first, power, BARNABAS_LOAD(data));
        second = barnabas_fold(second, power, BARNABAS_LOAD(data + 64));
        third = barnabas_fold(third, power, BARNABAS_LOAD(data + 128));
        last = barnabas_fold(last, power, BARNABAS_LOAD(data + 192));
    }
    power = BARNABAS_WIDE_POWER(BARNABAS_OVER_512);
    last = barnabas_fold(barnabas_fold(barnabas_fold(first, power, second), power, third), power, last);
    for (; length >= 64; data += 64, length -= 64)
        last = barnabas_fold(last, power, BARNABAS_LOAD(data));
    __m128i rest = _mm512_extracti32x4_epi32(last, 3);
    rest = barnabas_fold_narrow(_mm512_extracti32x4_epi32(last, 0), BARNABAS_POWER(BARNABAS_OVER_384), rest);
    rest = barnabas_fold_narrow(_mm512_extracti32x4_epi32(last, 1), BARNABAS_POWER(BARNABAS_OVER_256), rest);
    rest = barnabas_fold_narrow(_mm512_extracti32x4_epi32(last, 2), BARNABAS_POWER(BARNABAS_OVER_128), rest);
    uint64_t state = BARNABAS_CRC64(0, (uint64_t)_mm_cvtsi128_si64(rest));
    state = BARNABAS_CRC64(state, (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(rest, rest)));
    _mm256_zeroupper(); /* else narrow instructions are slow from here on; gcc does not think of it */
    return barnabas_crc_instruction((uint32_t)state, data, length);
}
#endif

/* The checksum of what `crc` is the checksum of (0: nothing), followed by these bytes. */
static uint32_t barnabas_crc32c_extend(uint32_t crc, const unsigned char *data, size_t length)
{
#ifdef barnabas_has_folding
    if (barnabas_way == BARNABAS_FOLDING && length >= BARNABAS_WORTH_FOLDING)
        return ~barnabas_crc_folding(~crc, data, length);
#endif
#ifdef barnabas_has_instruction
    if (barnabas_way >= BARNABAS_INSTRUCTION)
        return ~barnabas_crc_instruction(~crc, data, length);
#endif
    return ~barnabas_crc_tables(~crc, data, length);
}

#endif
