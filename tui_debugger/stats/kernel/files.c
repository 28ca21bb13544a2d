/* Files that are read and measured in one call: between its pieces nobody waits for Python's lock.
 *
 * `opener` and `npy` say what may be opened and where elements lie; what is odd in any way is left to them.
 */
#define _FILE_OFFSET_BITS 64
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __APPLE__
#define MODIFIED(status) (status)->st_mtimespec
#define CHANGED(status) (status)->st_ctimespec
#else
#define MODIFIED(status) (status)->st_mtim
#define CHANGED(status) (status)->st_ctim
#endif

/* Fills `to` with the bytes of a file from `first` on; returns how many there are, fewer at its end or where the device
 * fails. */
static int64_t read_at(int descriptor, uint8_t *to, int64_t size, int64_t first)
{
    int64_t done = 0;
    while (done < size) {
        ssize_t got = pread(descriptor, to + done, (size_t)(size - done), (off_t)(first + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        done += got;
    }
    return done;
}

/* How a file looks. `size`: -1 where there is none. Times are in nanoseconds. */
struct look {
    int64_t size, modified, changed, number;
};

/* A small file: its bytes begin at `start` of the buffer. look.size: -1 where it is not to be had this way. */
struct small_file {
    int64_t start;
    struct look look;
};

/* Times that do not fit are the first and the last ones that do. */
static int64_t nanoseconds(struct timespec time)
{
    const int64_t most = INT64_MAX / 1000000000 - 1;
    int64_t seconds = time.tv_sec;
    return seconds > most ? INT64_MAX : seconds < -most ? INT64_MIN : seconds * 1000000000 + time.tv_nsec;
}

static struct look look_of(const struct stat *status)
{
    return (struct look){.size = status->st_size,
                         .modified = nanoseconds(MODIFIED(status)),
                         .changed = nanoseconds(CHANGED(status)),
                         .number = (int64_t)status->st_ino};
}

/* Looks at n files; symbolic links are followed. Returns 0; -1 where an argument makes no sense.
 *
 * names: `size` bytes, each name ends with a zero. directory: an open one that they lie in; less than 0 for paths. */
int EXPORTED(look_at_files)(int64_t n, const char *names, int64_t size, int directory, struct look *looks)
{
    if (n < 0 || size < 0 || (n && (!names || !looks)))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        struct stat status;
        const char *end = memchr(names, 0, (size_t)size);
        if (!end)
            return -1;
        looks[i] = fstatat(directory < 0 ? AT_FDCWD : directory, names, &status, 0)
                       ? (struct look){.size = -1}
                       : look_of(&status);
        size -= end + 1 - names;
        names = end + 1;
    }
    return 0;
}

/* Reads a regular file of at most `room` bytes. Returns 0; 1 where it is small, but larger than `room`. */
static int read_small(const char *path, int flags, int64_t most, uint8_t *to, int64_t room, struct small_file *file)
{
    struct stat status;
    int full = 0, descriptor;
    file->look.size = -1;
    do
        descriptor = open(path, flags);
    while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0)
        return 0;
    if (!fstat(descriptor, &status) && S_ISREG(status.st_mode) && status.st_size <= most) {
        full = status.st_size > room;
        if (!full && read_at(descriptor, to, status.st_size, 0) == status.st_size)
            file->look = look_of(&status);
    }
    close(descriptor);
    return full;
}

/* Reads the small ones of n files, of at most `most` bytes each, one behind the other into a buffer of `room` bytes.
 * Returns how many files were looked at before it was full; -1 where an argument makes no sense.
 *
 * flags: of open(). */
int64_t EXPORTED(read_files)(int64_t n, const char *const *paths, int flags, int64_t most, uint8_t *buffer, int64_t room,
                             struct small_file *files)
{
    int64_t used = 0;
    if (n < 0 || room < most || most < 0 || (n && (!paths || !buffer || !files)))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        files[i] = (struct small_file){.start = used};
        if (read_small(paths[i], flags, most, buffer + used, room - used, &files[i]))
            return i;
        used += files[i].look.size > 0 ? files[i].look.size : 0;
    }
    return n;
}

/* Elements that lie in a file, or in memory where `descriptor` is less than 0.
 *
 * elements.data: where they are, or are read to: each of them to a place of its own (`kept`), or every piece to the
 * same. first: the first byte in the file. */
struct stored {
    struct elements elements;
    int64_t descriptor, first, kept;
};

/* Makes `n` elements from number `done` on, of those that a call measures, be in memory. Returns 0, or -1. */
static int fetch(const struct stored *s, int64_t done, int64_t n, struct elements *to)
{
    int64_t size = item_size((int)s->elements.kind);
    uint8_t *data = (uint8_t *)(uintptr_t)s->elements.data + (s->descriptor < 0 || s->kept ? done * size : 0);
    *to = s->elements;
    to->data = data;
    return s->descriptor >= 0 && read_at((int)s->descriptor, data, n * size, s->first + done * size) != n * size ? -1 : 0;
}

/* Adds n elements, and how they changed, to sums; `piece` at a time.
 *
 * before: what they are compared with; NULL for nothing. inside: room for twice as many counts as there are ranges.
 * sums, tests: see `change`. Returns 0; 1 where the elements cannot be read to the end, -1 where an argument makes no
 * sense. */
int EXPORTED(measure_stored)(const struct stored *now, const struct stored *before, int64_t n, int64_t piece,
                             const double *ranges, int64_t how_many, int64_t *inside, struct moments *to, double *sums,
                             struct closeness *tests, int64_t how_many_tests)
{
    if (!now || n < 0 || piece < 1 || how_many < 0 || !to || !is_readable(&now->elements, n) ||
        (before && (!sums || !is_readable(&before->elements, n))))
        return -1;
    for (int64_t done = 0; done < n; done += piece) {
        int64_t count = n - done < piece ? n - done : piece;
        struct elements here, there;
        struct moments m;
        if (fetch(now, done, count, &here))
            return 1;
        if (EXPORTED_CALL(moments)((int)here.kind, here.data, count * item_size((int)here.kind), here.table, ranges,
                                   how_many, inside + how_many, &m))
            return -1;
        int64_t finite = finite_of(&m), already = finite_of(to);
        to->count += m.count;
        to->nan += m.nan;
        to->pos_inf += m.pos_inf;
        to->neg_inf += m.neg_inf;
        to->negative += m.negative;
        to->positive += m.positive;
        to->minimum = m.minimum < to->minimum ? m.minimum : to->minimum;
        to->maximum = m.maximum > to->maximum ? m.maximum : to->maximum;
        if (finite)
            merge(to, already, finite, m.mean, m.abs_mean, m.squares, m.deviations);
        for (int64_t each = 0; each < how_many; each++)
            inside[each] += inside[how_many + each];
        if (!before)
            continue;
        double changed[2] = {0, 0};
        if (fetch(before, done, count, &there))
            return 1;
        if (EXPORTED_CALL(change)(&here, &there, count, changed, tests, how_many_tests))
            return -1;
        sums[0] += changed[0];
        sums[1] += changed[1];
    }
    return 0;
}
