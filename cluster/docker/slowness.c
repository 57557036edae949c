/* Makes the disk of a process slow, or fail. The library is preloaded (LD_PRELOAD) and controlled by a mapped file. It
 * delays fsyncs, reads and writes of files in one folder (ASSAY_SLOW_FOLDER) by microseconds, and rejects chosen changes
 * there (EIO), or ends the process just before or after one. Everything else is left alone.
 *
 * The file has twelve int64:
 * - For a slow disk: microseconds added to an fsync; those added to a read or write; the time into an fsync after which
 *   the process stops itself (once; 0: never).
 * - For a failing disk: how many changes succeed first; how many are then rejected (-1: the process ends, once; -2: it
 *   ends after the change); their kinds (bits: 1 a write, 2 an fsync, 4 a truncation or preallocation, 8 a name).
 * - Counts: slow fsyncs, slow reads and writes, stops, rejected changes, ends.
 * - The id of the process that stopped itself last: the main one, or one that it has started.
 * It must never be truncated while a process has it mapped.
 *
 * A sidecar (ASSAY_BESIDE) is slowed too, but its calls are neither counted nor rejected and do not end it: the counts
 * prove what happened to the main process, which is the one that must fail.
 *
 * The delay comes before the call: unsynced data are not on the disk meanwhile. */

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
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FSYNC, CALL, HALT, AFTER, ERRORS, KINDS, FSYNCS, CALLS, HALTS, REJECTED, ENDS, STOPPED, WORDS };
enum { WRITE = 1, SYNC = 2, CUT = 4, NAME = 8 };

static int64_t none[WORDS];
static int64_t *shared = none;
static const char *folder = "";
static const char *resolved; /* The folder without links, as the kernel names open files in it. */
static int beside;

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("ASSAY_SLOW_FOLDER");
    beside = getenv("ASSAY_BESIDE") != 0;
    int file = open(SLOWNESS_FILE, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(0, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED || !given) return;
    folder = given;
    resolved = realpath(given, 0);
    shared = mapped;
}

static int64_t word(int which) { return __atomic_load_n(&shared[which], __ATOMIC_RELAXED); }

static void count(int which) {
    if (!beside) __atomic_fetch_add(&shared[which], 1, __ATOMIC_RELAXED);
}

static int below(const char *place, const char *path, ssize_t size) {
    size_t length = strlen(place);
    if (size < (ssize_t)length || strncmp(path, place, length)) return 0;
    return size == (ssize_t)length || path[length] == '/';
}

/* Returns whether the path is the folder or below it. */
static int within(const char *path, ssize_t size) {
    return below(folder, path, size) || (resolved && below(resolved, path, size));
}

static int ours(int descriptor) {
    char name[40], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    return within(path, readlink(name, path, sizeof path - 1));
}

