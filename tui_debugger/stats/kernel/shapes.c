/* Copies elements from one order to another: see stats/device_order.py. */
#include "kernel.h"

#define MOST_AXES 16
#define MOST_ROWS 64 /* that are turned into columns at once */
#define WIDEST 64    /* columns of these */
#define TILE 32      /* the side of a tile that is copied unit by unit */
#define SOME 256     /* neighbours in the source that are copied before the next of the target */
#define BATCH 1024   /* bytes that are turned before they are copied to where they belong */
#define PARTED 2048  /* the same, of elements that shared bytes: they are parted before */

/* An axis: its length, and how far neighbours are apart in the source and in the target, in bytes (in elements where
 * these share bytes). */
struct axis {
    int64_t length, from, to;
};

struct copying {
    struct axis axes[MOST_AXES]; /* but the next three */
    int number;
    struct axis across, along; /* neighbours of the target, neighbours of the source */
    struct axis inner;         /* the next neighbours of the source */
    int64_t unit;              /* bytes that are copied at once; of those that elements share, the elements */
    int by_rows;               /* what lies across makes columns of the target, from rows of the source */
    int64_t rows[MOST_ROWS];   /* where these begin, from the first one on */
    int64_t width, height;     /* of a tile that is copied unit by unit */
    const uint8_t *packed;
    int bits, is_signed;
};

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (__typeof__(a)){__VA_ARGS__})
#endif
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t words8 __attribute__((vector_size(16)));
typedef uint32_t singles4 __attribute__((vector_size(16)));
typedef uint64_t doubles2 __attribute__((vector_size(16)));

#define UNROLLED _Pragma("GCC unroll 16")

#define LOW16(a, b) SHUFFLED(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH16(a, b) SHUFFLED(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW8(a, b) SHUFFLED(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH8(a, b) SHUFFLED(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW4(a, b) SHUFFLED(a, b, 0, 4, 1, 5)
#define HIGH4(a, b) SHUFFLED(a, b, 2, 6, 3, 7)
#define LOW2(a, b) SHUFFLED(a, b, 0, 2)
#define HIGH2(a, b) SHUFFLED(a, b, 1, 3)

/* Twice as many: lanes of 16 bytes that are shuffled alike, which one instruction does. */
#if defined(__AVX2__) && (defined(__clang__) || __GNUC__ >= 12)
#define TWO_LANES
typedef uint8_t bytes32 __attribute__((vector_size(32)));
typedef uint16_t words16 __attribute__((vector_size(32)));
typedef uint32_t singles8 __attribute__((vector_size(32)));
typedef uint64_t doubles4 __attribute__((vector_size(32)));
#define LOW32(a, b)                                                                                                    \
    SHUFFLED(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, \
             53, 22, 54, 23, 55)
#define HIGH32(a, b)                                                                                                  \
    SHUFFLED(a, b, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, \
             29, 61, 30, 62, 31, 63)
#define LOWS16(a, b) SHUFFLED(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27)
#define HIGHS16(a, b) SHUFFLED(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOWS8(a, b) SHUFFLED(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGHS8(a, b) SHUFFLED(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOWS4(a, b) SHUFFLED(a, b, 0, 4, 2, 6)
#define HIGHS4(a, b) SHUFFLED(a, b, 1, 5, 3, 7)
#endif

/* Runs of columns: each begins so many bytes behind the one before it. */
struct runs {
    int64_t number, from, to;
    int64_t columns, to_column; /* of a run; bytes between columns of the target */
};

/* Puts the columns of 16 bytes, 4 or 8 each, close together: n bytes of each. Compilers make one instruction of it. */
#if defined(__SSSE3__) || defined(__aarch64__)
#define CLOSED(x, n)                                                                                   \
    ((n) == 3   ? SHUFFLED(x, x, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15)                 \
     : (n) == 5 ? SHUFFLED(x, x, 0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 5, 6, 7, 13, 14, 15)                 \
     : (n) == 6 ? SHUFFLED(x, x, 0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 6, 7, 14, 15)                 \
     : (n) == 7 ? SHUFFLED(x, x, 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 7, 15)                 \
                : (x))
