/*
 * Replaces functions for sockets, as librspreload does: it takes sockets of IPv4 and IPv6 for its own, and
 * looks up the functions that it passes calls on to in some of them only.
 *
 * A socket that it takes, and a call of a function that was not looked up, end the process. `socket` looks
 * nothing up here, so that `fcntl` alone does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_looked_up;

static void end_with(const char *name, const char *words)
{
    if (write(2, name, strlen(name)) >= 0 && write(2, words, strlen(words)) >= 0)
        abort();
}

static void *real(const char *name)
{
    if (!is_looked_up)
        end_with(name, " was called before it was looked up\n");
    return dlsym(RTLD_NEXT, name);
}

int socket(int domain, int type, int protocol)
{
    if (domain == AF_INET || domain == AF_INET6)
        end_with("socket", " made what is no descriptor\n");
    return syscall(SYS_socket, domain, type, protocol);
}

int fcntl(int fd, int command, ...)
{
    va_list arguments;
    long argument;

    is_looked_up = 1;
    va_start(arguments, command);
    argument = va_arg(arguments, long);
    va_end(arguments);
    return syscall(SYS_fcntl, fd, command, argument);
}

int bind(int fd, const struct sockaddr *address, socklen_t len)
{
    return ((int (*)(int, const struct sockaddr *, socklen_t))real("bind"))(fd, address, len);
}

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    return ((int (*)(int, const struct sockaddr *, socklen_t))real("connect"))(fd, address, len);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    return ((int (*)(int, int, int, const void *, socklen_t))real("setsockopt"))(fd, level, name, value, len);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    return ((int (*)(int, int, int, void *, socklen_t *))real("getsockopt"))(fd, level, name, value, len);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    return ((ssize_t (*)(int, const void *, size_t, int))real("send"))(fd, bytes, len, flags);
}

ssize_t sendto(int fd, const void *bytes, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    return ((ssize_t (*)(int, const void *, size_t, int, const struct sockaddr *, socklen_t))real("sendto"))(
        fd, bytes, len, flags, to, to_len);
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
    return ((ssize_t (*)(int, void *, size_t, int))real("recv"))(fd, bytes, len, flags);
}
