/* Kernels of the reduction rows: folds (cpu/reduce/reduce.h), and, row by row, reductions of more than one pass, as
 * variance, running sums and the place of an extreme. Rows are the reduced dims moved last. */
#include <math.h>
#include <string.h>

#include "base/process/parallel.h"
#include "base/status/status.h"
#include "cpu/kernels.h"
#include "cpu/loop/iterate.h"
#include "cpu/reduce/reduce.h"
#include "cpu/reduce/reduce_rows.h"
#include "ops/dispatch/op.h"

static uint32_t mask_of(const struct ah_call *c)
{
    return c->state.reduce.dims;
}

/* Fold the input, converted to `dtype` first where the row was asked for one. */
static int reduce_fold(struct ah_call *c, struct ah_reduction *r, enum ah_fold how, const struct ah_value *dtype,
                       double p)
{
    struct ah_tensor *input = ah_args(c, all)->input.tensor;
    if (!dtype || dtype->kind != AH_DTYPE || dtype->dtype == input->dtype)
        return ah_reduce(r, input, mask_of(c), how, p);
    AH_OWNED struct ah_tensor *converted = NULL;
    AH_TRY(ah_contiguous_as(&converted, input, dtype->dtype));
    return ah_reduce(r, converted, mask_of(c), how, p);
}

static int fold_and_store(struct ah_call *c, enum ah_fold how, const struct ah_value *dtype)
{
    struct ah_reduction r;
    AH_TRY(reduce_fold(c, &r, how, dtype, 0));
    ah_reduction_store(&r, c->out[0]);
    ah_reduction_free(&r);
    return 0;
}

AH_CPU_OP(sum, fold_and_store(c, AH_FOLD_SUM, &ah_args(c, sum)->dtype))

/* A float input with 0 for NaN, which whole numbers cannot hold. */
static int without_nan(struct ah_tensor **out, struct ah_tensor *input)
{
    AH_OWNED struct ah_tensor *wide = NULL;
    AH_TRY(ah_contiguous_as(&wide, input, AH_F64));
    AH_TRY(ah_tensor_empty_like(out, wide));
    const double *from = ah_tensor_data(wide);
    double *to = ah_tensor_data(*out);
    for (int64_t i = 0; i < wide->numel; i++)
        to[i] = from[i] == from[i] ? from[i] : 0;
    return 0;
}

int ah_cpu_nansum(struct ah_call *c)
{
    const struct ah_args_sum *arg = ah_args(c, sum);
    struct ah_tensor *input = arg->input.tensor;
    if (!ah_dtype_is_float(input->dtype) || ah_dtype_is_float(c->out[0]->dtype))
        return fold_and_store(c, AH_FOLD_NANSUM, &arg->dtype);
    AH_OWNED struct ah_tensor *numbers = NULL, *whole = NULL;
    struct ah_reduction r;
    AH_TRY(without_nan(&numbers, input));
    AH_TRY(ah_contiguous_as(&whole, numbers, c->out[0]->dtype));
    AH_TRY(ah_reduce(&r, whole, mask_of(c), AH_FOLD_SUM, 0));
    ah_reduction_store(&r, c->out[0]);
    ah_reduction_free(&r);
    return 0;
}

AH_CPU_OP(sum_to, fold_and_store(c, AH_FOLD_SUM, NULL))
AH_CPU_OP(prod, fold_and_store(c, AH_FOLD_PROD, &ah_args(c, prod)->dtype))
AH_CPU_OP(amax, fold_and_store(c, AH_FOLD_MAX, NULL))
AH_CPU_OP(amin, fold_and_store(c, AH_FOLD_MIN, NULL))

/* Are all (or at least one) of an output's inputs other than 0? */
static int reduce_counted(struct ah_call *c, bool every)
{
    struct ah_reduction r;
    AH_TRY(reduce_fold(c, &r, AH_FOLD_COUNT, NULL, 0));
    uint8_t *y = ah_tensor_data(c->out[0]);
    for (int64_t i = 0; i < r.count; i++) {
        int64_t count = r.integral ? ((const int64_t *)r.data)[i] : (int64_t)((const double *)r.data)[i];
        y[i] = every ? count == r.folded : count > 0;
    }
    ah_reduction_free(&r);
    return 0;
}

