/* Arguments of the optimizers' kernels. Elements are processed in chunks that never cross the border of a part; chunk c
 * belongs to the last part whose `first` is not above c. */
#pragma once

#include "optim/scalars.h"

enum { AH_OPTIM_THREADS = 256, AH_OPTIM_CHUNK = 4096, AH_OPTIM_PARTS = 64, AH_OPTIM_RUNS = 160 };

enum { AH_STEP_DECAY = 1, AH_STEP_DECOUPLED = 2, AH_STEP_NESTEROV = 4, AH_STEP_FIRST = 8, AH_STEP_NEAR_OLD = 16,
       AH_STEP_RECTIFIED = 32 };

/* A run of parameters. */
struct ah_step_part {
    uint64_t param, grad, state[AH_OPTIM_STATES]; /* 0: none */
    int64_t n;
};

/* Those with the same scalars. */
struct ah_step_parts {
    struct ah_step_part part[AH_OPTIM_PARTS];
    uint32_t first[AH_OPTIM_PARTS], wide[AH_OPTIM_PARTS]; /* wide: all addresses are multiples of 16 */
    uint32_t count, chunks, kind;
};

#define FIELD(name) float name;
struct ah_step_scalars_f32 {
    AH_OPTIM_SCALARS_OF(FIELD)
};
#undef FIELD
#define FIELD(name) double name;
struct ah_step_scalars_f64 {
    AH_OPTIM_SCALARS_OF(FIELD)
};
#undef FIELD

/* The numbers that change from step to step: here, or at an address in a step that is captured
 * (cuda/driver/stream/graph.h). */
struct ah_step_numbers_f32 {
    struct ah_step_scalars_f32 scalars;
    uint32_t flags;
};
struct ah_step_numbers_f64 {
    struct ah_step_scalars_f64 scalars;
    uint32_t flags;
};

struct ah_step_args_f32 {
    struct ah_step_parts parts;
    struct ah_step_numbers_f32 numbers;
    uint64_t numbers_at, unless;
};
struct ah_step_args_f64 {
    struct ah_step_parts parts;
    struct ah_step_numbers_f64 numbers;
    uint64_t numbers_at, unless; /* unless: 0, or an int, and nothing is done where it is not 0 */
};

struct ah_runs {
    uint64_t x[AH_OPTIM_RUNS];
    int64_t n[AH_OPTIM_RUNS];
    uint32_t first[AH_OPTIM_RUNS];
    uint32_t count, chunks;
};

/* One number a chunk goes to `partial`, which are double. */
struct ah_norm_args {
    struct ah_runs runs;
    uint64_t partial;
    double p;
};

/* Their sum to `total`, double. For clipping also the norm to `norm`, and the factor that clips to `total` + 8. */
struct ah_norm_total_args {
    uint64_t partial, total, norm; /* norm: float, or double where the gradients are; 0: no clipping */
    int64_t count;
    double p, max_norm;
    int32_t wide; /* the gradients are double */
};

struct ah_scale_args {
    struct ah_runs runs;
    uint64_t overflow; /* an int that becomes 1, or 0 */
    uint64_t number_at; /* 0, or the address of a double that replaces `number` */
    double number;
    int32_t clamp, shrinks; /* shrinks: nothing is done where the number is at least 1 */
};
