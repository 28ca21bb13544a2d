/* Copies elements from one order to another: see stats/ascend_file.py. */
#include "kernel.h"

#define MOST_AXES 16
#define TILE 32
#define SOME 32

/* An axis: its length, and how far neighbours are apart in the source and in the target, in bytes (in elements where
 * these share bytes). */
struct axis {
    int64_t length, from, to;
};

/* Turns rows of 16 bytes, of which so many differ, into columns. */
typedef void transposition(const uint8_t *from, int64_t from_step, int64_t live, uint8_t *to, int64_t to_step);

/* The two axes that are copied as tiles. */
struct tiling {
    struct axis across, along; /* neighbours of the target, neighbours of the source */
    int64_t unit;              /* bytes that are copied at once; of those that elements share, the elements */
    int64_t side, rows;        /* of a square that is turned: units in 16 bytes, and rows of them */
    transposition *transpose;  /* NULL: copied unit by unit */
};

struct copying {
    struct axis axes[MOST_AXES]; /* the other ones */
    int number;
    struct tiling tiles;
    int64_t width, height; /* of a tile */
    int by_strips;         /* the two axes that are tiled, and one more, are copied by strips */
    struct axis inner;     /* that one */
    const uint8_t *packed, *end;
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

/* Turns rows of 16 bytes into columns: each round of shuffling rows i and i + half together moves every element by one bit
 * of its place. Rows from number `live` on are the last one before them again. */
#define TRANSPOSE(name, vector, rows, rounds, low, high)                                                        \
    static void name(const uint8_t *from, int64_t from_step, int64_t live, uint8_t *to, int64_t to_step)        \
    {                                                                                                           \
        vector one[rows], other[rows];                                                                          \
        for (int i = 0; i < rows; i++)                                                                          \
            memcpy(&one[i], from + (i < live ? i : live - 1) * from_step, 16);                                  \
        for (int turn = 0; turn < rounds; turn += 2) {                                                          \
            for (int i = 0; i < rows / 2; i++) {                                                                \
                other[2 * i] = low(one[i], one[i + rows / 2]);                                                  \
                other[2 * i + 1] = high(one[i], one[i + rows / 2]);                                             \
            }                                                                                                   \
            if (turn + 1 == rounds) {                                                                           \
                memcpy(one, other, sizeof one);                                                                 \
                break;                                                                                          \
            }                                                                                                   \
            for (int i = 0; i < rows / 2; i++) {                                                                \
                one[2 * i] = low(other[i], other[i + rows / 2]);                                                \
                one[2 * i + 1] = high(other[i], other[i + rows / 2]);                                           \
            }                                                                                                   \
        }                                                                                                       \
        for (int i = 0; i < rows; i++)                                                                          \
            memcpy(to + i * to_step, &one[i], 16);                                                              \
    }

#define LOW16(a, b) SHUFFLED(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH16(a, b) SHUFFLED(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW8(a, b) SHUFFLED(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH8(a, b) SHUFFLED(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW4(a, b) SHUFFLED(a, b, 0, 4, 1, 5)
#define HIGH4(a, b) SHUFFLED(a, b, 2, 6, 3, 7)
#define LOW2(a, b) SHUFFLED(a, b, 0, 2)
#define HIGH2(a, b) SHUFFLED(a, b, 1, 3)

TRANSPOSE(bytes_of_2, bytes16, 2, 1, LOW16, HIGH16)
TRANSPOSE(bytes_of_4, bytes16, 4, 2, LOW16, HIGH16)
TRANSPOSE(bytes_of_8, bytes16, 8, 3, LOW16, HIGH16)
TRANSPOSE(bytes_of_16, bytes16, 16, 4, LOW16, HIGH16)
TRANSPOSE(words_of_2, words8, 2, 1, LOW8, HIGH8)
TRANSPOSE(words_of_4, words8, 4, 2, LOW8, HIGH8)
TRANSPOSE(words_of_8, words8, 8, 3, LOW8, HIGH8)
TRANSPOSE(singles_of_2, singles4, 2, 1, LOW4, HIGH4)
TRANSPOSE(singles_of_4, singles4, 4, 2, LOW4, HIGH4)
TRANSPOSE(doubles_of_2, doubles2, 2, 1, LOW2, HIGH2)

/* Returns what turns `rows` rows, a power of 2, of elements of so many bytes into columns. */
static transposition *transposition_of(int64_t unit, int64_t rows)
{
    switch (unit) {
    case 1:
        return rows == 2 ? bytes_of_2 : rows == 4 ? bytes_of_4 : rows == 8 ? bytes_of_8 : bytes_of_16;
    case 2:
        return rows == 2 ? words_of_2 : rows == 4 ? words_of_4 : words_of_8;
    case 4:
        return rows == 2 ? singles_of_2 : singles_of_4;
    default:
        return doubles_of_2;
    }
}

/* Puts rows of 4 or 8 bytes together of which n count each: compilers make one instruction of this, and a slow loop for
 * processors that have none. */
#if defined(__SSSE3__) || defined(__aarch64__)
#define CLOSED(x, n)                                                                                      \
    ((n) == 3   ? SHUFFLED(x, x, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15)                    \
     : (n) == 5 ? SHUFFLED(x, x, 0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 5, 6, 7, 13, 14, 15)                    \
     : (n) == 6 ? SHUFFLED(x, x, 0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 6, 7, 14, 15)                    \
                : SHUFFLED(x, x, 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 7, 15))
#define COPY_CLOSED(size, n)                                                                \
    for (; number >= 16 / (size) + 2; number -= 16 / (size), from += 16, to += 16 / (size) * (n)) { \
        bytes16 rows;                                                                       \
        memcpy(&rows, from, 16);                                                            \
        rows = CLOSED(rows, n);                                                             \
        memcpy(to, &rows, 16);                                                              \
    }                                                                                       \
    break
#else
#define COPY_CLOSED(size, n) break
#endif

#define COPY_SHORT(size)                                                                  \
    if (n == (size)) {                                                                    \
        for (; number > 0; number--, from += (size), to += to_step)                       \
            memcpy(to, from, size);                                                       \
        break;                                                                            \
    }                                                                                     \
    for (; number > 1 && to_step == n; number--, from += (size), to += to_step)           \
        memcpy(to, from, size);                                                           \
    for (; number > 0; number--, from += (size), to += to_step) {                         \
        __asm__ volatile(""); /* compilers would make slower vectors of several rows */   \
        memcpy(to, from, (size) / 2);                                                     \
        memcpy(to + n - (size) / 2, from + n - (size) / 2, (size) / 2);                   \
    }                                                                                     \
    break

/* Copies n bytes each of rows of `size`, which is less than twice as many: their first ones and their last ones, some of
 * them twice. Where a row of the target follows the other, the next one is written over what was too much. */
static void copy_short(const uint8_t *restrict from, int64_t size, int64_t n, int64_t number, uint8_t *restrict to,
                       int64_t to_step)
{
    if (to_step == n)
        switch (n) {
        case 3:
            COPY_CLOSED(4, 3);
        case 5:
            COPY_CLOSED(8, 5);
        case 6:
            COPY_CLOSED(8, 6);
        case 7:
            COPY_CLOSED(8, 7);
        default:
            if (n == size) {
                memcpy(to, from, (size_t)(number * n));
                return;
            }
        }
    switch (size) {
    case 2:
        COPY_SHORT(2);
    case 4:
        COPY_SHORT(4);
    case 8:
        COPY_SHORT(8);
    default:
        COPY_SHORT(16);
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
static void copy_units(const struct tiling *t, const uint8_t *from, uint8_t *to, int64_t across, int64_t along)
{
    int64_t from_along = t->along.from, to_along = t->along.to, from_across = t->across.from, to_across = t->across.to;
    switch (t->unit) {
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
        COPY_UNITS(t->unit);
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

/* Vectors of one lane of 16 bytes, or of two where one instruction does both. */
#if defined(__AVX2__) && (defined(__clang__) || __GNUC__ >= 12)
#define LANES 2
typedef uint8_t lanes8 __attribute__((vector_size(32)));
typedef uint16_t lanes16 __attribute__((vector_size(32)));
typedef uint32_t lanes32 __attribute__((vector_size(32)));
typedef uint64_t lanes64 __attribute__((vector_size(32)));
#define BOTH(a, b)                                                                                             \
    SHUFFLED(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, \
             28, 29, 30, 31)
#define LANE0(a) SHUFFLED(a, a, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define LANE1(a) SHUFFLED(a, a, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)
#define LOWER8(a, b)                                                                                             \
    SHUFFLED(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, \
             53, 22, 54, 23, 55)
#define UPPER8(a, b)                                                                                              \
    SHUFFLED(a, b, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, \
             29, 61, 30, 62, 31, 63)
#define LOWER16(a, b) SHUFFLED(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27)
#define UPPER16(a, b) SHUFFLED(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOWER32(a, b) SHUFFLED(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define UPPER32(a, b) SHUFFLED(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOWER64(a, b) SHUFFLED(a, b, 0, 4, 2, 6)
#define UPPER64(a, b) SHUFFLED(a, b, 1, 5, 3, 7)
#else
#define LANES 1
typedef bytes16 lanes8;
typedef words8 lanes16;
typedef singles4 lanes32;
typedef doubles2 lanes64;
#define LOWER8 LOW16
#define UPPER8 HIGH16
#define LOWER16 LOW8
#define UPPER16 HIGH8
#define LOWER32 LOW4
#define UPPER32 HIGH4
#define LOWER64 LOW2
#define UPPER64 HIGH2
#endif

/* 16 bytes of each of up to 16 rows, and where their columns go: `skip` elements are not wanted, `number` are. */
struct strip {
    const uint8_t *from;
    uint8_t *to;
    int64_t skip, number;
};

#define STRIP_ROOM (16 * 16 * 8)

/* Loads 16 bytes of each lane. */
static inline __attribute__((always_inline)) lanes8 load_lanes(const uint8_t *const *from, int64_t at)
{
    bytes16 one;
    memcpy(&one, from[0] + at, 16);
#if LANES == 2
    bytes16 other;
    memcpy(&other, from[1] + at, 16);
    return BOTH(one, other);
#else
    return one;
#endif
}

/* Stores 16 bytes of each lane, those of the second one `apart` behind. */
static inline __attribute__((always_inline)) void store_lanes(lanes8 x, uint8_t *to, int apart)
{
#if LANES == 2
    bytes16 one = LANE0(x), other = LANE1(x);
    memcpy(to, &one, 16);
    memcpy(to + apart, &other, 16);
#else
    (void)apart;
    memcpy(to, &x, 16);
#endif
}

/* Parts every byte of n vectors into its lower and upper bits, in twice as many: those of `rows` neighbours follow each
 * other. */
static inline __attribute__((always_inline)) void halve_rows(lanes8 *vectors, int n, int bits, int rows)
{
    const uint8_t mask = (uint8_t)((1 << bits) - 1);
    for (int i = n - 1; i >= 0; i--) {
        lanes8 lower = vectors[i] & mask, upper = (lanes8)((lanes16)vectors[i] >> bits) & mask;
        lanes8 *to = vectors + 2 * i;
        switch (rows) {
        case 2:
            to[0] = (lanes8)LOWER16((lanes16)lower, (lanes16)upper);
            to[1] = (lanes8)UPPER16((lanes16)lower, (lanes16)upper);
            break;
        case 4:
            to[0] = (lanes8)LOWER32((lanes32)lower, (lanes32)upper);
            to[1] = (lanes8)UPPER32((lanes32)lower, (lanes32)upper);
            break;
        case 8:
            to[0] = (lanes8)LOWER64((lanes64)lower, (lanes64)upper);
            to[1] = (lanes8)UPPER64((lanes64)lower, (lanes64)upper);
            break;
        default:
            to[0] = lower;
            to[1] = upper;
        }
    }
}

/* Turns strips, of whose rows `live` differ, into columns of `rows` bytes, and then parts elements of which `each` share a
 * byte: fewer bytes are turned than when these are parted first. */
static inline __attribute__((always_inline)) void turn(const uint8_t *const *from, int64_t step, int64_t live, uint8_t sign,
                                                       uint8_t *room, int rows, int each)
{
    lanes8 one[16], other[16];
    for (int i = 0; i < rows; i++)
        one[i] = load_lanes(from, (i < live ? i : live - 1) * step);
#pragma GCC unroll 4
    for (int turned = 1; turned < rows; turned *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < rows / 2; i++) {
            other[2 * i] = LOWER8(one[i], one[i + rows / 2]);
            other[2 * i + 1] = UPPER8(one[i], one[i + rows / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
            one[i] = other[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        lanes8 parts[8] = {one[i]};
        if (each > 1)
            halve_rows(parts, 1, 4, rows);
        if (each > 2)
            halve_rows(parts, 2, 2, rows);
        if (each > 4)
            halve_rows(parts, 4, 1, rows);
        for (int k = 0; k < each; k++)
            store_lanes(each > 1 ? (parts[k] ^ sign) - sign : parts[k], room + 16 * (each * i + k), 16 * each * rows);
    }
}

typedef void turn_function(const uint8_t *const *from, int64_t step, int64_t live, uint8_t sign, uint8_t *room);
#define TURN(rows, each)                                                                                               \
    static void turn_##rows##_##each(const uint8_t *const *from, int64_t step, int64_t live, uint8_t sign, uint8_t *room) \
    {                                                                                                                  \
        turn(from, step, live, sign, room, rows, each);                                                                \
    }
#define TURN_EACH(rows) TURN(rows, 1) TURN(rows, 2) TURN(rows, 4) TURN(rows, 8)
TURN_EACH(2)
TURN_EACH(4)
TURN_EACH(8)
TURN_EACH(16)
#define TURNINGS(rows) {turn_##rows##_1, turn_##rows##_2, turn_##rows##_4, turn_##rows##_8}
static turn_function *const turn_functions[4][4] = {TURNINGS(2), TURNINGS(4), TURNINGS(8), TURNINGS(16)};

/* Strips that are turned together, and what all of them have in common. */
struct turning {
    struct strip strips[LANES];
    int held;
    int64_t step, live; /* bytes between rows, and rows */
    int64_t rows;       /* of the vectors that are turned: a power of 2 */
    int64_t columns;    /* of a strip */
    int64_t to_step;
    uint8_t sign;
    turn_function *turn;
};

/* Copies the strips that are held. */
static void copy_turned(const struct copying *c, struct turning *t)
{
    const uint8_t *from[LANES];
    uint8_t room[LANES * STRIP_ROOM + 16], near_end[LANES][16 * 16];
    int64_t step = t->step, farthest = step > 0 ? (t->live - 1) * step : 0;
    int near = 0;
    for (int lane = 0; lane < LANES; lane++) {
        from[lane] = t->strips[lane < t->held ? lane : 0].from;
        near |= c->end - from[lane] < farthest + 16;
    }
    if (near) { /* bytes behind the last element may not be there */
        step = 16;
        for (int lane = 0; lane < LANES; lane++) {
            for (int64_t i = 0; i < t->live; i++) {
                int64_t has = c->end - from[lane] - i * t->step;
                memset(near_end[lane] + 16 * i, 0, 16);
                memcpy(near_end[lane] + 16 * i, from[lane] + i * t->step, (size_t)(has < 16 ? has : 16));
            }
            from[lane] = near_end[lane];
        }
    }
    t->turn(from, step, t->live, t->sign, room);
    for (int lane = 0; lane < t->held; lane++) {
        const struct strip *first = &t->strips[lane], *last = first;
        int64_t number = first->number;
        /* Columns that follow each other in the room and in the target are copied as one run. */
        for (; lane + 1 < t->held && last->skip + last->number == t->columns && !last[1].skip &&
               last[1].to == first->to + number * t->to_step;
             lane++)
            number += (++last)->number;
        copy_short(room + ((first - t->strips) * t->columns + first->skip) * t->rows, t->rows, t->live, number, first->to,
                   t->to_step);
    }
    t->held = 0;
}

/* Copies what is side by side in the source along one axis and in the target along the other, by strips. */
static void copy_strips(const struct copying *c, int64_t from, uint8_t *to)
{
    const struct axis *across = &c->tiles.across, *along = &c->tiles.along, *inner = &c->inner;
    const int order = c->bits == 8 ? 0 : c->bits == 4 ? 1 : c->bits == 2 ? 2 : 3; /* 1 << order elements share a byte */
    const int64_t live = across->length < 16 ? across->length : 16;
    int size = live > 8 ? 3 : live > 4 ? 2 : live > 2 ? 1 : 0;
    struct turning t = {.step = across->from >> order, .live = live, .rows = 2 << size, .columns = 16 << order};
    t.to_step = along->to;
    t.sign = c->is_signed ? (uint8_t)(1 << (c->bits - 1)) : 0;
    t.turn = turn_functions[size][order];
    for (int64_t k = 0; k < inner->length; k++)
        for (int64_t i = 0; i < across->length; i += 16) {
            int64_t left = i < across->length - live ? i : across->length - live;
            for (int64_t j = 0; j < along->length;) {
                int64_t at = from + k * inner->from + left * across->from + j;
                int64_t skip = at & ((1 << order) - 1), most = t.columns - skip, number = along->length - j;
                number = number < most ? number : most;
                uint8_t *target = to + k * inner->to + left + j * along->to;
                t.strips[t.held++] = (struct strip){c->packed + (at >> order), target, skip, number};
                if (t.held == LANES)
                    copy_turned(c, &t);
                j += number;
            }
        }
    if (t.held)
        copy_turned(c, &t);
}

/* Chooses how tiles are copied. */
static void choose(struct tiling *t)
{
    t->side = t->unit < 16 ? 16 / t->unit : 0;
    t->transpose = NULL;
    if (t->side * t->unit != 16 || t->along.from != t->unit || t->across.to != t->unit || t->across.length < 2)
        return;
    for (t->rows = 2; t->rows < t->side && t->rows < t->across.length;)
        t->rows *= 2;
    t->transpose = transposition_of(t->unit, t->rows);
}

/* Copies a tile: where its elements lie side by side in the source along one axis and in the target along the other, by
 * squares. The last square ends where the tile does, whatever it copies once more. */
static void copy_tile(const struct tiling *t, const uint8_t *from, uint8_t *to, int64_t across, int64_t along)
{
    int64_t rows = t->rows, side = t->side;
    if (!t->transpose || along < side) {
        copy_units(t, from, to, across, along);
        return;
    }
    if (across < side) {
        uint8_t room[16 * TILE];
        for (int64_t j = 0; j < along; j += side) {
            int64_t above = j < along - side ? j : along - side;
            t->transpose(from + above * t->along.from, t->across.from, across, room + above * rows * t->unit, 16);
        }
        copy_short(room, rows * t->unit, across * t->unit, along, to, t->along.to);
        return;
    }
    for (int64_t i = 0; i < across; i += rows)
        for (int64_t j = 0; j < along; j += side) {
            int64_t left = i < across - rows ? i : across - rows;
            int64_t above = j < along - side ? j : along - side;
            const uint8_t *source = from + above * t->along.from + left * t->across.from;
            uint8_t *target = to + above * t->along.to + left * t->across.to;
            t->transpose(source, t->across.from, rows, target, t->along.to);
        }
}

/* Copies a tile of elements that share bytes. */
static void copy_shared(const struct copying *c, int64_t from, uint8_t *to, int64_t across, int64_t along)
{
    const struct tiling *t = &c->tiles;
    for (int64_t j = 0; j < along; j++)
        for (int64_t i = 0; i < across; i++) {
            int64_t at = from + j * t->along.from + i * t->across.from;
            uint8_t *target = to + j * t->along.to + i * t->across.to;
            if (t->unit > 1)
                part(c, at, t->unit, target);
            else
                *target = value_of(c, at);
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
    const struct tiling *t = &c->tiles;
    if (c->by_strips) {
        copy_strips(c, from, to);
        return;
    }
    for (int64_t i = 0; i < t->across.length; i += c->width)
        for (int64_t j = 0; j < t->along.length; j += c->height) {
            /* No narrow tile at an end: that one begins earlier, and copies some once more. */
            int64_t left = t->across.length - i < 16 && i ? t->across.length - 16 : i;
            int64_t above = t->along.length - j < 16 && j ? t->along.length - 16 : j;
            int64_t across = t->across.length - left < c->width ? t->across.length - left : c->width;
            int64_t along = t->along.length - above < c->height ? t->along.length - above : c->height;
            int64_t at = from + left * t->across.from + above * t->along.from;
            uint8_t *target = to + left * t->across.to + above * t->along.to;
            if (c->bits < 8)
                copy_shared(c, at, target, across, along);
            else
                copy_tile(t, c->packed + at, target, across, along);
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
        if (!joined && each->from == c->tiles.unit && each->to == c->tiles.unit) {
            c->tiles.unit *= each->length;
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
    struct copying c = {.packed = from, .bits = bits, .is_signed = is_signed, .tiles.unit = bits < 8 ? 1 : bits / 8};
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
        c.axes[c.number++] = (struct axis){shape[i], from_steps[i] * c.tiles.unit, to_steps[i]};
    }
    if (!from || !to || last >= count)
        return -1;
    c.end = from + (bits < 8 ? (count + 8 / bits - 1) / (8 / bits) : count * (bits / 8));
    offset *= c.tiles.unit;
    join(&c);
    c.tiles.across = c.tiles.along = (struct axis){1, 0, 0};
    if (c.number) {
        int nearest = 0;
        for (int i = 1; i < c.number; i++)
            nearest = c.axes[i].to < c.axes[nearest].to ? i : nearest;
        c.tiles.across = taken(&c, nearest);
    }
    if (c.number) {
        int nearest = 0;
        for (int i = 1; i < c.number; i++)
            nearest = c.axes[i].from < c.axes[nearest].from ? i : nearest;
        c.tiles.along = taken(&c, nearest);
    }
    choose(&c.tiles);
    c.height = TILE;
    c.width = c.tiles.along.length < TILE ? TILE * TILE / c.tiles.along.length : TILE;
    c.by_strips = c.tiles.unit == 1 && c.tiles.along.from == 1 && c.tiles.across.to == 1 && c.tiles.across.length > 1;
    if (bits == 8) /* with many rows, squares that are turned straight into the target are as fast */
        c.by_strips = c.by_strips && c.tiles.across.length <= 4 && c.tiles.along.length >= 16;
    else
        c.by_strips = c.by_strips && c.tiles.across.from % (8 / bits) == 0;
    c.inner = (struct axis){1, 0, 0};
    if (!c.number) {
        copy_axes(&c, 0, offset, to);
        return 0;
    }
    /* Neighbours in the source share pages, as do those in the target: some of the former before the next of the latter. */
    int nearest = 0;
    for (int i = 1; i < c.number; i++)
        nearest = c.axes[i].from < c.axes[nearest].from ? i : nearest;
    struct axis inner = taken(&c, nearest);
    for (int64_t start = 0; start < inner.length; start += SOME) {
        int64_t length = inner.length - start < SOME ? inner.length - start : SOME;
        if (c.by_strips) {
            c.inner = (struct axis){length, inner.from, inner.to};
            copy_axes(&c, 0, offset + start * inner.from, to + start * inner.to);
            continue;
        }
        c.axes[c.number++] = (struct axis){length, inner.from, inner.to};
        copy_axes(&c, 0, offset + start * inner.from, to + start * inner.to);
        c.number--;
    }
    return 0;
}
