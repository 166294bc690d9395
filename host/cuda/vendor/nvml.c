/* Reads sensors; one that a card does not have is left out. */
#include "cuda/vendor/nvml.h"

#include <stdio.h>
#include <string.h>

#include "cuda/driver/api/library.h"
#include "tensor/device.h"

static struct ah_nvml nvml_table;

static const char *const nvml_files[] = {"libnvidia-ml.so.1", NULL};

static const struct ah_cuda_symbol nvml_symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_nvml, field)},
#include "cuda/vendor/nvml.def"
#undef CALL
};

static struct ah_cuda_library nvml_library = {.title = "NVML", .files = nvml_files, .symbols = nvml_symbols,
                                              .count = sizeof nvml_symbols / sizeof nvml_symbols[0],
                                              .table = &nvml_table, .without_driver = true,
                                              .lock = PTHREAD_MUTEX_INITIALIZER};

/* The readings of a card as they are collected. */
struct readings {
    struct ah_device_property *at;
    int count, room;
};

static struct ah_device_property *reading_add(struct readings *readings, const char *name, double number)
{
    static struct ah_device_property rest;
    if (readings->count == readings->room)
        return &rest;
    struct ah_device_property *added = &readings->at[readings->count++];
    *added = (struct ah_device_property){.name = name, .number = number};
    return added;
}

static void read_texts(nvmlDevice_t device, struct readings *readings)
{
    char text[96]; /* NVML's largest */
    if (nvml_table.name(device, text, sizeof text) == NVML_SUCCESS)
        snprintf(reading_add(readings, "name", 0)->text, sizeof readings->at->text, "%s", text);
    if (nvml_table.uuid(device, text, sizeof text) == NVML_SUCCESS)
        snprintf(reading_add(readings, "uuid", 0)->text, sizeof readings->at->text, "%s",
                 strncmp(text, "GPU-", 4) ? text : text + 4);
}

static void read_load(nvmlDevice_t device, struct readings *readings)
{
    nvmlUtilization_t load;
    nvmlMemory_t memory;
    if (nvml_table.utilization(device, &load) == NVML_SUCCESS) {
        reading_add(readings, "utilization", load.gpu);
        reading_add(readings, "memory_utilization", load.memory);
    }
    if (nvml_table.memory(device, &memory) == NVML_SUCCESS) {
        reading_add(readings, "memory_used", (double)memory.used);
        reading_add(readings, "memory_total", (double)memory.total);
    }
}

static void read_state(nvmlDevice_t device, struct readings *readings)
{
    static const char *const errors[] = {[NVML_MEMORY_ERROR_TYPE_CORRECTED] = "ecc_corrected",
                                         [NVML_MEMORY_ERROR_TYPE_UNCORRECTED] = "ecc_uncorrected"};
    unsigned value;
    unsigned long long count;
    if (nvml_table.temperature(device, NVML_TEMPERATURE_GPU, &value) == NVML_SUCCESS)
        reading_add(readings, "temperature", value);
    if (nvml_table.power(device, &value) == NVML_SUCCESS)
        reading_add(readings, "power", value / 1e3);
    if (nvml_table.power_limit(device, &value) == NVML_SUCCESS)
        reading_add(readings, "power_limit", value / 1e3);
    if (nvml_table.clock(device, NVML_CLOCK_SM, &value) == NVML_SUCCESS)
        reading_add(readings, "clock", value);
    for (int type = 0; type < 2; type++)
        if (nvml_table.ecc_errors(device, type, NVML_VOLATILE_ECC, &count) == NVML_SUCCESS)
            reading_add(readings, errors[type], (double)count);
}

/* The pids of processes with a context, as far as the text has room. */
static void read_processes(nvmlDevice_t device, struct readings *readings)
{
    nvmlProcessInfo_t process[64];
    unsigned count = sizeof process / sizeof process[0];
    if (nvml_table.processes(device, &count, process) != NVML_SUCCESS || count == 0)
        return;
    struct ah_device_property *pids = reading_add(readings, "pids", 0);
    for (size_t i = 0, at = 0; i < count && at + 12 < sizeof pids->text; i++)
        at += (size_t)snprintf(pids->text + at, sizeof pids->text - at, "%s%u", i ? " " : "", process[i].pid);
}

int ah_nvml_sensors(int card, struct ah_device_property *out, int room)
{
    static nvmlReturn_t started = -1;
    struct readings readings = {.at = out, .room = room};
    nvmlDevice_t device;
    if (card < 0 || ah_cuda_library_open(&nvml_library) < 0)
        return 0;
    if (started == -1)
        started = nvml_table.init();
    if (started != NVML_SUCCESS || nvml_table.by_index((unsigned)card, &device) != NVML_SUCCESS)
        return 0;
    read_texts(device, &readings);
    read_load(device, &readings);
    read_state(device, &readings);
    read_processes(device, &readings);
    return readings.count;
}
