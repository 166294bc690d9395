/* Sample images and volumes at the locations of a grid. In every mode and padding, a location reads some input
 * positions with weights: the product of those along each axis. These tables are made once for all channels; the
 * gradient of the grid uses the weights' derivatives. */
#include "cpu/image/grid_sample.h"

#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"

enum { BLOCK = AH_SAMPLE_BLOCK, FARTHEST = 1 << 30 }; /* the farthest that a coordinate may be, in input positions */

/* Return the number of locations of the block that begins at `first`. */
static int block_size(const struct ah_sampling *s, int64_t first)
{
    return (int)(s->pixels - first < BLOCK ? s->pixels - first : BLOCK);
}

#define LOOPS "cpu/image/grid_sample_loops.h"
#include "cpu/loop/for_reals.h"
