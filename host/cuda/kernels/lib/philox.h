/* A kernel's position in the stream of a device's generator, as an argument of the kernel: by value or, in a step that
 * is being captured, through an address that each replay writes again (cuda/driver/stream/philox.h).
 * kernels/lib/philox.cuh reads it. */
#pragma once

#include <stdint.h>

struct ah_philox_place {
    uint64_t seed, offset;
    uint64_t through; /* 0, or the address of a struct ah_philox_state, instead of the seed and before the offset */
};

/* The generator's state at the begin of a replayed step, in device memory. */
struct ah_philox_state {
    uint64_t seed, offset;
};

struct ah_philox_write_args {
    uint64_t to; /* of a struct ah_philox_state */
    struct ah_philox_state state;
};
