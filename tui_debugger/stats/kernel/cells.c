/* What a table of numbers shows in few cells, and where the next NaN or Inf is: see stats/heat.py. */
#include "kernel.h"

#define PIECE 1024

/* Cells of a picture: all arrays have `columns` of them in a row. */
struct cells {
    double *low, *high;
    int64_t *nan, *pos_inf, *neg_inf;
    int64_t rows, columns, row_step, column_step;
};

/* Adds elements that follow each other in one cell. */
static void add_run(struct cells *c, int64_t cell, const double *restrict x, int64_t n)
{
    double low = INFINITY, high = -INFINITY;
    int64_t bad = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : bad)
    for (int64_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        bad += !(fabs(x[i]) < INFINITY);
    }
    if (bad) {
        low = INFINITY;
        high = -INFINITY;
        for (int64_t i = 0; i < n; i++) {
            if (isnan(x[i]))
                c->nan[cell]++;
            else if (isinf(x[i]))
                (x[i] > 0 ? c->pos_inf : c->neg_inf)[cell]++;
            else {
                low = x[i] < low ? x[i] : low;
                high = x[i] > high ? x[i] : high;
            }
        }
    }
    c->low[cell] = low < c->low[cell] ? low : c->low[cell];
    c->high[cell] = high > c->high[cell] ? high : c->high[cell];
}

/* Adds a rectangle of a table to its cells. `row`, `column`: where it begins in the part of the table that the cells
 * show. Returns 0; -1 where an argument makes no sense, or the rectangle leaves the cells. */
int EXPORTED(cells)(struct cells *c, const struct elements *e, int64_t row, int64_t column, int64_t rows, int64_t columns)
{
    const int64_t most = INT64_C(1) << 31;
    if (!c || rows < 0 || columns < 0 || rows > most || columns > most || !is_readable(e, rows * columns) || row < 0 ||
        column < 0 || c->row_step < 1 || c->column_step < 1)
        return -1;
    if (!rows || !columns)
        return 0;
    if (!c->low || !c->high || !c->nan || !c->pos_inf || !c->neg_inf || (row + rows - 1) / c->row_step >= c->rows ||
        (column + columns - 1) / c->column_step >= c->columns)
        return -1;
    for (int64_t r = 0; r < rows; r++) {
        int64_t line = (row + r) / c->row_step * c->columns;
        for (int64_t first = 0; first < columns; first += PIECE) {
            int64_t count = columns - first < PIECE ? columns - first : PIECE;
            double x[PIECE];
            load(e, r * columns + first, count, x);
            for (int64_t at = 0; at < count;) {
                int64_t begin = column + first + at, cell = begin / c->column_step;
                int64_t run = (cell + 1) * c->column_step - begin;
                run = run < count - at ? run : count - at;
                add_run(c, line + cell, x + at, run);
                at += run;
            }
        }
    }
    return 0;
}

/* Returns the place of the first element that is NaN (`kinds` & 1) or infinite (`kinds` & 2), with `last` of the last
 * one; n for none, -1 where an argument makes no sense. */
int64_t EXPORTED(bad)(const struct elements *e, int64_t n, int kinds, int last)
{
    if (!is_readable(e, n))
        return -1;
    int64_t pieces = (n + PIECE - 1) / PIECE;
    for (int64_t number = 0; number < pieces; number++) {
        int64_t first = (last ? pieces - 1 - number : number) * PIECE, count = n - first < PIECE ? n - first : PIECE;
        double x[PIECE];
        int64_t found = 0;
        if (e->kind == F32) {
            float single[PIECE];
            int32_t some = 0;
            to_single(F32, element_at(e, first), e->table, count, single);
            for (int64_t i = 0; i < count; i++)
                some |= !(fabsf(single[i]) < INFINITY);
            if (!some)
                continue;
        }
        load(e, first, count, x);
        for (int64_t i = 0; i < count; i++)
            found |= !(fabs(x[i]) < INFINITY);
        for (int64_t i = 0; found && i < count; i++) {
            int64_t at = last ? count - 1 - i : i;
            if (isnan(x[at]) ? kinds & 1 : isinf(x[at]) ? kinds & 2 : 0)
                return first + at;
        }
    }
    return n;
}
