/* JSON of the outcome. */
#ifndef LOADGEN_OUTPUT_H
#define LOADGEN_OUTPUT_H

#include <stdio.h>

#include "plan.h"

/* The live connections as the parent saw them. */
struct live {
    int64_t begin, end, least, most;
};

/* A JSON string; octets that are no ASCII are escaped as if they were Latin-1. */
void output_text(FILE *out, const char *text, size_t size);

void output_result(FILE *out, const struct plan *plan, const struct phases *phases, struct outcome *const *outcomes,
                   struct samples *const *samples, const struct live *live);

#endif
