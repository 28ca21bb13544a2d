/* The cells of lines that a recorder wrote, by column: see sources/mindspore/statistics.py, which reads line by line
 * whatever is odd here. */
#include "kernel.h"
#include <stdlib.h>

/* What is made of the cells of a column. */
enum role { SKIPPED, NUMBER, WHOLE, WORD, QUOTED_WORD, NAME };

#define ODD (-2)   /* lines that this function does not take */
#define TAKEN (-1) /* a place in a table of words that is free */

/* All arrays have `rows` of `width` values, or one of each column of that role. */
struct columns {
    const int64_t *roles;   /* of the titled columns */
    const int64_t *places;  /* of each its number among those of its role */
    int64_t titled, rows;
    double *numbers;        /* what is no number stays what it is */
    int64_t *wholes;
    int32_t *words;         /* numbers of the distinct texts of a column, in the order in which they come */
    int64_t number_width, whole_width, word_width;
    int64_t *spans;         /* [word column, number]: where a text begins, and its length */
    int64_t *word_counts;   /* how many distinct texts a column has */
    int32_t *slots;         /* [word column, slot]: TAKEN, or the number of a text */
    int64_t most_words, most_slots; /* the latter a power of 2, more than twice the former */
    uint8_t *names;         /* the columns of that role joined by dots, a line each: as long as the text at most */
    int64_t names_length;
    int64_t *odd;           /* row, place, begin and length of what may be a number for Python alone */
    int64_t odd_count, most_odd;
    int64_t cells;          /* in each line, those without a title and without text as well */
};

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static int is_word(const uint8_t *text, int64_t n, const char *word)
{
    int64_t i = 0;
    for (; i < n && word[i]; i++)
        if ((text[i] | 0x20) != (uint8_t)word[i])
            return 0;
    return i == n && !word[i];
}

/* Reads a number as Python's float() does. Returns 1; 0 where the text is none, -1 where Python may see more in it.
 * A number of up to 2^53 times or over a power of ten that float64 holds is right after one operation; for others there
 * is strtod, which stops before the point where a language writes numbers with commas. */
static int to_number(const uint8_t *text, int64_t n, double *to)
{
    int64_t i = 0, digits = 0, scale = 0;
    uint64_t value = 0;
    int negative = n > 0 && text[0] == '-', seen = 0;
    if (n > 0 && (text[0] == '-' || text[0] == '+'))
        i = 1;
    for (int point = 0; i < n; i++) {
        uint8_t c = text[i];
        if (c == '.' && !point) {
            point = 1;
            continue;
        }
        if (c < '0' || c > '9')
            break;
        seen = 1;
        digits += value || c != '0';
        value = digits < 20 ? 10 * value + (uint64_t)(c - '0') : value;
        scale -= point;
    }
    if (seen && i < n && (text[i] | 0x20) == 'e') {
        int64_t power = 0, at = i + 1;
        int down = at < n && text[at] == '-';
        at += at < n && (text[at] == '-' || text[at] == '+');
        if (at == n)
            return -1;
        for (; at < n && text[at] >= '0' && text[at] <= '9' && power < 100000; at++)
            power = 10 * power + (text[at] - '0');
        scale += down ? -power : power;
        i = at;
    }
    if (i < n || !seen) {
        int64_t sign = n > 0 && (text[0] == '-' || text[0] == '+');
        if (is_word(text + sign, n - sign, "nan"))
            *to = NAN;
        else if (is_word(text + sign, n - sign, "inf") || is_word(text + sign, n - sign, "infinity"))
            *to = negative ? -INFINITY : INFINITY;
        else
            return n == 0 || is_word(text, n, "null") ? 0 : -1;
        return 1;
    }
    double result;
    if (digits < 20 && value <= UINT64_C(1) << 53 && scale >= -22 && scale <= 22)
        result = scale < 0 ? (double)value / POWERS[-scale] : (double)value * POWERS[scale];
    else if (value == 0)
        result = 0;
    else {
        char *end;
        result = fabs(strtod((const char *)text, &end));
        if (end != (const char *)text + n)
            return -1;
    }
    *to = negative ? -result : result;
    return 1;
}

