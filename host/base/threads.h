/* The one OpenMP pool. Only the Lua thread enters it; helper threads (loader, writers) never do. */
#ifndef AH_BASE_THREADS_H
#define AH_BASE_THREADS_H

#include <stdint.h>

/* Processors this process may run on (affinity mask). */
int ah_cpu_count(void);

/* Threads used by kernels, BLAS and oneDNN. The default is OMP_NUM_THREADS or all processors of the mask. */
int ah_num_threads(void);
int ah_set_num_threads(int count); /* AH_EINVAL unless 1 <= count <= 1024 */

/* Run body(context, begin, end) over [0, n) in parts whose borders are multiples of `grain`. The borders depend on
 * n, grain and the thread count only; kernels whose result depends on the borders must use fixed chunks inside. */
typedef void (*ah_range_fn)(void *context, int64_t begin, int64_t end);
void ah_parallel_for(int64_t n, int64_t grain, ah_range_fn body, void *context);

#endif
