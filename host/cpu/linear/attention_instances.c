/* The loops of attention (attention_loops.h) for each dtype of rows. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/numeric/half.h"
#include "cpu/elementwise/elementwise_math.h"
#include "cpu/linear/attention.h"
#include "cpu/loop/bf16_pairs.h"

#define log_f32 ah_logf
#define log_f64 log
#define LOOPS "cpu/linear/attention_scores.h"
#include "cpu/loop/for_reals.h"
#define LOOPS "cpu/linear/attention_factors.h"
#include "cpu/loop/for_reals.h"
#ifdef AH_LANES_PAIRS
#pragma GCC push_options
AH_LANES_PAIRS
#include "cpu/linear/attention_pairs.h"
#pragma GCC pop_options
#endif

const struct ah_attention_kind ah_attention_kinds[AH_DTYPE_COUNT] = {
    [AH_F32] = {attend_f32, attend_group_back_f32, scratch_bytes_f32},
    [AH_F64] = {attend_f64, attend_group_back_f64, scratch_bytes_f64},
#ifdef AH_LANES_PAIRS
    [AH_BF16] = {attend_bf16, attend_group_back_bf16, scratch_bytes_bf16},
#endif
};
