/* A head of an attention: softmax(query @ key.T * factor + mask) times a few columns.
 *
 * Every score is made, in float32, TERMS products at a time, and goes on while it is in the cache. What softmax makes of
 * them is multiplied with COLUMNS columns only: sums of the values with signs, and what else is to be averaged.
 */
#include "lanes.h"

#define COLUMNS 12 /* one of them is all ones: the sum of a row */
#define NARROW ((COLUMNS + LANES - 1) / LANES * LANES)
#define ROWS (2 * TILE_ROWS) /* that are made at a time: keys are read once for all of them */

/* What a key that is not seen adds to a score is minus infinity; what `mask` is to it. */
enum { NO_MASK, SEEN_WHERE_TRUE, ADDED };

/* query: `rows` of `width`; key: `keys` of `width`; mask: `rows` of `keys`. columns: for each key COLUMNS numbers, the last
 * of which is 1. work: keys and TILE_WIDTH, times width + NARROW + ROWS + 1; ROWS times width; and a vector. made: for each
 * row COLUMNS averages; top: its largest score. */
struct attended {
    int64_t rows, keys, width, masked, causal;
    struct elements query, key, mask;
    double factor;
    const float *columns;
    float *work;
    double *made, *top;
};

/* Parts of `work`. `padded`: keys, up to a whole number of tiles. */
struct space {
    int64_t padded;
    float *keys, *columns, *scores, *query, *mask;
};

static struct space space_of(const struct attended *call)
{
    struct space to = {.padded = (call->keys + TILE_WIDTH - 1) / TILE_WIDTH * TILE_WIDTH};
    to.keys = (float *)(((uintptr_t)call->work + 63) / 64 * 64);
    to.columns = to.keys + to.padded * call->width;
    to.scores = to.columns + to.padded * NARROW;
    to.query = to.scores + to.padded * ROWS;
    to.mask = to.query + ROWS * call->width;
    return to;
}

/* exp(z) for z <= 0, off by less than 2^-22 of it; 0 below -87; NaN of NaN. */
static inline float raised(float z)
{
    float shifted = SINGLE_TIMES_PLUS(z, 1.44269504f, 0x1.8p23f), k = shifted - 0x1.8p23f, power, p = 1.0f / 720;
    float r = SINGLE_TIMES_PLUS(-k, 0x1.62e4p-1f, z);
    r = SINGLE_TIMES_PLUS(-k, 0x1.7f7d1cp-20f, r);
    uint32_t bits;
    memcpy(&bits, &shifted, 4);
    bits = (bits + 127) << 23;
    memcpy(&power, &bits, 4);
    p = SINGLE_TIMES_PLUS(p, r, 1.0f / 120);
    p = SINGLE_TIMES_PLUS(p, r, 1.0f / 24);
    p = SINGLE_TIMES_PLUS(p, r, 1.0f / 6);
    p = SINGLE_TIMES_PLUS(p, r, 0.5f);
    p = SINGLE_TIMES_PLUS(p, r, 1.0f);
    p = SINGLE_TIMES_PLUS(p, r, 1.0f);
    return z < -87 ? 0 : p * power;
}

/* Keys in panels of TILE_WIDTH: for each of `width` terms those of so many keys. */
static void turn_keys(const struct attended *call, struct space *to)
{
    float *some = to->query; /* not needed yet */
    for (int64_t key = 0; key < to->padded; key++) {
        float *panel = to->keys + key / TILE_WIDTH * TILE_WIDTH * call->width + key % TILE_WIDTH;
        if (key < call->keys)
            to_single((int)call->key.kind, element_at(&call->key, key * call->width), call->key.table, call->width, some);
        else
            memset(some, 0, sizeof *some * (size_t)call->width);
        for (int64_t term = 0; term < call->width; term++)
            panel[term * TILE_WIDTH] = some[term];
    }
}

/* Up to ROWS rows of the query, times the factor; zeros beyond. */
static void load_query(const struct attended *call, int64_t row, const struct space *to)
{
    const float factor = (float)call->factor;
    for (int64_t at = 0; at < ROWS; at++) {
        float *x = to->query + at * call->width;
        int64_t first = (row + at) * call->width;
        if (row + at >= call->rows) {
            memset(x, 0, sizeof *x * (size_t)call->width);
            continue;
        }
        to_single((int)call->query.kind, element_at(&call->query, first), call->query.table, call->width, x);
        for (int64_t i = 0; i < call->width; i++)
            x[i] *= factor;
    }
}

