/* The CPU's optimizer kernels: one parallel region however many segments there are. */
#ifndef AH_CPU_OPTIM_H
#define AH_CPU_OPTIM_H

#include "optim/kernels.h"

extern const struct ah_optim_kernels ah_cpu_optim;

#endif
