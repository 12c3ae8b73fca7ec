/* What one connection does: connect, ask, read, judge, close. Everything is counted where it happens. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "frames.h"
#include "worker.h"

#define BACKOFF 10000000 /* nanoseconds between a failure and the next connect */
#define SLOW_RECEIVE_BUFFER 4096

static void watch(struct worker *worker, struct connection *connection, uint32_t interest) {
    struct epoll_event event = {.events = interest, .data.ptr = connection};

    if (connection->interest == interest)
        return;
    epoll_ctl(worker->epoll, connection->interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, connection->fd, &event);
    connection->interest = interest;
}

/* EPOLLIN, unless the connection reads only as fast as it is allowed. EPOLLPRI, which never comes, keeps the interest from being none. */
static uint32_t readable(const struct worker *worker) { return worker->plan->read_rate > 0 ? EPOLLPRI : EPOLLIN; }

void connection_close(struct worker *worker, struct connection *connection) {
    if (connection->fd >= 0)
        close(connection->fd);
    if (connection->is_live)
        worker->outcome->live--;
    if (connection->state == WAITING)
        worker->waiting--;
    worker_not_idle(worker, connection);
    connection->fd = -1;
    connection->state = CLOSED;
    connection->interest = 0;
    connection->is_live = false;
    connection->outstanding = connection->first = 0;
    connection->unsent = connection->held_size = 0;
    connection->echoes = 0;
    connection->credit = 0;
}

static void wait_to_open(struct worker *worker, struct connection *connection) {
    connection_close(worker, connection);
    connection->state = WAITING;
    connection->wake = worker->now + BACKOFF;
    worker->waiting++;
}

void connection_fail(struct worker *worker, struct connection *connection, enum failure failure, const char *reason) {
    unsigned lost = connection->outstanding ? connection->outstanding : 1;

    worker->counts->failed[failure] += lost;
    if (reason && !worker->outcome->reason[0])
        snprintf(worker->outcome->reason, sizeof worker->outcome->reason, "%s", reason);
    wait_to_open(worker, connection);
    connection->intended = 0;
}

/* A closed connection that ended in order gets its successor at once. */
static void succeed(struct worker *worker, struct connection *connection) {
    connection_close(worker, connection);
    connection->intended = 0;
    if (worker->rate > 0 && worker->plan->churn) {
        worker_idle(worker, connection);
        return;
    }
    connection->intended = worker->plan->churn || worker->plan->mode == MODE_SESSIONS ? worker->now : 0;
    connection_open(worker, connection);
}

/* 127.0.0.2 and those after it, by turns, so that no address runs out of ports. */
static void bind_source(const struct worker *worker, const struct connection *connection) {
    struct sockaddr_in source = {.sin_family = AF_INET};
    unsigned turn = (worker->first_number + connection->number + (unsigned)worker->counts->connects) %
                    worker->plan->sources;
    int yes = 1;

    source.sin_addr.s_addr = htonl(0x7f000002 + turn);
    setsockopt(connection->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    if (bind(connection->fd, (struct sockaddr *)&source, sizeof source) < 0)
        perror("loadgen: bind");
}

static void send_due(struct worker *worker, struct connection *connection) {
    bool shaking = connection->state == SHAKING;
    const char *from = shaking ? worker->plan->request : worker->batch;
    size_t unit = shaking ? worker->plan->request_size : worker->unit;
    size_t whole = shaking ? unit : worker->batch_size;

    while (connection->unsent) {
        size_t offset = (unit - connection->unsent % unit) % unit;
        size_t size = connection->unsent < whole - offset ? connection->unsent : whole - offset;
        ssize_t sent = send(connection->fd, from + offset, size, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN)
                connection_fail(worker, connection, FAILED_RESET, NULL);
            else
                watch(worker, connection, readable(worker) | EPOLLOUT);
            return;
        }
        connection->unsent -= (size_t)sent;
        worker->counts->written_octets += (uint64_t)sent;
    }
    watch(worker, connection, readable(worker));
}

static void ask(struct worker *worker, struct connection *connection, unsigned count, uint64_t start) {
    unsigned depth = worker->plan->pipeline;

    connection->since = worker->now;
    for (unsigned i = 0; i < count; i++)
        connection->starts[(connection->first + connection->outstanding++) % depth] = start;
    connection->unsent += count * worker->unit;
    worker->counts->sent += count;
    send_due(worker, connection);
}