AH_CPU_OP(any, reduce_counted(c, false))
AH_CPU_OP(all, reduce_counted(c, true))
AH_CPU_OP(count_nonzero, fold_and_store(c, AH_FOLD_COUNT, NULL))

int ah_cpu_mean(struct ah_call *c)
{
    struct ah_value dtype = {.kind = AH_DTYPE, .dtype = c->out[0]->dtype};
    struct ah_reduction r;
    AH_TRY(reduce_fold(c, &r, AH_FOLD_SUM, &dtype, 0));
    double *sum = r.data;
    for (int64_t i = 0; i < r.count; i++)
        sum[i] /= (double)r.folded;
    ah_reduction_store(&r, c->out[0]);
    ah_reduction_free(&r);
    return 0;
}

enum ah_fold ah_norm_fold(double p)
{
    return p == 2           ? AH_FOLD_SQUARES
           : p == 1         ? AH_FOLD_ABS
           : p == 0         ? AH_FOLD_COUNT
           : p == INFINITY  ? AH_FOLD_ABS_MAX
           : p == -INFINITY ? AH_FOLD_ABS_MIN
                            : AH_FOLD_POWERS;
}

double ah_norm_of(double folded, double p)
{
    enum ah_fold how = ah_norm_fold(p);
    return how == AH_FOLD_SQUARES ? sqrt(folded) : how == AH_FOLD_POWERS ? pow(folded, 1 / p) : folded;
}

int ah_cpu_norm(struct ah_call *c)
{
    double p = ah_args(c, norm)->p.number;
    struct ah_reduction r;
    AH_TRY(reduce_fold(c, &r, ah_norm_fold(p), NULL, p));
    double *value = r.data;
    for (int64_t i = 0; !r.integral && i < r.count; i++)
        value[i] = ah_norm_of(value[i], p);
    ah_reduction_store(&r, c->out[0]);
    ah_reduction_free(&r);
    return 0;
}

/* Reductions row by row, with more than one pass over their inputs. The rows are float64 or float32 (fp16 and bf16
 * included). */

static int by_rows(struct ah_call *c, struct ah_tensor *input, enum ah_dtype dtype, struct ah_tensor *out,
                   ah_range_fn body, struct ah_by_row *job)
{
    AH_OWNED struct ah_tensor *matrix = NULL;
    int64_t rows;
    AH_TRY(ah_reduce_rows(&matrix, input, mask_of(c), dtype, &rows, &job->columns));
    job->input = ah_tensor_data(matrix);
    job->out = ah_tensor_data(out);
    ah_parallel_units(rows, job->columns, AH_SHARE_MIDDLE, body, job);
    return 0;
}

/* Run a body that writes `dtype`, by way of a temporary when the output is a half. */
static int rows_to_output(struct ah_call *c, ah_range_fn body32, ah_range_fn body64, struct ah_by_row *job)
{
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *wide = NULL;
    enum ah_dtype dtype = ah_compute_dtype(out->dtype);
    if (dtype != out->dtype)
        AH_TRY(ah_tensor_empty(&wide, out->size, out->ndim, dtype, &ah_cpu));
    AH_TRY(by_rows(c, ah_args(c, std)->input.tensor, dtype, wide ? wide : out, dtype == AH_F64 ? body64 : body32, job));
    if (wide)
        AH_TRY(ah_copy(out, wide));
    return 0;
}

int ah_cpu_var(struct ah_call *c)
{
    struct ah_by_row by_row = {.number = c->state.reduce.correction};
    return rows_to_output(c, ah_rows_variance_f32, ah_rows_variance_f64, &by_row);
}

