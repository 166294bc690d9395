/* NVML: the sensors of the host's cards, without a context on them.
 *
 * Its table is opened on first use: libnvidia-ml.so.1, which the driver has, or the simulated GPU's. The declarations
 * are those of NVIDIA's Python bindings (nvidia-ml-py 13.615), since the toolkit's header is a separate package. Lua
 * thread only. */
#pragma once

struct ah_device_property;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_TEMPERATURE_GPU = 0,
    NVML_CLOCK_SM = 1,
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0,
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1,
    NVML_VOLATILE_ECC = 0, /* since the driver was loaded */
};

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct {
    unsigned gpu, memory; /* percent of the last sample period */
} nvmlUtilization_t;
typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

struct ah_nvml {
#define CALL(result, field, symbol, parameters) result(*field) parameters;
#include "cuda/vendor/nvml.def"
#undef CALL
};

/* The sensors of card `card` of the host, counted as nvidia-smi does (tensor/device.h). */
int ah_nvml_sensors(int card, struct ah_device_property *out, int room);