#else
#define CLOSED(x, n) (x)
#define ONE_BY_ONE
#endif

/* Stores columns: `each` of them in 16 bytes, of which n bytes each are wanted. What is too much is written over by what
 * follows. */
static inline __attribute__((always_inline)) void store(bytes16 x, int each, int64_t n, uint8_t *to)
{
#ifdef ONE_BY_ONE
    if (each > 1) {
        uint8_t room[16];
        memcpy(room, &x, 16);
        for (int i = 0; i < each; i++)
            memcpy(to + i * n, room + i * (16 / each), (size_t)(16 / each));
        return;
    }
#else
    (void)each, (void)n;
#endif
    memcpy(to, &x, 16);
}

#define STORE_ALL(count, each, lanes, n)                                                              \
    UNROLLED for (int side = 0; side < (lanes); side++)                                               \
        UNROLLED for (int i = 0; i < (count); i++)                                                    \
        {                                                                                             \
            bytes16 lane[lanes];                                                                      \
            memcpy(lane, &one[i], sizeof lane);                                                       \
            store(CLOSED(lane[side], n), each, to_column,                                             \
                  target + ((int64_t)side * (each) * (count) + (int64_t)i * (each)) * to_column);     \
        }

/* Turns rows into columns, 16 bytes of each and lane at a time: each round of shuffling rows i and i + half together moves
 * every element by one bit of its place. The last bytes end where the row does, whatever they copy once more. */
#define TURN(name, vector, count, size, lanes, low, high)                                                 \
    static void name(const uint8_t *const *rows, const struct runs *runs, uint8_t *to)                    \
    {                                                                                                     \
        enum { EACH = 16 / ((count) * (size)), SIDE = (lanes) * 16 / (size) };                            \
        const int64_t columns = runs->columns, to_column = runs->to_column;                               \
        for (int64_t k = 0; k < runs->number; k++)                                                        \
            for (int64_t j = 0; j < columns; j += SIDE) {                                                 \
                int64_t left = j < columns - SIDE ? j : columns - SIDE, at = k * runs->from + left * (size); \
                uint8_t *target = to + k * runs->to + left * to_column;                                   \
                vector one[count], other[count];                                                          \
                UNROLLED for (int i = 0; i < (count); i++) memcpy(&one[i], rows[i] + at, sizeof *one);    \
                UNROLLED for (int turned = 1; turned < (count); turned *= 2)                              \
                {                                                                                         \
                    UNROLLED for (int i = 0; i < (count) / 2; i++)                                        \
                    {                                                                                     \
                        other[2 * i] = low(one[i], one[i + (count) / 2]);                                 \
                        other[2 * i + 1] = high(one[i], one[i + (count) / 2]);                            \
                    }                                                                                     \
                    UNROLLED for (int i = 0; i < (count); i++) one[i] = other[i];                         \
                }                                                                                         \
                switch (EACH == 1 ? 0 : to_column) {                                                      \
                case 3:                                                                                   \
                    STORE_ALL(count, EACH, lanes, 3)                                                      \
                    break;                                                                                \
                case 5:                                                                                   \
                    STORE_ALL(count, EACH, lanes, 5)                                                      \
                    break;                                                                                \
                case 6:                                                                                   \
                    STORE_ALL(count, EACH, lanes, 6)                                                      \
                    break;                                                                                \
                case 7:                                                                                   \
                    STORE_ALL(count, EACH, lanes, 7)                                                      \
                    break;                                                                                \
                default:                                                                                  \
                    STORE_ALL(count, EACH, lanes, 0)                                                      \
                }                                                                                         \
            }                                                                                             \
    }

