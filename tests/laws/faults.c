/* Counts the file operations below one directory, and makes the n-th fail or kills the process there.
 *
 * Preloaded, it stands between everything in the process (Python, Arrow, safetensors, torch) and the C library. Nothing is
 * counted before faults_arm. Reading is left alone. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT = 0, FAIL = 1, SHORT = 2, KILL = 3 };

static char root[4096];
static size_t root_length;
static int mode, wanted_errno, is_lasting;
static long wanted;
static atomic_long seen;

void faults_arm(const char *directory, long number, int how, int error, int lasting) {
    strncpy(root, directory, sizeof root - 1);
    root_length = strlen(root);
    wanted = number, mode = how, wanted_errno = error, is_lasting = lasting;
    atomic_store(&seen, 0);
}

long faults_seen(void) { return atomic_load(&seen); }

static int is_below(const char *path) {
    char full[4096];
    if (!root_length || !path) return 0;
    if (path[0] != '/') {
        if (!getcwd(full, sizeof full)) return 0;
        strncat(full, "/", sizeof full - strlen(full) - 1);
        strncat(full, path, sizeof full - strlen(full) - 1);
        path = full;
    }
    return !strncmp(path, root, root_length);
}

static int is_below_at(int directory, const char *path) {
    char link[64], full[4096];
    if (!root_length || !path) return 0;
    if (path[0] == '/' || directory == AT_FDCWD) return is_below(path);
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    ssize_t length = readlink(link, full, sizeof full - 1);
    if (length < 0) return 0;
    full[length] = 0;
    return !strncmp(full, root, root_length);
}

static int is_file_below(int descriptor) {
    return root_length ? is_below_at(descriptor, "x") : 0;
}

/* Whether this operation is to fail; does not come back if it is to kill. */
static int fails(void) {
    long number = atomic_fetch_add(&seen, 1) + 1;
    if (mode == COUNT || number < wanted || (number > wanted && !is_lasting)) return 0;
    if (mode == KILL) kill(getpid(), SIGKILL), pause();
    errno = wanted_errno;
    return 1;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define AROUND(type, name, parameters, arguments, below) \
    type name parameters { \
        REAL(name); \
        if ((below) && fails()) return -1; \
        return real arguments; \
    }

#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t bits = va_arg(rest, mode_t); \
        va_end(rest); \
        if (WRITES(flags) && is_below(path) && fails()) return -1; \
        return real(path, flags, bits); \
    }
#define OPENING_AT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t bits = va_arg(rest, mode_t); \
        va_end(rest); \
        if (WRITES(flags) && is_below_at(directory, path) && fails()) return -1; \
        return real(directory, path, flags, bits); \
    }
OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)

#define OPENING_STREAM(name) \
    FILE *name(const char *path, const char *how) { \
        REAL(name); \
        if (strpbrk(how, "wa+") && is_below(path) && fails()) return NULL; \
        return real(path, how); \
    }
OPENING_STREAM(fopen)
OPENING_STREAM(fopen64)

/* A short write: half of it, or an error if there is no half. */
#define WRITING(name, parameters, whole, half) \
    ssize_t name parameters { \
        REAL(name); \
        if (is_file_below(descriptor) && fails()) { \
            if (mode != SHORT || size < 2) return -1; \
            return real half; \
        } \
        return real whole; \
    }
WRITING(write, (int descriptor, const void *data, size_t size), (descriptor, data, size), (descriptor, data, size / 2))
WRITING(pwrite, (int descriptor, const void *data, size_t size, off_t at), (descriptor, data, size, at),
        (descriptor, data, size / 2, at))
WRITING(pwrite64, (int descriptor, const void *data, size_t size, off64_t at), (descriptor, data, size, at),
        (descriptor, data, size / 2, at))
AROUND(ssize_t, writev, (int descriptor, const struct iovec *parts, int num), (descriptor, parts, num),
       is_file_below(descriptor))
AROUND(ssize_t, pwritev, (int descriptor, const struct iovec *parts, int num, off_t at), (descriptor, parts, num, at),
       is_file_below(descriptor))
AROUND(ssize_t, copy_file_range,
       (int from, off64_t *from_at, int descriptor, off64_t *at, size_t size, unsigned int flags),
       (from, from_at, descriptor, at, size, flags), is_file_below(descriptor))

AROUND(int, fsync, (int descriptor), (descriptor), is_file_below(descriptor))
AROUND(int, fdatasync, (int descriptor), (descriptor), is_file_below(descriptor))
AROUND(int, ftruncate, (int descriptor, off_t size), (descriptor, size), is_file_below(descriptor))
AROUND(int, ftruncate64, (int descriptor, off64_t size), (descriptor, size), is_file_below(descriptor))
AROUND(int, truncate, (const char *path, off_t size), (path, size), is_below(path))
AROUND(int, fallocate, (int descriptor, int how, off_t at, off_t size), (descriptor, how, at, size),
       is_file_below(descriptor))
AROUND(int, rename, (const char *from, const char *to), (from, to), is_below(from) || is_below(to))
AROUND(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to),
       is_below_at(a, from) || is_below_at(b, to))
AROUND(int, renameat2, (int a, const char *from, int b, const char *to, unsigned int flags), (a, from, b, to, flags),
       is_below_at(a, from) || is_below_at(b, to))
AROUND(int, link, (const char *from, const char *to), (from, to), is_below(to))
AROUND(int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags),
       is_below_at(b, to))
AROUND(int, symlink, (const char *target, const char *path), (target, path), is_below(path))
AROUND(int, unlink, (const char *path), (path), is_below(path))
AROUND(int, unlinkat, (int directory, const char *path, int flags), (directory, path, flags),
       is_below_at(directory, path))
AROUND(int, rmdir, (const char *path), (path), is_below(path))
AROUND(int, mkdir, (const char *path, mode_t bits), (path, bits), is_below(path))
AROUND(int, mkdirat, (int directory, const char *path, mode_t bits), (directory, path, bits),
       is_below_at(directory, path))
