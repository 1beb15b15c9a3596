// SPDX-License-Identifier: MIT OR Apache-2.0
/* Runs a command under a kernel that lacks a system call, or refuses it: a seccomp filter answers with the errno. A test
 * tool (standin: not CUDA), linked statically.
 *
 *     deny-syscall NAME ERRNO -- COMMAND ARGUMENT...      ERRNO is ENOSYS, EPERM, ENOMEM or EINVAL
 *
 * NAME can also be one command of bpf(2): BPF_PROG_LOAD, BPF_PROG_ATTACH.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

static const struct {
    const char *name;
    int number;
    /* The first argument, or -1 for any. */
    int first;
} known[] = {
    { "bpf", SYS_bpf, -1 },
    { "BPF_PROG_LOAD", SYS_bpf, BPF_PROG_LOAD },
    { "BPF_PROG_ATTACH", SYS_bpf, BPF_PROG_ATTACH },
    { "clone3", SYS_clone3, -1 },
    { "openat2", SYS_openat2, -1 },
    { "move_mount", SYS_move_mount, -1 },
    { "open_tree", SYS_open_tree, -1 },
    { "fsopen", SYS_fsopen, -1 },
    { "fsmount", SYS_fsmount, -1 },
    { "setns", SYS_setns, -1 },
    { "pidfd_open", SYS_pidfd_open, -1 },
    { "close_range", SYS_close_range, -1 },
    { "mount_setattr", SYS_mount_setattr, -1 },
    { "memfd_create", SYS_memfd_create, -1 },
    { "execveat", SYS_execveat, -1 },
    { "statx", SYS_statx, -1 },
    { "unshare", SYS_unshare, -1 },
    { "ptrace", SYS_ptrace, -1 },
};

static const struct {
    const char *name;
    int value;
} errors[] = { { "ENOSYS", ENOSYS }, { "EPERM", EPERM }, { "ENOMEM", ENOMEM }, { "EINVAL", EINVAL } };

int main(int argc, char **argv)
{
    int number = -1, first = -1, error = 0;

    if (argc < 5 || strcmp(argv[3], "--") != 0)
        return 125;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, argv[1]) == 0)
            number = known[i].number, first = known[i].first;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, argv[2]) == 0)
            error = errors[i].value;
    if (number < 0 || error == 0)
        return 125;

    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
        /* The low half of the argument. */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)first, 0, first < 0 ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };

    /* Root needs no PR_SET_NO_NEW_PRIVS, which the command could notice. */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("seccomp");
        return 125;
    }
    execv(argv[4], argv + 4);
    perror(argv[4]);
    return 125;
}
