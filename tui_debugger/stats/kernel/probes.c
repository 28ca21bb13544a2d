/* Products that are held against random vectors of signs: sums with signs, and how far they are off.
 *
 * A row of a product errs by a row; PROBES sums of that with random signs tell its square norm, on average. A few sums of
 * columns of the right factor make the same sums of what is right. Elements of 16 bits and less, and what is multiplied,
 * are summed up in float32, TERMS at a time; all of that in float64. The last bits of sums may differ from processor to
 * processor.
 */
#include "lanes.h"

#define PROBES 8

/* Elements of 16 bits and less are summed up in float32: rounding of them is much larger than that of the sums. */
static int sums_in_single(const struct elements *e)
{
    return e->kind == F16 || e->kind == BF16 || e->kind == TABLE8;
}

/* -- sums with signs -------------------------------------------------------------------------------------- */

#define STRIP 128 /* columns: with TILE_ROWS rows of them, and their signs, they stay in the first-level cache */

typedef float probes __attribute__((vector_size(PROBES * 4)));
typedef double wide_probes __attribute__((vector_size(PROBES * 8)));

/* Products with signs are exact: it makes no difference where they are rounded. */
static inline void add_signed(float x, const probes *signs, probes *sums)
{
#if defined(__AVX__) && defined(__FMA__)
    *sums = (probes)_mm256_fmadd_ps(_mm256_set1_ps(x), (__m256)*signs, (__m256)*sums);
#else
    *sums += *signs * x;
#endif
}

static inline void add_signed_wide(double x, const probes *signs, wide_probes *sums)
{
#if defined(__AVX512F__)
    *sums = (wide_probes)_mm512_fmadd_pd(_mm512_set1_pd(x), _mm512_cvtps_pd((__m256)*signs), (__m512d)*sums);
#else
    *sums += __builtin_convertvector(*signs, wide_probes) * x;
#endif
}

/* Adds the sums of a strip of TILE_ROWS rows: PROBES of each row, and its squares. */
#define SIGNED_SUMS(name, type, vector, ADD)                                                                          \
    static void name(type x[TILE_ROWS][STRIP], const float *signs, int64_t n, double sums[TILE_ROWS][PROBES],         \
                     double squares[TILE_ROWS])                                                                       \
    {                                                                                                                 \
        vector all[TILE_ROWS];                                                                                        \
        for (int row = 0; row < TILE_ROWS; row++)                                                                     \
            all[row] = (vector){0};                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                             \
            probes its;                                                                                               \
            memcpy(&its, signs + i * PROBES, sizeof its);                                                             \
            for (int row = 0; row < TILE_ROWS; row++)                                                                 \
                ADD(x[row][i], &its, &all[row]);                                                                      \
        }                                                                                                             \
        for (int row = 0; row < TILE_ROWS; row++) {                                                                   \
            type square = 0;                                                                                          \
            _Pragma("omp simd reduction(+ : square)") for (int64_t i = 0; i < n; i++)                                 \
                square += x[row][i] * x[row][i];                                                                      \
            squares[row] += (double)square;                                                                           \
            for (int probe = 0; probe < PROBES; probe++)                                                              \
                sums[row][probe] += (double)all[row][probe];                                                          \
        }                                                                                                             \
    }

SIGNED_SUMS(signed_singles, float, probes, add_signed)
SIGNED_SUMS(signed_doubles, double, wide_probes, add_signed_wide)

/* The sums of columns `begin` to `end` of up to TILE_ROWS rows; of those that are not there, zeros. */
static void sums_of_rows(const struct elements *input, int64_t row, int64_t rows, int64_t width, int64_t begin,
                         int64_t end, const float *signs, double sums[TILE_ROWS][PROBES], double squares[TILE_ROWS])
{
    _Alignas(64) float singles[TILE_ROWS][STRIP];
    _Alignas(64) double doubles[TILE_ROWS][STRIP];
    const int single = sums_in_single(input);
    memset(sums, 0, sizeof *sums * TILE_ROWS);
    memset(squares, 0, sizeof *squares * TILE_ROWS);
    for (int64_t n; begin < end; begin += n) {
        n = end - begin < STRIP ? end - begin : STRIP;
        for (int64_t at = 0; at < TILE_ROWS; at++) {
            int64_t first = (row + at) * width + begin;
            if (row + at >= rows)
                memset(single ? (void *)singles[at] : doubles[at], 0, (single ? 4 : 8) * (size_t)n);
            else if (single)
                to_single((int)input->kind, element_at(input, first), input->table, n, singles[at]);
            else
                load(input, first, n, doubles[at]);
        }
        if (single)
            signed_singles(singles, signs + begin * PROBES, n, sums, squares);
        else
            signed_doubles(doubles, signs + begin * PROBES, n, sums, squares);
    }
}

