/* The environment's words. */
#include "settings.h"

#include <atomic>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

namespace sim
{
Settings settings;

static const char *const fault_names[FAULTS] = {"alloc", "pinned", "launch", "copy", "lost",
                                                "nccl",  "dnn",    "blas",   "wait", "early", "load", "ecc", "map",
                                                "connect", "init", "solver"};
static struct {
    std::atomic<long> calls;
    long nth; /* the first; 0: never */
    long last;
} faults[FAULTS];

static size_t bytes_of(const char *text, size_t otherwise)
{
    if (!text || !*text)
        return otherwise;
    char *end;
    double value = strtod(text, &end);
    const char *units = "KMGT";
    const char *unit = *end ? strchr(units, *end) : nullptr;
    for (int i = 0; unit && i <= unit - units; i++)
        value *= 1024;
    return value >= 1 ? (size_t)value : otherwise;
}

static bool flag_of(const char *name, bool otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strcmp(text, "0") != 0 : otherwise;
}

static void read_faults(const char *text)
{
    for (int i = 0; i < FAULTS; i++) {
        faults[i].calls = 0;
        faults[i].nth = 0;
        size_t length = strlen(fault_names[i]);
        for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : nullptr) {
            if (strncmp(at, fault_names[i], length) || at[length] != ':')
                continue;
            char *end;
            faults[i].nth = strtol(at + length + 1, &end, 10);
            faults[i].last = *end == '+' ? LONG_MAX : *end == '-' ? strtol(end + 1, nullptr, 10) : faults[i].nth;
        }
    }
}

/* As the driver does: entries after an invalid number are ignored. */
static void read_devices(const char *text, const char *visible)
{
    int all = text && *text ? (int)strtol(text, nullptr, 10) : settings.devices;
    all = all < 0 ? 0 : all > 16 ? 16 : all;
    settings.devices = visible ? 0 : all;
    for (int i = 0; i < settings.devices; i++)
        settings.number[i] = i;
    for (const char *at = visible; at && *at && settings.devices < 16;) {
        char *end;
        long number = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || number < 0 || number >= all)
            return;
        settings.number[settings.devices++] = (int)number;
        at = end + (*end == ',');
    }
}

void settings_read()
{
    const char *seed = getenv("ACCELHOST_SIM_SEED");
    settings = Settings();
    read_devices(getenv("ACCELHOST_SIM_DEVICES"), getenv("CUDA_VISIBLE_DEVICES"));
    const char *driver = getenv("ACCELHOST_SIM_DRIVER");
    settings.driver = driver && *driver ? atoi(driver) : settings.driver;
    settings.memory = bytes_of(getenv("ACCELHOST_SIM_MEMORY"), settings.memory);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    settings.seed = seed && *seed ? strtoull(seed, nullptr, 10)
                                  : ((uint64_t)now.tv_nsec / 1000 + (uint64_t)getpid() * 1000003) % 1000000;
    settings.delay = flag_of("ACCELHOST_SIM_DELAY", true);
    settings.twice = flag_of("ACCELHOST_SIM_TWICE", false);
    settings.tf32 = flag_of("ACCELHOST_SIM_TF32", false);
    settings.slow_product = flag_of("ACCELHOST_SIM_SLOW_PRODUCT", false);
    settings.slow_double = flag_of("ACCELHOST_SIM_SLOW_DOUBLE", false);
    const char *capability = getenv("ACCELHOST_SIM_CAPABILITY");
    settings.capability = capability && *capability ? atoi(capability) : settings.capability;
    settings.slices = flag_of("ACCELHOST_SIM_SLICES", false);
    settings.leaks = flag_of("ACCELHOST_SIM_LEAKS", false);
    read_faults(getenv("ACCELHOST_SIM_FAIL"));
}

bool fault_now(Fault fault)
{
    long call = ++faults[fault].calls;
    return faults[fault].nth && call >= faults[fault].nth && call <= faults[fault].last;
}
} // namespace sim
