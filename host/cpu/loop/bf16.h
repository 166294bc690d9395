/* The choice for products and convolutions in bfloat16: the processor's own instructions, through oneDNN, or float32,
 * rounded once. Both sum in float32. On aarch64 products have own kernels besides (cpu/linear/gemm_blocks.h).
 *
 * Native with AMX, and with AVX512-BF16 on AMD. Intel's AVX512-BF16 without AMX is no faster than float32, and packing
 * the operands costs more than widening them: a step of a 1024-2048-2048-10 network ran 125 ms natively and 90 ms
 * through float32 (measured, Sapphire Rapids). $ACCELHOST_BF16, `native` or `float32`, overrides the choice. */
#pragma once

#include <stdbool.h>

/* Native? */
bool ah_bf16_native(void);

/* Native, by instructions for blocks of matrices (AMX), which are many times faster than float32? */
bool ah_bf16_in_blocks(void);

/* Has the processor sums of products of pairs (AVX512-BF16, FEAT_BF16)? Kernels that read bfloat16 items where they are
 * use these whatever the choice above; $ACCELHOST_BF16 = `float32` disables them. */
bool ah_bf16_pairs(void);

/* "amx_bf16", "through float32 (avx512_bf16 is slower)", for reports. */
const char *ah_bf16_text(void);
