// SPDX-License-Identifier: MIT OR Apache-2.0
/* A libcuda.so.1 for tests. It is NOT CUDA: it opens the device nodes in the order in which the real library opens
 * them, and returns the code that the real library returns when an open fails. No result of it is a CUDA result.
 *
 * STANDIN_ENXIO_IS_REACHED: count ENXIO as "the device filter let the open through". For a bed without any driver
 * behind the numbers, where no open can succeed. A bed with a driver does not set it.
 *
 * The text of /etc/standin-cuda, where it exists, replaces the opens: a number is the code to return; `sleep` never
 * returns, `abort` dies by SIGABRT, `print` writes 4 MiB to stdout and to stderr and goes on, `fork` leaves a child
 * behind that sleeps, and goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, UNKNOWN = 999 };
enum { MAX_GPUS = 32, DRIVER_VERSION = 13000 };

const char standin_notice[] = "standin: not CUDA";

static int initialised;
static int devices;

static int reaches(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        close(fd);
        return 1;
    }
#ifdef STANDIN_ENXIO_IS_REACHED
    return errno == ENXIO;
#else
    return 0;
#endif
}

static int open_nodes(void)
{
    char path[32];
    int count = 0;

    if (!reaches("/dev/nvidiactl"))
        return NO_DEVICE;
    for (int minor = 0; minor < MAX_GPUS; minor++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", minor);
        count += reaches(path);
    }
    if (count == 0)
        return NO_DEVICE;
    if (!reaches("/dev/nvidia-uvm"))
        return UNKNOWN;
    devices = count;
    return SUCCESS;
}

static void *start(void *result)
{
    *(int *)result = open_nodes();
    return NULL;
}

/* The real library is threaded too: a caller that may not start threads must find out here, not with a GPU. */
static int open_nodes_in_a_thread(void)
{
    pthread_t thread;
    int result = UNKNOWN;

    if (pthread_create(&thread, NULL, start, &result) != 0)
        return UNKNOWN;
    pthread_join(thread, NULL);
    return result;
}

static void flood(int fd)
{
    static char block[4096];

    memset(block, '!', sizeof block);
    memcpy(block, standin_notice, sizeof standin_notice - 1);
    for (int i = 0; i < 1024; i++)
        if (write(fd, block, sizeof block) < 0)
            return;
}

/* Returns 1 and the code where the override decides it, 0 where the opens decide. */
static int overridden(int *code)
{
    char word[32] = "";
    FILE *file = fopen("/etc/standin-cuda", "re");

    if (file == NULL)
        return 0;
    if (fscanf(file, "%31s", word) != 1)
        word[0] = '\0';
    fclose(file);

    if (strcmp(word, "sleep") == 0)
        for (;;)
            pause();
    if (strcmp(word, "abort") == 0)
        abort();
    if (strcmp(word, "print") == 0) {
        flood(1);
        flood(2);
        return 0;
    }
    if (strcmp(word, "fork") == 0) {
        if (fork() == 0)
            for (;;)
                pause();
        return 0;
    }
    char *end;
    *code = (int)strtol(word, &end, 10);
    return end != word && *end == '\0';
}

int cuInit(unsigned flags)
{
    int code;

    if (flags != 0)
        return INVALID_VALUE;
    if (!overridden(&code))
        code = open_nodes_in_a_thread();
    initialised = code == SUCCESS;
    return code;
}

int cuDeviceGetCount(int *count)
{
    if (count == NULL)
        return INVALID_VALUE;
    if (!initialised)
        return NOT_INITIALIZED;
    *count = devices;
    return SUCCESS;
}

int cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return INVALID_VALUE;
    *version = DRIVER_VERSION;
    return SUCCESS;
}
