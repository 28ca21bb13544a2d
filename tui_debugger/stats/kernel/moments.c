/* Every statistic of an array in one pass: counts, extremes, sums in float64.
 *
 * n numbers that are added in float64, in whatever order, are off by at most n * 2^-53 of the sum of their magnitudes.
 * A chunk of 2,048 elements adds at most 128 of them in each of its lanes, then those, then goes to the sum of all. With
 * the rounding of each square, sums of n elements are off by at most (140 + n / 2048) * 2^-53 of the sum of magnitudes
 * (of squares for that of squares): 2e-13 up to 4 million elements. The sum of squared distances from the mean is taken
 * from the sum of squares where at least 2^-10 of that is left, else from the elements once more, and merged by Chan's
 * formula: it is off by at most 2^12 times that bound, 1e-9 of itself.
 */
#include "kernel.h"

#define SINGLE_LANES 32 /* more are faster; of doubles the registers do not hold more */
#define DOUBLE_LANES 16
#define ENOUGH 0x1p-10

/* The sums of all chunks. Those of doubles may overflow: then the means, which are merged by Chan's formula, stand. */
struct totals {
    double sum, abs_sum;
};

struct sums {
    int64_t finite, negative, positive;
    double minimum, maximum, sum, abs_sum, squares;
};

/* Sums of n elements, LANES at a time; all of them finite unless `sum` is not (NaN and Inf spoil it). */
#define CORE(name, type, whole, LANES, PLUS_SQUARE)                                                                        \
    static void name(const type *x, int64_t n, struct sums *to)                                        \
    {                                                                                                  \
        double sum[LANES] = {0}, abs_sum[LANES] = {0}, squares[LANES] = {0};                           \
        type low[LANES], high[LANES];                                                                  \
        whole negative[LANES] = {0}, positive[LANES] = {0};                                            \
        type padded[LANES];                                                                            \
        for (int l = 0; l < LANES; l++)                                                                \
            low[l] = high[l] = x[0];                                                                   \
        int64_t even = n - n % LANES;                                                                  \
        for (int64_t i = 0; i < even; i += LANES)                                                      \
            for (int l = 0; l < LANES; l++)                                                            \
                ONE(type, x[i + l], PLUS_SQUARE);                                                                   \
        if (even < n) {                                                                                \
            int64_t rest = n - even;                                                                   \
            for (int l = 0; l < LANES; l++)                                                            \
                padded[l] = l < rest ? x[even + l] : 0;                                                \
            for (int l = 0; l < rest; l++)                                                             \
                ONE(type, padded[l], PLUS_SQUARE);                                                                  \
        }                                                                                              \
        *to = (struct sums){.finite = n, .minimum = low[0], .maximum = high[0]};                       \
        for (int step = LANES / 2; step; step /= 2)                                                    \
            for (int l = 0; l < step; l++) {                                                           \
                sum[l] += sum[l + step];                                                               \
                abs_sum[l] += abs_sum[l + step];                                                       \
                squares[l] += squares[l + step];                                                       \
            }                                                                                          \
        for (int l = 0; l < LANES; l++) {                                                              \
            to->negative += negative[l];                                                               \
            to->positive += positive[l];                                                               \
            to->minimum = low[l] < to->minimum ? low[l] : to->minimum;                                 \
            to->maximum = high[l] > to->maximum ? high[l] : to->maximum;                               \
        }                                                                                              \
        to->sum = sum[0];                                                                              \
        to->abs_sum = abs_sum[0];                                                                      \
        to->squares = squares[0];                                                                      \
    }

#define ONE(type, element, PLUS_SQUARE)         \
    do {                                        \
        type v = (element);                     \
        double d = (double)v;                   \
        low[l] = v < low[l] ? v : low[l];       \
        high[l] = v > high[l] ? v : high[l];    \
        negative[l] += v < 0;                   \
        positive[l] += v > 0;                   \
        sum[l] += d;                            \
        abs_sum[l] += fabs(d);                  \
        squares[l] = PLUS_SQUARE(squares[l], d); \
    } while (0)