/* Scores of ROWS rows with the first `keys` keys. */
static void score(const struct attended *call, int64_t keys, const struct space *to)
{
    for (int64_t key = 0; key < keys; key += TILE_WIDTH)
        for (int block = 0; block < ROWS; block += TILE_ROWS)
            for (int64_t begin = 0; begin < call->width; begin += TERMS) {
                _Alignas(64) float made[TILE_ROWS][TILE_WIDTH];
                const int64_t n = call->width - begin < TERMS ? call->width - begin : TERMS;
                wide_tile(to->query + block * call->width + begin, call->width,
                          to->keys + key * call->width + begin * TILE_WIDTH, n, made);
                for (int row = 0; row < TILE_ROWS; row++) {
                    float *scores = to->scores + (block + row) * to->padded + key;
                    for (int at = 0; at < TILE_WIDTH; at++)
                        scores[at] = begin ? scores[at] + made[row][at] : made[row][at];
                }
            }
}

/* Hides the keys that a row does not see. */
static void hide(const struct attended *call, int64_t row, int64_t keys, const struct space *to, float *scores)
{
    if (call->masked != NO_MASK) {
        to_single((int)call->mask.kind, element_at(&call->mask, row * call->keys), call->mask.table, keys, to->mask);
        for (int64_t i = 0; i < keys; i++)
            scores[i] += call->masked == ADDED ? to->mask[i] : to->mask[i] != 0 ? 0 : -INFINITY;
    }
    for (int64_t i = call->causal ? row + 1 : keys; i < keys; i++)
        scores[i] = -INFINITY;
}

/* exp(score - largest) in place; returns the largest. */
static float raise(float *scores, int64_t keys)
{
    float top = -INFINITY;
#if !defined(__clang__)
#pragma omp simd reduction(max : top)
#endif
    for (int64_t i = 0; i < keys; i++)
        top = scores[i] > top ? scores[i] : top;
#pragma omp simd
    for (int64_t i = 0; i < keys; i++)
        scores[i] = raised(scores[i] - top);
    return top;
}

/* Averages of the columns of TILE_ROWS rows. */
static void average(const struct space *from, int64_t keys, const float *scores, double made[TILE_ROWS][NARROW])
{
    memset(made, 0, sizeof *made * TILE_ROWS);
    for (int64_t begin = 0; begin < keys; begin += TERMS)
        for (int64_t at = 0; at < NARROW; at += LANES) {
            _Alignas(64) float some[TILE_ROWS][TILE_WIDTH];
            const int64_t n = keys - begin < TERMS ? keys - begin : TERMS;
            narrow_tile(scores + begin, from->padded, from->columns + at * from->padded + begin * LANES, n, some);
            for (int row = 0; row < TILE_ROWS; row++)
                for (int64_t i = 0; i < LANES; i++)
                    made[row][at + i] += (double)some[row][i];
        }
}

static int is_attended(const struct attended *call)
{
    return call && call->width > 0 && call->keys > 0 && call->keys <= INT64_MAX / 4096 / call->width &&
           is_matrix(&call->query, call->rows, call->width) && is_matrix(&call->key, call->keys, call->width) &&
           fits_single((int)call->query.kind) && fits_single((int)call->key.kind) && call->masked >= NO_MASK &&
           call->masked <= ADDED &&
           (call->masked == NO_MASK ||
            (is_matrix(&call->mask, call->rows, call->keys) && fits_single((int)call->mask.kind))) &&
           call->columns && call->work && call->made && call->top;
}

/* All rows of a head. A row that sees no key is NaN. */
int EXPORTED(attended)(const struct attended *call)
{
    if (!is_attended(call))
        return -1;
    struct space space = space_of(call);
    turn_keys(call, &space);
    for (int64_t at = 0; at < NARROW; at += LANES)
        pack(call->columns, call->keys, COLUMNS, at, COLUMNS - at < LANES ? COLUMNS - at : LANES, LANES,
             space.columns + at * space.padded);
    for (int64_t row = 0; row < call->rows; row += ROWS) {
        const int64_t last = row + ROWS < call->rows ? row + ROWS : call->rows;
        const int64_t keys = call->causal && last < call->keys ? last : call->keys;
        load_query(call, row, &space);
        score(call, keys, &space);
        for (int64_t at = row; at < last; at++) {
            float *scores = space.scores + (at - row) * space.padded;
            hide(call, at, keys, &space, scores);
            call->top[at] = (double)raise(scores, keys);
        }
        for (int64_t block = 0; block < ROWS && row + block < last; block += TILE_ROWS) {
            double made[TILE_ROWS][NARROW];
            average(&space, keys, space.scores + block * space.padded, made);
            for (int64_t at = 0; at < TILE_ROWS && row + block + at < last; at++)
                for (int64_t i = 0; i < COLUMNS; i++)
                    call->made[(row + block + at) * COLUMNS + i] = made[at][i] / made[at][COLUMNS - 1];
        }
    }
    return 0;
}
