/* Compiled where NCCL's header is, never linked: the declarations of host/cuda/nccl/nccl.h equal nccl.h's. */
#include <cuda.h>

#include <nccl.h>

#include "cuda/nccl/nccl.h"

#define SAME(a, b) _Static_assert(__builtin_types_compatible_p(a, b), "differs from nccl.h: " #a)

#define CALL(result, field, symbol, parameters) \
    SAME(__typeof__(&symbol), __typeof__(((struct ah_nccl *)0)->field));
#include "cuda/nccl/nccl.def"
#undef CALL

/* The definitions of the plugin's own types. */
_Static_assert(sizeof(ncclResult_t) == sizeof(int), "a result is an int");
_Static_assert(sizeof(ncclRedOp_t) == sizeof(int), "an operation is an int");
_Static_assert(sizeof(ncclDataType_t) == sizeof(int), "a type is an int");
_Static_assert(sizeof(ncclUniqueId) == 128, "an id has 128 bytes");
struct config {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
};
_Static_assert(sizeof(ncclConfig_t) == sizeof(struct config), "the configuration has another size");
#define FIELD(name) \
    _Static_assert(offsetof(ncclConfig_t, name) == offsetof(struct config, name), #name " has another offset");
FIELD(version) FIELD(blocking) FIELD(maxCTAs) FIELD(netName) FIELD(trafficClass) FIELD(commName) FIELD(CTAPolicy)
FIELD(nvlinkCentricSched)

#define NAME(name, value) _Static_assert((int)name == (value), #name " has another value in nccl.h");
AH_NCCL_CODES(NAME)
#undef NAME