#define PLUS_SQUARE(sum, d) ((sum) + (d) * (d))
/* The square of a float32 is a float64, so that fusing changes nothing. */
#if defined(__FMA__) || defined(__aarch64__)
#define PLUS_EXACT_SQUARE(sum, d) __builtin_fma(d, d, sum)
#else
#define PLUS_EXACT_SQUARE PLUS_SQUARE
#endif

CORE(core_single, float, int32_t, SINGLE_LANES, PLUS_EXACT_SQUARE)
CORE(core_double, double, int64_t, DOUBLE_LANES, PLUS_SQUARE)

/* Sum of squared distances from a number near the mean, less what that number is off by: (sum d)^2 / n. */
#define AROUND(name, type, LANES)                                              \
    static double name(const type *x, int64_t n, double *mean)                 \
    {                                                                          \
        double squares[LANES] = {0}, rest[LANES] = {0};                        \
        int64_t even = n - n % LANES;                                          \
        for (int64_t i = 0; i < even; i += LANES)                              \
            for (int l = 0; l < LANES; l++) {                                  \
                double d = (double)x[i + l] - *mean;                           \
                rest[l] += d;                                                  \
                squares[l] += d * d;                                           \
            }                                                                  \
        for (int64_t i = even; i < n; i++) {                                   \
            double d = (double)x[i] - *mean;                                   \
            rest[i - even] += d;                                               \
            squares[i - even] += d * d;                                        \
        }                                                                      \
        for (int l = 1; l < LANES; l++) {                                      \
            rest[0] += rest[l];                                                \
            squares[0] += squares[l];                                          \
        }                                                                      \
        double off = rest[0] / (double)n, left = squares[0] - off * off * (double)n; \
        if (!isfinite(squares[0]))                                             \
            return squares[0];                                                 \
        *mean += off;                                                          \
        return left > 0 ? left : 0;                                            \
    }

AROUND(around_single, float, SINGLE_LANES)
AROUND(around_double, double, DOUBLE_LANES)

/* Counts n elements within two bounds, both included; where all of them or none are inside, none is looked at. */
#define INSIDE(name, type)                                                                            \
    static int64_t name(const type *x, int64_t n, double start, double end, const struct sums *known) \
    {                                                                                                 \
        if (known && start <= known->minimum && known->maximum <= end)                                \
            return n;                                                                                 \
        if (known && (known->maximum < start || end < known->minimum))                                \
            return 0;                                                                                 \
        int64_t inside = 0;                                                                           \
        for (int64_t i = 0; i < n; i++)                                                               \
            inside += ((double)x[i] >= start) & ((double)x[i] <= end);                                \
        return inside;                                                                                \
    }

INSIDE(inside_single, float)
INSIDE(inside_double, double)

