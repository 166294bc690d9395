/* NVTX: ranges of ops, backward, optimizer steps, collectives and the script's own, for a profiler such as Nsight
 * Systems that is attached to the process (base/trace/trace.h).
 *
 * The library is opened on first use: libnvtx3interop.so.1 (of CUDA 13) or libnvToolsExt.so.1, or the simulated GPU's.
 * Lua thread only. */
#pragma once

#include <stdbool.h>

struct ah_nvtx {
#define CALL(result, field, symbol, parameters) result(*field) parameters;
#include "cuda/vendor/nvtx.def"
#undef CALL
};

/* Report ranges where a profiler is attached, which sets NVTX_INJECTION64_PATH, or $ACCELHOST_NVTX is 1. A missing
 * library is an error only where it was asked for: AH_EINVAL. */
int ah_nvtx_open(void);

/* Report ranges, or not unless ah_nvtx_open has decided for it (tensor/device.h). AH_EINVAL without the library. */
int ah_nvtx_report(bool on);
