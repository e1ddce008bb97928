// Reads the files of a device by every call of the C library that takes a path.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband"
#define FUNCTION CLASS "/roce0/pciffff:00/ffff:00:00.0"
#define STATE CLASS "/roce0/ports/1/state"
#define UVERBS "/dev/infiniband/uverbs0"

static void say(const char *call, int good) {
    printf("%s %s\n", call, good ? "ok" : "FAILED");
}

static int holds_state(int fd) {
    char text[64] = "";
    int good = fd >= 0 && read(fd, text, sizeof text - 1) > 0 && !strcmp(text, "4: ACTIVE\n");
    if (fd >= 0) close(fd);
    return good;
}

static int stream_holds_state(FILE *stream) {
    char text[64] = "";
    return stream && fgets(text, sizeof text, stream) && !strcmp(text, "4: ACTIVE\n");
}

static int only_roce0(const struct dirent *entry) { return !strcmp(entry->d_name, "roce0"); }

int main(int argc, char **argv) {
    // The compiler must not know these, so that the checking variants are called.
    volatile int read_only = O_RDONLY;
    volatile size_t path_max = PATH_MAX;
    struct stat status;
    struct statx more;
    char path[PATH_MAX];

    say("open", holds_state(open(STATE, O_RDONLY)));
    say("open flags", holds_state(open(STATE, read_only)));
    say("open slashes", holds_state(open("//sys/./class//infiniband/roce0/ports/1/state", O_RDONLY)));
    say("openat", holds_state(openat(AT_FDCWD, STATE, O_RDONLY)));
    int sys = open("/sys", O_RDONLY | O_DIRECTORY), root = open("/", O_PATH);
    say("openat /sys", holds_state(openat(sys, "class/infiniband/roce0/ports/1/state", read_only)));
    say("openat /", holds_state(openat(root, "sys/class/infiniband/roce0/ports/1/state", O_RDONLY)));
    int device = openat(root, "sys/class/infiniband/roce0", O_RDONLY | O_DIRECTORY);
    say("openat device", holds_state(openat(device, "ports/1/state", O_RDONLY)));
    say("fopen", stream_holds_state(fopen(STATE, "r")));
    say("freopen", stream_holds_state(freopen(STATE, "r", stdin)));
    say("open null", open(NULL, O_RDONLY) < 0 && errno == EFAULT);
    say("open missing", open(CLASS "/roce9", O_RDONLY) < 0 && errno == ENOENT);
    say("open file as folder", open(STATE "/x", O_RDONLY) < 0 && errno == ENOTDIR);
    char *wrong = malloc(3 * PATH_MAX);
    memset(wrong, 'x', 3 * PATH_MAX);
    memcpy(wrong, CLASS "/", sizeof CLASS);
    wrong[3 * PATH_MAX - 1] = 0;
    say("open too long", open(wrong, O_RDONLY) < 0 && errno == ENAMETOOLONG);
    say("open device", close(open(UVERBS, O_RDWR | O_CLOEXEC)) == 0);

    say("stat", stat(UVERBS, &status) == 0 && S_ISCHR(status.st_mode));
    say("stat folder", stat(CLASS, &status) == 0 && S_ISDIR(status.st_mode));
    say("lstat", lstat(STATE, &status) == 0 && S_ISREG(status.st_mode));
    say("fstatat", fstatat(sys, "class/infiniband", &status, 0) == 0 && S_ISDIR(status.st_mode));
    say("statx", statx(AT_FDCWD, UVERBS, 0, STATX_TYPE, &more) == 0 && S_ISCHR(more.stx_mode));
    say("statx /sys", statx(sys, "class/infiniband/roce0", 0, STATX_TYPE, &more) == 0 && S_ISDIR(more.stx_mode));
    say("stat missing", stat(CLASS "_none", &status) < 0 && errno == ENOENT);
    say("access", access(UVERBS, R_OK | W_OK) == 0 && access(CLASS "/roce9", F_OK) < 0);
    say("euidaccess", euidaccess(UVERBS, R_OK) == 0 && eaccess(UVERBS, R_OK) == 0);
    say("faccessat", faccessat(sys, "class/infiniband/roce0", R_OK, 0) == 0);
    errno = 0;
    say("getxattr", getxattr(STATE, "user.none", path, sizeof path) < 0 && errno != ENOENT);
    errno = 0;
    say("lgetxattr", lgetxattr(STATE, "user.none", path, sizeof path) < 0 && errno != ENOENT);
    say("listxattr", listxattr(STATE, NULL, 0) >= 0 && llistxattr(STATE, NULL, 0) >= 0);

    const char *link = CLASS "/roce0/device/net/eth0";
    ssize_t len = readlink(link, path, path_max);
    say("readlink", len > 0 && !strncmp(path, "/sys/class/net/eth0", len));
    len = readlinkat(device, "device/net/eth0", path, path_max);
    say("readlinkat", len > 0 && !strncmp(path, "/sys/class/net/eth0", len));
    len = readlinkat(sys, "class/infiniband/roce0/device/net/eth0", path, sizeof path);
    say("readlinkat /sys", len > 0 && !strncmp(path, "/sys/class/net/eth0", len));
    char *found = realpath(CLASS "/roce0/../roce0/device", NULL);
    say("realpath", found && !strcmp(found, FUNCTION));
    say("realpath in place", realpath("/sys/class/infiniband_verbs/uverbs0/device", path) && !strcmp(path, FUNCTION));
    found = canonicalize_file_name(CLASS "/roce0/device/infiniband/roce0");
    say("canonicalize_file_name", found && !strcmp(found, CLASS "/roce0"));
    say("realpath missing", !realpath(CLASS "/roce9", path) && errno == ENOENT);
    say("realpath outside", realpath("/sys/class/../class", path) && !strcmp(path, "/sys/class"));

    DIR *folder = opendir(CLASS);
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) count += !strcmp(entry->d_name, "roce0");
    say("opendir", count == 1);
    say("openat dirfd", folder && holds_state(openat(dirfd(folder), "roce0/ports/1/state", O_RDONLY)));
    struct dirent **list;
    say("scandir", scandir(CLASS, &list, only_roce0, alphasort) == 1);
    say("scandirat", scandirat(sys, "class/infiniband", &list, only_roce0, alphasort) == 1);

    glob_t all = {.gl_offs = 1};
    int good = glob(CLASS "/*/ports/*/state", GLOB_DOOFFS, NULL, &all) == 0;
    good = good && glob("/dev/infiniband/uverbs*", GLOB_DOOFFS | GLOB_APPEND, NULL, &all) == 0;
    say("glob", good && all.gl_pathc == 2 && !strcmp(all.gl_pathv[1], STATE) && !strcmp(all.gl_pathv[2], UVERBS));
    globfree(&all);
    say("glob none", glob(CLASS "/mlx*", 0, NULL, &all) == GLOB_NOMATCH);
    say("glob nocheck", glob(CLASS "/mlx*", GLOB_NOCHECK, NULL, &all) == 0 && !strcmp(all.gl_pathv[0], CLASS "/mlx*"));
    say("glob outside", glob("/proc/self/statu*", 0, NULL, &all) == 0 && !strcmp(all.gl_pathv[0], "/proc/self/status"));

    errno = 77;
    close(open(STATE, O_RDONLY));
    say("errno stays", errno == 77);
    say("chdir", chdir(CLASS) == 0 && holds_state(open("roce0/ports/1/state", O_RDONLY)));
    say("chdir /sys/class", chdir("/sys/class") == 0 && holds_state(open("infiniband/roce0/ports/1/state", O_RDONLY)));
    say("relative parent", holds_state(open("../class/infiniband/roce0/ports/1/state", O_RDONLY)));
    return 0;
}
