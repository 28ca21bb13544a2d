/* Makes one system call on a file below a chosen directory fail, for the tests of this package.
 *
 * Loaded with LD_PRELOAD. A program says from inside, through ctypes, which call fails and how: fault_arm. Calls are
 * counted from there on; those on other files are not. Every number below is also in injection.py.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN = 1, STAT, READ, OPENDIR, READDIR, MMAP, WRITE, SYNC, RENAME, UNLINK, MKDIR, CREATE, TRUNCATE, KINDS };
static const char *const NAMES[KINDS] = {"", "open", "stat", "read", "opendir", "readdir", "mmap", "write", "fsync",
                                         "rename", "unlink", "mkdir", "create", "truncate"};

#define SHORT (-1)  /* a read or write does less than was asked for, which it may */
#define VANISH (-2) /* from this call on, there is nothing at its path; what is open is stale */

#define FILES 65536
#define CALLS (1 << 20)

static char prefix[PATH_MAX];
static size_t prefix_length;
static long target;
static int how;
static int lasts; /* all calls of the kind that failed first fail */
static enum kind failed;
static atomic_long calls;
static char happened[PATH_MAX + 64];
static char gone[PATH_MAX];
static unsigned char kinds[CALLS];
static unsigned char watched[FILES]; /* by descriptor: it is a file below the prefix */

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int below(const char *path) {
    return prefix_length && path && !strncmp(path, prefix, prefix_length) &&
           (path[prefix_length] == '/' || !path[prefix_length]);
}

static int is_watched(int file) { return file >= 0 && file < FILES && watched[file]; }

static int concerns(int directory, const char *path) {
    if (path && path[0] == '/') return below(path);
    if (path && !path[0]) return is_watched(directory);
    return is_watched(directory);
}

static void watch(int file, int yes) {
    if (file >= 0 && file < FILES) watched[file] = (unsigned char)yes;
}

static int is_gone(const char *path) {
    size_t length = strlen(gone);
    return length && path && !strncmp(path, gone, length) && (path[length] == '/' || !path[length]);
}

/* What shall happen to this call: 0 nothing, SHORT, or the number of an error. */
static int fault(enum kind kind, const char *path) {
    if (!prefix_length) return 0;
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (number < CALLS) kinds[number] = kind;
    if (is_gone(path)) return ENOENT;
    if (number == target) failed = kind;
    else if (!lasts || number < target || kind != failed) return 0;
    if (!happened[0]) snprintf(happened, sizeof happened, "%s %s", NAMES[kind], path ? path : "");
    if (how == VANISH) {
        if (!path) return ESTALE;
        snprintf(gone, sizeof gone, "%s", path);
        return ENOENT;
    }
    if (how == SHORT && kind != READ && kind != WRITE) return 0;
    return how;
}

void fault_arm(const char *below_this, long number, int error, int goes_on) {
    prefix_length = 0;
    snprintf(prefix, sizeof prefix, "%s", below_this);
    atomic_store(&calls, 0);
    target = number;
    how = error;
    lasts = goes_on;
    failed = 0;
    happened[0] = gone[0] = 0;
    prefix_length = strlen(prefix);
}

void fault_disarm(void) { prefix_length = 0; }
long fault_calls(void) { return atomic_load(&calls); }
const char *fault_happened(void) { return happened; }
const unsigned char *fault_kinds(void) { return kinds; }

#define FAIL(kind, path, failed) \
    do { \
        int error_ = fault(kind, path); \
        if (error_ > 0) { errno = error_; return failed; } \
    } while (0)

static int opened(int file, int concerned) {
    watch(file, concerned);
    return file;
}

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        int concerned = concerns(-1, path); \
        if (concerned) FAIL(flags & O_CREAT ? CREATE : OPEN, path, -1); \
        return opened(real(path, flags, mode), concerned); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        int concerned = concerns(directory, path); \
        if (concerned) FAIL(flags & O_CREAT ? CREATE : OPEN, path, -1); \
        return opened(real(directory, path, flags, mode), concerned); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

int close(int file) {
    REAL(close);
    watch(file, 0);
    return real(file);
}

#define COPIES(name, arguments, ...) \
    int name arguments { \
        REAL(name); \
        int concerned = is_watched(file); \
        return opened(real(__VA_ARGS__), concerned); \
    }
COPIES(dup, (int file), file)
COPIES(dup2, (int file, int other), file, other)
COPIES(dup3, (int file, int other, int flags), file, other, flags)

#define READS(name, arguments, ...) \
    ssize_t name arguments { \
        REAL(name); \
        if (is_watched(file)) { \
            int error = fault(READ, 0); \
            if (error > 0) { errno = error; return -1; } \
            if (error == SHORT && size > 1) size = (size + 1) / 2; \
        } \
        return real(__VA_ARGS__); \
    }
READS(read, (int file, void *to, size_t size), file, to, size)
READS(pread, (int file, void *to, size_t size, off_t at), file, to, size, at)
READS(pread64, (int file, void *to, size_t size, off64_t at), file, to, size, at)

#define READS_MANY(name, arguments, ...) \
    ssize_t name arguments { \
        REAL(name); \
        if (is_watched(file)) { \
            int error = fault(READ, 0); \
            if (error > 0) { errno = error; return -1; } \
            if (error == SHORT && count > 1) count = 1; \
        } \
        return real(__VA_ARGS__); \
    }