int ah_cpu_std(struct ah_call *c)
{
    struct ah_by_row by_row = {.number = c->state.reduce.correction, .flag = true};
    return rows_to_output(c, ah_rows_variance_f32, ah_rows_variance_f64, &by_row);
}

AH_CPU_OP(logsumexp, rows_to_output(c, ah_rows_logsumexp_f32, ah_rows_logsumexp_f64, &(struct ah_by_row){.columns = 0}))

/* Rows of the reduced dims in, rows of the same place out: the result is computed with those dims last and copied back
 * through a view in which they are last in the output too. */
static int rows_in_place(struct ah_call *c, enum ah_dtype dtype, ah_range_fn body, struct ah_by_row *job)
{
    struct ah_tensor *out = c->out[0];
    AH_OWNED struct ah_tensor *view = NULL, *drawn = NULL, *converted = NULL;
    int64_t size[AH_MAX_DIMS], stride[AH_MAX_DIMS];
    uint32_t mask = mask_of(c);
    int n = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (int d = 0; d < out->ndim; d++) {
            if ((mask >> d & 1) != pass)
                continue;
            size[n] = out->size[d];
            stride[n++] = out->stride[d];
        }
    }
    AH_TRY(ah_tensor_view(&view, out, size, stride, n, out->offset));
    AH_TRY(ah_tensor_empty(&drawn, size, n, dtype, &ah_cpu));
    /* Convert to the result's dtype first: running sums of a narrower type would round or wrap as they go. */
    AH_TRY(ah_contiguous_as(&converted, ah_args(c, cumsum)->input.tensor, out->dtype));
    AH_TRY(by_rows(c, converted, dtype, drawn, body, job));
    return ah_copy(view, drawn);
}

int ah_cpu_prod_others(struct ah_call *c)
{
    enum ah_dtype dtype = ah_compute_dtype(c->out[0]->dtype);
    ah_range_fn body = dtype == AH_F64 ? ah_rows_others_f64 : ah_rows_others_f32;
    return rows_in_place(c, dtype, body, &(struct ah_by_row){.columns = 0});
}

/* Values (NULL: not wanted) and indices. Integers are compared as int64, halves as float32. */
static int reduce_extreme(struct ah_call *c, bool largest, struct ah_tensor *values, struct ah_tensor *indices)
{
    struct ah_tensor *input = ah_args(c, argmax)->input.tensor;
    AH_OWNED struct ah_tensor *wide = NULL, *matrix = NULL;
    enum ah_dtype dtype = ah_compute_dtype(input->dtype);
    if (!ah_dtype_is_float(dtype))
        dtype = AH_I64;
    ah_range_fn body = dtype == AH_F32   ? (largest ? ah_rows_largest_f32 : ah_rows_smallest_f32)
                       : dtype == AH_F64 ? (largest ? ah_rows_largest_f64 : ah_rows_smallest_f64)
                                         : (largest ? ah_rows_largest_i64 : ah_rows_smallest_i64);
    struct ah_by_row job = {.index = ah_tensor_data(indices)};
    int64_t rows;
    if (values && values->dtype != dtype)
        AH_TRY(ah_tensor_empty(&wide, values->size, values->ndim, dtype, &ah_cpu));
    AH_TRY(ah_reduce_rows(&matrix, input, mask_of(c), dtype, &rows, &job.columns));
    job.input = ah_tensor_data(matrix);
    job.out = wide ? ah_tensor_data(wide) : values ? ah_tensor_data(values) : NULL;
    ah_parallel_units(rows, job.columns, AH_SHARE_MIDDLE, body, &job);
    if (wide)
        AH_TRY(ah_copy(values, wide));
    return 0;
}

AH_CPU_OP(max_dim, reduce_extreme(c, true, c->out[0], c->out[1]))
AH_CPU_OP(min_dim, reduce_extreme(c, false, c->out[0], c->out[1]))
AH_CPU_OP(argmax, reduce_extreme(c, true, NULL, c->out[0]))
AH_CPU_OP(argmin, reduce_extreme(c, false, NULL, c->out[0]))
