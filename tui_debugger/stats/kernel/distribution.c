/* How many elements of an array there are of each value, class of values, or below a bound: see stats/distribution.py.
 *
 * A key is a number as wide as a float32 or float64 that rises with its value; its upper 16 bits are its class. Bits of
 * floats are keys but for a turn of the sign, so that classes are counted by the upper bits as they are.
 */
#include "kernel.h"

#define PIECE 2048
#define UPPER 65536

/* Adds the elements of 1 or 2 bytes with each pattern of bits to two lists of counts: neighbours are often equal, and
 * counted in the same place they would wait for each other. n: fewer than 2 to the power of 31 since both were 0.
 * Returns 0; -1 where an argument makes no sense. */
int EXPORTED(patterns)(const void *data, int64_t n, int64_t width, uint32_t *counts)
{
    if (n < 0 || n > INT64_C(1) << 31 || (width != 1 && width != 2) || !counts || (n && !data))
        return -1;
    const uint8_t *bytes = data;
    uint32_t *other = counts + (width == 1 ? 256 : UPPER);
    int64_t even = n - n % 2;
    for (int64_t i = 0; i < even; i += 2) {
        uint16_t pair[2] = {bytes[i], bytes[i + 1]};
        if (width == 2)
            memcpy(pair, bytes + 2 * i, 4);
        counts[pair[0]]++;
        other[pair[1]]++;
    }
    if (even < n) {
        uint16_t last = bytes[even];
        if (width == 2)
            memcpy(&last, bytes + 2 * even, 2);
        counts[last]++;
    }
    return 0;
}

/* Room for a piece whose elements have to be cast. */
union piece {
    float singles[PIECE];
    double doubles[PIECE];
};

/* Returns where the bits of a piece are as float32 (`narrow`) or float64: in the array itself where it holds such, so
 * that memory is read while others are counted, else in `room`. */
static const uint8_t *bits_of(const struct elements *e, int64_t first, int64_t n, int narrow, union piece *room)
{
    if (e->kind == (narrow ? F32 : F64)) {
        for (int64_t at = 0; n == PIECE && at < PIECE; at += 64 / item_size((int)e->kind))
            __builtin_prefetch(element_at(e, first + at + n / 2)); /* half of the next piece is asked for too */
        return element_at(e, first);
    }
    if (narrow)
        to_single((int)e->kind, element_at(e, first), e->table, n, room->singles);
    else
        load(e, first, n, room->doubles);
    return (const uint8_t *)room;
}

static inline uint32_t narrow_at(const uint8_t *bits, int64_t i)
{
    uint32_t found;
    memcpy(&found, bits + 4 * i, 4);
    return found;
}

static inline uint64_t wide_at(const uint8_t *bits, int64_t i)
{
    uint64_t found;
    memcpy(&found, bits + 8 * i, 8);
    return found;
}

/* Adds elements to two lists of 65,536 counts by the upper 16 bits of each as float32 (`narrow`: the kind must fit) or
 * float64; and to `zeros` those that are 0, and those of them that are -0. n: see `patterns`. Returns 0; -1 where an
 * argument makes no sense. */
int EXPORTED(classes)(const struct elements *e, int64_t n, int narrow, uint32_t *counts, int64_t *zeros)
{
    if (!is_readable(e, n) || n > INT64_C(1) << 31 || (narrow && !fits_single((int)e->kind)) || !counts || !zeros)
        return -1;
    uint32_t *other = counts + UPPER;
    int64_t zero = 0, minus = 0;
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE, even = count - count % 2;
        union piece room;
        const uint8_t *bits = bits_of(e, first, count, narrow, &room);
        if (narrow) {
            for (int64_t i = 0; i < even; i += 2) {
                counts[narrow_at(bits, i) >> 16]++;
                other[narrow_at(bits, i + 1) >> 16]++;
            }
            if (even < count)
                counts[narrow_at(bits, even) >> 16]++;
#pragma omp simd reduction(+ : zero, minus)
            for (int64_t i = 0; i < count; i++) {
                zero += (narrow_at(bits, i) << 1) == 0;
                minus += narrow_at(bits, i) == UINT32_C(1) << 31;
            }
        } else {
            for (int64_t i = 0; i < even; i += 2) {
                counts[wide_at(bits, i) >> 48]++;
                other[wide_at(bits, i + 1) >> 48]++;
            }
            if (even < count)
                counts[wide_at(bits, even) >> 48]++;
#pragma omp simd reduction(+ : zero, minus)
            for (int64_t i = 0; i < count; i++) {
                zero += (wide_at(bits, i) << 1) == 0;
                minus += wide_at(bits, i) == UINT64_C(1) << 63;
            }
        }
    }
    zeros[0] += zero;
    zeros[1] += minus;
    return 0;
}

