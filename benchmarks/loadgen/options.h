/* The command line, and the plan that it makes. */
#ifndef LOADGEN_OPTIONS_H
#define LOADGEN_OPTIONS_H

#include "plan.h"

/* Fills `plan`. Ends the process with status 2 and a message if the command line cannot work. */
void options_read(int argc, char **argv, struct plan *plan);

#endif
