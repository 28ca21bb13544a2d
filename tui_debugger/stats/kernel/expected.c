/* What an operator makes of its inputs, in float64, and whether what was recorded of it is surely right.
 *
 * Nothing here says that an output is wrong: what is not surely right is looked at again, by numpy.
 *
 * exp, tanh and the error function are polynomials that compilers make vectors of. They are off by less than 2^-29 of
 * their value; tests hold them against the ones of Python. Sums are not in a fixed order: the last bits of norms may
 * differ from processor to processor, what is right does not.
 */
#include "kernel.h"

/* Elements of a chunk: with all that is made of them they stay in the first-level cache. */
#define PART 512

/* Clang makes no vectors of these, and warns where it is asked to. */
#if defined(__clang__)
#define AS_LARGEST
#else
#define AS_LARGEST _Pragma("omp simd reduction(max : top)")
#endif

#define LOG2_E 1.4426950408889634
#define LN2_HIGH 0x1.62e42fee00000p-1 /* its products with exponents are exact */
#define LN2_LOW 0x1.a39ef35793c76p-33
#define ROUND 0x1.8p52 /* added to a number it leaves its integer in the last bits */

/* exp(z) - 1 = power - 1 + power * rest, where `power` is one of 2. Beyond what float64 holds both stop. */
static inline double parts_of_exp(double z, double *power)
{
    z = z < -708 ? -708 : z;
    z = z > 709 ? 709 : z;
    double shifted = TIMES_PLUS(z, LOG2_E, ROUND);
    uint64_t bits;
    memcpy(&bits, &shifted, 8);
    double k = shifted - ROUND;
    double r = TIMES_PLUS(-k, LN2_LOW, TIMES_PLUS(-k, LN2_HIGH, z));
    double p = 1.0 / 362880;
    p = TIMES_PLUS(p, r, 1.0 / 40320);
    p = TIMES_PLUS(p, r, 1.0 / 5040);
    p = TIMES_PLUS(p, r, 1.0 / 720);
    p = TIMES_PLUS(p, r, 1.0 / 120);
    p = TIMES_PLUS(p, r, 1.0 / 24);
    p = TIMES_PLUS(p, r, 1.0 / 6);
    p = TIMES_PLUS(p, r, 0.5);
    p = TIMES_PLUS(p, r, 1.0);
    bits = (bits + 1023) << 52;
    memcpy(power, &bits, 8);
    return p * r;
}

static inline double exponential(double z)
{
    double power, rest = parts_of_exp(z, &power);
    return TIMES_PLUS(power, rest, power);
}

static inline double fmin_of(double a, double b)
{
    return a < b ? a : b;
}

static inline double sigmoid(double x)
{
    return 1 / (1 + exponential(-x));
}

static inline double hyperbolic_tangent(double x)
{
    double power, rest = parts_of_exp(-2 * fabs(x), &power);
    double less = TIMES_PLUS(power, rest, power - 1);
    return copysign(less / (2 + less), x);
}

/* 1 - erf(z) for z >= 0: exp of a polynomial of t = 1 / (1 + z / 2), times t. The polynomial was fitted up to 15. */
static inline double error_rest(double z)
{
    static const double fit[] = {
        -1.265508205597819, 0.9998456518130026, 0.3776669026709999, 0.05658662578460884,
        0.08765059505873486, -0.912182658660016, 2.284570583562752, -5.118041237437428,
        7.786133155823112, -7.266302848891356, 4.067906616728872, -1.2694914874950207, 0.17116630665588892,
    };
    z = z > 15 ? 15 : z;
    double t = 1 / (1 + 0.5 * z), p = fit[12];
    p = TIMES_PLUS(p, t, fit[11]);
    p = TIMES_PLUS(p, t, fit[10]);
    p = TIMES_PLUS(p, t, fit[9]);
    p = TIMES_PLUS(p, t, fit[8]);
    p = TIMES_PLUS(p, t, fit[7]);
    p = TIMES_PLUS(p, t, fit[6]);
    p = TIMES_PLUS(p, t, fit[5]);
    p = TIMES_PLUS(p, t, fit[4]);
    p = TIMES_PLUS(p, t, fit[3]);
    p = TIMES_PLUS(p, t, fit[2]);
    p = TIMES_PLUS(p, t, fit[1]);
    p = TIMES_PLUS(p, t, fit[0]);
    return t * exponential(TIMES_PLUS(-z, z, p));
}