static void begin_response(struct worker *worker, struct connection *connection) {
    bool check = worker->answers++ % worker->plan->check_every == 0;

    response_begin(&connection->response, check || connection->state == SHAKING ? &worker->plan->expected : NULL);
}

static void count_live(struct worker *worker, struct connection *connection) {
    connection->is_live = true;
    worker->outcome->live++;
    worker->counts->connects++;
}

void connection_go_on(struct worker *worker, struct connection *connection) {
    const struct plan *plan = worker->plan;
    unsigned room = plan->pipeline - connection->outstanding;

    if (connection->state != OPEN || !room)
        return;
    if (connection->intended) {
        uint64_t start = connection->intended;
        connection->intended = 0;
        ask(worker, connection, 1, start);
    } else if (!worker->is_loading || plan->mode == MODE_HOLD || (plan->churn && connection->outstanding)) {
        return;
    } else if (worker->rate > 0) {
        worker_idle(worker, connection);
    } else {
        ask(worker, connection, room, worker->now);
    }
}

static void opened(struct worker *worker, struct connection *connection) {
    connection->state = worker->plan->websocket ? SHAKING : OPEN;
    begin_response(worker, connection);
    if (connection->state == SHAKING) {
        connection->since = worker->now;
        connection->unsent = worker->plan->request_size;
        send_due(worker, connection);
        return;
    }
    count_live(worker, connection);
    watch(worker, connection, readable(worker));
    if (worker->plan->mode == MODE_HOLD)
        connection->intended = worker->now;
    connection_go_on(worker, connection);
}

void connection_open(struct worker *worker, struct connection *connection) {
    const struct plan *plan = worker->plan;
    int family = plan->address.ss_family, yes = 1, small = SLOW_RECEIVE_BUFFER;

    connection->since = worker->now;
    connection->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) {
        connection_fail(worker, connection, FAILED_CONNECT, "no socket: the limit of open files may be too low");
        return;
    }
    if (family == AF_INET) {
        setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (plan->sources > 1)
            bind_source(worker, connection);
    }
    if (plan->read_rate > 0)
        setsockopt(connection->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (connect(connection->fd, (const struct sockaddr *)&plan->address, plan->address_size) == 0) {
        opened(worker, connection);
    } else if (errno == EINPROGRESS) {
        connection->state = CONNECTING;
        watch(worker, connection, EPOLLOUT);
    } else if (errno == EAGAIN && family == AF_UNIX) {
        uint64_t intended = connection->intended; /* the backlog is full: no failure until it takes too long */
        wait_to_open(worker, connection);
        connection->intended = intended;
    } else {
        connection_fail(worker, connection, errno == EADDRNOTAVAIL ? FAILED_PORTS : FAILED_CONNECT, strerror(errno));
    }
}

void connection_begin(struct worker *worker, struct connection *connection, uint64_t start) {
    if (connection->state == OPEN) {
        ask(worker, connection, 1, start);
        return;
    }
    connection->intended = start;
    connection_open(worker, connection);
}

static uint64_t pop_start(struct worker *worker, struct connection *connection) {
    uint64_t start = connection->starts[connection->first];

    connection->first = (connection->first + 1) % worker->plan->pipeline;
    connection->outstanding--;
    connection->since = worker->now;
    return start;
}

static enum failure judge(struct worker *worker, struct response *response) {
    const struct expectation *expected = &worker->plan->expected;

    if (response->status != expected->status)
        return FAILED_STATUS;
    if (expected->length >= 0 && response->length != (uint64_t)expected->length)
        return FAILED_LENGTH;
    if (!response->expected)
        return FAILURES;
    worker->counts->checked++;
    const char *fault = response_fault(response);
    if (!fault)
        return FAILURES;
    return fault[0] == 'f' ? FAILED_FIELDS : FAILED_BODY;
}

