/* Two arrays of one length element by element, in one pass over both.
 *
 * Elements become doubles, a piece at a time: a few arrays of a piece fit into the first-level cache, so that any number
 * of simple loops over them costs little. "omp simd" lets compilers add in any order, which they need to make vectors of
 * a sum, and nothing else: in whatever order n numbers are added in float64, the sum is off by at most n * 2^-53 of the
 * sum of their magnitudes. Counts, extremes and places are exact.
 */
#include "kernel.h"

#define PIECE 1024
#define GROUP 16
#define ENOUGH 0x1p-10

/* The greatest scores above 0, of equal ones the first: a heap with the one on top that is dropped next. */
struct largest {
    double *scores;
    int64_t *places;
    int64_t count, most;
};

/* The first places of some kind. */
struct first {
    int64_t *places;
    int64_t count, most;
};

/* `_Found` in pairs.py has the same fields, and says what they mean. */
struct found {
    struct moments here, there, difference;
    struct largest by_abs, by_rel, by_ulp;
    struct first nan, inf;
    int64_t odd[7]; /* by kind, as in compare.OddCounts */
    int64_t finite, same, flips, from_zero, outside, ulps, within_one;
    uint64_t max_ulp;
    double max_abs, sum_abs, squares, max_rel, dot, own_squares, other_squares;
    double rtol, atol;
    int64_t counts_outside, halves;
};

/* The floats whose units in the last place count, `width` bytes each, 0 for none. `valid`: which pairs have such a
 * distance; NULL for all that are finite. */
struct units {
    const void *here, *there;
    const uint8_t *valid;
    int64_t width, has_no_sign;
};

/* Room for what is made of one piece. */
struct room {
    double x[PIECE], y[PIECE], d[PIECE], work[2][PIECE];
    uint64_t apart[PIECE];
};

/* Sums over finite elements, and counts of some of the others. */
struct sums {
    int64_t finite, nan, pos_inf, negative, positive;
    double minimum, maximum, sum, abs_sum, squares;
};

/* Returns the sums of a piece whose elements are all finite. An infinite or undefined `abs_sum` says that some are not,
 * or that their sum is beyond doubles. */
static struct sums sums_of(const double *restrict x, int64_t n)
{
    int64_t negative = 0, positive = 0;
    double low = INFINITY, high = -INFINITY, sum = 0, abs_sum = 0, squares = 0;
#pragma omp simd reduction(+ : negative, positive, sum, abs_sum, squares) reduction(min : low) reduction(max : high)
    for (int64_t i = 0; i < n; i++) {
        double v = x[i];
        negative += v < 0;
        positive += v > 0;
        low = v < low ? v : low;
        high = v > high ? v : high;
        sum += v;
        abs_sum += fabs(v);
        squares += v * v;
    }
    return (struct sums){n, 0, 0, negative, positive, low, high, sum, abs_sum, squares};
}

/* Returns the sums of the finite elements of a piece. */
static struct sums finite_sums_of(const double *restrict x, int64_t n)
{
    int64_t finite = 0, nan = 0, pos_inf = 0, negative = 0, positive = 0;
    double low = INFINITY, high = -INFINITY, sum = 0, abs_sum = 0, squares = 0;
#pragma omp simd reduction(+ : finite, nan, pos_inf, negative, positive, sum, abs_sum, squares) \
    reduction(min : low) reduction(max : high)
    for (int64_t i = 0; i < n; i++) {
        int ok = fabs(x[i]) < INFINITY;
        double v = ok ? x[i] : 0, for_low = ok ? x[i] : INFINITY, for_high = ok ? x[i] : -INFINITY;
        finite += ok;
        nan += x[i] != x[i];
        pos_inf += x[i] == INFINITY;
        negative += v < 0;
        positive += v > 0;
        low = for_low < low ? for_low : low;
        high = for_high > high ? for_high : high;
        sum += v;
        abs_sum += fabs(v);
        squares += v * v;
    }
    return (struct sums){finite, nan, pos_inf, negative, positive, low, high, sum, abs_sum, squares};
}

