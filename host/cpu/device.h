/* The CPU as a device: OpenMP kernels, OpenBLAS, oneDNN. A kernel for op `name` is `int ah_cpu_name(struct ah_call *)`
 * in one of the family files here; prototypes come from the op table. */
#ifndef AH_CPU_DEVICE_H
#define AH_CPU_DEVICE_H

#include "tensor/device.h"

/* Put the CPU's kernels into ah_devices; once, at start-up. */
void ah_cpu_open(void);

#endif
