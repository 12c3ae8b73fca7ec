/* One process of load: its connections and its loop. connection.c moves one connection on; worker.c says when. */
#ifndef LOADGEN_WORKER_H
#define LOADGEN_WORKER_H

#include "plan.h"

#define BUFFER_SIZE (256 * 1024)

enum connection_state {
    CLOSED,     /* not opened yet, or between two requests of the churn */
    WAITING,    /* opened again when `wake` has come */
    CONNECTING,
    SHAKING,    /* a WebSocket's handshake is on its way */
    OPEN,
    CLOSING,    /* a WebSocket whose close frame is on its way */
};

struct connection {
    int fd;
    enum connection_state state;
    uint32_t interest;   /* what epoll watches */
    unsigned number;
    unsigned outstanding; /* exchanges on their way */
    unsigned first;       /* of `starts`, a ring */
    uint64_t *starts;
    uint64_t since;       /* when the wait for an answer or for the connection began */
    uint64_t wake;
    uint64_t intended;    /* start of the exchange that waits for the connection; 0: none does */
    size_t unsent;        /* octets of the exchanges, or of the handshake, that are not written yet */
    unsigned echoes;
    int idle_at;          /* place among the idle of the open loop; -1: not there */
    bool is_live, was_served;
    double credit;        /* octets that a slow reader may read */
    struct response response;
    char *held;           /* a frame that has not come whole */
    size_t held_size, held_room;
};

struct worker {
    const struct plan *plan;
    struct phases phases;
    struct outcome *outcome;
    struct samples *samples;
    struct counts *counts; /* those of the phase */
    int epoll, timer;
    uint64_t now, armed;
    bool is_timed;
    bool is_loading; /* the ramp is over: until then connections are opened, and say nothing */
    struct connection *connections;
    unsigned count, opened; /* of the connections; how many of them the ramp has opened */
    uint64_t ramp_begin;
    unsigned first_number;  /* the connections of all processes are numbered through */
    char *batch;            /* `pipeline` exchanges */
    size_t unit, batch_size;
    double rate;            /* of this process */
    uint64_t schedule_begin, scheduled;
    struct connection **idle;
    unsigned idle_count;
    unsigned waiting;
    uint64_t answers;       /* so far, for the sampled checks */
    uint64_t last_tick, last_scan;
    char *buffer;
};

uint64_t clock_now(void); /* nanoseconds, monotonic */

/* connection.c */
void connection_open(struct worker *worker, struct connection *connection);
void connection_event(struct worker *worker, struct connection *connection, uint32_t events);
void connection_read_slowly(struct worker *worker, struct connection *connection, double seconds);
void connection_close(struct worker *worker, struct connection *connection);
void connection_fail(struct worker *worker, struct connection *connection, enum failure failure, const char *reason);
/* Begins an exchange whose latency counts from `start`; opens the connection first where that is needed. */
void connection_begin(struct worker *worker, struct connection *connection, uint64_t start);

/* Lets a connection that has nothing on its way do what the plan wants of it. */
void connection_go_on(struct worker *worker, struct connection *connection);

/* worker.c; `share` is which of the processes this is. */
void worker_run(const struct plan *plan, const struct phases *phases, unsigned share, struct outcome *outcome,
                struct samples *samples);
/* A connection has nothing to do: the open loop may have something for it. */
void worker_idle(struct worker *worker, struct connection *connection);
void worker_not_idle(struct worker *worker, struct connection *connection);
/* An exchange that began at `start` was answered as expected. */
void worker_completed(struct worker *worker, struct connection *connection, uint64_t start);

#endif