/* Adds a piece with its sums. */
static void add_sums(struct moments *m, const double *restrict x, int64_t n, const struct sums *s)
{
    int64_t bad = n - s->finite, before = finite_of(m);
    m->count += n;
    m->nan += s->nan;
    m->pos_inf += s->pos_inf;
    m->neg_inf += bad - s->nan - s->pos_inf;
    if (!s->finite)
        return;
    m->negative += s->negative;
    m->positive += s->positive;
    m->minimum = s->minimum < m->minimum ? s->minimum + 0.0 : m->minimum; /* + 0.0: no -0 */
    m->maximum = s->maximum > m->maximum ? s->maximum + 0.0 : m->maximum;
    double count = (double)s->finite, low = s->minimum;
    if (low == s->maximum) {
        merge(m, before, s->finite, low, fabs(low), count * low * low, 0);
        return;
    }
    double mean = s->sum / count, abs_mean = s->abs_sum / count;
    if (!isfinite(s->abs_sum)) {
        mean = abs_mean = 0; /* the sum of huge elements overflows, that of their parts does not */
        for (int64_t i = 0; i < n; i++) {
            double part = isfinite(x[i]) ? x[i] / count : 0;
            mean += part;
            abs_mean += fabs(part);
        }
    }
    double deviations = s->squares - s->sum * mean;
    if (!(deviations > ENOUGH * s->squares && deviations < INFINITY)) {
        double rest = 0, squares = 0;
#pragma omp simd reduction(+ : rest, squares)
        for (int64_t i = 0; i < n; i++) {
            double away = fabs(x[i]) < INFINITY ? x[i] - mean : 0;
            rest += away;
            squares += away * away;
        }
        deviations = squares;
        if (isfinite(squares)) {
            double off = rest / count; /* what rounding took from the mean */
            mean += off;
            deviations = squares - off * off * count;
            deviations = deviations > 0 ? deviations : 0;
        }
    }
    merge(m, before, s->finite, mean, abs_mean, s->squares, deviations);
}

/* Adds a piece of any elements. */
static void add_any(struct moments *m, const double *restrict x, int64_t n)
{
    struct sums s = sums_of(x, n);
    if (!isfinite(s.abs_sum))
        s = finite_sums_of(x, n);
    add_sums(m, x, n, &s);
}

static int is_worse(const struct largest *list, int64_t a, int64_t b)
{
    const double *scores = list->scores;
    return scores[a] < scores[b] || (scores[a] == scores[b] && list->places[a] > list->places[b]);
}

static void swap(struct largest *list, int64_t a, int64_t b)
{
    double score = list->scores[a];
    int64_t place = list->places[a];
    list->scores[a] = list->scores[b];
    list->places[a] = list->places[b];
    list->scores[b] = score;
    list->places[b] = place;
}

/* Returns the score that an element must exceed to get into the list. */
static double least_of(const struct largest *list)
{
    return !list->most ? INFINITY : list->count < list->most ? 0 : list->scores[0];
}

/* Adds a score above the least one, of an element that comes after all before. */
static void push(struct largest *list, double score, int64_t place)
{
    int full = list->count == list->most;
    int64_t at = full ? 0 : list->count++;
    list->scores[at] = score;
    list->places[at] = place;
    if (!full) {
        for (; at && is_worse(list, at, (at - 1) / 2); at = (at - 1) / 2)
            swap(list, at, (at - 1) / 2);
        return;
    }
    for (int64_t child = 1; child < list->count; child = 2 * at + 1) {
        if (child + 1 < list->count && is_worse(list, child + 1, child))
            child++;
        if (!is_worse(list, child, at))
            return;
        swap(list, at, child);
        at = child;
    }
}

static void keep(struct first *list, int64_t place)
{
    if (list->count < list->most)
        list->places[list->count++] = place;
}

