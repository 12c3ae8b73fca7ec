/* The floor: what the kernel and a bare event loop cost for one fixed answer. No server can be below it.
 *
 * usage: floor PORT [MICROSECONDS]. Answers whatever ends in an empty line with 200 and 1,024 times "x", without parsing;
 * one process. With MICROSECONDS it works, to no end, for so long on each answer: a server that no client outruns.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BODY 1024
#define BUFFER 65536

static char answer[BODY + 256];
static size_t answer_size;
static long microseconds;

static void make_answer(void) {
    answer_size = (size_t)sprintf(answer, "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n"
                                          "content-length: %d\r\n\r\n", BODY);
    memset(answer + answer_size, 'x', BODY);
    answer_size += BODY;
}

static void work(void) {
    struct timespec now;
    long long end = 0, at = 0;

    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
        at = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
        end = end ? end : at + microseconds;
    } while (at < end);
}

static int listen_on(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 4096) < 0) {
        perror("floor");
        exit(1);
    }
    return fd;
}

/* Answers every request in the octets that came; a head that is cut in two counts where it ends. */
static void serve(int fd) {
    static char data[BUFFER];
    ssize_t got = recv(fd, data, sizeof data, 0);

    if (got <= 0) {
        close(fd);
        return;
    }
    for (char *at = data; (at = memmem(at, (size_t)(data + got - at), "\r\n\r\n", 4)) != NULL; at += 4) {
        if (microseconds)
            work();
        if (send(fd, answer, answer_size, MSG_NOSIGNAL) < 0) {
            close(fd);
            return;
        }
    }
}

int main(int argc, char **argv) {
    struct epoll_event event = {.events = EPOLLIN}, events[256];

    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: floor PORT [MICROSECONDS]\n");
        return 2;
    }
    microseconds = argc == 3 ? atol(argv[2]) : 0;
    make_answer();
    int listener = listen_on(atoi(argv[1])), epoll = epoll_create1(0), yes = 1;
    event.data.fd = listener;
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != listener) {
                serve(events[i].data.fd);
                continue;
            }
            int fd = accept(listener, NULL, NULL);
            if (fd < 0)
                continue;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            event.data.fd = fd;
            epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
        }
    }
}
