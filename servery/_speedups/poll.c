/* See poll.h. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "poll.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* SV_KQUEUE can be defined to try that half where there is epoll too. */
#if defined(__linux__) && !defined(SV_KQUEUE)
#include <sys/epoll.h>
#else
#include <sys/event.h>
#endif

#if defined(__linux__)
#include <sys/sendfile.h>
#endif

#if defined(__linux__) || defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__) || defined(__DragonFly__)
#define SV_HAS_ACCEPT4
#endif

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SO_NOSIGPIPE is there instead */
#endif
#ifndef MSG_MORE
#define MSG_MORE 0
#endif

#define MOST ((size_t)1 << 30) /* systems refuse 2 GiB and more in one call, or take a part only */

static int failed(void) {
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

/* --- readiness --------------------------------------------------------------------------------------------- */

#if defined(__linux__) && !defined(SV_KQUEUE)

const char *sv_poll_kind(void) {
    return "epoll";
}

int sv_poll_open(void) {
    int poll = epoll_create1(EPOLL_CLOEXEC);
    return poll < 0 ? failed() : poll;
}

int sv_poll_set(int poll, int fd, int before, int after, void *tag) {
    struct epoll_event event;
    int how = before & SV_AWAY ? EPOLL_CTL_ADD : after & SV_AWAY ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    memset(&event, 0, sizeof event);
    event.events = (after & SV_READ ? EPOLLIN : 0) | (after & SV_WRITE ? EPOLLOUT : 0);
#ifdef EPOLLEXCLUSIVE
    if (after & SV_EXCLUSIVE)
        event.events |= EPOLLEXCLUSIVE;
#endif
    event.data.ptr = tag;
    return epoll_ctl(poll, how, fd, &event) < 0 ? failed() : 0;
}

int sv_poll_wait(int poll, sv_event *events, int most) {
    struct epoll_event told[SV_EVENTS];
    int count = epoll_wait(poll, told, most < SV_EVENTS ? most : SV_EVENTS, 0);
    if (count < 0)
        return errno == EINTR ? 0 : failed();
    for (int at = 0; at < count; at++) {
        uint32_t what = told[at].events;
        events[at].tag = told[at].data.ptr;
        events[at].what = (what & EPOLLIN ? SV_READ : 0) | (what & EPOLLOUT ? SV_WRITE : 0) |
                          (what & (EPOLLERR | EPOLLHUP) ? SV_BROKEN : 0);
    }
    return count;
}

#else

const char *sv_poll_kind(void) {
    return "kqueue";
}

int sv_poll_open(void) {
    int poll = kqueue();
    if (poll < 0)
        return failed();
    fcntl(poll, F_SETFD, FD_CLOEXEC);
    return poll;
}

/* How the read filter stands: it is there even without interest in reading, since a reset is told by no other. Then its
 * low-water mark is out of reach, and it speaks once for each change, or a FIN would be told forever. */
enum { NO_FILTER, LEVEL, RESETS_ONLY };

static int read_filter(int interest) {
    if (interest & SV_AWAY)
        return NO_FILTER;
    return interest & SV_READ ? LEVEL : RESETS_ONLY;
}

int sv_poll_set(int poll, int fd, int before, int after, void *tag) {
    struct kevent changes[3];
    int count = 0, was = read_filter(before), is = read_filter(after);
    int wrote = !(before & SV_AWAY) && before & SV_WRITE, writes = !(after & SV_AWAY) && after & SV_WRITE;
    if (was != is && was != NO_FILTER)
        EV_SET(&changes[count++], fd, EVFILT_READ, EV_DELETE, 0, 0, tag);
    if (was != is && is == LEVEL)
        EV_SET(&changes[count++], fd, EVFILT_READ, EV_ADD, 0, 0, tag);
    if (was != is && is == RESETS_ONLY)
        EV_SET(&changes[count++], fd, EVFILT_READ, EV_ADD | EV_CLEAR, NOTE_LOWAT, INT_MAX, tag);
    if (wrote != writes)
        EV_SET(&changes[count++], fd, EVFILT_WRITE, writes ? EV_ADD : EV_DELETE, 0, 0, tag);
    return count && kevent(poll, changes, count, NULL, 0, NULL) < 0 ? failed() : 0;
}

int sv_poll_wait(int poll, sv_event *events, int most) {
    struct kevent told[SV_EVENTS];
    const struct timespec at_once = {0, 0};
    int count = kevent(poll, NULL, 0, told, most < SV_EVENTS ? most : SV_EVENTS, &at_once);
    if (count < 0)
        return errno == EINTR ? 0 : failed();
    for (int at = 0; at < count; at++) {
        int reads = told[at].filter == EVFILT_READ;
        events[at].tag = (void *)told[at].udata;
        events[at].what = reads ? SV_READ : SV_WRITE;
        if (reads && told[at].flags & EV_EOF && told[at].fflags) /* the error of the socket */
            events[at].what |= SV_BROKEN;
    }
    return count;
}

#endif

double sv_monotonic(void) {
#ifdef __APPLE__
    return (double)clock_gettime_nsec_np(CLOCK_UPTIME_RAW) * 1e-9;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
#endif
}

/* --- connected sockets -------------------------------------------------------------------------------------- */

ssize_t sv_recv(int fd, char *into, size_t size) {
    ssize_t count;
    do
        count = recv(fd, into, size, 0);
    while (count < 0 && errno == EINTR);
    return count < 0 ? failed() : count;
}

int sv_peek(int fd) {
    char octet;
    ssize_t count;
    do
        count = recv(fd, &octet, 1, MSG_PEEK);
    while (count < 0 && errno == EINTR);
    return count < 0 ? failed() : (int)count;
}

ssize_t sv_send(int fd, const char *data, size_t size, int more) {
    ssize_t count;
    do
        count = send(fd, data, size < MOST ? size : MOST, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    while (count < 0 && errno == EINTR);
    return count < 0 ? failed() : count;
}

ssize_t sv_sendv(int fd, struct iovec *parts, int count, int more) {
    struct msghdr message;
    ssize_t sent;
    size_t left = MOST;
    for (int at = 0; at < count; at++) {
        if (parts[at].iov_len > left) {
            parts[at].iov_len = left;
            count = at + 1;
        }
        left -= parts[at].iov_len;
    }
    memset(&message, 0, sizeof message);
    message.msg_iov = parts;
    message.msg_iovlen = count;
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? failed() : sent;
}

ssize_t sv_read_file(int file, long long offset, char *into, size_t count) {
    ssize_t got;
    do
        got = pread(file, into, count, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

/* One step of sv_send_file without the kernel's help: where there is no sendfile, or none for this kind of file. */
static ssize_t copy(int fd, int file, long long offset, size_t count) {
    char block[65536];
    ssize_t got = sv_read_file(file, offset, block, count < sizeof block ? count : sizeof block);
    if (got <= 0)
        return got;
    return sv_send(fd, block, (size_t)got, (size_t)got < count);
}

/* One step of it with that help. EINTR may come out. */
static ssize_t transfer(int fd, int file, long long offset, size_t count) {
#if defined(__linux__)
    off_t at = (off_t)offset;
    ssize_t sent = sendfile(fd, file, &at, count);
    return sent < 0 ? failed() : sent;
#elif defined(__APPLE__)
    off_t sent = (off_t)count; /* octets sent are told of an interrupted or full call too */
    return sendfile(file, fd, (off_t)offset, &sent, NULL, 0) < 0 && !sent ? failed() : (ssize_t)sent;
#elif defined(__FreeBSD__) || defined(__DragonFly__)
    off_t sent = 0;
    return sendfile(file, fd, (off_t)offset, count, NULL, &sent, 0) < 0 && !sent ? failed() : (ssize_t)sent;
#else
    (void)fd, (void)file, (void)offset, (void)count;
    return -ENOSYS;
#endif
}

size_t sv_send_file(int fd, int file, long long offset, size_t count, int *error) {
    size_t done = 0;
    *error = 0;
    while (done < count) {
        size_t rest = count - done < MOST ? count - done : MOST;
        ssize_t sent = transfer(fd, file, offset + (long long)done, rest);
        if (sent == -EINVAL || sent == -ENOSYS || sent == -EOPNOTSUPP || sent == -ENOTSUP)
            sent = copy(fd, file, offset + (long long)done, rest);
        if (sent > 0)
            done += (size_t)sent;
        else if (sent != -EINTR) {
            *error = sent ? (int)-sent : SV_SHORT;
            break;
        }
    }
    return done;
}

int sv_is_of_network(int error) {
    switch (error) {
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
    case ESHUTDOWN:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case EPROTO:
    case EPERM: /* a firewall */
        return 1;
    default:
        return 0;
    }
}

int sv_shut(int fd) {
    return shutdown(fd, SHUT_WR) < 0 ? failed() : 0;
}

int sv_take_error(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? errno : error;
}

void sv_reset(int fd) {
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void sv_close(int fd) {
    close(fd); /* not again after EINTR: the descriptor is gone, and may be somebody else's */
}

void sv_prepare(int fd, int is_tcp) {
    int on = 1;
    if (is_tcp)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

/* --- accepting, and names ----------------------------------------------------------------------------------- */

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
    struct sockaddr_storage storage;
} address;

/* The path of an address whose length is `size`; as Python reads it. */
static void name_of_path(const address *it, size_t size, sv_name *name) {
    size_t length = size > offsetof(struct sockaddr_un, sun_path) ? size - offsetof(struct sockaddr_un, sun_path) : 0;
    name->kind = SV_UNIX;
    if (length > sizeof it->local.sun_path)
        length = sizeof it->local.sun_path;
#ifdef __linux__
    if (!length || it->local.sun_path[0])
#endif
        length = strnlen(it->local.sun_path, length);
    memcpy(name->text, it->local.sun_path, length);
    name->size = (int)length;
}

static void name_of(const address *it, size_t size, sv_name *name) {
    memset(name, 0, sizeof *name);
    if (size < sizeof it->any.sa_family)
        return;
    if (it->any.sa_family == AF_INET) {
        name->kind = SV_IPV4;
        name->port = ntohs(it->v4.sin_port);
        inet_ntop(AF_INET, &it->v4.sin_addr, name->text, sizeof name->text);
        name->size = (int)strlen(name->text);
    } else if (it->any.sa_family == AF_INET6) {
        name->kind = SV_IPV6;
        name->port = ntohs(it->v6.sin6_port);
        name->flow = ntohl(it->v6.sin6_flowinfo);
        name->scope = it->v6.sin6_scope_id;
        inet_ntop(AF_INET6, &it->v6.sin6_addr, name->text, sizeof name->text);
        name->size = (int)strlen(name->text);
    } else if (it->any.sa_family == AF_UNIX)
        name_of_path(it, size, name);
}

int sv_accept(int fd, sv_name *peer) {
    address it;
    socklen_t size;
    int made;
    do {
        size = sizeof it;
#ifdef SV_HAS_ACCEPT4
        made = accept4(fd, &it.any, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
#else
        made = accept(fd, &it.any, &size);
#endif
    } while (made < 0 && errno == EINTR);
    if (made < 0)
        return failed();
#ifndef SV_HAS_ACCEPT4
    if (fcntl(made, F_SETFD, FD_CLOEXEC) < 0 || fcntl(made, F_SETFL, O_NONBLOCK) < 0) {
        close(made);
        return -ECONNABORTED;
    }
#endif
    name_of(&it, size, peer);
    return made;
}

int sv_own_name(int fd, sv_name *name) {
    address it;
    socklen_t size = sizeof it;
    if (getsockname(fd, &it.any, &size) < 0)
        return failed();
    name_of(&it, size, name);
    return 0;
}

int sv_is_exhaustion(int error) {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}
