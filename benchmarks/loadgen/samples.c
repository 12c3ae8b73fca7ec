#include "samples.h"

#include <stdlib.h>
#include <string.h>

size_t samples_size(uint64_t limit, uint64_t room) {
    return sizeof(struct samples) + (limit ? limit : room) * sizeof(uint64_t);
}

void samples_begin(struct samples *samples, uint64_t limit, uint64_t room, uint64_t seed) {
    memset(samples, 0, sizeof *samples);
    samples->bounded = limit != 0;
    samples->capacity = limit ? limit : room;
    samples->state = seed * 0x9e3779b97f4a7c15 + 0x2545f4914f6cdd1d;
}

/* xorshift64*: 0 <= result < bound */
static uint64_t random_below(struct samples *samples, uint64_t bound) {
    uint64_t x = samples->state;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    samples->state = x;
    return (uint64_t)(((unsigned __int128)(x * 0x2545f4914f6cdd1d) * bound) >> 64);
}

/* The first slot of a stratum; that of the one past the last is the capacity. */
static uint64_t first_slot(const struct samples *samples, unsigned stratum) {
    return samples->capacity * stratum / SAMPLE_STRATA;
}

static unsigned stratum_at(double place) {
    if (place <= 0)
        return 0;
    unsigned stratum = (unsigned)(place * SAMPLE_STRATA);
    return stratum < SAMPLE_STRATA ? stratum : SAMPLE_STRATA - 1;
}

void samples_add(struct samples *samples, double place, uint64_t value) {
    unsigned number = samples->bounded ? stratum_at(place) : 0;
    struct stratum *stratum = &samples->strata[number];
    uint64_t first = samples->bounded ? first_slot(samples, number) : 0;
    uint64_t room = (samples->bounded ? first_slot(samples, number + 1) : samples->capacity) - first;

    stratum->seen++;
    if (stratum->kept < room) {
        samples->values[first + stratum->kept++] = value;
    } else if (samples->bounded) {
        uint64_t slot = random_below(samples, stratum->seen);
        if (slot < room)
            samples->values[first + slot] = value;
    } else {
        samples->lost++;
    }
}

uint64_t samples_kept(const struct samples *samples) {
    uint64_t kept = 0;

    for (unsigned i = 0; i < SAMPLE_STRATA; i++)
        kept += samples->strata[i].kept;
    return kept;
}

uint64_t samples_take(const struct samples *samples, struct weighted *to) {
    uint64_t taken = 0;

    for (unsigned number = 0; number < SAMPLE_STRATA; number++) {
        const struct stratum *stratum = &samples->strata[number];
        const uint64_t *from = samples->values + (samples->bounded ? first_slot(samples, number) : 0);
        for (uint64_t i = 0; i < stratum->kept; i++)
            to[taken++] = (struct weighted){from[i], (double)stratum->seen / (double)stratum->kept};
    }
    return taken;
}

static int by_value(const void *left, const void *right) {
    uint64_t a = ((const struct weighted *)left)->value, b = ((const struct weighted *)right)->value;

    return (a > b) - (a < b);
}

double weighted_sort(struct weighted *values, uint64_t count) {
    double total = 0;

    if (count)
        qsort(values, count, sizeof *values, by_value);
    for (uint64_t i = 0; i < count; i++)
        total += values[i].weight;
    return total;
}

uint64_t weighted_quantile(const struct weighted *values, uint64_t count, double total, double quantile) {
    double wanted = quantile * total * (1 - 1e-12), sum = 0;

    for (uint64_t i = 0; i < count; i++) {
        sum += values[i].weight;
        if (sum >= wanted)
            return values[i].value;
    }
    return count ? values[count - 1].value : 0;
}