/* Of each row of a matrix, for each group of columns: PROBES sums with signs, and the sum of squares.
 *
 * signs: PROBES for each column. sums: for each row `groups` times PROBES. squares: for each row `groups`. */
int EXPORTED(signed_rows)(const struct elements *input, int64_t rows, int64_t width, int64_t group, const float *signs,
                          double *sums, double *squares)
{
    if (group < 1 || !signs || !sums || !squares || !is_matrix(input, rows, width))
        return -1;
    const int64_t groups = width / group + (width % group != 0);
    for (int64_t row = 0; row < rows; row += TILE_ROWS)
        for (int64_t begin = 0, number = 0; number < groups; begin += group, number++) {
            double some[TILE_ROWS][PROBES], their_squares[TILE_ROWS];
            const int64_t end = width - begin < group ? width : begin + group;
            sums_of_rows(input, row, rows, width, begin, end, signs, some, their_squares);
            for (int64_t at = 0; at < TILE_ROWS && row + at < rows; at++) {
                memcpy(sums + ((row + at) * groups + number) * PROBES, some[at], sizeof some[at]);
                squares[(row + at) * groups + number] = their_squares[at];
            }
        }
    return 0;
}

#define COLUMNS 256 /* all that is made of them stays in the first-level cache */
#define BLOCK 4   /* rows that are added at a time: sums are loaded and stored once for all of them */

/* Adds BLOCK rows to the sums of their columns; signs: PROBES for each row. */
#define ADD_SIGNED(name, type, TIMES)                                                                                 \
    static void name(type x[BLOCK][COLUMNS], const float *signs, int64_t n, type all[PROBES + 1][COLUMNS])               \
    {                                                                                                                 \
        for (int probe = 0; probe < PROBES; probe += 2) {                                                             \
            type s[BLOCK], t[BLOCK], *restrict one = all[probe], *restrict other = all[probe + 1];                    \
            for (int row = 0; row < BLOCK; row++) {                                                                   \
                s[row] = (type)signs[row * PROBES + probe];                                                           \
                t[row] = (type)signs[row * PROBES + probe + 1];                                                       \
            }                                                                                                         \
            for (int64_t i = 0; i < n; i++) {                                                                         \
                type a = x[0][i], b = x[1][i], c = x[2][i], d = x[3][i];                                              \
                one[i] = TIMES(a, s[0], TIMES(b, s[1], TIMES(c, s[2], TIMES(d, s[3], one[i]))));                      \
                other[i] = TIMES(a, t[0], TIMES(b, t[1], TIMES(c, t[2], TIMES(d, t[3], other[i]))));                  \
            }                                                                                                         \
        }                                                                                                             \
        type *restrict squares = all[PROBES];                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                                             \
            type a = x[0][i], b = x[1][i], c = x[2][i], d = x[3][i];                                                  \
            squares[i] = TIMES(a, a, TIMES(b, b, TIMES(c, c, TIMES(d, d, squares[i]))));                              \
        }                                                                                                             \
    }

ADD_SIGNED(add_singles, float, SINGLE_TIMES_PLUS)
ADD_SIGNED(add_doubles, double, TIMES_PLUS)

