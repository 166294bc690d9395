/* Writing where a replayed step begins in the generator's stream. */
#include "cuda/kernels/lib/philox.cuh"

AH_KERNEL(philox_write, ah_philox_write_args, 32)
{
    if (threadIdx.x == 0)
        *reinterpret_cast<ah_philox_state *>(a.to) = a.state;
}
