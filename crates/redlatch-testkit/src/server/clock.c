/* Preloaded into a server: its time of day is off by what the file in REDLATCH_CLOCK says.
 *
 * The file holds one signed 64-bit number of milliseconds, and is mapped, so that a step is seen at
 * once and costs nothing. The kernel is asked directly: looking up the C library's own function
 * could allocate, and an allocator that reads the clock would come back here. The clocks that only
 * count (CLOCK_MONOTONIC) are left alone, as a step of the time of day leaves them alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("REDLATCH_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) offset = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    if (failed || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t nanos = time->tv_nsec + (*offset % 1000) * 1000000;
    int64_t carry = nanos < 0 ? -1 : nanos >= 1000000000 ? 1 : 0;
    time->tv_sec += *offset / 1000 + carry;
    time->tv_nsec = nanos - carry * 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