/* Marks the elements other than 0 whose upper 16 bits are wanted. Looking them up one by one is faster than with vector
 * instructions, which are slow where processors guard against what others could learn from them. */
static void choose(const uint8_t *restrict bits, int64_t n, int narrow, const uint8_t *restrict wanted,
                   uint8_t *restrict to)
{
    if (narrow)
        for (int64_t i = 0; i < n; i++)
            to[i] = wanted[narrow_at(bits, i) >> 16];
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = wanted[wide_at(bits, i) >> 48];
    if (!wanted[0] && !wanted[UPPER / 2])
        return;
    if (narrow)
        for (int64_t i = 0; i < n; i++)
            to[i] &= (narrow_at(bits, i) << 1) != 0;
    else
        for (int64_t i = 0; i < n; i++)
            to[i] &= (wide_at(bits, i) << 1) != 0;
}

/* Returns 64 bytes that are 0 or 1 as bits, the first one lowest. */
static uint64_t mask_of(const uint8_t *bytes)
{
    uint64_t mask = 0;
    for (int part = 0; part < 8; part++) {
        uint64_t eight = 0; /* bytes in the order of the elements, whatever that of the processor is */
        for (int k = 0; k < 8; k++)
            eight |= (uint64_t)bytes[8 * part + k] << 8 * k;
        mask |= (eight * UINT64_C(0x0102040810204080) >> 56) << 8 * part;
    }
    return mask;
}

/* Writes the keys of the elements whose upper 16 bits are wanted, without those of 0. Returns how many they are, or -1
 * where an argument makes no sense.
 *
 * wanted: 0 or 1 for each value of the upper 16. keys: room for n of 4 bytes (`narrow`) or 8. */
int64_t EXPORTED(keys)(const struct elements *e, int64_t n, int narrow, const uint8_t *wanted, void *keys)
{
    if (!is_readable(e, n) || (narrow && !fits_single((int)e->kind)) || !wanted || (n && !keys))
        return -1;
    uint32_t *short_keys = keys;
    uint64_t *long_keys = keys;
    int64_t found = 0;
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE;
        uint8_t chosen[PIECE] = {0};
        union piece room;
        const uint8_t *bits = bits_of(e, first, count, narrow, &room);
        choose(bits, count, narrow, wanted, chosen);
        for (int64_t start = 0; start < count; start += 64) {
            for (uint64_t some = mask_of(chosen + start); some; some &= some - 1) {
                int64_t i = start + __builtin_ctzll(some);
                if (narrow) {
                    uint32_t key = narrow_at(bits, i);
                    short_keys[found++] = key ^ ((uint32_t)-(int32_t)(key >> 31) | UINT32_C(1) << 31);
                } else {
                    uint64_t key = wide_at(bits, i);
                    long_keys[found++] = key ^ ((uint64_t)-(int64_t)(key >> 63) | UINT64_C(1) << 63);
                }
            }
        }
    }
    return found;
}

/* Adds to `reached`, for each edge, the elements that are not below it; for the last one those above it. NaN is neither.
 * Returns 0; -1 where an argument makes no sense. */
int EXPORTED(edges)(const struct elements *e, int64_t n, const double *edges, int64_t how_many, int64_t *reached)
{
    if (!is_readable(e, n) || how_many < 1 || !edges || !reached)
        return -1;
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE;
        double x[PIECE];
        load(e, first, count, x);
        for (int64_t at = 0; at < how_many; at++) {
            int64_t found = 0;
            double edge = edges[at];
            if (at < how_many - 1)
                for (int64_t i = 0; i < count; i++)
                    found += x[i] >= edge;
            else
                for (int64_t i = 0; i < count; i++)
                    found += x[i] > edge;
            reached[at] += found;
        }
    }
    return 0;
}
