/* Makes calls that the preloaded libraries wrap, one after another, each on a path of its own.
 *
 * usage: preload_calls FOLDER CALL ...
 *
 * A line for each call: its name and the error (errno; 0 if it succeeded). The calls of clocks print nanoseconds instead.
 * The caller has made FOLDER/CALL, which is a file, or a folder for rmdir. FOLDER-outside is a file, too. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char byte[] = "x";
static struct iovec part = {byte, 1};
static char path[PATH_MAX], to[PATH_MAX + sizeof ".new"];
static int file, from, folder;
static const char *name;
static struct timespec moment;
static struct timeval day;

/* posix_fallocate returns its error, and leaves errno alone. */
static int by_errno(int error) {
    if (error) errno = error;
    return error ? -1 : 0;
}

#define CALL(called, ...) \
    static long call_##called(void) { return __VA_ARGS__; }
#define PLAIN(called, ...) CALL(called, called(__VA_ARGS__))

PLAIN(fsync, file)
PLAIN(fdatasync, file)
PLAIN(read, file, byte, 1)
PLAIN(pread, file, byte, 1, 0)
PLAIN(pread64, file, byte, 1, 0)
PLAIN(readv, file, &part, 1)
PLAIN(preadv, file, &part, 1, 0)
PLAIN(preadv64, file, &part, 1, 0)
PLAIN(sendfile, file, from, 0, 1)
PLAIN(sendfile64, file, from, 0, 1)
PLAIN(copy_file_range, from, 0, file, 0, 1, 0)
PLAIN(write, file, byte, 1)
PLAIN(pwrite, file, byte, 1, 0)
PLAIN(pwrite64, file, byte, 1, 0)
PLAIN(writev, file, &part, 1)
PLAIN(pwritev, file, &part, 1, 0)
PLAIN(pwritev64, file, &part, 1, 0)
PLAIN(pwritev2, file, &part, 1, 0, 0)
PLAIN(pwritev64v2, file, &part, 1, 0, 0)
PLAIN(truncate, path, 1)
PLAIN(truncate64, path, 1)
PLAIN(ftruncate, file, 1)
PLAIN(ftruncate64, file, 1)
PLAIN(fallocate, file, 0, 0, 100)
PLAIN(fallocate64, file, 0, 0, 100)
CALL(posix_fallocate, by_errno(posix_fallocate(file, 0, 100)))
CALL(posix_fallocate64, by_errno(posix_fallocate64(file, 0, 100)))
PLAIN(rename, path, to)
PLAIN(renameat, folder, name, AT_FDCWD, to)
PLAIN(renameat2, folder, name, AT_FDCWD, to, 0)
PLAIN(unlink, path)
PLAIN(unlinkat, folder, name, 0)
PLAIN(remove, path)
PLAIN(rmdir, path)
PLAIN(mkdir, to, 0777)
CALL(mkdirat, mkdirat(AT_FDCWD, to, 0777))
PLAIN(clock_gettime, CLOCK_REALTIME, &moment)
PLAIN(gettimeofday, &day, 0)
CALL(time, (moment.tv_sec = time(0), 0))
CALL(monotonic, clock_gettime(CLOCK_MONOTONIC, &moment))

#define ROW(called) {#called, call_##called}
static const struct {
    const char *name;
    long (*call)(void);
} calls[] = {
    ROW(fsync), ROW(fdatasync), ROW(read), ROW(pread), ROW(pread64), ROW(readv), ROW(preadv), ROW(preadv64),
    ROW(sendfile), ROW(sendfile64), ROW(copy_file_range), ROW(write), ROW(pwrite), ROW(pwrite64), ROW(writev),
    ROW(pwritev), ROW(pwritev64), ROW(pwritev2), ROW(pwritev64v2), ROW(truncate), ROW(truncate64), ROW(ftruncate),
    ROW(ftruncate64), ROW(fallocate), ROW(fallocate64), ROW(posix_fallocate), ROW(posix_fallocate64), ROW(rename),
    ROW(renameat), ROW(renameat2), ROW(unlink), ROW(unlinkat), ROW(remove), ROW(rmdir), ROW(mkdir), ROW(mkdirat),
    ROW(clock_gettime), ROW(gettimeofday), ROW(time), ROW(monotonic)};

static int is_clock(void) {
    return strstr(name, "time") == name || !strcmp(name, "clock_gettime") || !strcmp(name, "gettimeofday") ||
           !strcmp(name, "monotonic");
}

static void make(long (*call)(void)) {
    memset(&moment, 0, sizeof moment);
    memset(&day, 0, sizeof day);
    snprintf(to, sizeof to, "%s.new", path);
    file = open(path, O_RDWR);
    errno = 0;
    int error = call() < 0 ? errno : 0;
    close(file);
    long long shown = moment.tv_sec * 1000000000LL + moment.tv_nsec + day.tv_sec * 1000000000LL + day.tv_usec * 1000LL;
    printf("%s %lld\n", name, is_clock() ? shown : error);
    fflush(stdout);
}

int main(int count, char **given) {
    snprintf(path, sizeof path, "%s-outside", given[1]);
    from = open(path, O_RDWR);
    folder = open(given[1], O_RDONLY);
    for (int at = 2; at < count; at++) {
        name = given[at];
        snprintf(path, sizeof path, "%s/%s", given[1], name);
        size_t row = 0, rows = sizeof calls / sizeof *calls;
        while (row < rows && strcmp(calls[row].name, name)) row++;
        if (row == rows) return 2;
        make(calls[row].call);
    }
    return 0;
}
