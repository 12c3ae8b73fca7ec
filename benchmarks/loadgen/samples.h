/* Latency samples: all of them, or a stratified reservoir of bounded size.
 *
 * The timed interval is cut into equal strata. Each keeps an equal share of the bound, as a uniform random sample of
 * what fell into it (algorithm R with a fixed seed: the same values in the same order leave the same sample). A kept
 * value stands for seen/kept values of its stratum, so that a quiet second weighs no more than it should.
 */
#ifndef LOADGEN_SAMPLES_H
#define LOADGEN_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#define SAMPLE_STRATA 32

struct stratum {
    uint64_t seen;
    uint64_t kept;
};

/* Lies in memory that processes share; `values` follow it. */
struct samples {
    uint64_t capacity; /* how many values there is room for */
    uint64_t bounded;  /* 1: a reservoir; 0: all are kept, in the first stratum */
    uint64_t state;    /* of the random numbers */
    uint64_t lost;     /* values that found no room where all were to be kept */
    struct stratum strata[SAMPLE_STRATA];
    uint64_t values[];
};

/* A value and how many it stands for. */
struct weighted {
    uint64_t value;
    double weight;
};

/* Octets that samples need. `limit` 0 asks for all values, `room` of them at the most. */
size_t samples_size(uint64_t limit, uint64_t room);
void samples_begin(struct samples *samples, uint64_t limit, uint64_t room, uint64_t seed);

/* `place` is where in the timed interval the value belongs, from 0 to 1. */
void samples_add(struct samples *samples, double place, uint64_t value);

uint64_t samples_kept(const struct samples *samples);

/* Copies the kept values to `to`, which has room for samples_kept() of them; returns how many. */
uint64_t samples_take(const struct samples *samples, struct weighted *to);

/* Sorts by value, in place, and returns the sum of the weights. */
double weighted_sort(struct weighted *values, uint64_t count);

/* The smallest value that at least `quantile` of the weight does not exceed; 0 of none. `values` are sorted. */
uint64_t weighted_quantile(const struct weighted *values, uint64_t count, double total, double quantile);

#endif
