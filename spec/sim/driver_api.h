/* The driver API that the simulator exports: the calls of host/cuda/driver/api/driver.def, as functions. */
#pragma once

#include "cuda/driver/api/driver.h"

#define SIM_API extern "C" __attribute__((visibility("default")))

#define CALL(field, symbol, parameters) SIM_API CUresult symbol parameters;
#include "cuda/driver/api/driver.def"
#undef CALL
