/*
 * Counts syncs, lets them or writes fail on request, and moves the wall clock. Loaded into a server with LD_PRELOAD.
 *
 * CONSIGN_SHIM_STATE names a file of 32 bytes that both sides share:
 *   0  u64  syncs that succeeded
 *   8  u64  calls that were made to fail
 *  16  u64  what fails now: 0 nothing, 1 syncs (EIO), 2 writes and growth (ENOSPC)
 *  24  i64  seconds by which the wall clock is moved
 * Only files whose path contains CONSIGN_SHIM_FILES are counted and disturbed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct state { volatile uint64_t syncs, failed, mode; volatile int64_t clock_s; };
enum { FAIL_SYNCS = 1, FAIL_WRITES = 2 };

static struct state *state;
static const char *files;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("CONSIGN_SHIM_STATE");
    files = getenv("CONSIGN_SHIM_FILES");
    if (!path || !files) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) abort();
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) abort();
    state = map;
    close(fd);
}

static int is_ours(int fd) {
    if (!state) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int saved = errno;
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length <= 0) return 0;
    path[length] = 0;
    return strstr(path, files) != NULL;
}

static int fails(int fd, uint64_t mode, int error) {
    if (!state || state->mode != mode || !is_ours(fd)) return 0;
    __atomic_add_fetch(&state->failed, 1, __ATOMIC_SEQ_CST);
    errno = error;
    return 1;
}

static int synced(int fd, int result) {
    if (result == 0 && is_ours(fd)) __atomic_add_fetch(&state->syncs, 1, __ATOMIC_SEQ_CST);
    return result;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

int fsync(int fd) {
    REAL(int, "fsync", int);
    return fails(fd, FAIL_SYNCS, EIO) ? -1 : synced(fd, real(fd));
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return fails(fd, FAIL_SYNCS, EIO) ? -1 : synced(fd, real(fd));
}

ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return fails(fd, FAIL_WRITES, ENOSPC) ? -1 : real(fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return fails(fd, FAIL_WRITES, ENOSPC) ? -1 : real(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    return fails(fd, FAIL_WRITES, ENOSPC) ? -1 : real(fd, bytes, count, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return fails(fd, FAIL_WRITES, ENOSPC) ? -1 : real(fd, parts, count);
}

int ftruncate(int fd, off_t length) {
    REAL(int, "ftruncate", int, off_t);
    return fails(fd, FAIL_WRITES, ENOSPC) ? -1 : real(fd, length);
}

int ftruncate64(int fd, off64_t length) {
    REAL(int, "ftruncate64", int, off64_t);
    return fails(fd, FAIL_WRITES, ENOSPC) ? -1 : real(fd, length);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(clock, now);
    if (result == 0 && state && clock == CLOCK_REALTIME) now->tv_sec += state->clock_s;
    return result;
}
