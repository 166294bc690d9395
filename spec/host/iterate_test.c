#include "cpu/loop/iterate.h"
#include "tensor/tensor.h"

#include "test.h"

static void add_loop(int64_t n, void *const *data, const int64_t *step, const void *context)
{
    float *y = data[0];
    const float *a = data[1], *b = data[2];
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i * step[1]] + b[i * step[2]];
}

static struct ah_tensor *iterate_counted(const int64_t *size, int ndim, enum ah_dtype dtype)
{
    struct ah_tensor *tensor = NULL;
    CHECK_OK(ah_tensor_empty(&tensor, size, ndim, dtype, &ah_cpu));
    for (int64_t i = 0; tensor && i < tensor->numel; i++)
        ah_tensor_set(tensor, i, (double)(i % 97));
    return tensor;
}

/* out = a + b for a of another dtype and a stretched b, with and without step 0, against single elements. */
static void try_add(const int64_t *size, int ndim, enum ah_dtype dtype, bool scalars)
{
    int64_t narrow[AH_MAX_DIMS];
    for (int d = 0; d < ndim; d++)
        narrow[d] = d % 2 ? size[d] : 1;
    struct ah_tensor *out = iterate_counted(size, ndim, dtype), *a = iterate_counted(size, ndim, AH_I32);
    struct ah_tensor *b = iterate_counted(narrow, ndim, AH_F64);
    struct ah_operand operand[] = {{out, AH_F32}, {a, AH_F32}, {b, AH_F32}};
    CHECK_OK(ah_iterate(operand, 3, scalars, add_loop, NULL, AH_SHARE_MIDDLE));
    int64_t stride[AH_MAX_DIMS];
    ah_broadcast_strides(b, size, ndim, stride);
    bool right = true;
    for (int64_t i = 0; i < out->numel; i++) {
        int64_t at = 0, rest = i;
        for (int d = ndim - 1; d >= 0; d--) {
            at += rest % size[d] * stride[d];
            rest /= size[d];
        }
        right = right && ah_tensor_get(out, i) == ah_tensor_get(a, i) + ((const double *)ah_tensor_data(b))[at];
    }
    CHECK(right);
    ah_tensor_release(out);
    ah_tensor_release(a);
    ah_tensor_release(b);
}

AH_TEST(iterate_walks_every_shape)
{
    const int64_t shapes[][4] = {{1, 1, 1, 1},   {3, 5, 7, 2},    {2, 3, 4, 600},
                                 {600, 2, 1, 3}, {2, 1, 700, 47}, {9, 8, 1, 48}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        for (int ndim = 0; ndim <= 4; ndim++) {
            try_add(shapes[k], ndim, AH_F32, true);
            try_add(shapes[k], ndim, AH_F32, false);
            try_add(shapes[k], ndim, AH_F64, true);
        }
    }
}

AH_TEST(iterate_leaves_empty_outputs_alone)
{
    struct ah_tensor *out = NULL, *one = NULL;
    CHECK_OK(ah_tensor_empty(&out, (int64_t[]){3, 0}, 2, AH_F32, &ah_cpu));
    CHECK_OK(ah_tensor_scalar(&one, 1, AH_F32, &ah_cpu));
    struct ah_operand operand[] = {{out, AH_F32}, {one, AH_F32}, {one, AH_F32}};
    CHECK_OK(ah_iterate(operand, 3, true, add_loop, NULL, AH_SHARE_MIDDLE));
    ah_tensor_release(out);
    ah_tensor_release(one);
}

AH_TEST(iterate_refuses_outputs_that_share_memory)
{
    struct ah_tensor *base = iterate_counted((int64_t[]){4}, 1, AH_F32), *wide = NULL;
    CHECK_OK(ah_tensor_view(&wide, base, (int64_t[]){3, 4}, (int64_t[]){0, 1}, 2, 0));
    struct ah_operand operand[] = {{wide, AH_F32}, {wide, AH_F32}, {base, AH_F32}};
    CHECK_FAILS(ah_iterate(operand, 3, true, add_loop, NULL, AH_SHARE_MIDDLE), AH_EINVAL, "shape (3, 4)");
    ah_tensor_release(wide);
    ah_tensor_release(base);
}

AH_TEST(cast_strides_both_sides)
{
    double from[12];
    uint16_t half[12] = {0};
    float back[12];
    for (int i = 0; i < 12; i++)
        from[i] = i - 5.5;
    ah_cast(4, half, AH_F16, 3, from, AH_F64, 2);
    ah_cast(12, back, AH_F32, 1, half, AH_F16, 1);
    for (int i = 0; i < 4; i++)
        CHECK_NEAR((double)back[3 * i], from[2 * i], 0);
    CHECK_NEAR((double)back[1], 0, 0);
    ah_cast(12, back, AH_F32, 1, from + 3, AH_F64, 0);
    CHECK_NEAR((double)back[11], -2.5, 0);
}