/* An input: element i of what is made needs values[i / repeat % period], or values[i] where `period` is 0. */
struct operand {
    struct elements values;
    int64_t repeat, period;
};

static void load_operand(const struct operand *o, int64_t first, int64_t n, double *to)
{
    if (!o->period) {
        load(&o->values, first, n, to);
        return;
    }
    for (int64_t done = 0, run; done < n; done += run) {
        int64_t at = first + done, begun = at % o->repeat, from = at / o->repeat % o->period;
        if (o->repeat == 1) {
            run = o->period - from < n - done ? o->period - from : n - done;
            load(&o->values, from, run, to + done);
        }
        else {
            double value;
            run = o->repeat - begun < n - done ? o->repeat - begun : n - done;
            load(&o->values, from, 1, &value);
            for (int64_t i = 0; i < run; i++)
                to[done + i] = value;
        }
        if (o->period == 1) { /* one number for all */
            for (int64_t i = run; i < n - done; i++)
                to[done + i] = to[done];
            return;
        }
    }
}

/* What an error may be, in each unit of: the value, the size of its terms, what is rounded on the way; and `tiny`. */
struct limits {
    double value, size, narrow, tiny;
};

/* Squares of errors, of values, of all that is allowed; the first value, and what was recorded in its place; of parts
 * that are not surely right the largest error, in what is allowed: infinity where that is no number. */
struct found {
    double error, value, inside, first, recorded, worst;
    int64_t state;
};

/* Whether all elements so far are NOT_SURE, right WITHIN their VALUE's rounding, or only within ALL that explains. */
enum { NOT_SURE, WITHIN_VALUE, WITHIN_ALL };

/* `narrow` may be null. Infinities of one sign are equal, and so is no NaN. */
static void judge(const double *value, const double *size, const double *narrow, const double *recorded, int64_t n,
                  const struct limits *limits, struct found *to)
{
    double errors = 0, values = 0, insides = 0;
    int64_t close = 0, right = 0;
    static const double none[PART];
    narrow = narrow ? narrow : none;
#pragma omp simd reduction(+ : errors, values, insides, close, right)
    for (int64_t i = 0; i < n; i++) {
        double v = value[i], y = recorded[i], error = fabs(y - v), magnitude = fabs(v);
        double allowed = limits->value * magnitude + limits->tiny;
        double inside = limits->size * size[i] + limits->narrow * narrow[i], all = allowed + inside;
        int same = y == v, finite = error < INFINITY;
        close += (error <= allowed) | same;
        right += (error <= all) | same;
        error = finite ? error : 0;
        magnitude = finite ? magnitude : 0;
        inside = finite ? inside : 0;
        errors += error * error;
        values += magnitude * magnitude;
        insides += inside * inside;
    }
    to->error += errors;
    to->value += values;
    to->inside += insides;
    if (right < n) {
        double worst = to->worst;
        to->state = NOT_SURE;
        for (int64_t i = 0; i < n; i++) {
            double error = fabs(value[i] - recorded[i]);
            double all = limits->value * fabs(value[i]) + limits->tiny + limits->size * size[i] + limits->narrow * narrow[i];
            double ratio = value[i] == recorded[i] ? 0 : error < INFINITY && all < INFINITY ? error / all : INFINITY;
            worst = ratio > worst ? ratio : worst;
        }
        to->worst = worst;
    } else if (close < n && to->state == WITHIN_VALUE)
        to->state = WITHIN_ALL;
}

enum {
    SAME, NEGATIVE, MAGNITUDE, RELU, EXP, TANH, SIGMOID, SILU, GELU, GELU_TANH, SQRT, RSQRT, RECIPROCAL, SQUARE, CLAMP,
    LEAKY_RELU, DROPOUT, ADD, SUBTRACT, MULTIPLY, DIVIDE, LARGER, SMALLER, WHERE, ELEMENTWISE_OPERATORS
};

/* What an operator makes of a number, and the size of that. */
struct made {
    double value, size;
};

#define PATTERNS 65536 /* of 16 bits */

/* `table` may be null; else it has what is made of every pattern of 16 bits of the left operand. */
struct elementwise {
    int64_t operator, first, n;
    struct operand left, right, choice;
    struct elements recorded;
    struct limits limits;
    double low, high;
    const struct made *table;
};

#define EACH(made, its_size)                \
    for (int64_t i = 0; i < n; i++) {       \
        double a = x[i], v = (made);        \
        value[i] = v;                       \
        size[i] = (its_size);               \
    }                                       \
    break
