/* NCCL, as one struct of function pointers (nccl.def), with the types and codes it needs.
 *
 * As with driver.h nothing of NVIDIA's is included, and where nccl.h was included before, its own declarations serve.
 * The library is opened on first use (library.h): libnccl.so.2, or the simulated GPU's. */
#pragma once

#include <limits.h>

#include "cuda/driver/api/driver.h"

/* NAME(name, value) */
#define AH_NCCL_CODES(NAME)         \
    NAME(ncclSuccess, 0)            \
    NAME(ncclUnhandledCudaError, 1) \
    NAME(ncclSystemError, 2)        \
    NAME(ncclInternalError, 3)      \
    NAME(ncclInvalidArgument, 4)    \
    NAME(ncclInvalidUsage, 5)       \
    NAME(ncclRemoteError, 6)        \
    NAME(ncclInProgress, 7)         \
    NAME(ncclSum, 0)                \
    NAME(ncclProd, 1)               \
    NAME(ncclMax, 2)                \
    NAME(ncclMin, 3)                \
    NAME(ncclAvg, 4)                \
    NAME(ncclInt8, 0)               \
    NAME(ncclUint8, 1)              \
    NAME(ncclInt32, 2)              \
    NAME(ncclUint32, 3)             \
    NAME(ncclInt64, 4)              \
    NAME(ncclUint64, 5)             \
    NAME(ncclFloat16, 6)            \
    NAME(ncclFloat32, 7)            \
    NAME(ncclFloat64, 8)            \
    NAME(ncclBfloat16, 9)

#ifndef NCCL_UNIQUE_ID_BYTES /* of nccl.h */
typedef int ncclResult_t;
typedef int ncclRedOp_t;
typedef int ncclDataType_t;
typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
/* As of 2.28: `size` is the size of the struct, by version. Fields begin as AH_NCCL_CONFIG has them. */
typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} ncclConfig_t;

enum {
#define NAME(name, value) name = value,
    AH_NCCL_CODES(NAME)
#undef NAME
};
#endif

#define AH_NCCL_CONFIG                                                                                             \
    {                                                                                                              \
        sizeof(ncclConfig_t), 0xcafebeef, 22809, INT_MIN, INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN, INT_MIN, NULL, \
            INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN                                                   \
    }

struct ah_nccl {
#define CALL(result, field, symbol, parameters) result(*field) parameters;
#include "cuda/nccl/nccl.def"
#undef CALL
};

/* Open NCCL, once; later calls return the first result. AH_EINVAL names the missing part in one line. Any thread. */
int ah_nccl_open(const struct ah_nccl **out);
