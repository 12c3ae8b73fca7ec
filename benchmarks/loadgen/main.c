/* loadgen: drives one server for a while and says in JSON what came of it.
 *
 * Writes one line when the timed interval begins, one when it ends, and one with the result: whoever measures the
 * server reads its counters at the first two. Ends with 0 whatever was counted, 3 if the preflight refused the server,
 * 2 if the command line cannot work.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "options.h"
#include "output.h"
#include "preflight.h"
#include "worker.h"

#define SPARE_FILES 64
#define ROOM (1ull << 25)      /* latencies of one process where all are kept; the memory is taken as it fills */
#define LOOK 20000000          /* nanoseconds between two looks at the live connections */
#define START_UP 50000000ull   /* until all processes are ready */

static void *share(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED) {
        perror("loadgen: no memory");
        exit(1);
    }
    return memory;
}

static void raise_file_limit(const struct plan *plan) {
    struct rlimit limit;
    rlim_t wanted = plan->connections / plan->processes + SPARE_FILES;

    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < wanted) {
        fprintf(stderr, "loadgen: %lu open files are needed for each process, and %lu allowed: use --client-processes\n",
                (unsigned long)wanted, (unsigned long)limit.rlim_max);
        exit(2);
    }
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static struct phases plan_phases(const struct plan *plan) {
    uint64_t ramp = (uint64_t)(plan->ramp * 1e9), warmup = (uint64_t)(plan->warmup * 1e9);
    bool again = warmup && !plan->persistent_warmup;
    struct phases phases = {.begin = clock_now() + START_UP};

    phases.reopen = phases.begin + ramp + warmup;
    phases.timed = phases.reopen + (again ? ramp : 0);
    phases.end = phases.timed + (uint64_t)(plan->duration * 1e9);
    return phases;
}

static int64_t count_live(const struct plan *plan, struct outcome *const *outcomes) {
    int64_t live = 0;

    for (unsigned i = 0; i < plan->processes; i++)
        live += __atomic_load_n(&outcomes[i]->live, __ATOMIC_RELAXED);
    return live;
}

static void sleep_until(uint64_t moment) {
    struct timespec time = {(time_t)(moment / 1000000000), (long)(moment % 1000000000)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        continue;
}

static struct live look_on(const struct plan *plan, const struct phases *phases, struct outcome *const *outcomes) {
    struct live live;

    sleep_until(phases->timed);
    live.begin = live.least = live.most = count_live(plan, outcomes);
    printf("{\"event\": \"timed\", \"live\": %lld}\n", (long long)live.begin);
    fflush(stdout);
    for (uint64_t next = phases->timed + LOOK; next < phases->end - LOOK; next += LOOK) {
        sleep_until(next);
        int64_t now = count_live(plan, outcomes);
        live.least = now < live.least ? now : live.least;
        live.most = now > live.most ? now : live.most;
    }
    live.end = count_live(plan, outcomes);
    sleep_until(phases->end);
    printf("{\"event\": \"ended\", \"live\": %lld}\n", (long long)live.end);
    fflush(stdout);
    return live;
}

static void start_process(const struct plan *plan, const struct phases *phases, unsigned number,
                          struct outcome *outcome, struct samples *samples) {
    pid_t parent = getpid(), child = fork();

    if (child < 0) {
        perror("loadgen: fork");
        exit(1);
    }
    if (child)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    worker_run(plan, phases, number, outcome, samples);
    _exit(0);
}

int main(int argc, char **argv) {
    static struct plan plan;

    options_read(argc, argv, &plan);
    raise_file_limit(&plan);
    if (!preflight(&plan, stdout))
        return 3;
    uint64_t limit = plan.max_samples ? (plan.max_samples + plan.processes - 1) / plan.processes : 0;
    struct outcome **outcomes = calloc(plan.processes, sizeof *outcomes);
    struct samples **samples = calloc(plan.processes, sizeof *samples);
    for (unsigned i = 0; i < plan.processes; i++) {
        outcomes[i] = share(sizeof **outcomes);
        samples[i] = share(samples_size(limit, ROOM));
        samples_begin(samples[i], limit, ROOM, plan.seed + i);
    }
    struct phases phases = plan_phases(&plan);
    for (unsigned i = 0; i < plan.processes; i++)
        start_process(&plan, &phases, i, outcomes[i], samples[i]);
    struct live live = look_on(&plan, &phases, outcomes);
    for (unsigned i = 0; i < plan.processes; i++) {
        int status = 0;
        if (wait(&status) < 0 || status != 0) {
            fprintf(stderr, "loadgen: a process of load failed\n");
            return 1;
        }
    }
    output_result(stdout, &plan, &phases, outcomes, samples, &live);
    return 0;
}
