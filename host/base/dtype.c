/* One row per dtype. Their order in the enum is that of promotion, but for the two halves. */
#include "base/dtype.h"

#include <string.h>

#include "base/status.h"

static const struct {
    size_t size;
    enum ah_category category;
    const char *name, *alias;
} dtypes[AH_DTYPE_COUNT] = {
    [AH_BOOL] = {1, AH_CATEGORY_BOOL, "bool", "bool"},
    [AH_U8] = {1, AH_CATEGORY_INT, "uint8", "u8"},
    [AH_I32] = {4, AH_CATEGORY_INT, "int32", "i32"},
    [AH_I64] = {8, AH_CATEGORY_INT, "int64", "i64"},
    [AH_F16] = {2, AH_CATEGORY_FLOAT, "float16", "f16"},
    [AH_BF16] = {2, AH_CATEGORY_FLOAT, "bfloat16", "bf16"},
    [AH_F32] = {4, AH_CATEGORY_FLOAT, "float32", "f32"},
    [AH_F64] = {8, AH_CATEGORY_FLOAT, "float64", "f64"},
};

size_t ah_dtype_size(enum ah_dtype dtype)
{
    return dtypes[dtype].size;
}

const char *ah_dtype_name(enum ah_dtype dtype)
{
    return dtypes[dtype].name;
}

enum ah_category ah_dtype_category(enum ah_dtype dtype)
{
    return dtypes[dtype].category;
}

bool ah_dtype_is_float(enum ah_dtype dtype)
{
    return dtypes[dtype].category == AH_CATEGORY_FLOAT;
}

enum ah_dtype ah_compute_dtype(enum ah_dtype dtype)
{
    return dtype == AH_F16 || dtype == AH_BF16 ? AH_F32 : dtype;
}

bool ah_dtype_int_range(enum ah_dtype dtype, int64_t *least, int64_t *most)
{
    static const struct { int64_t least, most; } range[AH_DTYPE_COUNT] = {
        [AH_BOOL] = {0, 1},
        [AH_U8] = {0, UINT8_MAX},
        [AH_I32] = {INT32_MIN, INT32_MAX},
        [AH_I64] = {INT64_MIN, INT64_MAX}};
    if (ah_dtype_is_float(dtype))
        return false;
    *least = range[dtype].least;
    *most = range[dtype].most;
    return true;
}

bool ah_number_fits(double number, enum ah_dtype dtype)
{
    switch (dtype) {
    case AH_U8: return number > -256 && number < 256;
    case AH_I32: return number > -0x1p31 - 1 && number < 0x1p31;
    case AH_I64: return number >= -0x1p63 && number < 0x1p63;
    default: return true;
    }
}

int ah_dtype_parse(const char *name, enum ah_dtype *out)
{
    for (int i = 0; i < AH_DTYPE_COUNT; i++) {
        if (!strcmp(name, dtypes[i].name) || !strcmp(name, dtypes[i].alias)) {
            *out = (enum ah_dtype)i;
            return 0;
        }
    }
    return ah_fail(AH_EINVAL, "unknown dtype '%s' (known: float32 float64 float16 bfloat16 int64 int32 uint8 bool)",
                   name);
}

enum ah_dtype ah_dtype_promote(enum ah_dtype a, enum ah_dtype b)
{
    if (a == b)
        return a;
    if ((a == AH_F16 && b == AH_BF16) || (a == AH_BF16 && b == AH_F16))
        return AH_F32;
    return a > b ? a : b; /* the enum is ordered by rank, the two halves apart */
}
