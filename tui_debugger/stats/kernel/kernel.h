/* What all files of the kernel share.
 *
 * Each file is compiled once for each level of the processor (build.py): plain C that compilers make vectors of. The names of what Python calls carry the level; `tdbg_level` says which one this processor runs.
 *
 * Products are never fused with sums (-ffp-contract=off), and the sums of one tensor go through a fixed number of lanes,
 * so that every level, and every processor, returns the same bits. Those of pairs may differ in the last ones.
 */
#ifndef TDBG_KERNEL_H
#define TDBG_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#ifndef TDBG_LEVEL
#define TDBG_LEVEL 0
#endif

#define TDBG_JOINED(name, level) name##_##level
#define TDBG_NAMED(name, level) TDBG_JOINED(name, level)

/* The name of a function that Python calls: `int64_t EXPORTED(moments)(...)`. */
#if defined(__GNUC__)
#define EXPORTED(name) __attribute__((visibility("default"))) TDBG_NAMED(name, TDBG_LEVEL)
#else
#define EXPORTED(name) TDBG_NAMED(name, TDBG_LEVEL)
#endif

/* The same name where another function of the kernel calls it. */
#define EXPORTED_CALL(name) TDBG_NAMED(name, TDBG_LEVEL)

/* a * b + c, rounded once where the processor can: only where nobody counts on the same bits everywhere. */
#if defined(__FMA__) || defined(__aarch64__)
#define TIMES_PLUS(a, b, c) __builtin_fma(a, b, c)
#define SINGLE_TIMES_PLUS(a, b, c) __builtin_fmaf(a, b, c)
#else
#define TIMES_PLUS(a, b, c) ((a) * (b) + (c))
#define SINGLE_TIMES_PLUS(a, b, c) ((a) * (b) + (c))
#endif

/* Elements of a chunk: with float32 copies of two tensors it stays in the first-level cache. */
#define CHUNK 2048

/* The kinds of elements; `KINDS` in __init__.py has the same numbers. Bytes of 8 bits have their values in a table. */
enum kind { F32, F64, F16, BF16, I16, U16, I32, U32, I64, U64, TABLE8 };

static inline int64_t item_size(int kind)
{
    static const int8_t sizes[] = {4, 8, 2, 2, 2, 2, 4, 4, 8, 8, 1};
    return kind >= F32 && kind <= TABLE8 ? sizes[kind] : 0;
}

/* Says whether every value of a kind is a float32; the others are float64, int64 and uint64 rounded to it. */
static inline int fits_single(int kind)
{
    return kind == F32 || kind == F16 || kind == BF16 || kind == I16 || kind == U16 || kind == TABLE8;
}

static inline float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Casts n elements of a kind that fits to float32. `from` may lie at any address, `to` holds at least n. */
static inline void to_single(int kind, const void *from, const float *table, int64_t n, float *to)
{
    const uint8_t *bytes = from;
    switch (kind) {
    case F32:
        memcpy(to, bytes, (size_t)n * 4);
        break;
    case BF16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t half;
            memcpy(&half, bytes + 2 * i, 2);
            to[i] = of_bits((uint32_t)half << 16);
        }
        break;
    case F16:
    {
        int64_t i = 0;
#ifdef __F16C__
        for (; i + 8 <= n; i += 8) /* compilers of today do not find this instruction by themselves */
            _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(bytes + 2 * i))));
#endif
        /* No float32 on the way is subnormal: some libraries make processors take those for 0. */
        for (; i < n; i++) {
            uint16_t half;
            memcpy(&half, bytes + 2 * i, 2);
            uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
            uint32_t exponent = rest & 0x0f800000;
            uint32_t normal = rest + 0x38000000 + (exponent == 0x0f800000 ? 0x38000000 : 0);
            float small = of_bits(rest + 0x38800000) - of_bits(0x38800000);
            uint32_t small_bits;
            memcpy(&small_bits, &small, 4);
            to[i] = of_bits((exponent ? normal : small_bits) | sign);
        }
        break;
    }
    case I16:
        for (int64_t i = 0; i < n; i++) {
            int16_t whole;
            memcpy(&whole, bytes + 2 * i, 2);
            to[i] = (float)whole;
        }
        break;
    case U16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t whole;
            memcpy(&whole, bytes + 2 * i, 2);
            to[i] = (float)whole;
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            to[i] = table[bytes[i]];
    }
}

