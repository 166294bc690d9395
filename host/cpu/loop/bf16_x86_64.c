/* Leaf 7 of cpuid: AMX (subleaf 0) and AVX512-BF16 (subleaf 1). */
#include <cpuid.h>

#include "cpu/loop/bf16_processor.h"

struct ah_bf16_processor ah_bf16_processor(void)
{
    unsigned a, b, c, d;
    struct ah_bf16_processor found = {0};
    if (__builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1))
        found = (struct ah_bf16_processor){.name = "avx512_bf16", .fast = __builtin_cpu_is("amd") != 0,
                                           .slower = "through float32 (this processor's avx512_bf16 is slower)"};
    if (found.name && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1))
        found = (struct ah_bf16_processor){.name = "amx_bf16", .fast = true, .slower = "", .blocks = true};
    return found;
}
