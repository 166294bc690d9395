/* getrandom, and a fallback for kernels and sandboxes without it. */
#include "base/process/entropy.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint64_t ah_entropy_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 20 ^ (uint64_t)getpid() << 8;
    }
    return seed & ((1ull << 46) - 1);
}