/* Parts integers of 64 bits into halves that fit into doubles; of other types everything is the lower half. */
static void part(const struct elements *e, int64_t first, int64_t n, double *restrict high, double *restrict low)
{
    const uint8_t *from = element_at(e, first);
    if (e->kind != U64 && e->kind != I64) {
        load(e, first, n, low);
        for (int64_t i = 0; i < n; i++)
            high[i] = 0;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t whole;
        memcpy(&whole, from + 8 * i, 8);
        high[i] = e->kind == U64 ? (double)(whole >> 32) : (double)((int64_t)whole >> 32);
        low[i] = (double)(whole & 0xffffffffu);
    }
}

/* Makes the differences of a piece; of integers of 64 bits by their halves, so that only the last addition rounds. */
static void subtract(const struct elements *here, const struct elements *there, int64_t first, int64_t n,
                     int64_t by_halves, struct room *room)
{
    double *restrict x = room->x, *restrict y = room->y, *restrict d = room->d;
    if (by_halves) {
        double *restrict high = room->work[0], *restrict low = room->work[1];
        part(here, first, n, d, low);
        part(there, first, n, high, y);
        for (int64_t i = 0; i < n; i++)
            d[i] = (d[i] - high[i]) * 0x1p32 + (low[i] - y[i]);
        load(there, first, n, y);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        d[i] = x[i] - y[i];
}

/* The bits of a float, read as sign and magnitude, are its number among all floats of its type. */
#define DISTANCES(type, wide, unsigned_wide, bits)                                                    \
    for (int64_t i = 0; i < n; i++) {                                                                 \
        type one, other;                                                                              \
        memcpy(&one, (const uint8_t *)u->here + (first + i) * (int64_t)sizeof one, sizeof one);       \
        memcpy(&other, (const uint8_t *)u->there + (first + i) * (int64_t)sizeof other, sizeof other); \
        wide a = one & (type)(bits), b = other & (type)(bits);                                        \
        a = one < 0 ? -a : a;                                                                         \
        b = other < 0 ? -b : b;                                                                       \
        unsigned_wide up = (unsigned_wide)a - (unsigned_wide)b;                                       \
        apart[i] = a > b ? up : (unsigned_wide)0 - up;                                                \
    }                                                                                                 \
    break

static void measure_distances(const struct units *u, int64_t first, int64_t n, uint64_t *restrict apart)
{
    if (u->has_no_sign) {
        const uint8_t *here = (const uint8_t *)u->here + first, *there = (const uint8_t *)u->there + first;
        for (int64_t i = 0; i < n; i++)
            apart[i] = here[i] > there[i] ? here[i] - there[i] : there[i] - here[i];
        return;
    }
    switch (u->width) {
    case 1:
        DISTANCES(int8_t, int32_t, uint32_t, 0x7f);
    case 2:
        DISTANCES(int16_t, int32_t, uint32_t, 0x7fff);
    case 4:
        DISTANCES(int32_t, int32_t, uint32_t, 0x7fffffff);
    case 8:
        DISTANCES(int64_t, int64_t, uint64_t, 0x7fffffffffffffff);
    }
}

/* Adds the distances of a piece, but for `without` of them, which are 0 because they mean nothing. */
static void add_distances(struct found *s, const uint64_t *restrict apart, int64_t n, int64_t without, int64_t place)
{
    uint64_t greatest = 0;
    int64_t near = 0;
#pragma omp simd reduction(max : greatest) reduction(+ : near)
    for (int64_t i = 0; i < n; i++) {
        greatest = apart[i] > greatest ? apart[i] : greatest;
        near += apart[i] <= 1;
    }
    s->ulps += n - without;
    s->within_one += near - without;
    s->max_ulp = greatest > s->max_ulp ? greatest : s->max_ulp;
    if ((double)greatest > least_of(&s->by_ulp))
        for (int64_t i = 0; i < n; i++)
            if ((double)apart[i] > least_of(&s->by_ulp))
                push(&s->by_ulp, (double)apart[i], place + i);
}

/* Adds relative errors. Divides only where a quotient may matter: one that is rounded to a bound or above it exceeds the
 * product of its divisor with a bit less than that. */
static void add_relative(struct found *s, const double *restrict error, const double *restrict reference, int64_t n,
                         int64_t place)
{
    double least = least_of(&s->by_rel), bound = (least < s->max_rel ? least : s->max_rel) * (1 - 0x1p-50);
    int64_t some = 0;
#pragma omp simd reduction(| : some)
    for (int64_t i = 0; i < n; i++)
        some |= (error[i] >= fabs(reference[i]) * bound) & (error[i] > 0);
    if (!some)
        return;
    for (int64_t i = 0; i < n; i++) {
        double size = fabs(reference[i]);
        if (!(error[i] >= size * bound) || error[i] == 0)
            continue;
        double relative = size > 0 ? error[i] / size : INFINITY;
        if (size > 0 && relative > s->max_rel)
            s->max_rel = relative;
        if (relative > least_of(&s->by_rel))
            push(&s->by_rel, relative, place + i);
    }
}

/* Adds a piece of pairs, but for `without` of them, which are 0 on both sides because they are not finite.
 *
 * own, its, change: the sums of both sides, and of the differences, which are overwritten. */
static void add_pairs(struct found *s, struct room *room, int64_t n, int64_t without, const struct sums *own,
                      const struct sums *its, const struct sums *change, int64_t place)
{
    const double *restrict x = room->x, *restrict y = room->y;
    double *restrict error = room->d;
    double dot = 0, greatest = change->maximum > -change->minimum ? change->maximum : -change->minimum;
    int64_t flips = 0, from_zero = 0, same = n - change->negative - change->positive;
#pragma omp simd reduction(+ : dot, flips, from_zero)
    for (int64_t i = 0; i < n; i++) {
        double a = x[i], b = y[i], e = fabs(error[i]);
        dot += a * b;
        flips += ((a < 0) & (b > 0)) | ((a > 0) & (b < 0));
        from_zero += (b == 0) & (e > 0);
        error[i] = e;
    }
    s->finite += n - without;
    s->same += same - without;
    s->flips += flips;
    s->from_zero += from_zero;
    s->dot += dot;
    s->own_squares += own->squares;
    s->other_squares += its->squares;
    if (same == n)
        return;
    s->sum_abs += change->abs_sum;
    s->squares += change->squares;
    s->max_abs = greatest > s->max_abs ? greatest : s->max_abs;
    if (greatest > least_of(&s->by_abs))
        for (int64_t i = 0; i < n; i++)
            if (error[i] > least_of(&s->by_abs))
                push(&s->by_abs, error[i], place + i);
    if (s->counts_outside) {
        int64_t outside = 0;
        double rtol = s->rtol, atol = s->atol;
#pragma omp simd reduction(+ : outside)
        for (int64_t i = 0; i < n; i++)
            outside += error[i] > fabs(y[i]) * rtol + atol;
        s->outside += outside;
    }
    add_relative(s, error, y, n, place);
}

static void add_odd(struct found *s, double x, double y, int64_t place)
{
    int kind;
    if (isnan(x) || isnan(y))
        kind = isnan(x) && isnan(y) ? 0 : isnan(x) ? 1 : 2;
    else if (isinf(x) && isinf(y))
        kind = x == y ? 3 : 4;
    else
        kind = isinf(x) ? 5 : 6;
    s->odd[kind]++;
    if (kind == 1 || kind == 2)
        keep(&s->nan, place);
    if (kind > 3)
        keep(&s->inf, place);
}

/* Adds the pairs of a piece that are not finite on both sides, and makes them 0 everywhere; returns how many they are.
 * All differences, those of other pairs too, go to their statistics first. */
static int64_t take_odd(struct found *s, struct room *room, int64_t n, int64_t place)
{
    double *restrict x = room->x, *restrict y = room->y, *restrict d = room->d;
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        d[i] = x[i] == y[i] ? 0.0 : d[i]; /* as that of two equal infinities is */
    add_any(&s->difference, d, n);
    for (int64_t start = 0, end; start < n; start = end) {
        int odd = 0;
        end = start + GROUP < n ? start + GROUP : n;
        for (int64_t i = start; i < end; i++)
            odd |= !(fabs(x[i]) < INFINITY) | !(fabs(y[i]) < INFINITY);
        for (int64_t i = start; odd && i < end; i++) {
            if (isfinite(x[i]) && isfinite(y[i]))
                continue;
            add_odd(s, x[i], y[i], place + i);
            x[i] = y[i] = d[i] = 0;
            room->apart[i] = 0;
            found++;
        }
    }
    return found;
}

/* Adds a piece that is finite, and the same on both sides bit by bit. */
static void add_same(struct found *s, const struct room *room, int64_t n, const struct sums *own, int has_units)
{
    struct sums none = {.finite = n};
    add_sums(&s->here, room->x, n, own);
    add_sums(&s->there, room->x, n, own);
    add_sums(&s->difference, room->x, n, &none);
    s->finite += n;
    s->same += n;
    s->dot += own->squares;
    s->own_squares += own->squares;
    s->other_squares += own->squares;
    s->ulps += has_units ? n : 0;
    s->within_one += has_units ? n : 0;
}

static void add_piece(struct found *s, struct room *room, const struct elements *here, const struct elements *there,
                      const struct units *u, int64_t first, int64_t n, int64_t place)
{
    int64_t odd = 0;
    load(here, first, n, room->x);
    struct sums own = sums_of(room->x, n), its, change;
    int alike = here->kind == there->kind && here->table == there->table && !u->valid;
    size_t size = (size_t)(n * item_size((int)here->kind));
    if (alike && isfinite(own.abs_sum) && !memcmp(element_at(here, first), element_at(there, first), size)) {
        add_same(s, room, n, &own, u->width != 0);
        return;
    }
    load(there, first, n, room->y);
    its = sums_of(room->y, n);
    subtract(here, there, first, n, s->halves, room);
    if (u->width)
        measure_distances(u, first, n, room->apart);
    if (isfinite(own.abs_sum) && isfinite(its.abs_sum)) {
        add_sums(&s->here, room->x, n, &own);
        add_sums(&s->there, room->y, n, &its);
        change = sums_of(room->d, n);
        if (isfinite(change.abs_sum))
            add_sums(&s->difference, room->d, n, &change);
        else
            add_any(&s->difference, room->d, n);
    } else {
        add_any(&s->here, room->x, n);
        add_any(&s->there, room->y, n);
        odd = take_odd(s, room, n, place);
        own = sums_of(room->x, n);
        its = sums_of(room->y, n);
        change = sums_of(room->d, n);
    }
    add_pairs(s, room, n, odd, &own, &its, &change, place);
    if (!u->width)
        return;
    if (u->valid) { /* what is not finite in its own type is not finite in that of the units either */
        odd = 0;
        for (int64_t i = 0; i < n; i++) {
            odd += !u->valid[first + i];
            room->apart[i] = u->valid[first + i] ? room->apart[i] : 0;
        }
    }
    add_distances(s, room->apart, n, odd, place);
}

static int is_measurable(const struct units *u, int64_t n)
{
    int is_width = u && (u->width == 1 || u->width == 2 || u->width == 4 || u->width == 8);
    return u && (!u->width || (is_width && (!u->has_no_sign || u->width == 1) && (!n || (u->here && u->there))));
}

/* Adds n pairs, the first of which is number `place` of all. Returns 0; -1 where an argument makes no sense. */
int EXPORTED(pairs)(struct found *s, const struct elements *here, const struct elements *there,
                    const struct units *units, int64_t n, int64_t place)
{
    struct room room;
    if (!s || n < 0 || !is_readable(here, n) || !is_readable(there, n) || !is_measurable(units, n))
        return -1;
    for (const struct largest *list = &s->by_abs; list <= &s->by_ulp; list++)
        if (list->most < 0 || list->count < 0 || list->count > list->most || (list->most && (!list->scores || !list->places)))
            return -1;
    for (const struct first *list = &s->nan; list <= &s->inf; list++)
        if (list->most < 0 || list->count < 0 || list->count > list->most || (list->most && !list->places))
            return -1;
    for (int64_t first = 0; first < n; first += PIECE)
        add_piece(s, &room, here, there, units, first, n - first < PIECE ? n - first : PIECE, place + first);
    return 0;
}

/* Counts the pairs that are not equal, not both NaN, and further apart than |there| * rtol + atol and than `boundary`.
 * Returns -1 where an argument makes no sense. */
int64_t EXPORTED(outside)(const struct elements *here, const struct elements *there, int64_t n, int64_t by_halves,
                          double rtol, double atol, double boundary)
{
    struct room room;
    int64_t found = 0;
    if (n < 0 || !is_readable(here, n) || !is_readable(there, n))
        return -1;
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE, outside = 0;
        const double *restrict x = room.x, *restrict y = room.y, *restrict d = room.d;
        load(here, first, count, room.x);
        load(there, first, count, room.y);
        subtract(here, there, first, count, by_halves, &room);
#pragma omp simd reduction(+ : outside)
        for (int64_t i = 0; i < count; i++) {
            double limit = fabs(y[i]) * rtol + atol;
            limit = limit > boundary ? limit : boundary;
            int same = (x[i] == y[i]) | ((x[i] != x[i]) & (y[i] != y[i]));
            int finite = (fabs(x[i]) < INFINITY) & (fabs(y[i]) < INFINITY);
            outside += (finite & (fabs(d[i]) > limit)) | (!finite & !same);
        }
        found += outside;
    }
    return found;
}