READS_MANY(readv, (int file, const struct iovec *to, int count), file, to, count)
READS_MANY(preadv, (int file, const struct iovec *to, int count, off_t at), file, to, count, at)
READS_MANY(preadv64, (int file, const struct iovec *to, int count, off64_t at), file, to, count, at)
READS_MANY(preadv64v2, (int file, const struct iovec *to, int count, off64_t at, int flags), file, to, count, at, flags)

#define WRITES(name, arguments, ...) \
    ssize_t name arguments { \
        REAL(name); \
        if (is_watched(file)) { \
            int error = fault(WRITE, 0); \
            if (error > 0) { errno = error; return -1; } \
            if (error == SHORT && size > 1) size = (size + 1) / 2; \
        } \
        return real(__VA_ARGS__); \
    }
WRITES(write, (int file, const void *from, size_t size), file, from, size)
WRITES(pwrite, (int file, const void *from, size_t size, off_t at), file, from, size, at)
WRITES(pwrite64, (int file, const void *from, size_t size, off64_t at), file, from, size, at)

/* Programs go on without these where they do not work: they are taken away, so that read and write are used. */
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
    REAL(sendfile64);
    if (is_watched(to) || is_watched(from)) { errno = EINVAL; return -1; }
    return real(to, from, at, size);
}
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t size, unsigned flags) {
    REAL(copy_file_range);
    if (is_watched(to) || is_watched(from)) { errno = EXDEV; return -1; }
    return real(from, at, to, there, size, flags);
}

#define ON_PATH(name, kind, arguments, ...) \
    int name arguments { \
        REAL(name); \
        if (below(path)) FAIL(kind, path, -1); \
        return real(__VA_ARGS__); \
    }
ON_PATH(stat, STAT, (const char *path, struct stat *found), path, found)
ON_PATH(stat64, STAT, (const char *path, struct stat64 *found), path, found)
ON_PATH(lstat, STAT, (const char *path, struct stat *found), path, found)
ON_PATH(lstat64, STAT, (const char *path, struct stat64 *found), path, found)
ON_PATH(access, STAT, (const char *path, int mode), path, mode)
ON_PATH(unlink, UNLINK, (const char *path), path)
ON_PATH(rmdir, UNLINK, (const char *path), path)
ON_PATH(mkdir, MKDIR, (const char *path, mode_t mode), path, mode)

#define ON_PATH_AT(name, kind, arguments, ...) \
    int name arguments { \
        REAL(name); \
        if (concerns(directory, path)) FAIL(kind, path, -1); \
        return real(__VA_ARGS__); \
    }
ON_PATH_AT(fstatat, STAT, (int directory, const char *path, struct stat *found, int flags), directory, path, found, flags)
ON_PATH_AT(fstatat64, STAT, (int directory, const char *path, struct stat64 *found, int flags), directory, path, found, flags)
ON_PATH_AT(faccessat, STAT, (int directory, const char *path, int mode, int flags), directory, path, mode, flags)
ON_PATH_AT(unlinkat, UNLINK, (int directory, const char *path, int flags), directory, path, flags)
int statx(int directory, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    REAL(statx);
    if (concerns(directory, path)) FAIL(STAT, path, -1);
    return real(directory, path, flags, mask, found);
}

#define ON_FILE(name, kind, arguments, ...) \
    int name arguments { \
        REAL(name); \
        if (is_watched(file)) FAIL(kind, 0, -1); \
        return real(__VA_ARGS__); \
    }
ON_FILE(fstat, STAT, (int file, struct stat *found), file, found)
ON_FILE(fstat64, STAT, (int file, struct stat64 *found), file, found)
ON_FILE(fsync, SYNC, (int file), file)
ON_FILE(fdatasync, SYNC, (int file), file)
ON_FILE(ftruncate, TRUNCATE, (int file, off_t size), file, size)
ON_FILE(ftruncate64, TRUNCATE, (int file, off64_t size), file, size)

#define RENAMES(name, kind) \
    int name(const char *path, const char *other) { \
        REAL(name); \
        if (below(path) || below(other)) FAIL(kind, path, -1); \
        return real(path, other); \
    }
RENAMES(rename, RENAME)
RENAMES(link, RENAME)

DIR *opendir(const char *path) {
    REAL(opendir);
    int concerned = below(path);
    if (concerned) FAIL(OPENDIR, path, NULL);
    DIR *directory = real(path);
    if (directory) watch(dirfd(directory), concerned);
    return directory;
}
DIR *fdopendir(int file) {
    REAL(fdopendir);
    if (is_watched(file)) FAIL(OPENDIR, 0, NULL);
    return real(file);
}
int closedir(DIR *directory) {
    REAL(closedir);
    watch(dirfd(directory), 0);
    return real(directory);
}
struct dirent *readdir(DIR *directory) {
    REAL(readdir);
    if (is_watched(dirfd(directory))) FAIL(READDIR, 0, NULL);
    return real(directory);
}
struct dirent64 *readdir64(DIR *directory) {
    REAL(readdir64);
    if (is_watched(dirfd(directory))) FAIL(READDIR, 0, NULL);
    return real(directory);
}

#define MAPS(name, offset) \
    void *name(void *at, size_t size, int rights, int flags, int file, offset first) { \
        REAL(name); \
        if (is_watched(file)) FAIL(MMAP, 0, MAP_FAILED); \
        return real(at, size, rights, flags, file, first); \
    }
MAPS(mmap, off_t)
MAPS(mmap64, off64_t)