/* The sums of some columns over the rows `begin` to `end`: PROBES rows of `width`, and the squares. */
static void sums_of_columns(const struct elements *input, int64_t begin, int64_t end, int64_t width, int64_t at,
                            const float *signs, double *sums, double *squares)
{
    const int single = sums_in_single(input);
    const int64_t n = width - at < COLUMNS ? width - at : COLUMNS;
    float singles[BLOCK][COLUMNS], single_sums[PROBES + 1][COLUMNS];
    double doubles[BLOCK][COLUMNS], all[PROBES + 1][COLUMNS];
    memset(single ? (void *)single_sums : all, 0, single ? sizeof single_sums : sizeof all);
    for (int64_t row = begin; row < end; row += BLOCK) {
        float some[BLOCK * PROBES] = {0}; /* what is missing in the last block is nothing times nothing */
        for (int64_t next = 0; next < BLOCK; next++) {
            int64_t first = (row + next) * width + at;
            if (row + next >= end) {
                memset(single ? (void *)singles[next] : doubles[next], 0, (single ? 4 : 8) * (size_t)n);
                continue;
            }
            memcpy(some + next * PROBES, signs + (row + next) * PROBES, PROBES * sizeof *some);
            if (single)
                to_single((int)input->kind, element_at(input, first), input->table, n, singles[next]);
            else
                load(input, first, n, doubles[next]);
        }
        if (single)
            add_singles(singles, some, n, single_sums);
        else
            add_doubles(doubles, some, n, all);
    }
    for (int probe = 0; probe <= PROBES; probe++) {
        double *to = probe < PROBES ? sums + probe * width + at : squares + at;
        for (int64_t i = 0; i < n; i++)
            to[i] = single ? (double)single_sums[probe][i] : all[probe][i];
    }
}

/* The same of each column, for each group of rows. signs: for each row PROBES of them. sums: PROBES rows of `width` for
 * each group. squares: a row for each group. */
int EXPORTED(signed_columns)(const struct elements *input, int64_t rows, int64_t width, int64_t group,
                             const float *signs, double *sums, double *squares)
{
    if (group < 1 || !signs || !sums || !squares || !is_matrix(input, rows, width))
        return -1;
    for (int64_t begin = 0, end; begin < rows; begin = end, sums += PROBES * width, squares += width) {
        end = rows - begin < group ? rows : begin + group;
        for (int64_t at = 0; at < width; at += COLUMNS)
            sums_of_columns(input, begin, end, width, at, signs, sums, squares);
    }
    return 0;
}

/* -- rows of a product ------------------------------------------------------------------------------------ */

#define GROUPS 8  /* that are made at a time: each row is read once for all of them */
#define BLOCKS 2  /* tiles of rows that are made at a time: a panel is read once for all of them */
#define ROWS (BLOCKS * TILE_ROWS)
#define NARROW ((GROUPS + LANES - 1) / LANES * LANES)

/* alpha * left @ right + what is added, held against what was recorded.
 *
 * columns: `terms` rows of `groups` times PROBES, the sums of right; squares: `terms` rows of `groups`, or null: then sizes
 * are not made, and 0 but for what is added. added: `groups`
 * times PROBES; added_squares: `groups`. signs: PROBES for each of `width`. work: terms * (GROUPS * PROBES + NARROW)
 * numbers and a vector. For each row `groups` of: error, the mean square of what the sums are off by; size, the squares
 * of the terms; value, those of what was recorded. */
struct probed {
    int64_t rows, terms, width, group;
    struct elements left, recorded;
    double alpha;
    const float *signs, *columns, *squares;
    const double *added, *added_squares;
    float *work;
    double *error, *size, *value;
};

/* What some groups of ROWS rows should be. */
struct sums {
    double made[ROWS][GROUPS * PROBES], size[ROWS][NARROW];
};

/* Some terms of ROWS rows, and their squares; zeros where there are none. */
static void load_rows(const struct probed *call, int64_t row, int64_t begin, int64_t n, float x[ROWS][TERMS],
                      float squared[ROWS][TERMS])
{
    for (int64_t at = 0; at < ROWS; at++) {
        int64_t first = (row + at) * call->terms + begin;
        if (row + at < call->rows)
            to_single((int)call->left.kind, element_at(&call->left, first), call->left.table, n, x[at]);
        else
            memset(x[at], 0, sizeof *x[at] * (size_t)n);
        for (int64_t i = 0; call->squares && i < n; i++)
            squared[at][i] = x[at][i] * x[at][i];
    }
}

static void add_all(const float *made, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += (double)made[i];
}

