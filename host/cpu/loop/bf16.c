/* The processor's bfloat16 support, read once by cpuid: leaf 7 has AMX (subleaf 0) and AVX512-BF16 (subleaf 1). */
#include "cpu/loop/bf16.h"

#include <cpuid.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/loop/onednn.h"

enum { ABSENT, AVX512, AMX };

static int bf16_instructions(void)
{
    unsigned a, b, c, d;
    int found = ABSENT;
    if (__builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1))
        found = AVX512;
    if (found && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1))
        found = AMX;
    return found;
}

/* The choice and its description; `text` NULL: not determined yet. */
static struct {
    bool native, pairs;
    const char *text;
} bf16_choice;

static void bf16_choose(void)
{
    const char *wanted = getenv("ACCELHOST_BF16");
    int has = bf16_instructions(), found = ah_onednn_built_in() ? has : ABSENT;
    bool fast = found == AMX || (found == AVX512 && __builtin_cpu_is("amd"));
    if (wanted && !strcmp(wanted, "native"))
        fast = found != ABSENT;
    else if (wanted && !strcmp(wanted, "float32"))
        fast = false;
    bf16_choice.native = fast;
    bf16_choice.pairs = has != ABSENT && !(wanted && !strcmp(wanted, "float32"));
    if (fast)
        bf16_choice.text = found == AMX ? "amx_bf16" : "avx512_bf16";
    else if (found == ABSENT)
        bf16_choice.text =
            ah_onednn_built_in() ? "through float32 (the processor has none)" : "through float32 (no oneDNN)";
    else if (wanted && !strcmp(wanted, "float32"))
        bf16_choice.text = "through float32 (ACCELHOST_BF16)";
    else
        bf16_choice.text = "through float32 (this processor's avx512_bf16 is slower)";
}

bool ah_bf16_native(void)
{
    if (!bf16_choice.text)
        bf16_choose();
    return bf16_choice.native;
}

bool ah_bf16_pairs(void)
{
    if (!bf16_choice.text)
        bf16_choose();
    return bf16_choice.pairs;
}

const char *ah_bf16_text(void)
{
    if (!bf16_choice.text)
        bf16_choose();
    return bf16_choice.text;
}
