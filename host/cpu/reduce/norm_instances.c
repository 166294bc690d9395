/* Batch norm and layer norm. Statistics need two passes (mean, then squares about it) in chunks of fixed size; rows of
 * channels have separate loops (norm_rows_loops.h), the rest uses norm_loops.h. */
#include "cpu/reduce/norm.h"

#include <math.h>
#include <string.h>

#include "base/numeric/half.h"
#include "base/process/parallel.h"
#include "base/process/thread_pool.h"
#include "cpu/loop/column_sum.h"
#include "cpu/loop/dense.h"
#include "cpu/loop/iterate.h"

enum { CHUNK_ROWS = AH_NORM_CHUNK, ROW_GROUP = 4, LONG_ROW = 4096 };

#define LOOPS "cpu/loop/row_items.h"
#include "cpu/loop/for_reals.h"
#define LOOPS "cpu/reduce/norm_loops.h"
#include "cpu/loop/for_reals.h"

#define AS_IT_IS(x) (x)
#define ITEM float
#define ROWS(name) name##_f32
#define READ AS_IT_IS
#define WRITE AS_IT_IS
#include "cpu/reduce/norm_rows_loops.h"
#define ITEM uint16_t
#define ROWS(name) name##_bf16
#define READ ah_bf16_to_f32
#define WRITE ah_f32_to_bf16
#include "cpu/reduce/norm_rows_loops.h"