/* Casts n elements of any kind to float64. `from` may lie at any address, `to` holds at least n. */
static inline void to_double(int kind, const void *from, const float *table, int64_t n, double *to)
{
    const uint8_t *bytes = from;
#define CAST(type)                                          \
    for (int64_t i = 0; i < n; i++) {                       \
        type value;                                         \
        memcpy(&value, bytes + (int64_t)sizeof value * i, sizeof value); \
        to[i] = (double)value;                              \
    }                                                       \
    break
    switch (kind) {
    case F64:
        memcpy(to, bytes, (size_t)n * 8);
        break;
    case F32:
        CAST(float);
    case I32:
        CAST(int32_t);
    case U32:
        CAST(uint32_t);
    case I64:
        CAST(int64_t);
    case U64:
        CAST(uint64_t);
    default:
        for (int64_t start = 0; start < n; start += CHUNK) {
            float single[CHUNK];
            int64_t count = n - start < CHUNK ? n - start : CHUNK;
            to_single(kind, bytes + start * item_size(kind), table, count, single);
            for (int64_t i = 0; i < count; i++)
                to[start + i] = (double)single[i];
        }
    }
#undef CAST
}

/* The elements of an array: `table` is for TABLE8. */
struct elements {
    const void *data;
    const float *table;
    int64_t kind;
};

static inline int is_readable(const struct elements *e, int64_t n)
{
    return e && n >= 0 && e->kind >= F32 && e->kind <= TABLE8 && (!n || e->data) && (e->kind != TABLE8 || e->table);
}

/* Says whether a matrix of so many rows and columns has so many elements that no address overflows. */
static inline int is_matrix(const struct elements *e, int64_t rows, int64_t width)
{
    return rows >= 0 && width >= 0 && (!width || rows <= INT64_MAX / 128 / width) && is_readable(e, rows * width);
}

/* Where element number `first` lies. */
static inline const uint8_t *element_at(const struct elements *e, int64_t first)
{
    return (const uint8_t *)e->data + first * item_size((int)e->kind);
}

/* Casts n elements from number `first` on to float64. */
static inline void load(const struct elements *e, int64_t first, int64_t n, double *restrict to)
{
    to_double((int)e->kind, element_at(e, first), e->table, n, to);
}

/* Sums of some elements; `Moments` in moments.py says what the fields mean. */
struct moments {
    int64_t count, nan, pos_inf, neg_inf, negative, positive;
    double minimum, maximum, mean, abs_mean, deviations, squares;
};

static inline int64_t finite_of(const struct moments *m)
{
    return m->count - m->nan - m->pos_inf - m->neg_inf;
}

/* Adds the sums of n finite elements to those of `finite` others, by Chan's formula. */
static inline void merge(struct moments *to, int64_t finite, int64_t n, double mean, double abs_mean, double squares,
                         double deviations)
{
    if (finite) {
        double all = (double)(finite + n), old = (double)finite / all, new = (double)n / all;
        double delta = mean - to->mean;
        to->deviations += deviations + delta * delta * old * (double)n;
        /* The difference of two huge means may overflow. */
        to->mean = isfinite(delta) ? to->mean + delta * new : to->mean * old + mean * new;
        to->abs_mean += (abs_mean - to->abs_mean) * new;
    } else {
        to->mean = mean;
        to->abs_mean = abs_mean;
        to->deviations = deviations;
    }
    to->squares += squares;
}

/* Two tensors are close when all their elements are: by these tolerances, and so far. */
struct closeness {
    double rtol, atol;
    int64_t equal_nan, close;
};

int EXPORTED(moments)(int kind, const void *data, int64_t nbytes, const float *table, const double *ranges,
                      int64_t how_many, int64_t *inside, struct moments *to);
int EXPORTED(change)(const struct elements *now, const struct elements *before, int64_t n, double *sums,
                     struct closeness *tests, int64_t how_many);

#endif
