/* All calls of a levelled function go through a jump whose address lies in ah_level_slots (levels.S in the build
 * folder, made by scripts/levels.sh); to choose a level is to copy its addresses there. They begin as those of v2. */
#include <cpuid.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/numeric/level.h"
#include "base/status/status.h"

extern void *ah_level_slots[];
extern void *const ah_level_v2[], *const ah_level_v3[], *const ah_level_v4[];
extern const size_t ah_level_bytes;

/* What __builtin_cpu_supports has no name for with every compiler. */
static bool has_f16c_lzcnt_movbe(void)
{
    unsigned eax, ebx, base = 0, extended = 0, edx;
    return __get_cpuid(1, &eax, &ebx, &base, &edx) && __get_cpuid(0x80000001, &eax, &ebx, &extended, &edx) &&
           (base & bit_F16C) && (base & bit_MOVBE) && (extended & bit_LZCNT);
}

static bool has_v2(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
}

static bool has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && has_f16c_lzcnt_movbe();
}

static bool has_v4(void)
{
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static const struct level {
    const char *name, *what;
    bool (*fits)(void);
    void *const *functions;
} levels[] = {
    {"x86-64-v4", "AVX-512", has_v4, ah_level_v4},
    {"x86-64-v3", "AVX2, FMA, F16C and BMI2", has_v3, ah_level_v3},
    {"x86-64-v2", "SSE4.2", has_v2, ah_level_v2},
};
enum { COUNT = sizeof levels / sizeof levels[0] };

static const struct level *chosen = &levels[COUNT - 1];

static const struct level *named(const char *wanted)
{
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(levels[i].name, wanted) || !strcmp(levels[i].name + strlen("x86-64-"), wanted))
            return &levels[i];
    return NULL;
}

static const struct level *best(void)
{
    for (int i = 0; i < COUNT; i++)
        if (levels[i].fits())
            return &levels[i];
    return NULL;
}

int ah_level_choose(void)
{
    const char *wanted = getenv("ACCELHOST_CPU");
    if (wanted && !*wanted)
        wanted = NULL;
    const struct level *level = wanted ? named(wanted) : best();
    if (!level && wanted)
        return ah_fail(AH_EINVAL, "ACCELHOST_CPU: expected v2, v3 or v4, got '%s'", wanted);
    if (!level)
        return ah_fail(AH_EINVAL, "this processor is too old: SSE4.2 is needed");
    if (!level->fits())
        return ah_fail(AH_EINVAL, "ACCELHOST_CPU=%s: this processor lacks what that needs (%s)", wanted, level->what);
    chosen = level;
    memcpy(ah_level_slots, level->functions, ah_level_bytes);
    return 0;
}

const char *ah_level_name(void)
{
    return chosen->name;
}