/* The response is complete. True if the connection goes on with the next one. */
static bool answered(struct worker *worker, struct connection *connection) {
    struct response *response = &connection->response;
    bool keep = response->keep_alive && !worker->plan->churn;
    enum failure failure = judge(worker, response);
    uint64_t start = pop_start(worker, connection);

    worker->counts->statuses[response->status]++;
    worker->counts->body_octets += response->length;
    if (failure == FAILURES)
        worker_completed(worker, connection, start);
    else
        worker->counts->failed[failure]++;
    if (keep) {
        begin_response(worker, connection);
        return true;
    }
    worker->counts->failed[FAILED_RESET] += connection->outstanding;
    worker->counts->reconnects += !worker->plan->churn;
    succeed(worker, connection);
    return false;
}

/* The end of the handshake. What follows it in `data` are frames. */
static bool shaken(struct worker *worker, struct connection *connection, const char **data, size_t *size) {
    size_t used = 0;
    enum response_result result = response_feed(&connection->response, *data, *size, &used);

    *data += used;
    *size -= used;
    if (result == RESPONSE_MORE)
        return false;
    if (result == RESPONSE_BROKEN) {
        connection_fail(worker, connection, FAILED_PROTOCOL, connection->response.reason);
        return false;
    }
    worker->counts->statuses[connection->response.status]++;
    const char *fault = response_fault(&connection->response);
    if (fault) {
        connection_fail(worker, connection, fault[0] == 's' ? FAILED_STATUS : FAILED_FIELDS, "the handshake failed");
        return false;
    }
    connection->state = OPEN;
    count_live(worker, connection);
    if (worker->plan->mode == MODE_HOLD)
        worker_completed(worker, connection, connection->since);
    if (worker->plan->mode == MODE_SESSIONS && !connection->intended)
        connection->intended = connection->since;
    connection_go_on(worker, connection);
    return true;
}

static void send_control(struct connection *connection, enum opcode opcode, const char *payload, size_t size) {
    char frame[FRAME_HEADER_MAX + 125];
    size_t whole = frame_write(frame, opcode, payload, size < 125 ? size : 125);

    if (send(connection->fd, frame, whole, MSG_NOSIGNAL) < 0)
        return; /* a dead connection is met where it is read */
}

static void echoed(struct worker *worker, struct connection *connection, const struct frame *frame) {
    const struct plan *plan = worker->plan;
    uint64_t start;

    if (!connection->outstanding) {
        connection_fail(worker, connection, FAILED_PROTOCOL, "a message that nobody asked for");
        return;
    }
    worker->counts->checked++;
    worker->counts->body_octets += frame->size;
    if (!frame->final || frame->size != plan->message_size || memcmp(frame->payload, plan->message, frame->size)) {
        connection_fail(worker, connection, FAILED_BODY, "a message that is not the one sent");
        return;
    }
    start = pop_start(worker, connection);
    if (plan->mode != MODE_SESSIONS) {
        worker_completed(worker, connection, start);
        return;
    }
    connection->intended = start; /* the session goes on from its beginning */
    if (++connection->echoes == plan->messages) {
        connection->state = CLOSING;
        send_control(connection, OP_CLOSE, "\x03\xe8", 2);
    }
}

static void met_close(struct worker *worker, struct connection *connection) {
    if (connection->state != CLOSING) {
        connection_fail(worker, connection, FAILED_RESET, "the server closed a WebSocket");
        return;
    }
    worker->counts->sessions++;
    worker_completed(worker, connection, connection->intended);
    succeed(worker, connection);
}

static void met_frame(struct worker *worker, struct connection *connection, const struct frame *frame) {
    switch (frame->opcode) {
    case OP_TEXT:
    case OP_BINARY:
        echoed(worker, connection, frame);
        return;
    case OP_PING:
        send_control(connection, OP_PONG, frame->payload, frame->size);
        return;
    case OP_CLOSE:
        met_close(worker, connection);
        return;
    case OP_PONG:
        return;
    default:
        connection_fail(worker, connection, FAILED_PROTOCOL, "a frame of an unexpected kind");
    }
}

static bool hold_frame(struct connection *connection, const char *data, size_t size) {
    if (size > connection->held_room) {
        char *grown = realloc(connection->held, size);
        if (!grown)
            return false;
        connection->held = grown;
        connection->held_room = size;
    }
    memmove(connection->held, data, size);
    connection->held_size = size;
    return true;
}

