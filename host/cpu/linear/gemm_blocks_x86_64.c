/* None: oneDNN's products in bfloat16 use the instructions of x86-64. */
#include "cpu/linear/gemm_blocks.h"

bool ah_gemm_blocks_found(void)
{
    return false;
}

size_t ah_gemm_blocks_scratch(int64_t k)
{
    return 0;
}

void ah_gemm_blocks_run(const struct ah_gemm_blocks *p, void *scratch)
{
}
