/* A capture of the CPU's work as a graph (host/capture), for components that it cannot see: work that it would miss is
 * refused, or recorded here. Lua thread only. */
#ifndef AH_TENSOR_CAPTURE_H
#define AH_TENSOR_CAPTURE_H

#include <stdbool.h>

#include "base/status/status.h"

/* Is the CPU's work captured now? */
extern bool ah_cpu_captured;

/* AH_ESTATE "OP: WHAT cannot be captured in a graph; REMEDY" during a capture of the CPU, else 0. OP is the name, or,
 * where it is NULL, the op that runs, if any. */
int ah_capture_refuse(const char *op_name, const char *what, const char *remedy);

/* The name of the running op, or NULL; host/capture sets it. */
extern const char *(*ah_capture_op)(void);

#endif
