/* The contents of untouched memory and of the guards around it. Reading poison as a float results in NaN. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define AH_SIM_UNCHECKED __attribute__((no_sanitize("address")))
#else
#define __asan_poison_memory_region(from, bytes)
#define __asan_unpoison_memory_region(from, bytes)
#define AH_SIM_UNCHECKED
#endif

namespace sim
{
enum { POISON = 0xff, GUARD = 0xfb };

/* Close a stretch of guard, writing its pattern. */
static inline void guard_close(char *from, size_t bytes)
{
    __asan_unpoison_memory_region(from, bytes);
    memset(from, GUARD, bytes);
    __asan_poison_memory_region(from, bytes);
}

/* The first place that does not hold `value`, -1 when all do. Also reads closed memory. */
AH_SIM_UNCHECKED static inline long first_other(const char *from, size_t bytes, int value)
{
    typedef uint64_t __attribute__((may_alias, aligned(1))) word;
    const unsigned char *at = reinterpret_cast<const unsigned char *>(from);
    uint64_t wanted = 0x0101010101010101 * (uint64_t)value;
    size_t i = 0;
    while (i + 8 <= bytes && *reinterpret_cast<const word *>(at + i) == wanted)
        i += 8;
    for (; i < bytes; i++)
        if (at[i] != value)
            return (long)i;
    return -1;
}
} // namespace sim
