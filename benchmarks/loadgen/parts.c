/* The parts of the load generator behind functions that ctypes can call: for their tests. */
#include <stdlib.h>
#include <string.h>

#include "frames.h"
#include "response.h"
#include "samples.h"

struct parts_seen {
    int32_t result; /* enum response_result */
    int32_t status;
    int32_t keep_alive;
    uint64_t length;
    uint64_t used;
    uint8_t digest[SHA256_SIZE];
    char reason[80];
};

/* Feeds one response, `step` octets at a time; `close` says that the peer closes after the last. */
void parts_response(const char *data, size_t size, size_t step, int close, struct parts_seen *seen) {
    static const struct expectation any = {.status = 0, .length = -1};
    struct response response = {0};
    enum response_result result = RESPONSE_MORE;

    memset(seen, 0, sizeof *seen);
    response_begin(&response, &any);
    while (result == RESPONSE_MORE && seen->used < size) {
        size_t used = 0, left = size - (size_t)seen->used;
        /* a copy of its own, so that reading beyond the end is seen by a sanitizer */
        char *piece = malloc(step < left ? step : left);
        memcpy(piece, data + seen->used, step < left ? step : left);
        result = response_feed(&response, piece, step < left ? step : left, &used);
        seen->used += used;
        free(piece);
    }
    if (result == RESPONSE_MORE && close)
        result = response_close(&response);
    seen->result = (int32_t)result;
    seen->status = response.status;
    seen->keep_alive = response.keep_alive;
    seen->length = response.length;
    strncpy(seen->reason, response.reason ? response.reason : "", sizeof seen->reason - 1);
    sha256_end(&response.hash, seen->digest);
    response_free(&response);
}

void *parts_samples(uint64_t limit, uint64_t room, uint64_t seed) {
    struct samples *samples = malloc(samples_size(limit, room));

    samples_begin(samples, limit, room, seed);
    return samples;
}

uint64_t parts_lost(const struct samples *samples) { return samples->lost; }

/* The value at a quantile of what `samples` stand for. */
uint64_t parts_quantile(const struct samples *samples, double quantile) {
    uint64_t count = samples_kept(samples);
    struct weighted *values = malloc((count + 1) * sizeof *values);
    double total = weighted_sort(values, samples_take(samples, values));
    uint64_t value = weighted_quantile(values, count, total, quantile);

    free(values);
    return value;
}

/* Copies the kept values to `to`; returns how many. */
uint64_t parts_values(const struct samples *samples, uint64_t *to) {
    uint64_t count = samples_kept(samples);
    struct weighted *values = malloc((count + 1) * sizeof *values);

    samples_take(samples, values);
    for (uint64_t i = 0; i < count; i++)
        to[i] = values[i].value;
    free(values);
    return count;
}

/* Size of the whole frame at the beginning, 0 if it has not come whole, -1 if it is broken. */
int64_t parts_frame(const char *data, size_t size, uint64_t *opcode, uint64_t *payload) {
    struct frame frame = {0};
    enum frame_result result = frame_read(data, size, &frame);

    *opcode = frame.opcode;
    *payload = frame.size;
    return result == FRAME_WHOLE ? (int64_t)frame.whole : result == FRAME_MORE ? 0 : -1;
}

void parts_free(void *memory) { free(memory); }