#define EACH_PLAIN(made)              \
    for (int64_t i = 0; i < n; i++) { \
        double a = x[i];              \
        value[i] = (made);            \
    }                                 \
    break
#define EACH_PAIR(made)                         \
    for (int64_t i = 0; i < n; i++) {           \
        double a = x[i], b = z[i];              \
        value[i] = (made);                      \
    }                                           \
    break

/* What operators of one operand make. Sizes are as numpy's twins have them; where nothing is written they are 0. */
static void of_one(int64_t operator, double low, double high, const double *x, int64_t n, double *value, double *size)
{
    switch (operator) {
    case SAME:
        EACH_PLAIN(a);
    case NEGATIVE:
        EACH_PLAIN(-a);
    case MAGNITUDE:
        EACH_PLAIN(fabs(a));
    case RELU:
        EACH_PLAIN(a < 0 ? 0 : a);
    case EXP:
        EACH(exponential(a), (fmin_of(fabs(a), 1e4) + 2) * v);
    case TANH:
        EACH(hyperbolic_tangent(a), 2 * fabs(v));
    case SIGMOID:
        EACH(sigmoid(a), v * (2 + fabs(a) * (1 - v)));
    case SILU:
        EACH(a * sigmoid(a), fabs(v) * (2 + fabs(a)));
    case GELU:
        EACH((a < 0 ? 0 : a) - 0.5 * fabs(a) * error_rest(fabs(a) * 0.70710678118654752),
             fmin_of(fabs(a), 8) + fabs(v));
    case GELU_TANH:
        EACH(a * sigmoid(1.5957691216057308 * (a + 0.044715 * a * a * a)), fmin_of(fabs(a), 8) + fabs(v));
    case SQRT:
        EACH_PLAIN(__builtin_sqrt(a));
    case RSQRT:
        EACH(1 / __builtin_sqrt(a), 2 * fabs(v));
    case RECIPROCAL:
        EACH(1 / a, 2 * fabs(v));
    case SQUARE:
        EACH_PLAIN(a * a);
    case CLAMP:
        EACH_PLAIN(a < low ? low : a > high ? high : a);
    case LEAKY_RELU:
        EACH(a > 0 ? a : low * a, fabs(v));
    }
}

/* What operators of more make, and dropout, which takes from what was recorded whether it is zero. */
static void of_more(const struct elementwise *call, int64_t first, int64_t n, const double *y, double *value, double *size)
{
    double x[PART], z[PART], chosen[PART];
    const double low = call->low;
    const int sum = call->operator == ADD;
    load_operand(&call->left, first, n, x);
    if (call->operator >= ADD)
        load_operand(&call->right, first, n, z);
    if (call->operator == WHERE)
        load_operand(&call->choice, first, n, chosen);
    switch (call->operator) {
    case DROPOUT: /* zero, or the element divided by the share that is kept: which one is chance */
        for (int64_t i = 0; i < n; i++) {
            double v = y[i] == 0 ? x[i] * 0 : x[i] / low;
            value[i] = v;
            size[i] = fabs(v);
        }
        break;
    case ADD:
    case SUBTRACT:
        for (int64_t i = 0; i < n; i++) {
            size[i] = fabs(z[i]); /* a number of Python's may be rounded to the type of the tensor first */
            value[i] = sum ? x[i] + z[i] : x[i] - z[i];
        }
        break;
    case MULTIPLY:
        EACH_PAIR(a * b);
    case DIVIDE:
        EACH_PAIR(a / b);
    case LARGER:
        EACH_PAIR(a > b ? a : b != b ? b : a != a ? a : b);
    case SMALLER:
        EACH_PAIR(a < b ? a : b != b ? b : a != a ? a : b);
    case WHERE:
        for (int64_t i = 0; i < n; i++)
            value[i] = chosen[i] != 0 ? x[i] : z[i];
    }
}

static void from_table(const struct elementwise *call, int64_t first, int64_t n, double *value, double *size)
{
    const uint8_t *from = element_at(&call->left.values, first);
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        value[i] = call->table[bits].value;
        size[i] = call->table[bits].size;
    }
}