/* Adds |now - before| and |before| of n elements to `sums`, and tests them. Returns 0; -1 where an argument makes
 * no sense. */
int EXPORTED(change)(const struct elements *now, const struct elements *before, int64_t n, double *sums,
                     struct closeness *tests, int64_t how_many)
{
    double x[PIECE], y[PIECE];
    if (n < 0 || how_many < 0 || !is_readable(now, n) || !is_readable(before, n) || !sums || (how_many && !tests))
        return -1;
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE;
        double changed = 0, reference = 0;
        load(now, first, count, x);
        load(before, first, count, y);
#pragma omp simd reduction(+ : changed, reference)
        for (int64_t i = 0; i < count; i++) {
            changed += fabs(x[i] - y[i]);
            reference += fabs(y[i]);
        }
        sums[0] += changed;
        sums[1] += reference;
        for (int64_t test = 0; test < how_many && changed != 0; test++) { /* no change is close by any tolerance */
            double rtol = tests[test].rtol, atol = tests[test].atol;
            int64_t equal_nan = tests[test].equal_nan, far = 0;
            if (!tests[test].close)
                continue;
#pragma omp simd reduction(| : far)
            for (int64_t i = 0; i < count; i++) {
                double a = x[i], b = y[i];
                /* The tolerance of an infinite value is infinite, which makes nothing close to it. */
                int close = (fabs(a - b) <= fabs(b) * rtol + atol) & (fabs(b) < INFINITY);
                far |= !(close | (a == b) | ((equal_nan != 0) & (a != a) & (b != b)));
            }
            tests[test].close = !far;
        }
    }
    return 0;
}

