/* Compiled where CUDA's toolkit is, never linked: the declarations of host/cuda/driver/api/driver.h, of the
 * driver's calls, types and codes, equal cuda.h's. */
#include <cuda.h>

#include "cuda/driver/api/driver.h"

#define SAME(a, b) _Static_assert(__builtin_types_compatible_p(a, b), "differs from cuda.h: " #a)

/* A macro of cuda.h leads a name to the version of the call that the name means today. */
#define CALL(field, symbol, parameters) SAME(__typeof__(&symbol), __typeof__(((struct ah_cuda_driver *)0)->field));
#include "cuda/driver/api/driver.def"
#undef CALL

/* The definitions of the plugin's own types. */
_Static_assert(sizeof(CUresult) == sizeof(int), "a result is an int");
_Static_assert(sizeof(CUdevice_attribute) == sizeof(int), "an attribute is an int");
_Static_assert(sizeof(CUfunction_attribute) == sizeof(int), "a function's attribute is an int");
_Static_assert(sizeof(CUstreamCaptureMode) == sizeof(int), "a mode is an int");
_Static_assert(sizeof(CUstreamCaptureStatus) == sizeof(int), "a status is an int");
_Static_assert(sizeof(CUuuid) == 16, "an id has 16 bytes");
_Static_assert(sizeof(CUmemLocation) == 8, "a location is two ints");
_Static_assert(sizeof(CUmemAllocationProp) == 32, "properties: two ints, a location, a pointer, 8 bytes of flags");
_Static_assert(offsetof(CUmemAllocationProp, allocFlags) == 24, "their flags are last");
_Static_assert(offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable) == 25, "the second byte of the flags");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "a location and its flags");
SAME(CUmemGenericAllocationHandle, unsigned long long);
SAME(CUdevice, int);
SAME(CUdeviceptr, unsigned long long);
SAME(CUcontext, struct CUctx_st *);
SAME(CUstream, struct CUstream_st *);
SAME(CUevent, struct CUevent_st *);
SAME(CUmodule, struct CUmod_st *);
SAME(CUfunction, struct CUfunc_st *);
SAME(CUgraph, struct CUgraph_st *);
SAME(CUgraphExec, struct CUgraphExec_st *);

#define NAME(name, value) _Static_assert((int)name == (value), #name " has another value in cuda.h");
AH_CUDA_CODES(NAME)
#undef NAME