/* Multiplies ROWS rows with panels: `wide` of sums, `narrow` of squares. */
static void multiply(const struct probed *call, int64_t row, int64_t columns, const float *wide, const float *narrow,
                     struct sums *to)
{
    const int64_t terms = call->terms;
    memset(to, 0, sizeof *to);
    for (int64_t begin = 0; begin < terms; begin += TERMS) {
        _Alignas(64) float x[ROWS][TERMS], squared[ROWS][TERMS], made[TILE_ROWS][TILE_WIDTH];
        const int64_t n = terms - begin < TERMS ? terms - begin : TERMS;
        load_rows(call, row, begin, n, x, squared);
        for (int64_t at = 0; at < columns; at += TILE_WIDTH)
            for (int block = 0; block < ROWS; block += TILE_ROWS) {
                wide_tile(x[block], TERMS, wide + at * terms + begin * TILE_WIDTH, n, made);
                for (int next = 0; next < TILE_ROWS; next++)
                    add_all(made[next], TILE_WIDTH, to->made[block + next] + at);
            }
        for (int64_t at = 0; call->squares && at * PROBES < columns; at += LANES)
            for (int block = 0; block < ROWS; block += TILE_ROWS) {
                narrow_tile(squared[block], TERMS, narrow + at * terms + begin * LANES, n, made);
                for (int next = 0; next < TILE_ROWS; next++)
                    add_all(made[next], LANES, to->size[block + next] + at);
            }
    }
}

/* Holds one group of TILE_ROWS rows against what was recorded. */
static void hold(const struct probed *call, int64_t row, int64_t number, const double *made, const double *size)
{
    double seen[TILE_ROWS][PROBES], squares[TILE_ROWS];
    const int64_t begin = number * call->group, groups = (call->width - 1) / call->group + 1;
    const int64_t end = call->width - begin < call->group ? call->width : begin + call->group;
    sums_of_rows(&call->recorded, row, call->rows, call->width, begin, end, call->signs, seen, squares);
    for (int64_t at = 0; at < TILE_ROWS && row + at < call->rows; at++) {
        const double *its = made + at * GROUPS * PROBES;
        double error = 0;
        for (int probe = 0; probe < PROBES; probe++) {
            double off = call->alpha * its[probe] + call->added[number * PROBES + probe] - seen[at][probe];
            error += off * off;
        }
        const int64_t to = (row + at) * groups + number;
        call->error[to] = error / PROBES;
        call->size[to] = call->alpha * call->alpha * size[at * NARROW] + call->added_squares[number];
        call->value[to] = squares[at];
    }
}

static float *aligned(float *work)
{
    return (float *)(((uintptr_t)work + 63) / 64 * 64);
}

/* Says whether so many numbers have an address, PROBES and more of each. */
static int is_possible(int64_t one, int64_t other)
{
    return one >= 0 && other >= 0 && (!other || one <= INT64_MAX / 1024 / other);
}

static int is_probed(const struct probed *call)
{
    return call && call->width > 0 && call->group > 0 && is_possible(call->terms, call->width) &&
           is_matrix(&call->left, call->rows, call->terms) && is_matrix(&call->recorded, call->rows, call->width) &&
           fits_single((int)call->left.kind) && call->signs && call->columns && call->added &&
           call->added_squares && call->work && call->error && call->size && call->value;
}

/* Rows of a product, held against random vectors. */
int EXPORTED(probed)(const struct probed *call)
{
    if (!is_probed(call))
        return -1;
    const int64_t groups = (call->width - 1) / call->group + 1, terms = call->terms;
    float *wide = aligned(call->work), *narrow = wide + terms * GROUPS * PROBES;
    for (int64_t first = 0; first < groups; first += GROUPS) {
        const int64_t n = groups - first < GROUPS ? groups - first : GROUPS;
        pack(call->columns, terms, groups * PROBES, first * PROBES, n * PROBES, TILE_WIDTH, wide);
        if (call->squares)
            pack(call->squares, terms, groups, first, n, LANES, narrow);
        for (int64_t row = 0; row < call->rows; row += ROWS) {
            struct sums sums;
            multiply(call, row, n * PROBES, wide, narrow, &sums);
            for (int block = 0; block < ROWS; block += TILE_ROWS)
                for (int64_t at = 0; at < n; at++)
                    hold(call, row + block, first + at, sums.made[block] + at * PROBES, sums.size[block] + at);
        }
    }
    return 0;
}

/* -- convolutions ----------------------------------------------------------------------------------------- */

#if LANES == 16
#define SPAN_LANES 2 /* vectors of places that are made together: as many as there are registers for */
#else
#define SPAN_LANES 1
#endif
#define SPAN (SPAN_LANES * LANES)
#define BEYOND 32 /* the most of SPAN */
#define PLACES 256 /* of which the sums stay in the first-level cache */

