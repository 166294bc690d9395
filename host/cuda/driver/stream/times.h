/* Times of the work on the compute stream: an event before and one after each kernel, product, convolution and copy,
 * summed by op and name. Off until started; then a launch costs two events more. Launches that a graph captures are not
 * timed one by one, since an event in a graph has no time: a replay is one entry. Lua thread only. */
#ifndef AH_CUDA_TIMES_H
#define AH_CUDA_TIMES_H

#include "cuda/driver/api/device.h"

/* A launch that is being timed; `pair` is -1 where none is. */
struct ah_cuda_span {
    int pair;
};

/* Record the event before a launch of `kernel` for `op`; both texts must outlive the device. */
struct ah_cuda_span ah_cuda_span_begin(struct ah_cuda_device *cuda, const char *op, const char *kernel);
/* Record the event after it. `bytes` moved and `operations` done at least, 0 where they are not known. */
void ah_cuda_span_end(struct ah_cuda_device *cuda, struct ah_cuda_span span, double bytes, double operations);

/* Start where $ACCELHOST_CUDA_TIMES is 1: the process prints the table at its end. */
int ah_cuda_times_open(struct ah_cuda_device *cuda);
/* Free events and sums. */
void ah_cuda_times_close(struct ah_cuda_times *times);

extern const struct ah_time_functions ah_cuda_time_functions;

#endif
