/* None: a product of bfloat16 arrays with a rounded copy is faster (cpu/linear/gemm_blocks.h). */
#include "cpu/linear/gemm_rounded.h"

bool ah_gemm_rounded_found(void)
{
    return false;
}

size_t ah_gemm_rounded_scratch(const struct ah_gemm_rounded *p)
{
    return 0;
}

void ah_gemm_rounded_run(const struct ah_gemm_rounded *p, void *scratch)
{
}