/* The same for many pairs of arrays of one kind, each with its own sums and tests. */
int EXPORTED(changes)(int64_t pairs, const int64_t *kinds, const void *const *tables, const void *const *now,
                      const void *const *before, const int64_t *lengths, double *sums, struct closeness *tests,
                      int64_t how_many)
{
    if (pairs < 0 || how_many < 0 || (pairs && (!kinds || !tables || !now || !before || !lengths || !sums)))
        return -1;
    for (int64_t i = 0; i < pairs; i++) {
        struct elements one = {now[i], tables[i], kinds[i]}, other = {before[i], tables[i], kinds[i]};
        if (EXPORTED_CALL(change)(&one, &other, lengths[i], sums + 2 * i, tests + i * how_many, how_many))
            return -1;
    }
    return 0;
}

/* How far n pairs are apart; `Apart` in pairs.py says what the fields mean. */
struct apart {
    int64_t differing, odd, worst, outside;
    double most, square, own_squares, other_squares, largest;
};

/* Compares n pairs; all but `most` and `outside` is of the elements times `scale`. Returns 0; -1 where an argument makes
 * no sense. */
int EXPORTED(apart)(struct apart *found, const struct elements *here, const struct elements *there, int64_t n,
                    int64_t by_halves, double scale, double rtol, double atol)
{
    struct room room;
    int64_t differing = 0, strange = 0, outside = 0, first_odd = -1, worst = 0;
    double most = -1, square = 0, own = 0, other = 0, largest = 0;
    if (!found || n < 0 || !is_readable(here, n) || !is_readable(there, n))
        return -1;
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE, differ = 0, odd = 0, out = 0;
        const double *restrict x = room.x, *restrict y = room.y, *restrict d = room.d;
        double greatest = -1, change = 0, one = 0, two = 0, large = 0;
        load(here, first, count, room.x);
        load(there, first, count, room.y);
        subtract(here, there, first, count, by_halves, &room);
#pragma omp simd reduction(+ : differ, odd, out, change, one, two) reduction(max : greatest, large)
        for (int64_t i = 0; i < count; i++) {
            int finite = (fabs(x[i]) < INFINITY) & (fabs(y[i]) < INFINITY);
            int same = (by_halves ? d[i] == 0 : x[i] == y[i]) | ((x[i] != x[i]) & (y[i] != y[i]));
            double a = finite ? x[i] : 0, b = finite ? y[i] : 0, e = finite ? fabs(d[i]) : 0;
            double by = same ? -1 : e;
            differ += !same;
            odd += !same & !finite;
            out += e > atol + rtol * fabs(b);
            greatest = by > greatest ? by : greatest;
            a *= scale;
            b *= scale;
            /* Scaled first: a square that is too small or too large for doubles is the reason for a scale. */
            e = scale == 1 ? e : fabs(a - b);
            change += e * e;
            one += a * a;
            two += b * b;
            large = fabs(a) > large ? fabs(a) : large;
            large = fabs(b) > large ? fabs(b) : large;
        }
        differing += differ;
        outside += out;
        square += change;
        own += one;
        other += two;
        largest = large > largest ? large : largest;
        for (int64_t i = 0; odd && !strange && i < count; i++)
            if (!(fabs(x[i]) < INFINITY && fabs(y[i]) < INFINITY) && x[i] != y[i] && (x[i] == x[i] || y[i] == y[i])) {
                first_odd = first + i;
                break;
            }
        strange += odd;
        for (int64_t i = 0; greatest > most && i < count; i++)
            if (fabs(d[i]) == greatest && (by_halves || (fabs(x[i]) < INFINITY && fabs(y[i]) < INFINITY && x[i] != y[i]))) {
                worst = first + i;
                most = greatest;
            }
    }
    *found = (struct apart){differing, strange, strange ? first_odd : worst, outside,
                            strange ? INFINITY : most, square, own, other, largest};
    return 0;
}

/* Returns the largest distance of a pair over the larger of both, or of a usual size where that is larger; -1 where an
 * argument makes no sense. */
double EXPORTED(apart_each)(const struct elements *here, const struct elements *there, int64_t n, int64_t by_halves,
                            double usual)
{
    struct room room;
    double largest = 0;
    if (n < 0 || !is_readable(here, n) || !is_readable(there, n))
        return -1;
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t count = n - first < PIECE ? n - first : PIECE;
        const double *restrict x = room.x, *restrict y = room.y, *restrict d = room.d;
        load(here, first, count, room.x);
        load(there, first, count, room.y);
        subtract(here, there, first, count, by_halves, &room);
#pragma omp simd reduction(max : largest)
        for (int64_t i = 0; i < count; i++) {
            double size = fabs(x[i]) > fabs(y[i]) ? fabs(x[i]) : fabs(y[i]);
            double part = fabs(d[i]) / (size > usual ? size : usual);
            int counts = (fabs(x[i]) < INFINITY) & (fabs(y[i]) < INFINITY) & (part < INFINITY);
            part = counts ? part : 0;
            largest = part > largest ? part : largest;
        }
    }
    return largest;
}
