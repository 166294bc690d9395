/* Compiled where CUDA's toolkit is, never linked: the declarations of host/cuda/vendor/nvtx.h equal nvtx3's. */
#include <stddef.h>

#include <nvtx3/nvToolsExt.h>

#include "cuda/vendor/nvtx.h"

#define SAME(a, b) _Static_assert(__builtin_types_compatible_p(a, b), "differs from nvtx3/nvToolsExt.h: " #a)

#define CALL(result, field, symbol, parameters) SAME(__typeof__(&symbol), __typeof__(((struct ah_nvtx *)0)->field));
#include "cuda/vendor/nvtx.def"
#undef CALL
