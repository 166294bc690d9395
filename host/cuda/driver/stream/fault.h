/* Elements that an op must refuse: indices and labels out of range, numbers that are no probabilities. A kernel
 * searches for them; kernels that use them skip the ones out of range.
 *
 * The device is not waited for: a fault is reported when the host next waits for the device anyway, to read a result.
 * $ACCELHOST_CUDA_CHECKS=now reports it at once, in the op that refused, as the CPU does; that is the default of the
 * simulated GPU unless set to `later`, and of every device with CUDA_LAUNCH_BLOCKING=1. */
#pragma once

#include "cuda/driver/api/device.h"
#include "tensor/tensor.h"

/* The valid range and the text of a fault: "embedding: index 7 at position 3 is outside 0..4 (dim 0 of (5, 2))". */
struct ah_cuda_bounds {
    const char *op_name, *what; /* static: "embedding", "index" */
    int64_t low, high;      /* low..high */
    int64_t other;          /* this is right too: an ignored label; else `low` */
    const struct ah_tensor *of; /* its dim `dim` is named, unless it is NULL */
    int dim;
};

/* Check row-major int64 numbers. */
int ah_cuda_expect_within(struct ah_device *device, const struct ah_cuda_bounds *bounds,
                          const struct ah_tensor *numbers);

/* Check that row-major floating numbers are in 0..1. */
int ah_cuda_expect_shares(struct ah_device *device, const char *op_name, const char *what,
                          const struct ah_tensor *numbers);

/* Check that `source` has as many values as the last of these int64 numbers. */
int ah_cuda_expect_enough(struct ah_device *device, const char *op_name, const struct ah_tensor *counts,
                          const struct ah_tensor *source);

/* The same for numbers that are not in 0..high or, with INT64_MAX, finite and 0 or more; `expected` describes the valid
 * ones: "bernoulli: expected probabilities in 0..1, got 2 at position 0". */
int ah_cuda_expect_numbers(struct ah_device *device, const char *op_name, const char *expected, int64_t high,
                           const struct ah_tensor *numbers);

/* AH_EINVAL when a fault was found since the last call. Waits for the device if any check is pending. */
int ah_cuda_raise_fault(struct ah_cuda_device *cuda);

/* A capture begins: its checks are remembered for good. It has ended: has it any checks? A replay of it was queued:
 * treated as if its checks were queued. */
int ah_cuda_faults_capture(struct ah_cuda_device *cuda);
bool ah_cuda_faults_captured(struct ah_cuda_device *cuda);
int ah_cuda_faults_replayed(struct ah_cuda_device *cuda);

void ah_cuda_faults_close(struct ah_cuda_device *cuda);