/* Computes elements of one operator and holds them against what was recorded. */
static void some_elements(const struct elementwise *call, int64_t first, int64_t n, struct found *to)
{
    double x[PART], y[PART], value[PART], size[PART];
    load(&call->recorded, first, n, y);
    if (!call->table)
        memset(size, 0, sizeof *size * (size_t)n);
    if (call->table)
        from_table(call, first, n, value, size);
    else if (call->operator < DROPOUT) {
        load_operand(&call->left, first, n, x);
        of_one(call->operator, call->low, call->high, x, n, value, size);
    } else
        of_more(call, first, n, y, value, size);
    if (first == call->first)
        to->first = value[0], to->recorded = y[0];
    judge(value, size, 0, y, n, &call->limits, to);
}

/* Fills the table of an operator of one operand, by the patterns of a kind of 16 bits. */
int EXPORTED(table_of)(int64_t operator, int64_t kind, struct made *to)
{
    if (operator < 0 || operator >= DROPOUT || (kind != F16 && kind != BF16) || !to)
        return -1;
    for (int64_t first = 0, n; first < PATTERNS; first += n) {
        uint16_t bits[PART];
        double x[PART], value[PART], size[PART] = {0};
        n = PATTERNS - first < PART ? PATTERNS - first : PART;
        for (int64_t i = 0; i < n; i++)
            bits[i] = (uint16_t)(first + i);
        to_double((int)kind, bits, 0, n, x);
        of_one(operator, 0, 0, x, n, value, size);
        for (int64_t i = 0; i < n; i++)
            to[first + i] = (struct made){value[i], size[i]};
    }
    return 0;
}

static int is_operand(const struct operand *o, int64_t end)
{
    return o->period ? o->repeat > 0 && o->period > 0 && is_readable(&o->values, o->period) : is_readable(&o->values, end);
}

/* Elements `first` to `first + n` of an output; `to->state` says whether they are surely right. */
int EXPORTED(elementwise)(const struct elementwise *call, struct found *to)
{
    if (!call || !to || call->first < 0 || call->n < 0 || call->operator < 0 || call->operator >= ELEMENTWISE_OPERATORS)
        return -1;
    int64_t end = call->first + call->n;
    if (!is_operand(&call->left, end) || !is_readable(&call->recorded, end) ||
        (call->operator >= ADD && !is_operand(&call->right, end)) ||
        (call->operator == WHERE && !is_operand(&call->choice, end)) ||
        (call->table && (call->left.period || call->operator >= DROPOUT || item_size((int)call->left.values.kind) != 2)))
        return -1;
    *to = (struct found){.state = WITHIN_VALUE};
    for (int64_t at = call->first; at < end; at += PART)
        some_elements(call, at, end - at < PART ? end - at : PART, to);
    return 0;
}

/* -- rows ------------------------------------------------------------------------------------------------- */

enum { SOFTMAX, LOG_SOFTMAX, LAYER_NORM, RMS_NORM, SUM, MEAN, ROW_OPERATORS };

/* Rows of a contiguous matrix. Scale and shift have as many elements as a row; `work` holds
 * 4 * width numbers; CHUNK of them for sums and means. */
struct rows {
    int64_t operator, first, n, width;
    struct elements input, scale, shift, recorded;
    struct limits limits;
    double epsilon, *work;
};

static double sum_of(const double *x, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* The sum of squared distances. */
static double squares_of(const double *x, int64_t n, double centre)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (x[i] - centre) * (x[i] - centre);
    return sum;
}

/* The largest; -Inf where all are NaN. */
static double largest_of(const double *x, int64_t n)
{
    double top = -INFINITY;
    AS_LARGEST
    for (int64_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* exp(x - top), and the sum of that. `to` may be null. */
static double exponentials(const double *x, int64_t n, double top, double *to)
{
    double sum = 0;
    if (!to) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++)
            sum += exponential(x[i] - top);
        return sum;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        double e = exponential(x[i] - top);
        to[i] = e;
        sum += e;
    }
    return sum;
}

/* A sum or a mean. */
static void reduced_row(const struct rows *call, int64_t row, struct found *to)
{
    double *x = call->work, share = call->operator == MEAN ? 1 / (double)call->width : 1, y, value = 0, size = 0;
    load(&call->recorded, row, 1, &y);
    for (int64_t at = 0; at < call->width; at += CHUNK) {
        int64_t n = call->width - at < CHUNK ? call->width - at : CHUNK;
        load(&call->input, row * call->width + at, n, x);
        value += sum_of(x, n);
        size += squares_of(x, n, 0);
    }
    value *= share;
    size = __builtin_sqrt(size) * share;
    judge(&value, &size, 0, &y, 1, &call->limits, to);
    if (row == call->first)
        to->first = value, to->recorded = y;
}