/* Returns the number of a text of a column, entered when it is new; -1 where there are too many. */
static int32_t word_number(struct columns *c, const uint8_t *text, int64_t column, int64_t begin, int64_t n)
{
    int64_t *spans = c->spans + 2 * column * c->most_words;
    int32_t *slots = c->slots + column * c->most_slots;
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int64_t i = 0; i < n; i++)
        hash = (hash ^ text[begin + i]) * UINT64_C(1099511628211);
    uint64_t slot = (hash ^ hash >> 32) & (uint64_t)(c->most_slots - 1);
    for (; slots[slot] != TAKEN; slot = (slot + 1) & (uint64_t)(c->most_slots - 1)) {
        int64_t *span = spans + 2 * slots[slot];
        if (span[1] == n && !memcmp(text + span[0], text + begin, (size_t)n))
            return slots[slot];
    }
    int64_t number = c->word_counts[column];
    if (number == c->most_words)
        return -1;
    spans[2 * number] = begin;
    spans[2 * number + 1] = n;
    c->word_counts[column] = number + 1;
    return slots[slot] = (int32_t)number;
}

/* Takes a cell; `last` is the number of the text above it in a column of words. Returns 0, or ODD. */
static int take(struct columns *c, const uint8_t *text, int64_t column, int64_t row, int64_t begin, int64_t n, int quoted)
{
    int64_t role = c->roles[column], place = c->places[column];
    const uint8_t *cell = text + begin;
    if (quoted && role != QUOTED_WORD)
        return ODD;
    switch (role) {
    case NUMBER: {
        int known = to_number(cell, n, c->numbers + row * c->number_width + place);
        if (known >= 0)
            return 0;
        if (c->odd_count == c->most_odd)
            return ODD;
        int64_t *odd = c->odd + 4 * c->odd_count++;
        odd[0] = row;
        odd[1] = place;
        odd[2] = begin;
        odd[3] = n;
        return 0;
    }
    case WHOLE: {
        uint64_t value = 0;
        if (n < 1 || n > 18)
            return ODD;
        for (int64_t i = 0; i < n; i++) {
            if (cell[i] < '0' || cell[i] > '9')
                return ODD;
            value = 10 * value + (uint64_t)(cell[i] - '0');
        }
        c->wholes[row * c->whole_width + place] = (int64_t)value;
        return 0;
    }
    case WORD:
    case QUOTED_WORD: {
        int32_t *to = c->words + row * c->word_width + place;
        if (row) {
            const int64_t *span = c->spans + 2 * (place * c->most_words + to[-c->word_width]);
            if (span[1] == n && !memcmp(text + span[0], cell, (size_t)n)) {
                *to = to[-c->word_width];
                return 0;
            }
        }
        *to = word_number(c, text, place, begin, n);
        return *to < 0 ? ODD : 0;
    }
    case NAME:
        if (n < 1 || cell[0] == ' ' || cell[n - 1] == ' ')
            return ODD;
        memcpy(c->names + c->names_length, cell, (size_t)n);
        c->names_length += n;
        c->names[c->names_length++] = '.';
    }
    return 0;
}

/* Takes lines of printable ASCII characters, all of as many cells, none but those of one role in quotes, each of at most
 * `longest` bytes and with an end. Returns how many; ODD where they are others, -1 where an argument makes no sense. */
int64_t EXPORTED(csv_columns)(const uint8_t *text, int64_t n, struct columns *c, int64_t longest)
{
    if (!text || n < 0 || !c || c->titled < 1 || c->rows < 0 || !c->roles || !c->places || c->most_words < 1 ||
        c->most_slots <= 2 * c->most_words || (c->most_slots & (c->most_slots - 1)) || (n && text[n - 1] != '\n'))
        return -1;
    int64_t row = 0, cells = -1;
    c->names_length = c->odd_count = 0;
    for (int64_t at = 0; at < n; row++) {
        int64_t line = at, column = 0, named = c->names_length;
        if (row == c->rows || text[at] == ' ')
            return ODD;
        for (int ended = 0; !ended; column++) {
            int64_t begin = at, stop;
            int quoted = text[at] == '"';
            if (quoted) {
                begin = ++at;
                while (text[at] >= ' ' && text[at] < 0x80 && text[at] != '"')
                    at++;
                if (text[at] != '"')
                    return ODD;
                stop = at++;
            } else {
                while (text[at] >= ' ' && text[at] < 0x80 && text[at] != ',' && text[at] != '"')
                    at++;
                stop = at;
            }
            if (text[at] != ',' && text[at] != '\n')
                return ODD;
            ended = text[at++] == '\n';
            if (column < c->titled ? take(c, text, column, row, begin, stop - begin, quoted) : stop > begin || quoted)
                return ODD;
        }
        if (at - line < 2 || text[at - 2] == ' ' || at - 1 - line > longest || (cells >= 0 && column != cells) || column < c->titled)
            return ODD;
        cells = column;
        if (c->names_length > named)
            c->names[c->names_length - 1] = '\n';
    }
    c->cells = cells;
    return row;
}
