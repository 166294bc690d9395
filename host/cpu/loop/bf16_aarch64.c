/* FEAT_BF16: bfdot and bfmmla, for attention and products of matrices. oneDNN uses them only where it is built with
 * Arm's Compute Library, which Debian's is not: its plain C for bfloat16 is slower than float32 by OpenBLAS. */
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "cpu/loop/bf16_processor.h"

struct ah_bf16_processor ah_bf16_processor(void)
{
    struct ah_bf16_processor found = {0};
    if (getauxval(AT_HWCAP2) & HWCAP2_BF16)
        found = (struct ah_bf16_processor){
            .name = "arm_bf16", .slower = "arm_bf16 (bfdot, bfmmla; convolutions through float32)", .blocks = true};
    return found;
}
