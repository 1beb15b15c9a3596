// SPDX-License-Identifier: MIT OR Apache-2.0
/* A container's init that does nothing but open one device node, from its first instruction to its death, and counts
 * what comes of it. A test tool (standin: not CUDA), linked statically.
 *
 *     open-loop PATH
 *
 * The counts lie in the file /counts, which the host reads while it runs: `struct counts`, little words of 64 bits. Once
 * the first open has been made, a child of it says `up` into the FIFO /report.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Read by tests/tests/no_refusal.rs in this order. */
struct counts {
    uint64_t opens;
    uint64_t refused;       /* EPERM */
    uint64_t absent;        /* ENOENT */
    uint64_t other;         /* neither these nor a driver's own answer */
    uint64_t started;       /* CLOCK_MONOTONIC when main began, in nanoseconds */
    uint64_t first_good;    /* the same, after the first open that was not refused */
    uint64_t longest;       /* the longest open, in nanoseconds */
};

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void say_up(void)
{
    /* The child is the only thing here that waits for anything. */
    signal(SIGCHLD, SIG_IGN);
    if (fork() != 0)
        return;
    int report = open("/report", O_WRONLY);
    _exit(write(report, "up\n", 3) == 3 ? 0 : 1);
}

int main(int argc, char **argv)
{
    uint64_t started = now();

    if (argc != 2)
        return 2;
    /* The first open comes before anything else that a program could do. */
    int fd = open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC);
    int first = fd >= 0 ? 0 : errno;
    int file = open("/counts", O_RDWR | O_CLOEXEC);
    volatile struct counts *counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    if (file < 0 || counts == MAP_FAILED)
        return 3;
    counts->started = started;
    for (int error = first;; error = fd >= 0 ? 0 : errno) {
        uint64_t end = now();

        if (fd >= 0)
            close(fd);
        if (end - started > counts->longest && counts->opens > 0)
            counts->longest = end - started;
        counts->opens++;
        if (error == EPERM)
            counts->refused++;
        else if (error == ENOENT)
            counts->absent++;
        else if (error != 0 && error != ENXIO)
            counts->other++;
        if ((error == 0 || error == ENXIO) && counts->first_good == 0)
            counts->first_good = end;
        if (counts->opens == 1)
            say_up();
        started = now();
        fd = open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC);
    }
}
