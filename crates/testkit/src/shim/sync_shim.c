/*
 * Stands between a server and libc, loaded with LD_PRELOAD: counts syncs, lets calls fail on request, moves the clocks,
 * dies in the middle of a checkpoint, and writes down every change of the data directory with every sync.
 *
 * CONSIGN_SHIM_STATE names a file of one page that both sides share:
 *   0  u64  syncs that succeeded
 *   8  u64  calls that were made to fail
 *  16  u64  what fails now: 0 nothing, 1 syncs (EIO), 2 writes and growth (ENOSPC), 3 writes (EIO)
 *  24  i64  seconds that passed for every clock while nobody looked
 *  32  u64  0, or at which write to the database file itself the process dies; SQLite makes them only in a checkpoint
 *  40  8 i64  microseconds by which the wall clock alone is moved, for processes with the same number in CONSIGN_SHIM_CLOCK
 * 104  8 u64  how often each of these clocks was read while it was moved
 * 168  i64  seconds that the machine slept: they passed for the wall clock and since the boot, and not for the monotonic clock
 * Only files whose path contains CONSIGN_SHIM_FILES are counted and disturbed.
 *
 * CONSIGN_SHIM_LOG, if set, is appended to: what happens to files below the directory CONSIGN_SHIM_TREE. A record has a
 * kind (one byte), two u64, then two strings, each with a u32 for its length; kinds are below. One lock covers a call and
 * its record, so the log has the order in which things happened. A call that a kill cut off from its record was not
 * answered to anybody, so leaving it out is one of the things a power cut may do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { CLOCKS = 8 };
struct state {
    volatile uint64_t syncs, failed, mode;
    volatile int64_t passed_s;
    volatile uint64_t die_at;
    volatile int64_t moved_us[CLOCKS];
    volatile uint64_t reads[CLOCKS];
    volatile int64_t slept_s;
};
enum { FAIL_SYNCS = 1, FAIL_WRITES_FULL = 2, FAIL_WRITES_IO = 3 };
/* Numbers of the record: write (inode, offset; bytes), truncate (inode, length), sync (inode, 1 if it succeeded),
 * create (inode; path), rename (from path, to path), remove (path), directory (path). */
enum { WRITE = 'w', TRUNCATE = 't', SYNC = 's', CREATE = 'c', RENAME = 'r', REMOVE = 'u', DIRECTORY = 'd' };

static struct state *state;
static const char *files, *tree;
static int log_fd = -1;
static unsigned own_clock;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("CONSIGN_SHIM_STATE");
    files = getenv("CONSIGN_SHIM_FILES");
    if (!path || !files) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) abort();
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) abort();
    close(fd);
    const char *log = getenv("CONSIGN_SHIM_LOG");
    tree = getenv("CONSIGN_SHIM_TREE");
    if (log && tree) {
        log_fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (log_fd < 0) abort();
    }
    const char *number = getenv("CONSIGN_SHIM_CLOCK");
    own_clock = number ? strtoul(number, NULL, 10) : 0;
    if (own_clock >= CLOCKS) abort();
    state = map;
}

static int path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int saved = errno;
    ssize_t length = readlink(link, path, size - 1);
    errno = saved;
    if (length <= 0) return 0;
    path[length] = 0;
    return 1;
}

static int is_ours(int fd) {
    char path[4096];
    return state && path_of(fd, path, sizeof path) && strstr(path, files) != NULL;
}

