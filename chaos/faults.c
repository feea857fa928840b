/* Counts every call that changes something under one folder, and strikes at a chosen one: dies, says what a bad disk would say,
 * takes its time, or sets the clock.
 *
 * Loaded before libc (LD_PRELOAD). Nothing happens until `chaos_arm`: the process that was armed, and it alone, is struck.
 * What it and the processes that it starts change outside of the folder is noted in a file, line by line.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { COUNT, KILL_BEFORE, KILL_AFTER, KILL_HALFWAY, NO_SPACE, IO_ERROR, READ_ONLY, NO_PERMISSION, SHORT_WRITE, SLOW, CLOCK_BACK, CLOCK_FORTH };
#define JUMP (400L * 86400) /* seconds by which the clock is set */


static char folder[PATH_MAX];
static size_t folder_length;
static volatile long strike_at = -1, seen;
static volatile int strike_kind, strike_on; /* strike_on: every later call fails too, as on a full disk */
static volatile long clock_offset;         /* seconds between what we say and what the time is */

void chaos_arm(const char *root, long at, int kind, int on) {
    strncpy(folder, root, PATH_MAX - 1);
    folder_length = strlen(folder);
    seen = 0;
    clock_offset = 0;
    strike_kind = kind;
    strike_on = on;
    strike_at = at;
}

static int notes = -1; /* the file of what is changed outside of the folder */