/* Adds a chunk of 1 to CHUNK elements; `work` holds as many, and the elements may lie in it. */
#define ADD(name, type, core, around, within)                                                          \
    static void name(const type *x, type *work, int64_t n, struct moments *to, struct totals *totals,  \
                     const double *ranges, int64_t how_many, int64_t *inside)                          \
    {                                                                                                  \
        struct sums sums;                                                                              \
        int all_finite = 1;                                                                            \
        int64_t before = finite_of(to), elements = n;                                                       \
        core(x, n, &sums);                                                                             \
        if (!isfinite(sums.sum))                                                                       \
            for (int64_t i = 0; i < n; i++)                                                            \
                all_finite &= isfinite(x[i]) != 0;                                                     \
        for (int64_t each = 0; each < how_many; each++)                                                \
            inside[each] += within(x, n, ranges[2 * each], ranges[2 * each + 1], all_finite ? &sums : 0); \
        to->count += elements;                                                                         \
        if (!all_finite) {                                                                             \
            int64_t kept = 0;                                                                          \
            for (int64_t i = 0; i < n; i++) {                                                          \
                type v = x[i];                                                                         \
                if (isfinite(v))                                                                       \
                    work[kept++] = v;                                                                  \
                else if (isnan(v))                                                                     \
                    to->nan++;                                                                         \
                else if (v > 0)                                                                        \
                    to->pos_inf++;                                                                     \
                else                                                                                   \
                    to->neg_inf++;                                                                     \
            }                                                                                          \
            if (!kept)                                                                                 \
                return;                                                                                \
            x = work;                                                                                  \
            n = kept;                                                                                  \
            core(x, n, &sums);                                                                         \
        }                                                                                              \
        to->negative += sums.negative;                                                                 \
        to->positive += sums.positive;                                                                 \
        to->minimum = sums.minimum < to->minimum ? sums.minimum : to->minimum;                         \
        to->maximum = sums.maximum > to->maximum ? sums.maximum : to->maximum;                         \
        if (sums.minimum == sums.maximum) {                                                            \
            double all = sums.minimum;                                                                 \
            merge(to, before, n, all, fabs(all), (double)n * all * all, 0);                            \
            totals->sum += (double)n * all;                                                            \
            totals->abs_sum += (double)n * fabs(all);                                                  \
            return;                                                                                    \
        }                                                                                              \
        double mean = sums.sum / (double)n, abs_mean = sums.abs_sum / (double)n;                       \
        if (!isfinite(mean) || !isfinite(abs_mean)) {                                                  \
            mean = abs_mean = 0; /* the sum of huge elements overflows, that of their parts does not */ \
            for (int64_t i = 0; i < n; i++) {                                                          \
                mean += (double)x[i] / (double)n;                                                      \
                abs_mean += fabs((double)x[i]) / (double)n;                                            \
            }                                                                                          \
        }                                                                                              \
        double deviations = sums.squares - sums.sum * mean;                                            \
        if (!(deviations > ENOUGH * sums.squares && deviations < INFINITY))                            \
            deviations = around(x, n, &mean);                                                          \
        merge(to, before, n, mean, abs_mean, sums.squares, deviations);                                \
        totals->sum += sums.sum;                                                                       \
        totals->abs_sum += sums.abs_sum;                                                               \
    }

ADD(add_single, float, core_single, around_single, inside_single)
ADD(add_double, double, core_double, around_double, inside_double)

/* Counts the bytes of each value. */
static void count_bytes(const uint8_t *bytes, int64_t n, int64_t counts[256])
{
    uint32_t parts[4][256]; /* one after the other would wait for each other where neighbours are equal */
    memset(counts, 0, 256 * sizeof *counts);
    for (int64_t start = 0; start < n; start += INT64_C(1) << 31) {
        int64_t end = n - start < INT64_C(1) << 31 ? n : start + (INT64_C(1) << 31), i = start;
        memset(parts, 0, sizeof parts);
        for (; i + 8 <= end; i += 8) {
            uint64_t eight;
            memcpy(&eight, bytes + i, 8);
            for (int k = 0; k < 8; k++)
                parts[k & 3][eight >> 8 * k & 255]++;
        }
        for (; i < end; i++)
            parts[0][bytes[i]]++;
        for (int value = 0; value < 256; value++)
            counts[value] += (int64_t)parts[0][value] + parts[1][value] + parts[2][value] + parts[3][value];
    }
}

/* The moments of elements of 8 bits, from how many there are of each. */
static void of_bytes(const uint8_t *bytes, int64_t n, const float *table, const double *ranges, int64_t how_many,
                     int64_t *inside, struct moments *to, struct totals *totals)
{
    int64_t counts[256], finite = 0;
    count_bytes(bytes, n, counts);
    to->count = n;
    for (int value = 0; value < 256; value++) {
        double x = table[value], number = (double)counts[value];
        if (!counts[value])
            continue;
        for (int64_t each = 0; each < how_many; each++)
            if (x >= ranges[2 * each] && x <= ranges[2 * each + 1])
                inside[each] += counts[value];
        if (isnan(x))
            to->nan += counts[value];
        else if (x == INFINITY)
            to->pos_inf += counts[value];
        else if (x == -INFINITY)
            to->neg_inf += counts[value];
        else {
            finite += counts[value];
            to->negative += x < 0 ? counts[value] : 0;
            to->positive += x > 0 ? counts[value] : 0;
            to->minimum = x < to->minimum ? x : to->minimum;
            to->maximum = x > to->maximum ? x : to->maximum;
            totals->sum += number * x;
            totals->abs_sum += number * fabs(x);
            to->squares += number * x * x;
        }
    }
    if (!finite)
        return;
    double mean = totals->sum / (double)finite;
    for (int value = 0; value < 256; value++)
        if (counts[value] && isfinite(table[value])) {
            double away = (double)table[value] - mean;
            to->deviations += (double)counts[value] * away * away;
        }
}

