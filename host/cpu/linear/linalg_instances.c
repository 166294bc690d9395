/* The routines of linalg_loops.h for float32 and float64. */
#include "cpu/linear/linalg.h"

#include <math.h>
#include <string.h>

#include "cpu/linear/blas.h"
#include "cpu/linear/gemm.h"

static int64_t linalg_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

enum { BLOCKED = AH_LINALG_COLUMNS };

#define LOOPS "cpu/linear/linalg_loops.h"
#include "cpu/loop/for_reals.h"
