/* One row per dtype. */
#include "base/numeric/dtype.h"

#include <string.h>

#include "base/status/status.h"

static const struct {
    size_t size;
    enum ah_category category;
    const char *name, *alias;
    int64_t least, most; /* of the integers */
    int rank;            /* of two dtypes the higher one is the promoted one */
    double largest;      /* of the floats */
} dtypes[AH_DTYPE_COUNT] = {
    [AH_BOOL] = {1, AH_CATEGORY_BOOL, "bool", "bool", 0, 1, 0, 0},
    [AH_U8] = {1, AH_CATEGORY_INT, "uint8", "u8", 0, UINT8_MAX, 1, 0},
    [AH_I8] = {1, AH_CATEGORY_INT, "int8", "i8", INT8_MIN, INT8_MAX, 2, 0},
    [AH_I16] = {2, AH_CATEGORY_INT, "int16", "i16", INT16_MIN, INT16_MAX, 3, 0},
    [AH_I32] = {4, AH_CATEGORY_INT, "int32", "i32", INT32_MIN, INT32_MAX, 4, 0},
    [AH_I64] = {8, AH_CATEGORY_INT, "int64", "i64", INT64_MIN, INT64_MAX, 5, 0},
    [AH_U16] = {2, AH_CATEGORY_INT, "uint16", "u16", 0, UINT16_MAX, 6, 0},
    [AH_U32] = {4, AH_CATEGORY_INT, "uint32", "u32", 0, UINT32_MAX, 7, 0},
    [AH_U64] = {8, AH_CATEGORY_INT, "uint64", "u64", 0, INT64_MAX, 8, 0},
    [AH_F16] = {2, AH_CATEGORY_FLOAT, "float16", "f16", 0, 0, 9, 65504},
    [AH_BF16] = {2, AH_CATEGORY_FLOAT, "bfloat16", "bf16", 0, 0, 10, 0x1.fep127},
    [AH_F32] = {4, AH_CATEGORY_FLOAT, "float32", "f32", 0, 0, 11, 0x1.fffffep127},
    [AH_F64] = {8, AH_CATEGORY_FLOAT, "float64", "f64", 0, 0, 12, 0x1.fffffffffffffp1023},
};

enum ah_dtype ah_default_dtype = AH_F32;

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

double ah_float_largest(enum ah_dtype dtype)
{
    return dtypes[dtype].largest;
}

enum ah_dtype ah_compute_dtype(enum ah_dtype dtype)
{
    return dtype == AH_F16 || dtype == AH_BF16 ? AH_F32 : dtype;
}

bool ah_dtype_int_range(enum ah_dtype dtype, int64_t *least, int64_t *most)
{
    if (ah_dtype_is_float(dtype))
        return false;
    *least = dtypes[dtype].least;
    *most = dtypes[dtype].most;
    return true;
}

bool ah_number_fits(double number, enum ah_dtype dtype)
{
    switch (dtype) {
    case AH_U8: return number > -256 && number < 256;
    case AH_I8: return number > -129 && number < 128;
    case AH_I16: return number > -0x1p15 - 1 && number < 0x1p15;
    case AH_U16: return number > -0x1p16 && number < 0x1p16;
    case AH_U32: return number > -0x1p32 && number < 0x1p32;
    case AH_U64: return number > -1 && number < 0x1p64;
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
    return ah_fail(AH_EINVAL,
                   "unknown dtype '%s' (known: float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 "
                   "uint32 uint64 bool)",
                   name);
}

enum ah_dtype ah_dtype_promote(enum ah_dtype a, enum ah_dtype b)
{
    if (a == b)
        return a;
    if (a == AH_DTYPE_COUNT || b == AH_DTYPE_COUNT)
        return AH_DTYPE_COUNT;
    enum ah_dtype high = dtypes[a].rank > dtypes[b].rank ? a : b, low = high == a ? b : a;
    if (high == AH_BF16 && low == AH_F16)
        return AH_F32;
    if (high == AH_I8 && low == AH_U8)
        return AH_I16;
    return high == AH_U16 || high == AH_U32 || high == AH_U64 ? AH_DTYPE_COUNT : high;
}