/* Measures `nbytes` of elements of a kind, at any address.
 *
 * table: the values of the 256 bytes, for TABLE8. ranges: `how_many` pairs of inclusive bounds; `inside` gets as many
 * counts. Returns 0; -1 where an argument makes no sense, and then nothing is read.
 */
int EXPORTED(moments)(int kind, const void *data, int64_t nbytes, const float *table, const double *ranges,
                      int64_t how_many, int64_t *inside, struct moments *to)
{
    int64_t size = item_size(kind);
    if (!size || nbytes < 0 || nbytes % size || how_many < 0 || !to || (nbytes && !data) || (how_many && (!ranges || !inside)) ||
        (kind == TABLE8 && !table))
        return -1;
    *to = (struct moments){.minimum = INFINITY, .maximum = -INFINITY};
    for (int64_t each = 0; each < how_many; each++)
        inside[each] = 0;
    int64_t n = kind == TABLE8 ? 0 : nbytes / size;
    const uint8_t *bytes = data;
    struct totals totals = {0, 0};
    if (kind == TABLE8)
        of_bytes(bytes, nbytes, table, ranges, how_many, inside, to, &totals);
    for (int64_t start = 0; start < n; start += CHUNK, bytes += CHUNK * size) {
        int64_t count = n - start < CHUNK ? n - start : CHUNK;
        if (fits_single(kind)) {
            float work[CHUNK];
            const float *x = work;
            if (kind == F32 && (uintptr_t)bytes % sizeof(float) == 0)
                x = (const float *)bytes;
            else
                to_single(kind, bytes, table, count, work);
            add_single(x, work, count, to, &totals, ranges, how_many, inside);
        } else {
            double work[CHUNK];
            const double *x = work;
            if (kind == F64 && (uintptr_t)bytes % sizeof(double) == 0)
                x = (const double *)bytes;
            else
                to_double(kind, bytes, table, count, work);
            add_double(x, work, count, to, &totals, ranges, how_many, inside);
        }
    }
    int64_t finite = finite_of(to);
    to->minimum += 0.0; /* the sign of a zero depends on the order of the elements */
    to->maximum += 0.0;
    if (finite && to->minimum == to->maximum) {
        to->mean = to->minimum;
        to->abs_mean = fabs(to->minimum);
        to->deviations = 0;
    } else if (finite && isfinite(totals.sum) && isfinite(totals.abs_sum)) {
        to->mean = totals.sum / (double)finite;
        to->abs_mean = totals.abs_sum / (double)finite;
    }
    return 0;
}

/* The same for many arrays, each with its own kind, counts and moments. */
int EXPORTED(moments_of_each)(int64_t arrays, const int64_t *kinds, const void *const *tables, const void *const *data,
                              const int64_t *nbytes, const double *ranges, int64_t how_many, int64_t *inside,
                              struct moments *to)
{
    if (arrays < 0 || how_many < 0 || (arrays && (!kinds || !tables || !data || !nbytes || !to)))
        return -1;
    for (int64_t i = 0; i < arrays; i++)
        if (EXPORTED_CALL(moments)((int)kinds[i], data[i], nbytes[i], tables[i], ranges, how_many,
                                   inside ? inside + i * how_many : 0, to + i))
            return -1;
    return 0;
}
