/* What a run does, and what came of it. One plan is read by all processes; each fills an outcome of its own. */
#ifndef LOADGEN_PLAN_H
#define LOADGEN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "response.h"
#include "samples.h"

enum mode {
    MODE_HTTP,     /* requests on connections that are kept, or fresh ones with `churn` */
    MODE_ECHO,     /* WebSockets: a message, and the same message back */
    MODE_SESSIONS, /* WebSockets: connect, `messages` echoes, close, again */
    MODE_HOLD,     /* one request on each connection, or a WebSocket's handshake; then nothing */
};

struct plan {
    struct sockaddr_storage address;
    socklen_t address_size;
    enum mode mode;
    bool websocket, churn, persistent_warmup;
    char *request; /* octets of one request, or of the handshake */
    size_t request_size;
    char *message; /* payload of a WebSocket message */
    size_t message_size;
    unsigned messages;
    unsigned connections, processes, pipeline, sources;
    double warmup, duration, ramp, rate, timeout; /* seconds; rate: exchanges per second, 0: closed loop */
    double read_rate;                             /* octets per second and connection, 0: as fast as can be */
    unsigned check_every;                         /* one response in so many is checked exactly */
    uint64_t max_samples, seed;
    struct expectation expected;
};

/* Moments on the monotonic clock, in nanoseconds. */
struct phases {
    uint64_t begin;   /* first connects */
    uint64_t reopen;  /* warm-up is over; connections are closed and opened again unless they persist */
    uint64_t timed;   /* the interval that counts */
    uint64_t end;
};

enum failure {
    FAILED_CONNECT,  /* refused, unreachable */
    FAILED_PORTS,    /* this machine ran out of ports: not the server's fault */
    FAILED_RESET,    /* reset, or closed while an answer was due */
    FAILED_TIMEOUT,  /* no answer, or no connection, in time */
    FAILED_PROTOCOL, /* malformed */
    FAILED_STATUS,   /* another status than expected */
    FAILED_LENGTH,   /* a body of another length */
    FAILED_FIELDS,   /* sampled: a field is missing or other */
    FAILED_BODY,     /* sampled: other octets */
    FAILURES,
};

struct counts {
    uint64_t completed; /* exchanges whose answer was as expected */
    uint64_t sent;
    uint64_t checked;
    uint64_t read_octets, body_octets, written_octets;
    uint64_t connects;   /* connections that were established */
    uint64_t reconnects; /* of these, in place of one that the server closed in order */
    uint64_t sessions;
    uint64_t failed[FAILURES];
    uint64_t statuses[1000];
};

/* Lies in memory that processes share. */
struct outcome {
    struct counts warm, timed;
    int64_t live;           /* connections that are established now */
    uint64_t served;        /* connections with at least one answer in the timed interval */
    uint64_t unfinished;    /* exchanges that the end cut off */
    double cpu;             /* seconds of processor time in the timed interval */
    double delay;           /* seconds in which a processor was wanted and not there */
    char reason[160];       /* the first protocol error in words */
};

#endif
