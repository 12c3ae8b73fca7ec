/* Sockets and their readiness, the same over epoll and kqueue: what the reactor asks of the kernel.
 *
 * No Python, no allocation, no globals. Whatever can fail returns a negative error number (-ECONNRESET); EINTR never
 * comes out, and "not now" is always -EAGAIN. No call waits. Descriptors belong to the caller.
 */
#ifndef SERVERY_POLL_H
#define SERVERY_POLL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* --- readiness, level-triggered -------------------------------------------------------------------------- */

enum {
    SV_READ = 1,      /* interest, event: there is something to read, or accept, or EOF */
    SV_WRITE = 2,     /* interest, event: the kernel takes more */
    SV_BROKEN = 4,    /* event, with any interest: an error, or both directions are closed */
    SV_EXCLUSIVE = 8, /* interest of a listening socket that several processes watch; it is never changed, only ended */
    SV_AWAY = 16      /* interest: the kernel does not watch it */
};

typedef struct {
    void *tag; /* of the descriptor, as given to sv_poll_set */
    int what;  /* SV_READ | SV_WRITE | SV_BROKEN */
} sv_event;

#define SV_EVENTS 64 /* more are not taken at once */

const char *sv_poll_kind(void); /* epoll, kqueue */

/* A descriptor to watch with, closed by exec. It is readable itself while it has events. */
int sv_poll_open(void);

/* Change what is watched of `fd` from `before` to `after`; SV_AWAY in these begins and ends it. With no interest (0)
 * SV_BROKEN is still told. Where kqueue is, that is a reset; once both directions are closed without one, nothing is. */
int sv_poll_set(int poll, int fd, int before, int after, void *tag);

/* What has happened: the number of events written to `events`, at most `most` (and SV_EVENTS). One descriptor may have
 * several where kqueue is, and a spurious SV_READ without interest in it. */
int sv_poll_wait(int poll, sv_event *events, int most);

/* Seconds, on the clock that Python calls time.monotonic(). */
double sv_monotonic(void);

/* --- connected sockets ------------------------------------------------------------------------------------ */

#define SV_IOVECS 64 /* more are never sent at once: 1024 would be allowed, but a copy of what was not taken costs */

/* Octets read; 0 is EOF. */
ssize_t sv_recv(int fd, char *into, size_t size);

/* Whether octets wait to be read: 1, 0 at EOF, else an error. */
int sv_peek(int fd);

/* Octets taken, which may be fewer; `more` says that others follow at once and packets may wait for them. */
ssize_t sv_send(int fd, const char *data, size_t size, int more);
ssize_t sv_sendv(int fd, struct iovec *parts, int count, int more);

enum { SV_SHORT = -1 }; /* an `error` of sv_send_file: the file ends before the range does */

/* Octets of `file` taken, from `offset`, `count` at most. `*error` says why it was not all: EAGAIN, SV_SHORT, an error
 * number; 0 if it was. The position of `file` stays as it is. */
size_t sv_send_file(int fd, int file, long long offset, size_t count, int *error);

/* Octets read of `file` from `offset`, `count` at most; 0 at its end. The position of `file` stays as it is. */
ssize_t sv_read_file(int file, long long offset, char *into, size_t count);

/* Whether an error number speaks of the peer or the way to it: nothing that anybody here did wrong. */
int sv_is_of_network(int error);

int sv_shut(int fd);        /* FIN */
int sv_take_error(int fd);  /* the error number that is pending, 0 if none; it is forgotten */
void sv_reset(int fd);      /* closing `fd` will send RST */
void sv_close(int fd);
void sv_prepare(int fd, int is_tcp); /* no delays, no signals */

/* --- accepting, and names -------------------------------------------------------------------------------- */

enum { SV_NAMELESS, SV_IPV4, SV_IPV6, SV_UNIX };

typedef struct {
    int kind;
    int size;       /* octets of `text` */
    char text[128]; /* host or path; a path that begins with NUL is one of Linux's abstract ones */
    int port;
    uint32_t flow, scope; /* of IPv6 */
} sv_name;

/* The descriptor of a new connection, non-blocking and closed by exec. */
int sv_accept(int fd, sv_name *peer);

int sv_own_name(int fd, sv_name *name);

/* What an error number of sv_accept means. */
int sv_is_exhaustion(int error); /* descriptors or memory have run out */

#endif
