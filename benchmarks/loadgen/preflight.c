#define _GNU_SOURCE
#include "preflight.h"

#include <errno.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "frames.h"
#include "output.h"

#define SHOWN 600 /* octets of the answer that a refusal shows */

/* The answer as far as it came, for whoever reads the refusal. */
struct seen {
    char text[SHOWN];
    size_t size;
};

static void remember(struct seen *seen, const char *data, size_t size) {
    size_t room = SHOWN - seen->size, take = size < room ? size : room;

    memcpy(seen->text + seen->size, data, take);
    seen->size += take;
}

static int connect_plainly(const struct plan *plan) {
    struct timeval limit = {(time_t)plan->timeout, (suseconds_t)(plan->timeout * 1e6) % 1000000};
    int fd = socket(plan->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, (const struct sockaddr *)&plan->address, plan->address_size) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Reads one response; NULL, or what was wrong with it. `rest` are octets that came after it. */
static const char *read_response(int fd, struct response *response, struct seen *seen, char *rest, size_t *rest_size) {
    static char data[65536];
    enum response_result result = RESPONSE_MORE;

    *rest_size = 0;
    while (result == RESPONSE_MORE) {
        size_t used = 0;
        ssize_t got = recv(fd, data, sizeof data, 0);
        if (got < 0)
            return errno == EAGAIN ? "no whole answer in time" : strerror(errno);
        remember(seen, data, (size_t)got);
        result = got ? response_feed(response, data, (size_t)got, &used) : response_close(response);
        if (!got && result == RESPONSE_MORE)
            return "the server closed without an answer";
        *rest_size = (size_t)got - used;
        if (*rest_size > 4096)
            return "octets that nobody asked for";
        memcpy(rest, data + used, *rest_size);
    }
    return result == RESPONSE_BROKEN ? response->reason : response_fault(response);
}

static const char *echo_once(const struct plan *plan, int fd, char *data, size_t size, size_t room) {
    static char message[1 << 16];
    struct frame frame;
    enum frame_result result;

    if (plan->message_size + FRAME_HEADER_MAX > sizeof message)
        return "the message is too long";
    if (!send_all(fd, message, frame_write(message, OP_TEXT, plan->message, plan->message_size)))
        return strerror(errno);
    while ((result = frame_read(data, size, &frame)) == FRAME_MORE) {
        ssize_t got = recv(fd, data + size, room - size, 0);
        if (got <= 0)
            return "no echo";
        size += (size_t)got;
    }
    if (result == FRAME_BROKEN || frame.size != plan->message_size ||
        memcmp(frame.payload, plan->message, frame.size) != 0)
        return "another message than the one sent";
    return NULL;
}

static const char *check(const struct plan *plan, int fd, struct response *response, struct seen *seen) {
    static char rest[1 << 17];
    size_t rest_size;

    if (!send_all(fd, plan->request, plan->request_size))
        return strerror(errno);
    const char *fault = read_response(fd, response, seen, rest, &rest_size);
    if (fault)
        return fault;
    if (plan->mode == MODE_ECHO || plan->mode == MODE_SESSIONS)
        return echo_once(plan, fd, rest, rest_size, sizeof rest);
    return rest_size ? "octets that nobody asked for" : NULL;
}

bool preflight(const struct plan *plan, FILE *out) {
    struct response response = {0};
    struct seen seen = {.size = 0};
    int fd = connect_plainly(plan);
    const char *fault = fd < 0 ? "no connection" : NULL;

    response_begin(&response, &plan->expected);
    if (!fault)
        fault = check(plan, fd, &response, &seen);
    if (fault) {
        fprintf(out, "{\"event\": \"refused\", \"fault\": ");
        output_text(out, fault, strlen(fault));
        fprintf(out, ", \"status\": %d, \"length\": %llu, \"answer\": ", response.status,
                (unsigned long long)response.length);
        output_text(out, seen.text, seen.size);
        fprintf(out, "}\n");
        fflush(out);
    }
    if (fd >= 0)
        close(fd);
    response_free(&response);
    return !fault;
}