TURN(bytes_by_16, bytes16, 16, 1, 1, LOW16, HIGH16)
TURN(bytes_by_8, bytes16, 8, 1, 1, LOW16, HIGH16)
TURN(bytes_by_4, bytes16, 4, 1, 1, LOW16, HIGH16)
TURN(bytes_by_2, bytes16, 2, 1, 1, LOW16, HIGH16)
TURN(words_by_8, words8, 8, 2, 1, LOW8, HIGH8)
TURN(words_by_4, words8, 4, 2, 1, LOW8, HIGH8)
TURN(words_by_2, words8, 2, 2, 1, LOW8, HIGH8)
TURN(singles_by_4, singles4, 4, 4, 1, LOW4, HIGH4)
TURN(singles_by_2, singles4, 2, 4, 1, LOW4, HIGH4)
TURN(doubles_by_2, doubles2, 2, 8, 1, LOW2, HIGH2)
#ifdef TWO_LANES
TURN(lanes_of_bytes_by_16, bytes32, 16, 1, 2, LOW32, HIGH32)
TURN(lanes_of_bytes_by_8, bytes32, 8, 1, 2, LOW32, HIGH32)
TURN(lanes_of_bytes_by_4, bytes32, 4, 1, 2, LOW32, HIGH32)
TURN(lanes_of_bytes_by_2, bytes32, 2, 1, 2, LOW32, HIGH32)
TURN(lanes_of_words_by_8, words16, 8, 2, 2, LOWS16, HIGHS16)
TURN(lanes_of_words_by_4, words16, 4, 2, 2, LOWS16, HIGHS16)
TURN(lanes_of_words_by_2, words16, 2, 2, 2, LOWS16, HIGHS16)
TURN(lanes_of_singles_by_4, singles8, 4, 4, 2, LOWS8, HIGHS8)
TURN(lanes_of_singles_by_2, singles8, 2, 4, 2, LOWS8, HIGHS8)
TURN(lanes_of_doubles_by_2, doubles4, 2, 8, 2, LOWS4, HIGHS4)
#define LANES_OF(name) lanes_of_##name
#else
#define LANES_OF(name) name
#endif

typedef void turning(const uint8_t *const *rows, const struct runs *runs, uint8_t *to);
#define BOTH(name) {name, LANES_OF(name)}
/* By the bytes of an element, 1 to 8, by the bytes of a column, 2 to 16, and by lanes. */
static turning *const turnings[4][4][2] = {
    {BOTH(bytes_by_2), BOTH(bytes_by_4), BOTH(bytes_by_8), BOTH(bytes_by_16)},
    {{0}, BOTH(words_by_2), BOTH(words_by_4), BOTH(words_by_8)},
    {{0}, {0}, BOTH(singles_by_2), BOTH(singles_by_4)},
    {{0}, {0}, {0}, BOTH(doubles_by_2)},
};

#define COPY_ROW(size)                                                                                  \
    for (int64_t k = 0; k < runs->number; k++)                                                          \
        for (int64_t j = 0; j < runs->columns; j++)                                                     \
            memcpy(to + k * runs->to + j * runs->to_column, row + k * runs->from + j * (size), size); \
    break

/* Copies one row into a place of each column. */
static void copy_row(const uint8_t *restrict row, int64_t unit, const struct runs *runs, uint8_t *restrict to)
{
    switch (unit) {
    case 1:
        COPY_ROW(1);
    case 2:
        COPY_ROW(2);
    case 4:
        COPY_ROW(4);
    default:
        COPY_ROW(8);
    }
}

/* Turns rows into columns: as many at once as make 16 bytes; fewer make columns of the next power of two. The last ones
 * begin earlier. */
static void turn_rows(const uint8_t **rows, int64_t live, int64_t unit, const struct runs *runs, uint8_t *to)
{
    const int of_unit = unit == 1 ? 0 : unit == 2 ? 1 : unit == 4 ? 2 : 3;
    const int lanes = runs->columns * unit >= 32;
    int64_t now = 16 / unit;
    int of_column = 3;
    for (; now > 2 && now / 2 >= live; now /= 2)
        of_column--;
    for (int64_t i = live; i < now; i++)
        rows[i] = rows[live - 1];
    turning *const turn = turnings[of_unit][of_column][lanes];
    for (int64_t done = 0; done < live; done += now) {
        if (live - done == 1) {
            copy_row(rows[done], unit, runs, to + done * unit);
            return;
        }
        if (done && live - done < now)
            done = live - now;
        turn(rows + done, runs, to + done * unit);
    }
}

