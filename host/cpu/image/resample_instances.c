/* The loops of resample_loops.h for float32 and float64. */
#include "cpu/image/resample.h"

#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "base/process/threads.h"

#define LOOPS "cpu/image/resample_loops.h"
#include "cpu/loop/for_reals.h"
