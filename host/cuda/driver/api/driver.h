/* CUDA's driver, as one struct of function pointers (driver.def).
 *
 * Types, codes and calls are declared here and nothing of the toolkit is included, so the plugin is built on any
 * machine. The table is filled on first use from libcuda.so.1 or, when $ACCELHOST_CUDA is "sim", from the simulated GPU
 * accelhost-cudasim.so in the plugin's folder, which exports the same names.
 *
 * Where cuda.h was included before, its own declarations serve: so a check can compare the two. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NAME(name, value): the codes that are distinguished. */
#define AH_CUDA_CODES(NAME)                 \
    NAME(CUDA_SUCCESS, 0)                   \
    NAME(CUDA_ERROR_INVALID_VALUE, 1)       \
    NAME(CUDA_ERROR_OUT_OF_MEMORY, 2)       \
    NAME(CUDA_ERROR_NOT_INITIALIZED, 3)     \
    NAME(CUDA_ERROR_DEINITIALIZED, 4)       \
    NAME(CUDA_ERROR_STUB_LIBRARY, 34)       \
    NAME(CUDA_ERROR_NO_DEVICE, 100)         \
    NAME(CUDA_ERROR_INVALID_DEVICE, 101)    \
    NAME(CUDA_ERROR_INVALID_IMAGE, 200)     \
    NAME(CUDA_ERROR_INVALID_CONTEXT, 201)   \
    NAME(CUDA_ERROR_NO_BINARY_FOR_GPU, 209) \
    NAME(CUDA_ERROR_ECC_UNCORRECTABLE, 214) \
    NAME(CUDA_ERROR_INVALID_PTX, 218)       \
    NAME(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220) \
    NAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222) \
    NAME(CUDA_ERROR_INVALID_HANDLE, 400)    \
    NAME(CUDA_ERROR_NOT_FOUND, 500)         \
    NAME(CUDA_ERROR_NOT_READY, 600)         \
    NAME(CUDA_ERROR_ILLEGAL_ADDRESS, 700)   \
    NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) \
    NAME(CUDA_ERROR_LAUNCH_TIMEOUT, 702)    \
    NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704) \
    NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) \
    NAME(CUDA_ERROR_ASSERT, 710)            \
    NAME(CUDA_ERROR_HARDWARE_STACK_ERROR, 714) \
    NAME(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715) \
    NAME(CUDA_ERROR_MISALIGNED_ADDRESS, 716) \
    NAME(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717) \
    NAME(CUDA_ERROR_INVALID_PC, 718)        \
    NAME(CUDA_ERROR_LAUNCH_FAILED, 719)     \
    NAME(CUDA_ERROR_NOT_SUPPORTED, 801)     \
    NAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803) \
    NAME(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810) \
    NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900) \
    NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901) \
    NAME(CUDA_ERROR_EXTERNAL_DEVICE, 911)   \
    NAME(CUDA_ERROR_UNKNOWN, 999)           \
    NAME(CU_STREAM_DEFAULT, 0)              \
    NAME(CU_STREAM_NON_BLOCKING, 1)         \
    NAME(CU_EVENT_DEFAULT, 0)               \
    NAME(CU_EVENT_BLOCKING_SYNC, 1)         \
    NAME(CU_EVENT_DISABLE_TIMING, 2)        \
    NAME(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)  \
    NAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1) \
    NAME(CU_STREAM_CAPTURE_MODE_RELAXED, 2) \
    NAME(CU_STREAM_CAPTURE_STATUS_NONE, 0)  \
    NAME(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1) \
    NAME(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2) \
    NAME(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1) \
    NAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8) \
    NAME(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10) \
    NAME(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 13) \
    NAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) \
    NAME(CU_DEVICE_ATTRIBUTE_INTEGRATED, 18) \
    NAME(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33) \
    NAME(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34) \
    NAME(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36) \
    NAME(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37) \
    NAME(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38) \
    NAME(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 39) \
    NAME(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50) \
    NAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) \
    NAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
    NAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81) \
    NAME(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 82) \
    NAME(CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 87) \
    NAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97) \
    NAME(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102) \
    NAME(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110) \
    NAME(CU_MEM_ALLOCATION_TYPE_PINNED, 1)  \
    NAME(CU_MEM_LOCATION_TYPE_DEVICE, 1)    \
    NAME(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3) \
    NAME(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1) \
    NAME(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3) \
    NAME(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)     \
    NAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)

#ifndef CUDA_VERSION /* of cuda.h */
typedef int CUresult;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef int CUfunction_attribute;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;

typedef struct CUmemLocation_st {
    int type, id;
} CUmemLocation;
typedef struct CUmemAllocationProp_st {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc_st {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

enum {
#define NAME(name, value) name = value,
    AH_CUDA_CODES(NAME)
#undef NAME
};
#endif

struct ah_cuda_driver {
#define CALL(field, symbol, parameters) CUresult(*field) parameters;
#include "cuda/driver/api/driver.def"
#undef CALL
};

/* Filled by ah_cuda_driver_open. */
extern struct ah_cuda_driver ah_cuda;

/* Open the driver and initialise it, once: later calls return the first result. AH_EINVAL names the missing part in one
 * line. Any thread. */
int ah_cuda_driver_open(void);

/* The version of CUDA that counts as the toolkit of the simulated GPU's kernels. */
enum { AH_CUDA_SIMULATED_TOOLKIT = 13000 };

/* Does $ACCELHOST_CUDA ask for the simulated GPU? Also before the driver is opened. */
bool ah_cuda_is_to_be_simulated(void);
/* Is it the simulated GPU? */
bool ah_cuda_is_simulated(void);

/* The version of CUDA that the driver knows: 13000 is 13.0. */
int ah_cuda_driver_version(void);

/* 0, or a failure's text from a driver's code: "WHAT: out of memory (CUDA_ERROR_OUT_OF_MEMORY)". The status is
 * AH_ENOMEM for memory, AH_ESTATE for errors that break the context, AH_EINVAL where no device can be used, else
 * AH_EIO. Once a context is lost, every failure has the text of the first. Any thread. */
int ah_cuda_check(CUresult code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* 0, or AH_ESTATE with the text of the failure by which a context was lost. Any thread. */
int ah_cuda_check_lost(void);