#define COPY_APART(size, from_step, to_step)                               \
    for (int64_t j = 0; j < along; j++) {                                  \
        const uint8_t *restrict source = from + j * from_along;            \
        uint8_t *restrict target = to + j * to_along;                      \
        for (int64_t i = 0; i < across; i++)                               \
            memcpy(target + i * (to_step), source + i * (from_step), size); \
    }

/* Every fourth element in a row: compilers make vectors of distances that they know. */
#define COPY_UNITS(size)                                      \
    if (from_across == 4 * (size) && to_across == (size))     \
        COPY_APART(size, 4 * (size), size)                    \
    else                                                      \
        COPY_APART(size, from_across, to_across)              \
    break

/* Copies a tile unit by unit. */
static void copy_units(const struct copying *c, const uint8_t *from, uint8_t *to, int64_t across, int64_t along)
{
    int64_t from_along = c->along.from, to_along = c->along.to, from_across = c->across.from, to_across = c->across.to;
    switch (c->unit) {
    case 1:
        COPY_UNITS(1);
    case 2:
        COPY_UNITS(2);
    case 4:
        COPY_UNITS(4);
    case 8:
        COPY_UNITS(8);
    case 16:
        COPY_UNITS(16);
    case 32:
        COPY_UNITS(32);
    case 64:
        COPY_UNITS(64);
    default:
        COPY_UNITS(c->unit);
    }
}

/* The value of element number `from` of those that share bytes, the first one in the lowest bits. */
static inline uint8_t value_of(const struct copying *c, int64_t from)
{
    int64_t at = from * c->bits;
    uint8_t upper = (uint8_t)(c->packed[at >> 3] << (8 - c->bits - (at & 7)));
    return c->is_signed ? (uint8_t)((int8_t)upper >> (8 - c->bits)) : (uint8_t)(upper >> (8 - c->bits));
}

/* Parts every byte of n vectors into its lower and upper bits, side by side in twice as many. */
static inline __attribute__((always_inline)) void halve(bytes16 *vectors, int n, int bits)
{
    const uint8_t mask = (uint8_t)((1 << bits) - 1);
    for (int i = n - 1; i >= 0; i--) {
        bytes16 lower = vectors[i] & mask, upper = (bytes16)((words8)vectors[i] >> bits) & mask;
        vectors[2 * i] = LOW16(lower, upper);
        vectors[2 * i + 1] = HIGH16(lower, upper);
    }
}

/* Parts 16 bytes, or the first 8 of them, into elements of which `each` share one. */
static inline __attribute__((always_inline)) void part_bytes(const uint8_t *from, int many, int each, uint8_t sign,
                                                             uint8_t *to)
{
    bytes16 parts[8] = {{0}};
    int n = many * each / 16;
    memcpy(parts, from, (size_t)many);
    halve(parts, 1, 4);
    if (each > 2)
        halve(parts, many / 8, 2);
    if (each > 4)
        halve(parts, many / 4, 1);
    for (int i = 0; i < n; i++) {
        parts[i] = (parts[i] ^ sign) - sign;
        memcpy(to + 16 * i, &parts[i], 16);
    }
}

#define PART(each)                                                          \
    for (; n >= 16 * (each); n -= 16 * (each), from += 16, to += 16 * (each)) \
        part_bytes(from, 16, each, sign, to);                               \
    for (; n >= 8 * (each); n -= 8 * (each), from += 8, to += 8 * (each))   \
        part_bytes(from, 8, each, sign, to);                                \
    break

/* Parts n elements that share bytes and stand side by side, from number `first` on. */
static void part(const struct copying *c, int64_t first, int64_t n, uint8_t *restrict to)
{
    const uint8_t sign = c->is_signed ? (uint8_t)(1 << (c->bits - 1)) : 0;
    for (; n > 0 && (first * c->bits & 7); n--)
        *to++ = value_of(c, first++);
    const uint8_t *restrict from = c->packed + (first * c->bits >> 3);
    const int64_t all = n;
    switch (c->bits) {
    case 4:
        PART(2);
    case 2:
        PART(4);
    default:
        PART(8);
    }
    for (first += all - n; n > 0; n--)
        *to++ = value_of(c, first++);
}