static void read_frames(struct worker *worker, struct connection *connection, const char *data, size_t size) {
    char *joined = NULL;

    if (connection->held_size) {
        joined = malloc(connection->held_size + size);
        memcpy(joined, connection->held, connection->held_size);
        memcpy(joined + connection->held_size, data, size);
        data = joined;
        size += connection->held_size;
        connection->held_size = 0;
    }
    while (size && (connection->state == OPEN || connection->state == CLOSING)) {
        struct frame frame;
        enum frame_result result = frame_read(data, size, &frame);
        if (result == FRAME_BROKEN) {
            connection_fail(worker, connection, FAILED_PROTOCOL, "a malformed frame");
        } else if (result == FRAME_MORE) {
            hold_frame(connection, data, size);
            break;
        } else {
            met_frame(worker, connection, &frame);
            data += frame.whole;
            size -= frame.whole;
        }
    }
    free(joined);
}

static void read_responses(struct worker *worker, struct connection *connection, const char *data, size_t size) {
    while (size && connection->state == OPEN) {
        size_t used = 0;
        if (!connection->outstanding) {
            connection_fail(worker, connection, FAILED_PROTOCOL, "octets that nobody asked for");
            return;
        }
        enum response_result result = response_feed(&connection->response, data, size, &used);
        data += used;
        size -= used;
        if (result == RESPONSE_COMPLETE && !answered(worker, connection))
            return; /* what is left belonged to the connection that is closed now */
        if (result == RESPONSE_BROKEN)
            connection_fail(worker, connection, FAILED_PROTOCOL, connection->response.reason);
    }
}

static void met_end(struct worker *worker, struct connection *connection) {
    if (connection->state == CLOSING || (worker->plan->websocket && connection->state == OPEN)) {
        connection_fail(worker, connection, FAILED_RESET, "a WebSocket ended without a close frame");
        return;
    }
    enum response_result result = response_close(&connection->response);
    if (result == RESPONSE_COMPLETE && connection->outstanding) {
        answered(worker, connection);
    } else if (connection->outstanding || result == RESPONSE_BROKEN || connection->state == SHAKING ||
               worker->plan->mode == MODE_HOLD) {
        connection_fail(worker, connection, FAILED_RESET, "closed while an answer was due");
    } else {
        worker->counts->reconnects++;
        succeed(worker, connection);
    }
}

/* Reads once, at most `most` octets, and acts on them; returns how many there were. */
static size_t read_some(struct worker *worker, struct connection *connection, size_t most) {
    ssize_t got = recv(connection->fd, worker->buffer, most, 0);
    const char *data = worker->buffer;

    if (got < 0 && errno == EAGAIN)
        return 0;
    worker->now = clock_now();
    if (got <= 0) {
        if (got < 0)
            connection_fail(worker, connection, FAILED_RESET, NULL);
        else
            met_end(worker, connection);
        return 0;
    }
    size_t size = (size_t)got;
    worker->counts->read_octets += size;
    if (connection->state == SHAKING && !shaken(worker, connection, &data, &size))
        return (size_t)got;
    if (worker->plan->websocket)
        read_frames(worker, connection, data, size);
    else
        read_responses(worker, connection, data, size);
    connection_go_on(worker, connection);
    return (size_t)got;
}

void connection_read_slowly(struct worker *worker, struct connection *connection, double seconds) {
    if (connection->state != OPEN)
        return;
    connection->credit += worker->plan->read_rate * seconds;
    if (connection->credit >= 1)
        connection->credit -= (double)read_some(worker, connection, (size_t)connection->credit);
    if (connection->credit > worker->plan->read_rate / 10)
        connection->credit = worker->plan->read_rate / 10; /* idle time is not saved up for a burst */
}

static void met_connected(struct worker *worker, struct connection *connection) {
    int error = 0;
    socklen_t size = sizeof error;

    getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    worker->now = clock_now();
    if (error)
        connection_fail(worker, connection, error == EADDRNOTAVAIL ? FAILED_PORTS : FAILED_CONNECT, strerror(error));
    else
        opened(worker, connection);
}

void connection_event(struct worker *worker, struct connection *connection, uint32_t events) {
    if (connection->state == CONNECTING) {
        met_connected(worker, connection);
        return;
    }
    if (events & EPOLLOUT && connection->fd >= 0)
        send_due(worker, connection);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && connection->fd >= 0)
        read_some(worker, connection, BUFFER_SIZE);
}