static int in_tree(const char *path) {
    size_t length = strlen(tree);
    return strncmp(path, tree, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int is_logged(int fd) {
    char path[4096];
    return log_fd >= 0 && path_of(fd, path, sizeof path) && in_tree(path);
}

static void enter(void) { pthread_mutex_lock(&order); }
static void leave(void) { pthread_mutex_unlock(&order); }

static void note(char kind, uint64_t one, uint64_t two, const void *a, uint32_t a_size, const void *b, uint32_t b_size) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    int saved = errno;
    struct iovec parts[] = {
        {&kind, 1}, {&one, 8}, {&two, 8}, {&a_size, 4}, {(void *)a, a_size}, {&b_size, 4}, {(void *)b, b_size},
    };
    if (real(log_fd, parts, 7) < 0) abort();
    errno = saved;
}

static uint64_t inode(int fd) {
    struct stat found;
    int saved = errno;
    int failed = fstat(fd, &found);
    errno = saved;
    return failed ? 0 : found.st_ino;
}

static int fails(int fd, uint64_t mode, int error) {
    if (!state || state->mode != mode || !is_ours(fd)) return 0;
    __atomic_add_fetch(&state->failed, 1, __ATOMIC_SEQ_CST);
    errno = error;
    return 1;
}

static int write_fails(int fd) {
    return fails(fd, FAIL_WRITES_FULL, ENOSPC) || fails(fd, FAIL_WRITES_IO, EIO);
}

/* Half of what a checkpoint copies is in the file then, and the other half is not. */
static void die_in_checkpoint(int fd) {
    if (!state || state->die_at == 0) return;
    char path[4096];
    size_t end = strlen(files);
    if (!path_of(fd, path, sizeof path) || strlen(path) < end) return;
    if (strcmp(path + strlen(path) - end, files) != 0) return;
    if (__atomic_sub_fetch(&state->die_at, 1, __ATOMIC_SEQ_CST) == 0) kill(getpid(), SIGKILL);
}

static int synced(int fd, int (*real)(int)) {
    int failed = fails(fd, FAIL_SYNCS, EIO);
    if (!is_logged(fd)) {
        int result = failed ? -1 : real(fd);
        if (result == 0 && is_ours(fd)) __atomic_add_fetch(&state->syncs, 1, __ATOMIC_SEQ_CST);
        return result;
    }
    enter();
    int result = failed ? -1 : real(fd);
    note(SYNC, inode(fd), result == 0, NULL, 0, NULL, 0);
    leave();
    if (result == 0 && is_ours(fd)) __atomic_add_fetch(&state->syncs, 1, __ATOMIC_SEQ_CST);
    return result;
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    return synced(fd, real);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return synced(fd, real);
}

static ssize_t written(int fd, const void *bytes, ssize_t count, off64_t at) {
    if (count > 0) note(WRITE, inode(fd), at, bytes, count, NULL, 0);
    return count;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (write_fails(fd)) return -1;
    if (!is_logged(fd)) return real(fd, bytes, count);
    enter();
    ssize_t done = real(fd, bytes, count);
    written(fd, bytes, done, lseek(fd, 0, SEEK_CUR) - (done > 0 ? done : 0));
    leave();
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (write_fails(fd)) return -1;
    die_in_checkpoint(fd);
    if (!is_logged(fd)) return real(fd, bytes, count, at);
    enter();
    ssize_t done = written(fd, bytes, real(fd, bytes, count, at), at);
    leave();
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return pwrite64(fd, bytes, count, at); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (write_fails(fd)) return -1;
    if (!is_logged(fd)) return real(fd, parts, count);
    /* Part by part, which writev allows itself too. */
    ssize_t sum = 0;
    for (int part = 0; part < count; part++) {
        ssize_t done = write(fd, parts[part].iov_base, parts[part].iov_len);
        if (done < 0) return sum > 0 ? sum : -1;
        sum += done;
        if ((size_t)done < parts[part].iov_len) break;
    }
    return sum;
}

int ftruncate64(int fd, off64_t length) {
    REAL(int, "ftruncate64", int, off64_t);
    if (write_fails(fd)) return -1;
    if (!is_logged(fd)) return real(fd, length);
    enter();
    int result = real(fd, length);
    if (result == 0) note(TRUNCATE, inode(fd), length, NULL, 0, NULL, 0);
    leave();
    return result;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fallocate64(int fd, int mode, off64_t at, off64_t length) {
    /* Nobody here needs it, and what it leaves after a power cut is not modelled: refuse, so that writes are used. */
    if (write_fails(fd)) return -1;
    if (is_logged(fd)) return errno = EOPNOTSUPP, -1;
    REAL(int, "fallocate64", int, int, off64_t, off64_t);
    return real(fd, mode, at, length);
}

int fallocate(int fd, int mode, off_t at, off_t length) { return fallocate64(fd, mode, at, length); }

static int opened(const char *path, int flags, mode_t mode) {
    REAL(int, "open64", const char *, int, ...);
    if (log_fd < 0 || !in_tree(path) || !(flags & (O_CREAT | O_TRUNC))) return real(path, flags, mode);
    struct stat before;
    enter();
    int saved = errno;
    int was_there = stat(path, &before) == 0;
    errno = saved;
    int fd = real(path, flags, mode);
    if (fd >= 0 && !was_there) note(CREATE, inode(fd), 0, path, strlen(path), NULL, 0);
    if (fd >= 0 && was_there && (flags & O_TRUNC)) note(TRUNCATE, inode(fd), 0, NULL, 0, NULL, 0);
    leave();
    return fd;
}

static mode_t mode_of(int flags, va_list rest) { return flags & O_CREAT ? va_arg(rest, int) : 0; }

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, rest);
    va_end(rest);
    return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, rest);
    va_end(rest);
    return opened(path, flags, mode);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    if (log_fd < 0 || !in_tree(to)) return real(from, to);
    enter();
    int result = real(from, to);
    if (result == 0) note(RENAME, 0, 0, from, strlen(from), to, strlen(to));
    leave();
    return result;
}

static int removed(const char *path, int (*real)(const char *)) {
    if (log_fd < 0 || !in_tree(path)) return real(path);
    enter();
    int result = real(path);
    if (result == 0) note(REMOVE, 0, 0, path, strlen(path), NULL, 0);
    leave();
    return result;
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    return removed(path, real);
}

int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    return removed(path, real);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    if (log_fd < 0 || !in_tree(path)) return real(path, mode);
    enter();
    int result = real(path, mode);
    struct stat found;
    if (result == 0 && stat(path, &found) == 0) note(DIRECTORY, found.st_ino, 0, path, strlen(path), NULL, 0);
    leave();
    return result;
}

/* Microseconds by which the wall clock of this process is moved. */
static int64_t moved_us(void) {
    int64_t moved = state->moved_us[own_clock];
    if (moved != 0) __atomic_add_fetch(&state->reads[own_clock], 1, __ATOMIC_SEQ_CST);
    return moved;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(clock, now);
    if (result != 0 || !state) return result;
    if (clock == CLOCK_REALTIME) {
        int64_t us = now->tv_nsec / 1000 + moved_us() + 1000000 * (now->tv_sec + state->passed_s + state->slept_s);
        now->tv_nsec = us % 1000000 * 1000 + now->tv_nsec % 1000;
        now->tv_sec = us / 1000000;
    }
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME) now->tv_sec += state->passed_s;
    if (clock == CLOCK_BOOTTIME) now->tv_sec += state->slept_s;
    return result;
}

/* PostgreSQL reads the wall clock here. */
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(int, "gettimeofday", struct timeval *, void *);
    int result = real(now, zone);
    if (result != 0 || !state) return result;
    int64_t us = now->tv_usec + moved_us() + 1000000 * (now->tv_sec + state->passed_s + state->slept_s);
    now->tv_usec = us % 1000000;
    now->tv_sec = us / 1000000;
    return result;
}