/* Copies a tile of elements that share bytes. */
static void copy_shared(const struct copying *c, int64_t from, uint8_t *to, int64_t across, int64_t along)
{
    uint8_t room[PARTED];
    const int64_t rows = c->along.from == c->unit ? (int64_t)sizeof room / c->unit : 0; /* that are parted at once */
    for (int64_t i = 0; i < across; i++)
        for (int64_t j = 0; j < along; j += rows > 1 ? rows : 1) {
            int64_t at = from + j * c->along.from + i * c->across.from;
            uint8_t *target = to + j * c->along.to + i * c->across.to;
            if (rows > 1) {
                int64_t number = along - j < rows ? along - j : rows;
                part(c, at, number * c->unit, room);
                copy_units(c, room, target, 1, number);
            } else if (c->unit > 1)
                part(c, at, c->unit, target);
            else
                *target = value_of(c, at);
        }
}

/* Parts the elements of rows, of some runs, into a room, and says where each row begins there. What lies between is parted
 * with them where it is not much. */
static void part_rows(const struct copying *c, int64_t from, int64_t live, struct runs *runs, uint8_t *room,
                      const uint8_t **rows)
{
    const int64_t columns = runs->columns, row = (runs->number - 1) * c->inner.from + columns;
    if (runs->number == 1 && c->across.length > MOST_ROWS && c->across.from >= columns && c->across.from < 2 * columns) {
        part(c, from, (live - 1) * c->across.from + columns, room);
        for (int64_t i = 0; i < live; i++)
            rows[i] = room + i * c->across.from;
        return;
    }
    const int near = row < 2 * runs->number * columns;
    const int64_t step = near ? row : runs->number * columns;
    for (int64_t i = 0; i < live; i++) {
        rows[i] = room + i * step;
        for (int64_t n = 0; n < (near ? 1 : runs->number); n++)
            part(c, from + c->rows[i] + n * c->inner.from, near ? row : columns, room + i * step + n * columns);
    }
    runs->from = near ? c->inner.from : columns;
}

/* Asks for the lines of the cache that so many runs are written to, and of elements that share bytes those that are read:
 * processors do not see what is far apart coming. Long runs that are read they do see. */