void chaos_watch(const char *path) {
    notes = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* A worker of the command: it is watched, and struck by nobody. */
__attribute__((constructor)) static void watch_too(void) {
    const char *root = getenv("CHAOS_FOLDER"), *path = getenv("CHAOS_OUTSIDE");
    if (!root || !path) return;
    chaos_arm(root, -1, COUNT, 0);
    chaos_watch(path);
}

void chaos_disarm(void) { folder_length = 0; }

long chaos_seen(void) { return seen; }

static int under(const char *path) {
    return strncmp(path, folder, folder_length) == 0 && (path[folder_length] == '/' || path[folder_length] == 0);
}

static int whole_path(int at, const char *path, char *whole) {
    char base[PATH_MAX];
    if (!folder_length || !path) return 0;
    if (path[0] == '/') return (size_t)snprintf(whole, PATH_MAX, "%s", path) < PATH_MAX;
    if (at == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return 0;
        base[n] = 0;
    }
    return (size_t)snprintf(whole, PATH_MAX, "%s/%s", base, path) < PATH_MAX;
}

static int inside(int at, const char *path) {
    char whole[PATH_MAX];
    return whole_path(at, path, whole) && under(whole);
}

static int handle_path(int handle, char *path) {
    char link[64];
    if (!folder_length) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return 1;
}

static int inside_handle(int handle) {
    char path[PATH_MAX];
    return handle_path(handle, path) && under(path);
}

static void note(const char *whole) {
    char line[PATH_MAX + 1];
    int kept = errno, size = snprintf(line, sizeof line, "%s\n", whole);
    if (size > 0 && (size_t)size < sizeof line) syscall(SYS_write, notes, line, size);
    errno = kept;
}

/* Names that lead up again are noted too: whoever reads the notes knows where they lead. */
static void changed(int at, const char *path) {
    char whole[PATH_MAX];
    if (notes >= 0 && whole_path(at, path, whole) && (!under(whole) || strstr(whole, "/.."))) note(whole);
}

/* A file that was opened to be written, by its true name: behind links, and whatever leads up. */
static void opened(int handle) {
    char path[PATH_MAX];
    if (notes >= 0 && handle >= 0 && handle_path(handle, path) && !under(path)) note(path);
}

static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

/* What happens to this call: 0 goes on, KILL_AFTER and KILL_HALFWAY are left to the caller, a negative number is an errno. */
static int struck(int writes) {
    long here = __sync_add_and_fetch(&seen, 1);
    if (strike_at < 0 || (here != strike_at && !(strike_on && here > strike_at))) return 0;
    switch (strike_kind) {
    case KILL_BEFORE: die(); return 0;
    case KILL_AFTER: return KILL_AFTER;
    case KILL_HALFWAY: return writes ? KILL_HALFWAY : KILL_AFTER;
    case NO_SPACE: return -ENOSPC;
    case IO_ERROR: return -EIO;
    case READ_ONLY: return -EROFS;
    case NO_PERMISSION: return -EACCES;
    case SHORT_WRITE: return writes ? SHORT_WRITE : 0;
    case SLOW: usleep(strike_on ? 5000 : 500000); return 0;
    case CLOCK_BACK: clock_offset = clock_offset ? 0 : -JUMP; return 0; /* with strike_on: to and fro */
    case CLOCK_FORTH: clock_offset = clock_offset ? 0 : JUMP; return 0;
    default: return 0;
    }
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define CHANGES(name, parameters, arguments, is_inside, noted)      \
    int name parameters {                                           \
        REAL(name);                                                 \
        if (!(is_inside)) {                                         \
            int done = real arguments;                              \
            if (done == 0) noted;                                   \
            return done;                                            \
        }                                                           \
        int what = struck(0);                                       \
        if (what < 0) { errno = -what; return -1; }                 \
        int result = real arguments;                                \
        if (result == 0) noted;                                     \
        if (what == KILL_AFTER) die();                              \
        return result;                                              \
    }

CHANGES(rename, (const char *a, const char *b), (a, b), inside(AT_FDCWD, b), (changed(AT_FDCWD, a), changed(AT_FDCWD, b)))
CHANGES(renameat, (int i, const char *a, int j, const char *b), (i, a, j, b), inside(j, b), (changed(i, a), changed(j, b)))
CHANGES(unlink, (const char *a), (a), inside(AT_FDCWD, a), changed(AT_FDCWD, a))
CHANGES(unlinkat, (int i, const char *a, int f), (i, a, f), inside(i, a), changed(i, a))
CHANGES(rmdir, (const char *a), (a), inside(AT_FDCWD, a), changed(AT_FDCWD, a))
CHANGES(mkdir, (const char *a, mode_t m), (a, m), inside(AT_FDCWD, a), changed(AT_FDCWD, a))
CHANGES(mkdirat, (int i, const char *a, mode_t m), (i, a, m), inside(i, a), changed(i, a))
CHANGES(link, (const char *a, const char *b), (a, b), inside(AT_FDCWD, b), changed(AT_FDCWD, b))
CHANGES(linkat, (int i, const char *a, int j, const char *b, int f), (i, a, j, b, f), inside(j, b), changed(j, b))
CHANGES(symlink, (const char *a, const char *b), (a, b), inside(AT_FDCWD, b), changed(AT_FDCWD, b))
CHANGES(ftruncate, (int h, off_t n), (h, n), inside_handle(h), (void)0)
CHANGES(ftruncate64, (int h, off64_t n), (h, n), inside_handle(h), (void)0)
CHANGES(fsync, (int h), (h), inside_handle(h), (void)0)
CHANGES(fdatasync, (int h), (h), inside_handle(h), (void)0)
CHANGES(chmod, (const char *a, mode_t m), (a, m), inside(AT_FDCWD, a), changed(AT_FDCWD, a))
CHANGES(fchmod, (int h, mode_t m), (h, m), inside_handle(h), (void)0)

#define WRITES(name, parameters, arguments)                                         \
    ssize_t name parameters {                                                       \
        REAL(name);                                                                 \
        if (!inside_handle(handle)) return real arguments;                          \
        int what = struck(1);                                                       \
        if (what < 0) { errno = -what; return -1; }                                 \
        if ((what == KILL_HALFWAY || what == SHORT_WRITE) && size > 1) size /= 2;   \
        ssize_t result = real arguments;                                            \
        if (what == KILL_AFTER || what == KILL_HALFWAY) die();                      \
        return result;                                                              \
    }

WRITES(write, (int handle, const void *bytes, size_t size), (handle, bytes, size))
WRITES(pwrite, (int handle, const void *bytes, size_t size, off_t at), (handle, bytes, size, at))
WRITES(pwrite64, (int handle, const void *bytes, size_t size, off64_t at), (handle, bytes, size, at))

ssize_t writev(int handle, const struct iovec *parts, int count) {
    REAL(writev);
    if (!inside_handle(handle)) return real(handle, parts, count);
    int what = struck(1);
    if (what < 0) { errno = -what; return -1; }
    if ((what == KILL_HALFWAY || what == SHORT_WRITE) && count > 1) count /= 2;
    ssize_t result = real(handle, parts, count);
    if (what == KILL_AFTER || what == KILL_HALFWAY) die();
    return result;
}

#define OPENS(name, head, tail)                                                     \
    int name(head const char *path, int flags, ...) {                               \
        REAL(name);                                                                 \
        mode_t mode = 0;                                                            \
        if (flags & (O_CREAT | O_TMPFILE)) {                                        \
            va_list more;                                                           \
            va_start(more, flags);                                                  \
            mode = va_arg(more, mode_t);                                            \
            va_end(more);                                                           \
        }                                                                           \
        if (!(flags & (O_CREAT | O_TRUNC)) || !inside(DIRECTORY, path)) {           \
            int handle = real(tail path, flags, mode);                              \
            if ((flags & O_ACCMODE) != O_RDONLY) opened(handle);                    \
            return handle;                                                          \
        }                                                                           \
        int what = struck(0);                                                       \
        if (what < 0) { errno = -what; return -1; }                                 \
        int result = real(tail path, flags, mode);                                  \
        if ((flags & O_ACCMODE) != O_RDONLY) opened(result);                        \
        if (what == KILL_AFTER) die();                                              \
        return result;                                                              \
    }
#define NOTHING

#define DIRECTORY AT_FDCWD
OPENS(open, NOTHING, NOTHING)
OPENS(open64, NOTHING, NOTHING)
#undef DIRECTORY
#define DIRECTORY at
#define AT_HEAD int at,
#define AT_TAIL at,
OPENS(openat, AT_HEAD, AT_TAIL)
OPENS(openat64, AT_HEAD, AT_TAIL)

/* Libraries in C open files so; what they write is not counted, but where is noted. */
#define FILES(name)                                                                 \
    FILE *name(const char *path, const char *mode) {                                \
        REAL(name);                                                                 \
        FILE *result = real(path, mode);                                            \
        if (result && strpbrk(mode, "wa+")) opened(fileno(result));                 \
        return result;                                                              \
    }
FILES(fopen)
FILES(fopen64)

/* The clock on the wall; those that only run forward are left alone, as by a machine whose time is set. */
int clock_gettime(clockid_t which, struct timespec *now) {
    static __typeof__(&clock_gettime) real;
    if (!real) real = (__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(which, now);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += clock_offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    if (result == 0) now->tv_sec += clock_offset;
    return result;
}

time_t time(time_t *place) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}
