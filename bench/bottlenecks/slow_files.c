/* A slow disk: pictures and shards below $SLOW_FILES take $SLOW_OPEN_US to open and $SLOW_READ_US for each read.
   It stands between a process and libc (LD_PRELOAD), so whoever opens and reads them waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 65536 };
static volatile char slow[FILES];

static void wait_for(const char *name) {
    const char *text = getenv(name);
    long us = text ? atol(text) : 0;
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    if (us) nanosleep(&time, NULL);
}

static int opened(int file, const char *path) {
    const char *below = getenv("SLOW_FILES");
    if (file < 0 || file >= FILES) return file;
    slow[file] = below && path && !strncmp(path, below, strlen(below)) && (strstr(path, ".jpg") || strstr(path, ".tar"));
    if (slow[file]) wait_for("SLOW_OPEN_US");
    return file;
}

#define NEXT(name) (next ? next : (next = (__typeof__(next))dlsym(RTLD_NEXT, name)))

#define OPEN(name)                                                  \
    int name(const char *path, int flags, ...) {                    \
        static int (*next)(const char *, int, ...);                 \
        va_list rest;                                               \
        va_start(rest, flags);                                      \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;   \
        va_end(rest);                                               \
        return opened(NEXT(#name)(path, flags, mode), path);        \
    }

#define READ(name, declared, passed)                                \
    ssize_t name declared {                                         \
        static ssize_t (*next) declared;                            \
        if (file >= 0 && file < FILES && slow[file]) wait_for("SLOW_READ_US"); \
        return NEXT(#name) passed;                                  \
    }

OPEN(open)
OPEN(open64)
READ(read, (int file, void *to, size_t count), (file, to, count))
READ(pread, (int file, void *to, size_t count, off_t from), (file, to, count, from))
READ(pread64, (int file, void *to, size_t count, off64_t from), (file, to, count, from))
READ(preadv, (int file, const struct iovec *to, int parts, off_t from), (file, to, parts, from))
READ(preadv64, (int file, const struct iovec *to, int parts, off64_t from), (file, to, parts, from))
READ(preadv2, (int file, const struct iovec *to, int parts, off_t from, int flags), (file, to, parts, from, flags))
READ(preadv64v2, (int file, const struct iovec *to, int parts, off64_t from, int flags), (file, to, parts, from, flags))

int close(int file) {
    static int (*next)(int);
    if (file >= 0 && file < FILES) slow[file] = 0;
    return NEXT("close")(file);
}
