/* The CPU's kernels: own loops, OpenBLAS, oneDNN. A kernel for op `name` is `int ah_cpu_NAME(struct ah_call *)` in
 * one of the family files here; prototypes are generated from the op table. */
#pragma once

#include "tensor/device.h"

/* Register the kernels of ah_cpu; once, at start-up. */
void ah_cpu_open(void);
