/* A table of attributes, and a few facts with their own calls. No device is opened for them. */
#include "cuda/driver/api/property.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    CUdevice_attribute attribute;
    bool flag; /* reported as "true" or "false" */
} rows[] = {
    {"major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, false},
    {"minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, false},
    {"multi_processor_count", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, false},
    {"is_integrated", CU_DEVICE_ATTRIBUTE_INTEGRATED, true},
    {"max_threads_per_block", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, false},
    {"max_threads_per_multi_processor", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, false},
    {"warp_size", CU_DEVICE_ATTRIBUTE_WARP_SIZE, false},
    {"regs_per_multiprocessor", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, false},
    {"shared_memory_per_block", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, false},
    {"shared_memory_per_block_optin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, false},
    {"shared_memory_per_multiprocessor", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, false},
    {"L2_cache_size", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, false},
    {"clock_rate", CU_DEVICE_ATTRIBUTE_CLOCK_RATE, false},
    {"memory_clock_rate", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, false},
    {"memory_bus_width", CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, false},
    {"pci_bus_id", CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, false},
    {"pci_device_id", CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, false},
    {"pci_domain_id", CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, false},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static bool get_name(CUdevice handle, struct ah_device_property *out)
{
    out->name = "name";
    return ah_cuda.device_name(out->text, sizeof out->text, handle) == CUDA_SUCCESS;
}

static bool get_memory(CUdevice handle, struct ah_device_property *out)
{
    size_t bytes;
    out->name = "total_memory";
    if (ah_cuda.device_total_memory(&bytes, handle) != CUDA_SUCCESS)
        return false;
    out->number = (double)bytes;
    return true;
}

/* As nvidia-smi writes it, without "GPU-" in front. */
static bool get_uuid(CUdevice handle, struct ah_device_property *out)
{
    CUuuid uuid;
    out->name = "uuid";
    if (ah_cuda.device_uuid(&uuid, handle) != CUDA_SUCCESS)
        return false;
    for (int i = 0, at = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        at += snprintf(out->text + at, sizeof out->text - (size_t)at, "%s%02x", dash, (unsigned char)uuid.bytes[i]);
    }
    return true;
}

bool ah_cuda_property(int index, int i, struct ah_device_property *out)
{
    static bool (*const getters[])(CUdevice, struct ah_device_property *) = {get_name, get_memory, get_uuid};
    enum { GETTERS = sizeof getters / sizeof getters[0] };
    CUdevice handle;
    int value;
    *out = (struct ah_device_property){0};
    if (ah_cuda_driver_open() < 0 || ah_cuda.device_get(&handle, index) != CUDA_SUCCESS)
        return false;
    if (i < GETTERS)
        return getters[i](handle, out);
    i -= GETTERS;
    if (i >= ROWS || ah_cuda.device_attribute(&value, rows[i].attribute, handle) != CUDA_SUCCESS)
        return false;
    out->name = rows[i].name;
    out->number = value;
    if (rows[i].flag)
        snprintf(out->text, sizeof out->text, "%s", value ? "true" : "false");
    return true;
}