/* What a few filters make of planes: each term looks at a number of the planes, the same way from every place.
 *
 * offsets: where in the planes each of `terms` terms looks from place 0. filters: for each group of channels PROBES
 * numbers of each term; squares: for each group one, or null: then sizes are 0. planes: `size` numbers, BEYOND more than
 * what is looked at. made: for each group PROBES rows of `places`; sizes: a row of sums of squares. */
struct convolved {
    int64_t terms, places, groups, size;
    const float *planes;
    const int64_t *offsets;
    const float *filters, *squares;
    double *made, *sizes;
};

/* Adds `n` terms to the sums of SPAN places: PROBES rows of PLACES of them, and the squares. */
static inline void add_places(const float *planes, const int64_t *offsets, const float *filters, const float *squares,
                              int64_t n, double *made)
{
    lanes sums[PROBES][SPAN_LANES], sizes[SPAN_LANES];
    for (int at = 0; at < SPAN_LANES; at++) {
        sizes[at] = (lanes){0};
        for (int probe = 0; probe < PROBES; probe++)
            sums[probe][at] = (lanes){0};
    }
    for (int64_t term = 0; term < n; term++, filters += PROBES) {
        lanes x[SPAN_LANES];
        for (int at = 0; at < SPAN_LANES; at++) {
            x[at] = lanes_at(planes + offsets[term] + at * LANES);
            if (squares)
                sizes[at] = times_plus(x[at] * x[at], spread(squares[term]), sizes[at]);
        }
        for (int probe = 0; probe < PROBES; probe++)
            for (int at = 0; at < SPAN_LANES; at++)
                sums[probe][at] = times_plus(x[at], spread(filters[probe]), sums[probe][at]);
    }
    float some[PROBES + 1][SPAN];
    for (int at = 0; at < SPAN_LANES; at++) {
        for (int probe = 0; probe < PROBES; probe++)
            memcpy(some[probe] + at * LANES, &sums[probe][at], sizeof sums[probe][at]);
        memcpy(some[PROBES] + at * LANES, &sizes[at], sizeof sizes[at]);
    }
    for (int probe = 0; probe <= PROBES; probe++)
        add_all(some[probe], SPAN, made + probe * PLACES);
}

static int is_convolved(const struct convolved *call)
{
    if (!call || !is_possible(call->terms, call->groups) || !is_possible(call->groups, call->places) ||
        call->size < BEYOND || call->places > call->size - BEYOND || !call->planes || !call->offsets ||
        !call->filters || !call->made || !call->sizes)
        return 0;
    for (int64_t term = 0; term < call->terms; term++)
        if (call->offsets[term] < 0 || call->offsets[term] > call->size - BEYOND - call->places)
            return 0;
    return 1;
}

/* Places of an image. */
int EXPORTED(convolved)(const struct convolved *call)
{
    if (!is_convolved(call))
        return -1;
    for (int64_t group = 0; group < call->groups; group++)
        for (int64_t first = 0; first < call->places; first += PLACES) {
            _Alignas(64) double made[PROBES + 1][PLACES] = {{0}};
            const int64_t count = call->places - first < PLACES ? call->places - first : PLACES;
            for (int64_t begin = 0; begin < call->terms; begin += TERMS) {
                const int64_t n = call->terms - begin < TERMS ? call->terms - begin : TERMS;
                const int64_t at = group * call->terms + begin;
                const float *planes = call->planes + first, *filters = call->filters + at * PROBES;
                if (call->squares) /* two loops: each is made for what it does */
                    for (int64_t place = 0; place < count; place += SPAN)
                        add_places(planes + place, call->offsets + begin, filters, call->squares + at, n, made[0] + place);
                else
                    for (int64_t place = 0; place < count; place += SPAN)
                        add_places(planes + place, call->offsets + begin, filters, 0, n, made[0] + place);
            }
            const size_t nbytes = sizeof(double) * (size_t)count;
            for (int probe = 0; probe < PROBES; probe++)
                memcpy(call->made + (group * PROBES + probe) * call->places + first, made[probe], nbytes);
            memcpy(call->sizes + group * call->places + first, made[PROBES], nbytes);
        }
    return 0;
}

/* Elements as float32. */
int EXPORTED(singles)(const struct elements *input, int64_t n, float *to)
{
    if (!to || !is_readable(input, n) || !fits_single((int)input->kind))
        return -1;
    to_single((int)input->kind, input->data, input->table, n, to);
    return 0;
}
