/* NVML: the sensors of all simulated devices of the host ($ACCELHOST_SIM_DEVICES), which have fixed values. The last
 * device has no ECC memory. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/vendor/nvml.h"
#include "sim.h"
#include "state.h"

struct nvmlDevice_st {
    int index;
};

namespace
{
enum { CARDS = 16 };
nvmlDevice_st cards[CARDS];
bool started;

int card_of(nvmlDevice_t device)
{
    return device->index;
}

int card_count()
{
    const char *count = getenv("ACCELHOST_SIM_DEVICES");
    int all = count && *count ? atoi(count) : 2;
    return all < CARDS ? all : CARDS;
}
} // namespace

#define CALL(result, field, symbol, parameters) SIM_API result symbol parameters;
#include "cuda/vendor/nvml.def"
#undef CALL

SIM_API nvmlReturn_t nvmlInit_v2()
{
    started = true;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (!started || index >= (unsigned)card_count())
        return NVML_ERROR_NOT_FOUND;
    cards[index].index = (int)index;
    *device = &cards[index];
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    snprintf(name, length, "simulated GPU");
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    /* "simulated GPU" and the number, as the driver's. */
    snprintf(uuid, length, "GPU-73696d75-6c61-7465-6420-47505500%02x%02x", 0u, (unsigned)card_of(device));
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    *utilization = {90u + (unsigned)card_of(device), 40};
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    memory->total = 1ull << 30;
    memory->used = 256ull << 20;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *degrees)
{
    *degrees = 50 + (unsigned)card_of(device);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
    *milliwatts = 400500;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts)
{
    *milliwatts = 700000;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *megahertz)
{
    *megahertz = 1000;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, unsigned long long *count)
{
    if (card_of(device) == card_count() - 1)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? 3 : 0;
    return NVML_SUCCESS;
}

/* Those of ACCELHOST_SIM_PIDS, on the first device. */
SIM_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                             nvmlProcessInfo_t *processes)
{
    const char *pids = getenv("ACCELHOST_SIM_PIDS");
    unsigned room = *count;
    *count = 0;
    for (char *end; pids && card_of(device) == 0 && *count < room; pids = *end ? end + 1 : nullptr) {
        processes[*count] = {(unsigned)strtoul(pids, &end, 10), 1 << 20, 0, 0};
        if (end == pids)
            break;
        ++*count;
    }
    return NVML_SUCCESS;
}
