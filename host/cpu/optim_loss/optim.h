/* The CPU's optimizer kernels: one parallel region however many segments there are. */
#pragma once

#include "optim/kernels.h"

extern const struct ah_optim_kernels ah_cpu_optim;