static void ask_for(const struct copying *c, int64_t from, const uint8_t *to, int64_t live, int64_t bytes, int64_t number)
{
    for (int64_t k = 0; k < number; k++)
        for (int64_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(to + k * c->inner.to + at, 1);
    if (c->bits < 8)
        for (int64_t i = 0; i < live; i++)
            for (int64_t at = 0; at < number * c->inner.from; at += 64 * 8 / c->bits)
                __builtin_prefetch(c->packed + ((from + c->rows[i] + at) * c->bits >> 3));
}

/* Copies columns that follow each other to where they belong. */
static void place_columns(const struct copying *c, const uint8_t *from, const struct runs *runs, int64_t bytes, uint8_t *to)
{
    const int follow = c->along.to == bytes;
    const int64_t number = follow ? 1 : runs->columns, size = follow ? bytes * runs->columns : bytes;
    for (int64_t k = 0; k < runs->number; k++)
        for (int64_t j = 0; j < number; j++, from += size) {
            uint8_t *target = to + k * c->inner.to + j * c->along.to;
            int64_t done = 0;
            for (; done + 32 <= size; done += 32)
                memcpy(target + done, from + done, 32);
            memcpy(target + done, from + done, (size_t)(size - done));
        }
}

/* Copies rows into columns: some rows of the axis across, or those that `rows` names. Short columns are made in a room that
 * stays in the cache: processors wait for memory that is written bit by bit. */
static void copy_columns(const struct copying *c, int64_t from, uint8_t *to, int64_t live)
{
    const uint8_t *rows[MOST_ROWS];
    uint8_t parted[4 * MOST_ROWS * WIDEST], turned[8 * MOST_ROWS * WIDEST + 16];
    const int direct = c->across.length > MOST_ROWS;
    struct runs runs = {.number = 1};
    for (int64_t j = 0; j < c->along.length; j += runs.columns) {
        runs.columns = c->along.length - j;
        if (runs.columns > WIDEST) /* what is left is long enough, too */
            runs.columns = WIDEST / 2;
        const int64_t column = live * c->unit, bytes = column * runs.columns, batch = c->bits < 8 ? PARTED : BATCH;
        const int64_t most = (batch + bytes - 1) / bytes;
        for (int64_t k = 0; k < c->inner.length; k += runs.number) {
            const int64_t at = from + k * c->inner.from + j * c->along.from;
            uint8_t *target = to + k * c->inner.to + j * c->along.to;
            runs.number = c->inner.length - k < most ? c->inner.length - k : most;
            runs.from = c->inner.from;
            runs.to = bytes;
            runs.to_column = direct ? c->along.to : column;
            if (!direct && k + 2 * runs.number <= c->inner.length)
                ask_for(c, at + runs.number * c->inner.from, target + runs.number * c->inner.to, live, bytes, runs.number);
            if (c->bits < 8)
                part_rows(c, at, live, &runs, parted, rows);
            else
                for (int64_t i = 0; i < live; i++)
                    rows[i] = c->packed + at + c->rows[i];
            turn_rows(rows, live, c->unit, &runs, direct ? target : turned);
            if (!direct)
                place_columns(c, turned, &runs, column, target);
        }
    }
}

/* Goes through the axes from number `axis` on. */
static void copy_axes(const struct copying *c, int axis, int64_t from, uint8_t *to)
{
    if (axis < c->number) {
        const struct axis *each = &c->axes[axis];
        for (int64_t i = 0; i < each->length; i++)
            copy_axes(c, axis + 1, from + i * each->from, to + i * each->to);
        return;
    }
    if (c->by_rows) {
        const int64_t live = c->across.length < MOST_ROWS ? c->across.length : MOST_ROWS;
        for (int64_t i = 0; i < c->across.length; i += live) {
            int64_t first = i < c->across.length - live ? i : c->across.length - live;
            copy_columns(c, from + first * c->across.from, to + first * c->unit, live);
        }
        return;
    }
    for (int64_t i = 0; i < c->across.length; i += c->width)
        for (int64_t j = 0; j < c->along.length; j += c->height) {
            /* No narrow tile at an end: that one begins earlier, and copies some once more. */
            int64_t left = c->across.length - i < 16 && i ? c->across.length - 16 : i;
            int64_t above = c->along.length - j < 16 && j ? c->along.length - 16 : j;
            int64_t across = c->across.length - left < c->width ? c->across.length - left : c->width;
            int64_t along = c->along.length - above < c->height ? c->along.length - above : c->height;
            int64_t at = from + left * c->across.from + above * c->along.from;
            uint8_t *target = to + left * c->across.to + above * c->along.to;
            if (c->bits < 8)
                copy_shared(c, at, target, across, along);
            else
                copy_units(c, c->packed + at, target, across, along);
        }
}

/* Takes an axis out. */
static struct axis taken(struct copying *c, int number)
{
    struct axis found = c->axes[number];
    for (c->number--; number < c->number; number++)
        c->axes[number] = c->axes[number + 1];
    return found;
}

/* Joins axes that go on in each other, and makes units of what lies side by side in both. */
static void join(struct copying *c)
{
    for (int i = 0; i < c->number;) {
        const struct axis *each = &c->axes[i];
        int joined = each->length == 1;
        if (!joined && each->from == c->unit && each->to == c->unit) {
            c->unit *= each->length;
            joined = 1;
        }
        for (int j = 0; j < c->number && !joined; j++) {
            struct axis *inner = &c->axes[j];
            if (j != i && each->from == inner->from * inner->length && each->to == inner->to * inner->length) {
                inner->length *= each->length;
                joined = 1;
            }
        }
        if (joined) {
            (void)taken(c, i);
            i = 0;
        } else
            i++;
    }
}

/* Returns the axis whose neighbours are nearest in the target, or in the source. */
static int nearest(const struct copying *c, int in_target)
{
    int found = 0;
    for (int i = 1; i < c->number; i++) {
        const struct axis *one = &c->axes[i], *best = &c->axes[found];
        if (in_target ? one->to < best->to : one->from < best->from)
            found = i;
    }
    return found;
}

/* Finds rows whose elements lie side by side in the source, and one of each row side by side in the target: those of the
 * axis across, and of others that go on in the target where that one ends. */
static void find_rows(struct copying *c)
{
    const int64_t unit = c->unit;
    const int is_turned = unit == 1 || (c->bits >= 8 && (unit == 2 || unit == 4 || unit == 8)); /* parted: one by one */
    c->by_rows = is_turned && c->along.from == unit && c->across.to == unit && c->across.length > 1 &&
                 c->along.length * unit >= 16;
    if (!c->by_rows)
        return;
    for (int64_t i = 0; i < c->across.length && i < MOST_ROWS; i++)
        c->rows[i] = i * c->across.from;
    for (int i = 0; i < c->number;) {
        const struct axis *next = &c->axes[i];
        const int64_t has = c->across.length;
        if (next->to != has * unit || has * next->length > MOST_ROWS) {
            i++;
            continue;
        }
        for (int64_t k = has; k < has * next->length; k++)
            c->rows[k] = c->rows[k % has] + k / has * next->from;
        c->across.length *= next->length;
        (void)taken(c, i);
        i = 0;
    }
}

/* Copies elements.
 *
 * from, count, offset: the source, its elements, and the number of the first one that is copied. bits: of an element: 8,
 * 16, 32, 64 or 128; 1, 2 or 4 for those that share bytes and get one each. shape, from_steps: the source's, in elements;
 * to_steps: the target's, in bytes. Returns 0; -1 where an argument makes no sense, or the source would be left. */
int EXPORTED(copy)(const uint8_t *from, int64_t count, int64_t offset, int bits, int is_signed, uint8_t *to, int axes,
                   const int64_t *shape, const int64_t *from_steps, const int64_t *to_steps)
{
    const int64_t most = INT64_C(1) << 60;
    int64_t last = offset;
    struct copying c = {.packed = from, .bits = bits, .is_signed = is_signed, .unit = bits < 8 ? 1 : bits / 8};
    int is_known = bits == 1 || bits == 2 || bits == 4 || bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128;
    if (!is_known || axes < 0 || axes > MOST_AXES || count < 0 || count > most || offset < 0 ||
        (axes && (!shape || !from_steps || !to_steps)))
        return -1;
    for (int i = 0; i < axes; i++)
        if (!shape[i])
            return 0;
    for (int i = 0; i < axes; i++) {
        int64_t reach;
        if (shape[i] < 0 || from_steps[i] < 0 || to_steps[i] < 0 ||
            __builtin_mul_overflow(shape[i] - 1, from_steps[i], &reach) || __builtin_add_overflow(last, reach, &last))
            return -1;
        c.axes[c.number++] = (struct axis){shape[i], from_steps[i] * c.unit, to_steps[i]};
    }
    if (!from || !to || last >= count)
        return -1;
    offset *= c.unit;
    join(&c);
    c.across = c.along = c.inner = (struct axis){1, 0, 0};
    if (c.number)
        c.across = taken(&c, nearest(&c, 1));
    if (c.number)
        c.along = taken(&c, nearest(&c, 0));
    c.height = TILE;
    c.width = c.along.length < TILE ? TILE * TILE / c.along.length : TILE;
    find_rows(&c);
    if (!c.number) {
        copy_axes(&c, 0, offset, to);
        return 0;
    }
    /* Neighbours in the source share pages, as do those in the target: some of the former before the next of the latter. */
    const struct axis inner = taken(&c, nearest(&c, 0));
    struct axis *place = c.by_rows && c.across.length <= MOST_ROWS ? &c.inner : &c.axes[c.number++];
    for (int64_t start = 0; start < inner.length; start += SOME) {
        *place = (struct axis){inner.length - start < SOME ? inner.length - start : SOME, inner.from, inner.to};
        copy_axes(&c, 0, offset + start * inner.from, to + start * inner.to);
    }
    return 0;
}
