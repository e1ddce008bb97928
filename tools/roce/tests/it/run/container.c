// Becomes a program that may do what a container may by default: without CAP_SYS_ADMIN, and with a
// seccomp filter that refuses mounts and namespaces.
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REFUSE(call, error) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error)

int main(int argc, char **argv) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(SYS_mount, EPERM),   REFUSE(SYS_umount2, EPERM), REFUSE(SYS_unshare, EPERM),
        REFUSE(SYS_setns, EPERM),   REFUSE(SYS_clone3, ENOSYS), REFUSE(SYS_move_mount, EPERM),
        REFUSE(SYS_open_tree, EPERM), REFUSE(SYS_fsopen, EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("container");
        return 120;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 121;
}
