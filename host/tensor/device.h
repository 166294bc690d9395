/* What a device offers to the ops: a column of kernels. The CPU fills its column at start-up; the CUDA plugin fills
 * its own when it is opened. */
#ifndef AH_TENSOR_DEVICE_H
#define AH_TENSOR_DEVICE_H

#include "tensor/tensor.h"

struct ah_call;

/* Computes call->out from call->arg; shapes and dtypes have been checked and outputs allocated by the op. */
typedef int (*ah_kernel)(struct ah_call *call);

struct ah_device {
    const char *name;           /* "cpu" */
    const ah_kernel *kernels;   /* indexed by enum ah_opid; NULL entry: not on this device */
};

/* The devices that are open, by enum ah_device_id; NULL when absent. */
extern const struct ah_device *ah_devices[AH_DEVICE_COUNT];

#endif