static void made_row(const struct rows *call, int64_t row, const double *scale, const double *shift, struct found *to)
{
    const int64_t width = call->width;
    const double count = (double)width;
    double *x = call->work, *raised = x + width, value[PART], size[PART], narrow[PART], y[PART];
    double top = 0, sum = 0, centre = 0, root = 0, inverse = 0, lost = 0;
    load(&call->input, row * width, width, x);
    if (call->operator == SOFTMAX) {
        top = largest_of(x, width);
        sum = exponentials(x, width, top, raised);
        lost = 3 + __builtin_sqrt(count) / 4;
    } else if (call->operator == LOG_SOFTMAX) {
        top = largest_of(x, width);
        sum = log(exponentials(x, width, top, 0));
    } else {
        centre = call->operator == LAYER_NORM ? sum_of(x, width) / count : 0;
        double variance = squares_of(x, width, centre) / count, power = variance + centre * centre;
        inverse = 1 / __builtin_sqrt(variance + call->epsilon);
        root = __builtin_sqrt(power);
        lost = 2 + power * inverse * inverse;
    }
    for (int64_t at = 0; at < width; at += PART, x += PART, raised += PART) {
        int64_t n = width - at < PART ? width - at : PART;
        load(&call->recorded, row * width + at, n, y);
        if (call->operator == SOFTMAX)
            for (int64_t i = 0; i < n; i++) {
                double below = top - x[i], v = below > 708 ? 0 : raised[i] / sum;
                value[i] = v;
                size[i] = v > 0 ? v * (below + lost) : 0;
            }
        else if (call->operator == LOG_SOFTMAX)
            for (int64_t i = 0; i < n; i++) {
                double below = top - x[i], its = below + fabs(sum) + 1 + fabs(x[i]);
                value[i] = -below - sum;
                size[i] = its < INFINITY ? its : 0;
                narrow[i] = 1;
            }
        else
            for (int64_t i = 0; i < n; i++) {
                double plain = (x[i] - centre) * inverse, scaled = plain * scale[at + i], added = shift[at + i];
                double its = ((fabs(x[i]) + root) * inverse + fabs(plain) * lost) * fabs(scale[at + i]) + fabs(added);
                value[i] = scaled + added;
                size[i] = its < INFINITY ? its : 0;
                narrow[i] = fabs(scaled) < INFINITY ? fabs(scaled) : 0;
            }
        if (row == call->first && !at)
            to->first = value[0], to->recorded = y[0];
        judge(value, size, call->operator == SOFTMAX ? 0 : narrow, y, n, &call->limits, to);
    }
}

/* Rows `first` to `first + n`; `to->state` says whether they are surely right. */
int EXPORTED(rows)(const struct rows *call, struct found *to)
{
    if (!call || !to || call->first < 0 || call->n < 0 || call->width < 1 || !call->work || call->operator < 0 ||
        call->operator >= ROW_OPERATORS)
        return -1;
    int64_t end = call->first + call->n, made = call->operator < SUM ? call->width : 1;
    int scaled = call->operator == LAYER_NORM || call->operator == RMS_NORM;
    if (!is_readable(&call->input, end * call->width) || !is_readable(&call->recorded, end * made) ||
        (scaled && (!is_readable(&call->scale, call->width) || !is_readable(&call->shift, call->width))))
        return -1;
    *to = (struct found){.state = WITHIN_VALUE};
    double *scale = call->work + 2 * call->width, *shift = scale + call->width;
    if (scaled) {
        load(&call->scale, 0, call->width, scale);
        load(&call->shift, 0, call->width, shift);
    }
    for (int64_t row = call->first; row < end; row++)
        if (call->operator >= SUM)
            reduced_row(call, row, to);
        else
            made_row(call, row, scale, shift, to);
    return 0;
}

/* Of each row the largest element, and the logarithm of the sum of exp(x - largest). `work` holds a row. */
int EXPORTED(log_sums)(const struct elements *input, int64_t rows, int64_t width, double *work, double *top, double *sums)
{
    if (width < 1 || !work || !top || !sums || !is_matrix(input, rows, width))
        return -1;
    for (int64_t row = 0; row < rows; row++) {
        load(input, row * width, width, work);
        top[row] = largest_of(work, width);
        sums[row] = log(exponentials(work, width, top[row], 0)); /* NaN where any element is */
    }
    return 0;
}
