/* Times of the work on the compute stream: an event before and one after each kernel, product, convolution and copy,
 * summed by op and name. Off until started; then a launch costs two events more. Launches that a graph captures are not
 * timed one by one, since an event in a graph has no time: a replay is one entry. Lua thread only. */
#pragma once

#include "base/numeric/dtype.h"
#include "cuda/driver/api/device.h"

/* The units that do a launch's operations. */
enum ah_cuda_rate {
    AH_RATE_UNKNOWN,
    AH_RATE_HALF, /* fp16 and bf16 by tensor cores, added up in float32 */
    AH_RATE_TF32, /* float32 rounded to 10 bits, by tensor cores */
    AH_RATE_F32,
    AH_RATE_F64, /* by tensor cores where there are such */
    AH_RATES
};

/* The units of products of a dtype by NVIDIA's libraries; `tf32`: float32 may be rounded. */
static inline enum ah_cuda_rate ah_cuda_rate_of(enum ah_dtype dtype, bool tf32)
{
    return dtype == AH_F64 ? AH_RATE_F64
           : dtype == AH_F32 ? (tf32 ? AH_RATE_TF32 : AH_RATE_F32)
           : ah_dtype_is_float(dtype) ? AH_RATE_HALF : AH_RATE_UNKNOWN;
}

/* The bytes that a launch moves and the operations that it does at least; 0 where they are not known. */
struct ah_cuda_work {
    double bytes, operations;
    enum ah_cuda_rate rate; /* of the operations */
};

/* A launch that is being timed; `pair` is -1 where none is. */
struct ah_cuda_span {
    int pair;
};

/* Record the event before a launch of `kernel` for `op`; both texts must outlive the device. */
struct ah_cuda_span ah_cuda_span_begin(struct ah_cuda_device *cuda, const char *op, const char *kernel);
/* Record the event after it. */
void ah_cuda_span_end(struct ah_cuda_device *cuda, struct ah_cuda_span span, struct ah_cuda_work work);

/* Start where $ACCELHOST_CUDA_TIMES is 1: the process prints the table at its end. */
int ah_cuda_times_open(struct ah_cuda_device *cuda);
/* Free events and sums. */
void ah_cuda_times_close(struct ah_cuda_times *times);

extern const struct ah_time_functions ah_cuda_time_functions;
