/* Vectors of float32 as wide as those of the processor, and tiles of products that stay in its registers. */
#ifndef TDBG_LANES_H
#define TDBG_LANES_H

#include "kernel.h"

#if defined(__AVX512F__) || defined(__AVX__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#define TILE_LANES 4 /* vectors of a tile side by side: as many as there are registers for */
#elif defined(__AVX__)
#define LANES 8
#define TILE_LANES 2
#else
#define LANES 4
#define TILE_LANES 2
#endif
#define TILE_ROWS 6
#define TILE_WIDTH (TILE_LANES * LANES)

typedef float lanes __attribute__((vector_size(LANES * 4)));

/* a * b + c, rounded once where the processor can. */
static inline lanes times_plus(lanes a, lanes b, lanes c)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX__) && defined(__FMA__)
    return (lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (lanes)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

static inline lanes lanes_at(const float *from)
{
    lanes value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* The same number in every lane: taking 0 away changes none. */
static inline lanes spread(float x)
{
    return x - (lanes){0};
}

#define TERMS 64 /* that are summed up in float32: what they make is summed up in float64 */

/* TILE_ROWS rows of `left`, each `apart` numbers after the one before, times a panel: for each of `terms` terms, at least
 * one, the numbers of `count` vectors. What is made has rows of TILE_WIDTH. */
#define TILE(name, count)                                                                                             \
    static inline void name(const float *left, int64_t apart, const float *panel, int64_t terms,                      \
                            float made[TILE_ROWS][TILE_WIDTH])                                                        \
    {                                                                                                                 \
        lanes sums[TILE_ROWS][count];                                                                                 \
        for (int row = 0; row < TILE_ROWS; row++)                                                                     \
            for (int at = 0; at < (count); at++)                                                                      \
                sums[row][at] = (lanes){0};                                                                           \
        do {                                                                                                          \
            lanes right[count];                                                                                       \
            for (int at = 0; at < (count); at++, panel += LANES)                                                      \
                right[at] = lanes_at(panel);                                                                          \
            for (int row = 0; row < TILE_ROWS; row++) {                                                               \
                lanes x = spread(left[row * apart]);                                                                  \
                for (int at = 0; at < (count); at++)                                                                  \
                    sums[row][at] = times_plus(x, right[at], sums[row][at]);                                          \
            }                                                                                                         \
            left++;                                                                                                   \
        } while (--terms > 0);                                                                                        \
        for (int row = 0; row < TILE_ROWS; row++)                                                                     \
            for (int at = 0; at < (count); at++)                                                                      \
                memcpy(made[row] + at * LANES, &sums[row][at], sizeof sums[row][at]);                                 \
    }

TILE(wide_tile, TILE_LANES)
TILE(narrow_tile, 1)

/* Columns `first` to `first + n` of a matrix in panels of `block` columns, with zeros where there are none: for each of
 * them all terms. */
static inline void pack(const float *matrix, int64_t terms, int64_t width, int64_t first, int64_t n, int64_t block,
                        float *to)
{
    for (int64_t at = 0; at < n; at += block) {
        int64_t some = n - at < block ? n - at : block;
        for (int64_t term = 0; term < terms; term++, to += block) {
            memcpy(to, matrix + term * width + first + at, sizeof *to * (size_t)some);
            memset(to + some, 0, sizeof *to * (size_t)(block - some));
        }
    }
}

#endif
