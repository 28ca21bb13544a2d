/* CRC-32 as zip archives have it, 64 bytes at once: see checksum.py. */
#include "kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

#define CAN __attribute__((target("pclmul,sse4.1")))

/* The remainders of powers of x, by which what was read is moved on: by 512 bits, by 128, by 64; and for the last step. */
static const uint64_t by_512[] = {0x0154442bd4, 0x01c6e41596}, by_128[] = {0x01751997d0, 0x00ccaa009e},
                      by_64[] = {0x0163cd6124, 0}, last_step[] = {0x01db710641, 0x01f7011641};

CAN static inline __m128i moved(__m128i x, __m128i by, __m128i more)
{
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), more);
}

CAN static inline __m128i at(const uint8_t *data)
{
    return _mm_loadu_si128((const __m128i *)data);
}

/* Takes n bytes in, at least 64 and a multiple of 16. */
CAN static uint32_t taken_in(const uint8_t *data, int64_t n, uint32_t crc)
{
    __m128i x[4], by = at((const uint8_t *)by_512), low = _mm_setr_epi32(-1, 0, -1, 0), y;
    for (int i = 0; i < 4; i++)
        x[i] = at(data + 16 * i);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
    for (data += 64, n -= 64; n >= 64; data += 64, n -= 64)
        for (int i = 0; i < 4; i++)
            x[i] = moved(x[i], by, at(data + 16 * i));
    by = at((const uint8_t *)by_128);
    for (int i = 1; i < 4; i++)
        x[0] = moved(x[0], by, x[i]);
    for (; n >= 16; data += 16, n -= 16)
        x[0] = moved(x[0], by, at(data));
    x[0] = _mm_xor_si128(_mm_srli_si128(x[0], 8), _mm_clmulepi64_si128(x[0], by, 0x10));
    y = _mm_srli_si128(x[0], 4);
    x[0] = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x[0], low), at((const uint8_t *)by_64), 0x00), y);
    by = at((const uint8_t *)last_step);
    y = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(x[0], low), by, 0x10), low);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x[0], _mm_clmulepi64_si128(y, by, 0x00)), 1);
}

static int can_multiply(void)
{
    uint32_t a, b, c, d, wanted = 1u << 1 | 1u << 19; /* pclmulqdq, sse4.1 */
    return __get_cpuid(1, &a, &b, &c, &d) && (c & wanted) == wanted;
}

/* Takes n bytes into a checksum. 1: this processor has no instruction for it; -1: the numbers make no sense. */
int EXPORTED(checksum)(const uint8_t *data, int64_t n, uint32_t *sum)
{
    if (n < 0 || (n && !data) || !sum)
        return -1;
    if (!can_multiply())
        return 1;
    uint32_t crc = ~*sum;
    int64_t whole = n < 64 ? 0 : n - n % 16;
    if (whole)
        crc = taken_in(data, whole, crc);
    for (int64_t i = whole; i < n; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    *sum = ~crc;
    return 0;
}
#else
int EXPORTED(checksum)(const uint8_t *data, int64_t n, uint32_t *sum)
{
    return n < 0 || (n && !data) || !sum ? -1 : 1;
}
#endif
