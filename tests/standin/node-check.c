// SPDX-License-Identifier: MIT OR Apache-2.0
/* Says, from inside a container, what device nodes are there and whether they open. A test tool (standin: not CUDA),
 * linked statically so that it runs in any root filesystem.
 *
 *     node-check PATH...                     `PATH kind major:minor mode uid:gid open=RESULT` for each
 *     node-check --mknod MAJOR:MINOR PATH    makes the character node PATH, says the same of it and removes it;
 *                                            `PATH mknod=ERRNO` where it cannot be made
 *
 * kind is char, block, file, dir, fifo, link, socket, or `absent`, then followed by the errno of lstat alone.
 * RESULT is OK or the name of the errno of open(O_RDWR|O_NONBLOCK).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFCHR: return "char";
    case S_IFBLK: return "block";
    case S_IFREG: return "file";
    case S_IFDIR: return "dir";
    case S_IFIFO: return "fifo";
    case S_IFLNK: return "link";
    default: return "socket";
    }
}

static void check(const char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0) {
        printf("%s absent %s\n", path, strerrorname_np(errno));
        return;
    }
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    printf("%s %s %u:%u %04o %u:%u open=%s\n", path, kind(st.st_mode), major(st.st_rdev), minor(st.st_rdev),
           st.st_mode & 07777, st.st_uid, st.st_gid, fd >= 0 ? "OK" : strerrorname_np(errno));
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    unsigned ma, mi;

    if (argc == 4 && strcmp(argv[1], "--mknod") == 0) {
        if (sscanf(argv[2], "%u:%u", &ma, &mi) != 2)
            return 2;
        if (mknod(argv[3], S_IFCHR | 0666, makedev(ma, mi)) != 0) {
            printf("%s mknod=%s\n", argv[3], strerrorname_np(errno));
            return 0;
        }
        check(argv[3]);
        unlink(argv[3]);
        return 0;
    }
    for (int i = 1; i < argc; i++)
        check(argv[i]);
    return 0;
}
