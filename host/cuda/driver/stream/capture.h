/* Checks and records of the plugin's files while a step is captured as a graph (graph.h).
 *
 * Work that cannot be captured is refused; addresses are recorded, so that a replay is refused when memory at them was
 * freed; and numbers that change from replay to replay are in device memory. Before each replay those are written again
 * by a kernel that has them among its arguments, in the order of the compute stream, so that no pending replay sees
 * them. Lua thread only. */
#pragma once

#include "cuda/driver/api/device.h"

enum { AH_CAPTURE_NUMBERS = 1 << 16 };

/* Numbers of one kernel. */
struct ah_cuda_place {
    size_t offset, bytes;
    uint64_t same; /* of the rest of its arguments */
};

struct ah_cuda_capture {
    void *block;    /* AH_CAPTURE_NUMBERS bytes of the device's */
    uint8_t *value; /* its contents */
    size_t value_bytes;
    struct ah_cuda_place *place;
    size_t count, room, next; /* `next` to be revised */
};

/* AH_ESTATE "OP: WHAT cannot be captured in a graph; REMEDY" within a capture. */
int ah_cuda_capture_refuse(const struct ah_cuda_device *cuda, const char *what, const char *remedy);

/* Within a capture: search these words for addresses that the device will read or write. */
int ah_cuda_capture_see(struct ah_cuda_device *cuda, const void *words, size_t bytes);

/* Numbers that change from replay to replay: within a capture, where a kernel finds them. While a graph is revised:
 * replace the next of its numbers by these; the caller leaves the kernel out (cuda->revised); AH_ESTATE when `same`,
 * the rest of the kernel's arguments, are not those of the capture. *at is 0 outside of both. */
int ah_cuda_capture_numbers(struct ah_cuda_device *cuda, const void *same, size_t same_bytes, const void *numbers,
                            size_t bytes, uint64_t *at);