/* Like ours(), for a path that is absolute or relative to an open folder. */
static int named_ours(int from, const char *path) {
    char current[PATH_MAX], whole[2 * PATH_MAX];
    if (path[0] == '/') return within(path, strlen(path));
    if (from != AT_FDCWD) return ours(from);
    if (!getcwd(current, sizeof current)) return 0;
    if (within(current, strlen(current))) return 1;
    snprintf(whole, sizeof whole, "%s/%s", current[1] ? current : "", path);
    return within(whole, strlen(whole));
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
        int64_t halt = beside ? 0 : __atomic_exchange_n(&shared[HALT], 0, __ATOMIC_RELAXED);
        if (halt > 0) {
            pass(halt);
            whole -= halt;
            __atomic_store_n(&shared[STOPPED], getpid(), __ATOMIC_RELAXED);
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

static int fails(int kind) { return !beside && (word(KINDS) & kind) != 0; }

static void end(void) {
    count(ENDS);
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Called before a change in the folder. Returns 0, the error of a rejected change, or -2 if the process ends after it. */
static int trouble(int kind) {
    if (!fails(kind) || __atomic_fetch_sub(&shared[AFTER], 1, __ATOMIC_RELAXED) > 0) return 0;
    int64_t left = word(ERRORS);
    while (left && !__atomic_compare_exchange_n(&shared[ERRORS], &left, left < 0 ? 0 : left - 1, 0, __ATOMIC_RELAXED,
                                                __ATOMIC_RELAXED))
        continue;
    if (left == -1) end();
    if (left > 0) count(REJECTED);
    return left > 0 ? EIO : (int)left;
}

/* Like trouble(), for a descriptor, or a path. errno only changes if the change is rejected. */
static int rejects(int kind, int descriptor) {
    int kept = errno;
    int error = fails(kind) && ours(descriptor) ? trouble(kind) : 0;
    errno = error > 0 ? error : kept;
    return error;
}

static int rejects_path(int kind, int from, const char *path) {
    int kept = errno;
    int error = fails(kind) && named_ours(from, path) ? trouble(kind) : 0;
    errno = error > 0 ? error : kept;
    return error;
}

/* Wraps a function: runs `before` first, and rejects chosen changes. */
#define CHANGED(type, name, before, rejected, otherwise, given, handed)        \
    type name given {                                                          \
        static type(*real) given;                                              \
        if (!real) real = (type(*) given)dlsym(RTLD_NEXT, #name);              \
        before;                                                                \
        int error = rejected;                                                  \
        if (error > 0) return otherwise;                                       \
        type made = real handed;                                               \
        if (error < 0) end();                                                  \
        return made;                                                           \
    }
#define SYNCED(name, given, handed) CHANGED(int, name, before_fsync(file), rejects(SYNC, file), -1, given, handed)
#define READ(name, file, given, handed) CHANGED(ssize_t, name, before_call(file), 0, -1, given, handed)
#define WRITTEN(name, given, handed) \
    CHANGED(ssize_t, name, before_call(file), rejects(WRITE, file), -1, given, handed)
#define COPIED(name, given, handed) \
    CHANGED(ssize_t, name, before_call(from), rejects(WRITE, file), -1, given, handed)
#define SIZED(name, otherwise, given, handed) CHANGED(int, name, , rejects(CUT, file), otherwise, given, handed)
#define NAMED(name, from, path, given, handed) CHANGED(int, name, , rejects_path(NAME, from, path), -1, given, handed)

SYNCED(fsync, (int file), (file))
SYNCED(fdatasync, (int file), (file))
READ(read, file, (int file, void *to, size_t size), (file, to, size))
READ(pread, file, (int file, void *to, size_t size, off_t at), (file, to, size, at))
READ(pread64, file, (int file, void *to, size_t size, off64_t at), (file, to, size, at))
READ(readv, file, (int file, const struct iovec *to, int count), (file, to, count))
READ(preadv, file, (int file, const struct iovec *to, int count, off_t at), (file, to, count, at))
READ(preadv64, file, (int file, const struct iovec *to, int count, off64_t at), (file, to, count, at))
COPIED(sendfile, (int file, int from, off_t *at, size_t size), (file, from, at, size))
COPIED(sendfile64, (int file, int from, off64_t *at, size_t size), (file, from, at, size))
COPIED(copy_file_range, (int from, off64_t *at, int file, off64_t *into, size_t size, unsigned flags),
       (from, at, file, into, size, flags))
WRITTEN(write, (int file, const void *from, size_t size), (file, from, size))
WRITTEN(pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size, at))
WRITTEN(pwrite64, (int file, const void *from, size_t size, off64_t at), (file, from, size, at))
WRITTEN(writev, (int file, const struct iovec *from, int count), (file, from, count))
WRITTEN(pwritev, (int file, const struct iovec *from, int count, off_t at), (file, from, count, at))
WRITTEN(pwritev64, (int file, const struct iovec *from, int count, off64_t at), (file, from, count, at))
WRITTEN(pwritev2, (int file, const struct iovec *from, int count, off_t at, int flags), (file, from, count, at, flags))
WRITTEN(pwritev64v2, (int file, const struct iovec *from, int count, off64_t at, int flags),
        (file, from, count, at, flags))
CHANGED(int, truncate, , rejects_path(CUT, AT_FDCWD, path), -1, (const char *path, off_t size), (path, size))
CHANGED(int, truncate64, , rejects_path(CUT, AT_FDCWD, path), -1, (const char *path, off64_t size), (path, size))
SIZED(ftruncate, -1, (int file, off_t size), (file, size))
SIZED(ftruncate64, -1, (int file, off64_t size), (file, size))
SIZED(fallocate, -1, (int file, int mode, off_t at, off_t size), (file, mode, at, size))
SIZED(fallocate64, -1, (int file, int mode, off64_t at, off64_t size), (file, mode, at, size))
SIZED(posix_fallocate, EIO, (int file, off_t at, off_t size), (file, at, size))
SIZED(posix_fallocate64, EIO, (int file, off64_t at, off64_t size), (file, at, size))
NAMED(rename, AT_FDCWD, path, (const char *path, const char *to), (path, to))
NAMED(renameat, from, path, (int from, const char *path, int into, const char *to), (from, path, into, to))
NAMED(renameat2, from, path, (int from, const char *path, int into, const char *to, unsigned flags),
      (from, path, into, to, flags))
NAMED(unlink, AT_FDCWD, path, (const char *path), (path))
NAMED(unlinkat, from, path, (int from, const char *path, int flags), (from, path, flags))
NAMED(remove, AT_FDCWD, path, (const char *path), (path))
NAMED(rmdir, AT_FDCWD, path, (const char *path), (path))
NAMED(mkdir, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
NAMED(mkdirat, from, path, (int from, const char *path, mode_t mode), (from, path, mode))
