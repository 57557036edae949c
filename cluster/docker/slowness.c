/* Makes the disk of a process slow: preloaded (LD_PRELOAD), it lets each fsync, and each read and write, of what lies in
 * one folder (ASSAY_SLOW_FOLDER) take as many microseconds more as a mapped file says. Everything else is left alone.
 *
 * The file has six int64: microseconds of an fsync, those of a read or write, after how many of an fsync the process is
 * to stop itself (once; 0: never), and how many fsyncs were slow, how many reads and writes, and how often it was
 * stopped. It must never be truncated while a process has it.
 *
 * The delay comes before the call: what is not synced yet is not on the disk meanwhile. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FSYNC, CALL, HALT, FSYNCS, CALLS, HALTS, WORDS };

static int64_t none[WORDS];
static int64_t *shared = none;
static const char *folder = "";

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("ASSAY_SLOW_FOLDER");
    int file = open(SLOWNESS_FILE, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(0, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED || !given) return;
    folder = given;
    shared = mapped;
}

static int64_t word(int which) { return __atomic_load_n(&shared[which], __ATOMIC_RELAXED); }

static void count(int which) { __atomic_fetch_add(&shared[which], 1, __ATOMIC_RELAXED); }

static int ours(int descriptor) {
    char name[40], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(name, path, sizeof path - 1);
    size_t length = strlen(folder);
    if (size < (ssize_t)length || strncmp(path, folder, length)) return 0;
    return size == (ssize_t)length || path[length] == '/';
}

static void pass(int64_t microseconds) {
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) continue;
}

static void before_fsync(int descriptor) {
    int64_t whole = word(FSYNC);
    int kept = errno;
    if (whole > 0 && ours(descriptor)) {
        count(FSYNCS);
        int64_t halt = __atomic_exchange_n(&shared[HALT], 0, __ATOMIC_RELAXED);
        if (halt > 0) {
            pass(halt);
            whole -= halt;
            count(HALTS);
            kill(getpid(), SIGSTOP);
        }
        if (whole > 0) pass(whole);
    }
    errno = kept;
}

static void before_call(int descriptor) {
    int64_t whole = word(CALL);
    if (whole <= 0) return;
    int kept = errno;
    if (ours(descriptor)) {
        count(CALLS);
        pass(whole);
    }
    errno = kept;
}

/* The same function with a delay before it. */
#define SLOW(type, name, before, given, handed)                                \
    type name given {                                                          \
        static type(*real) given;                                              \
        if (!real) real = (type(*) given)dlsym(RTLD_NEXT, #name);              \
        before;                                                                \
        return real handed;                                                    \
    }

SLOW(int, fsync, before_fsync(file), (int file), (file))
SLOW(int, fdatasync, before_fsync(file), (int file), (file))
SLOW(ssize_t, read, before_call(file), (int file, void *to, size_t size), (file, to, size))
SLOW(ssize_t, write, before_call(file), (int file, const void *from, size_t size), (file, from, size))
SLOW(ssize_t, pread, before_call(file), (int file, void *to, size_t size, off_t at), (file, to, size, at))
SLOW(ssize_t, pread64, before_call(file), (int file, void *to, size_t size, off64_t at), (file, to, size, at))
SLOW(ssize_t, pwrite, before_call(file), (int file, const void *from, size_t size, off_t at), (file, from, size, at))
SLOW(ssize_t, pwrite64, before_call(file), (int file, const void *from, size_t size, off64_t at), (file, from, size, at))
SLOW(ssize_t, readv, before_call(file), (int file, const struct iovec *to, int count), (file, to, count))
SLOW(ssize_t, writev, before_call(file), (int file, const struct iovec *from, int count), (file, from, count))
SLOW(ssize_t, sendfile, before_call(from), (int to, int from, off_t *at, size_t size), (to, from, at, size))
SLOW(ssize_t, sendfile64, before_call(from), (int to, int from, off64_t *at, size_t size), (to, from, at, size))
