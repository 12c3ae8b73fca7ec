/* The loop of one process: phases, ramp, open-loop schedule, time-outs. */
#define _GNU_SOURCE
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "frames.h"

#define SECOND 1000000000ull
#define TICK (SECOND / 100)  /* ramp, back-off, slow readers */
#define SCAN (SECOND / 10)   /* time-outs */
#define EVENTS 256

uint64_t clock_now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t moment) {
    struct timespec time = {(time_t)(moment / SECOND), (long)(moment % SECOND)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        continue;
}

static double cpu_seconds(void) {
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Seconds for which this process could have run and did not: the second figure of /proc/self/schedstat. */
static double delay_seconds(void) {
    unsigned long long ran = 0, waited = 0;
    FILE *file = fopen("/proc/self/schedstat", "r");

    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &ran, &waited) != 2)
        waited = 0;
    fclose(file);
    return (double)waited / 1e9;
}

void worker_completed(struct worker *worker, struct connection *connection, uint64_t start) {
    const struct phases *phases = &worker->phases;

    worker->counts->completed++;
    if (!worker->is_timed)
        return;
    if (!connection->was_served) {
        connection->was_served = true;
        worker->outcome->served++;
    }
    if (start >= phases->timed) {
        double place = (double)(worker->now - phases->timed) / (double)(phases->end - phases->timed);
        samples_add(worker->samples, place, worker->now - start);
    }
}

/* The exchange that the open loop wants next is due at this moment. */
static uint64_t next_due(const struct worker *worker) {
    return worker->schedule_begin + (uint64_t)((double)worker->scheduled * (double)SECOND / worker->rate);
}

void worker_idle(struct worker *worker, struct connection *connection) {
    uint64_t due = next_due(worker);

    if (due <= worker->now) {
        worker->scheduled++;
        connection_begin(worker, connection, due);
        return;
    }
    if (connection->idle_at < 0) {
        connection->idle_at = (int)worker->idle_count;
        worker->idle[worker->idle_count++] = connection;
    }
}

void worker_not_idle(struct worker *worker, struct connection *connection) {
    if (connection->idle_at < 0)
        return;
    struct connection *last = worker->idle[--worker->idle_count];
    worker->idle[connection->idle_at] = last;
    last->idle_at = connection->idle_at;
    connection->idle_at = -1;
}

static void dispatch(struct worker *worker) {
    while (worker->idle_count && next_due(worker) <= worker->now) {
        struct connection *connection = worker->idle[worker->idle_count - 1];
        uint64_t due = next_due(worker);
        worker_not_idle(worker, connection);
        worker->scheduled++;
        connection_begin(worker, connection, due);
    }
}

static void begin_schedule(struct worker *worker, uint64_t begin) {
    worker->schedule_begin = begin;
    worker->scheduled = 0;
}

static void ramp_up(struct worker *worker) {
    const struct plan *plan = worker->plan;
    double part = plan->ramp > 0 ? (double)(worker->now - worker->ramp_begin) / (plan->ramp * 1e9) : 1;
    unsigned wanted = part >= 1 ? worker->count : (unsigned)(part * worker->count);

    while (worker->opened < wanted) {
        struct connection *connection = &worker->connections[worker->opened++];
        connection->intended = 0;
        if (plan->churn && worker->rate > 0) {
            worker_idle(worker, connection);
            continue;
        }
        if (plan->churn || plan->mode == MODE_SESSIONS)
            connection->intended = worker->now;
        connection_open(worker, connection);
    }
}

static void close_all(struct worker *worker) {
    for (unsigned i = 0; i < worker->count; i++)
        connection_close(worker, &worker->connections[i]);
}

static void tick(struct worker *worker) {
    double seconds = (double)(worker->now - worker->last_tick) / 1e9;

    worker->last_tick = worker->now;
    if (worker->opened < worker->count)
        ramp_up(worker);
    for (unsigned i = 0; worker->waiting && i < worker->count; i++) {
        struct connection *connection = &worker->connections[i];
        if (connection->state != WAITING || connection->wake > worker->now)
            continue;
        worker->waiting--;
        connection->state = CLOSED;
        if (worker->plan->churn && worker->rate > 0 && !connection->intended) {
            worker_idle(worker, connection);
        } else {
            if (!connection->intended && (worker->plan->churn || worker->plan->mode == MODE_SESSIONS))
                connection->intended = worker->now;
            connection_open(worker, connection);
        }
    }
    for (unsigned i = 0; worker->plan->read_rate > 0 && i < worker->count; i++)
        connection_read_slowly(worker, &worker->connections[i], seconds);
}

static void scan(struct worker *worker) {
    uint64_t timeout = (uint64_t)(worker->plan->timeout * 1e9);

    worker->last_scan = worker->now;
    for (unsigned i = 0; i < worker->count; i++) {
        struct connection *connection = &worker->connections[i];
        bool waits = connection->outstanding || connection->state == CONNECTING || connection->state == SHAKING ||
                     connection->state == CLOSING;
        if (waits && worker->now > connection->since + timeout)
            connection_fail(worker, connection, FAILED_TIMEOUT, NULL);
    }
}

/* The next moment at which something has to be done without an event. */
static void arm(struct worker *worker, uint64_t next_phase) {
    bool busy = worker->opened < worker->count || worker->waiting || worker->plan->read_rate > 0;
    uint64_t when = worker->last_scan + SCAN;
    uint64_t tick_due = worker->last_tick + TICK;

    if (busy && tick_due < when)
        when = tick_due;
    if (next_phase < when)
        when = next_phase;
    if (worker->rate > 0 && worker->idle_count && next_due(worker) < when)
        when = next_due(worker);
    if (when == worker->armed)
        return;
    worker->armed = when;
    struct itimerspec time = {.it_value = {(time_t)(when / SECOND), (long)(when % SECOND)}};
    timerfd_settime(worker->timer, TFD_TIMER_ABSTIME, &time, NULL);
}

