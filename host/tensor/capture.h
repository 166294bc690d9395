/* A capture of the CPU's work as a graph (host/capture), for components that it cannot see: their work is refused,
 * or recorded, here. Lua thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Is the CPU's work captured now? */
extern bool ah_cpu_captured;

/* AH_ESTATE "OP: WHAT cannot be captured in a graph; REMEDY" during a capture of the CPU, else 0. OP is the name, or,
 * where it is NULL, the op that runs, if any. */
int ah_capture_refuse(const char *op_name, const char *what, const char *remedy);

/* Work that the host does by itself in the step, between kernels, such as starting a collective: each replay calls
 * `run` in its place. */
struct ah_capture_work {
    int (*run)(void *context, int64_t number);
    void *context;
    int64_t number;
};

/* Around such work, during a capture: record it, and record nothing within it. Otherwise nothing. */
int ah_capture_enter(const struct ah_capture_work *work);
void ah_capture_leave(void);

/* During a capture: the step is about to add to the gradient of a leaf without a slot (`grad`; NULL: it has none), or
 * replaces it. */
struct ah_tensor;
int ah_capture_leaf(struct ah_tensor *leaf, struct ah_tensor *grad, bool replaces);

/* The context is freed: graphs with work for it cannot be replayed from now on. */
void ah_capture_forget(const void *context);

/* The functions of host/capture, set at start-up. */
struct ah_capture_hooks {
    const char *(*op)(void); /* the name of the running op, or NULL */
    int (*enter)(const struct ah_capture_work *work);
    void (*leave)(void);
    int (*leaf)(struct ah_tensor *leaf, struct ah_tensor *grad, bool replaces);
    void (*forget)(const void *context);
};
extern const struct ah_capture_hooks *ah_capture_hooks;
