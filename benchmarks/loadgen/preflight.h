/* One exchange, checked exactly, before anything is timed. */
#ifndef LOADGEN_PREFLIGHT_H
#define LOADGEN_PREFLIGHT_H

#include <stdbool.h>
#include <stdio.h>

#include "plan.h"

/* True if the answer is as expected; else writes what came to `out`, as one line of JSON. */
bool preflight(const struct plan *plan, FILE *out);

#endif