/* Waits for events until `until`, and acts on them. */
static void run_until(struct worker *worker, uint64_t until) {
    struct epoll_event events[EVENTS];

    while ((worker->now = clock_now()) < until) {
        if (worker->now >= worker->last_tick + TICK)
            tick(worker);
        if (worker->now >= worker->last_scan + SCAN)
            scan(worker);
        if (worker->rate > 0)
            dispatch(worker);
        arm(worker, until);
        int count = epoll_wait(worker->epoll, events, EVENTS, -1);
        worker->now = clock_now();
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection)
                connection_event(worker, connection, events[i].events);
            else
                worker->armed = 0;
        }
        if (!worker->armed) {
            uint64_t expirations;
            if (read(worker->timer, &expirations, sizeof expirations) < 0)
                continue;
        }
    }
}

/* Opens the connections, and begins to load them when the ramp is over: a server that answers requests meanwhile would
 * be too busy to accept the last thousands. */
static void open_all(struct worker *worker, uint64_t begin) {
    uint64_t end = begin + (uint64_t)(worker->plan->ramp * 1e9);

    worker->is_loading = false;
    worker->opened = 0;
    worker->ramp_begin = begin;
    run_until(worker, end);
    worker->is_loading = true;
    begin_schedule(worker, end);
    for (unsigned i = 0; i < worker->count; i++)
        if (!worker->connections[i].outstanding)
            connection_go_on(worker, &worker->connections[i]);
}

static void make_batch(struct worker *worker) {
    const struct plan *plan = worker->plan;
    bool frames = plan->websocket;
    size_t room = frames ? plan->message_size + FRAME_HEADER_MAX : plan->request_size;

    worker->batch = malloc(room * plan->pipeline);
    worker->unit = frames ? frame_write(worker->batch, OP_TEXT, plan->message, plan->message_size) : plan->request_size;
    worker->batch_size = worker->unit * plan->pipeline;
    for (unsigned i = 0; !frames && i < plan->pipeline; i++)
        memcpy(worker->batch + i * worker->unit, plan->request, worker->unit);
}

static void make_connections(struct worker *worker) {
    unsigned depth = worker->plan->pipeline;
    uint64_t *starts = calloc((size_t)worker->count * depth, sizeof *starts);

    worker->connections = calloc(worker->count, sizeof *worker->connections);
    worker->idle = calloc(worker->count, sizeof *worker->idle);
    worker->buffer = malloc(BUFFER_SIZE);
    if (!starts || !worker->connections || !worker->idle || !worker->buffer) {
        fprintf(stderr, "loadgen: out of memory\n");
        exit(1);
    }
    for (unsigned i = 0; i < worker->count; i++) {
        worker->connections[i].fd = worker->connections[i].idle_at = -1;
        worker->connections[i].number = i;
        worker->connections[i].starts = starts + (size_t)i * depth;
    }
}

static void make_epoll(struct worker *worker) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

    worker->epoll = epoll_create1(EPOLL_CLOEXEC);
    worker->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->timer, &event);
}

/* What the end cut off. In the open loop its age so far is a lower bound of its latency, and is kept as that: leaving
 * it out would hide the very requests that waited longest. */
static void cut_off(struct worker *worker) {
    uint64_t end = worker->phases.end;

    for (unsigned i = 0; i < worker->count; i++) {
        struct connection *connection = &worker->connections[i];
        worker->outcome->unfinished += connection->outstanding + (connection->intended != 0 && !connection->outstanding);
        for (unsigned j = 0; worker->rate > 0 && j < connection->outstanding; j++)
            samples_add(worker->samples, 1, end - connection->starts[connection->first]);
        if (worker->rate > 0 && connection->intended && !connection->outstanding)
            samples_add(worker->samples, 1, end - connection->intended);
    }
    for (; worker->rate > 0 && next_due(worker) < end; worker->scheduled++) {
        worker->outcome->unfinished++;
        samples_add(worker->samples, 1, end - next_due(worker));
    }
}

void worker_run(const struct plan *plan, const struct phases *phases, unsigned share, struct outcome *outcome,
                struct samples *samples) {
    unsigned each = plan->connections / plan->processes, over = plan->connections % plan->processes;
    struct worker worker = {
        .plan = plan, .phases = *phases, .outcome = outcome, .samples = samples, .counts = &outcome->warm,
        .count = each + (share < over), .first_number = share * each, .rate = plan->rate / plan->processes,
    };

    make_batch(&worker);
    make_connections(&worker);
    make_epoll(&worker);
    sleep_until(phases->begin);
    worker.last_tick = worker.last_scan = phases->begin;
    open_all(&worker, phases->begin);
    if (plan->warmup > 0 && !plan->persistent_warmup) {
        run_until(&worker, phases->reopen);
        close_all(&worker);
        open_all(&worker, phases->reopen);
    }
    run_until(&worker, phases->timed);
    worker.now = phases->timed;
    double before = cpu_seconds(), delay_before = delay_seconds();
    worker.counts = &outcome->timed;
    worker.is_timed = true;
    begin_schedule(&worker, phases->timed);
    run_until(&worker, phases->end);
    outcome->cpu = cpu_seconds() - before;
    outcome->delay = delay_seconds() - delay_before;
    cut_off(&worker);
    close_all(&worker);
}
