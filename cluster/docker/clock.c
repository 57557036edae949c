/* Shifts the wall clock of a process: preloaded (LD_PRELOAD), it adds the nanoseconds in a mapped file to the wall clock
 * of clock_gettime, gettimeofday and time. Other clocks, such as the monotonic one, stay right.
 *
 * The file has three int64: the shift, the shift that a process was shown last, and the number of clock reads. It must
 * never be truncated while a process has it mapped. A sidecar (ASSAY_BESIDE) has the same clock, but its reads are not
 * recorded, because the record proves that the main process saw the wrong time. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000LL

static volatile int64_t none[3];
static volatile int64_t *shared = none;
static int noted = 1;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    noted = !getenv("ASSAY_BESIDE");
    int file = open(SHIFT_FILE, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(0, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) shared = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) begin();
    int failed = real(clock, now);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t shift = shared[0];
    int64_t moment = now->tv_sec * BILLION + now->tv_nsec + shift;
    now->tv_sec = moment / BILLION;
    now->tv_nsec = moment % BILLION;
    if (noted) {
        shared[1] = shift;
        shared[2]++;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec moment;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &moment);
    now->tv_sec = moment.tv_sec;
    now->tv_usec = moment.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (place) *place = moment.tv_sec;
    return moment.tv_sec;
}
