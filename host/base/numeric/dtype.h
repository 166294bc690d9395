/* Element types: names, sizes, categories. No arithmetic here; conversions live with the kernels. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ah_dtype {
    AH_BOOL, /* one byte, 0 or 1 */
    AH_U8,
    AH_I32,
    AH_I64,
    AH_F16,  /* IEEE half */
    AH_BF16,
    AH_F32,
    AH_F64,
    /* Without arithmetic (ah_dtype_computes). Numbers of dtypes are written to packed files: new ones go last. */
    AH_I8,
    AH_I16,
    AH_U16,
    AH_U32,
    AH_U64,
    AH_DTYPE_COUNT
};

/* Do all ops compute in this dtype? Tensors of the others are created, stored, moved, indexed, compared and converted;
 * every other op refuses them (AH_ANY_DTYPE in ops/dispatch/op.h). */
static inline bool ah_dtype_computes(enum ah_dtype dtype)
{
    return dtype <= AH_F64;
}

/* Promotion categories, lowest first (PyTorch: bool < integral < floating). */
enum ah_category { AH_CATEGORY_BOOL, AH_CATEGORY_INT, AH_CATEGORY_FLOAT };

size_t ah_dtype_size(enum ah_dtype dtype);          /* bytes per element */
const char *ah_dtype_name(enum ah_dtype dtype);     /* "float32" */
enum ah_category ah_dtype_category(enum ah_dtype dtype);
bool ah_dtype_is_float(enum ah_dtype dtype);

/* The dtype of tensors made of Lua numbers, and of floating results of integers: float32, unless the script
 * has set another (accelhost.set_default_dtype). */
extern enum ah_dtype ah_default_dtype;

/* Return the dtype in which kernels compute: float32 for fp16 and bf16, else the dtype itself. */
enum ah_dtype ah_compute_dtype(enum ah_dtype dtype);

/* The whole numbers that an integer dtype (or bool) holds, of uint64 those that int64 holds too; false for the
 * floats. */
bool ah_dtype_int_range(enum ah_dtype dtype, int64_t *least, int64_t *most);

/* The largest number of a float. */
double ah_float_largest(enum ah_dtype dtype);

/* May a number be stored as this dtype? Integers accept the numbers of their range; uint8, uint16 and uint32 also the
 * negatives of those, which wrap around as in PyTorch; bool and the floats accept everything. */
bool ah_number_fits(double number, enum ah_dtype dtype);

/* Parse "float32" or "f32" (and the other names alike) into *out; AH_EINVAL names the known ones. */
int ah_dtype_parse(const char *name, enum ah_dtype *out);

/* The smallest dtype both convert to by PyTorch's table (f16 + bf16 = f32, u8 + i32 = i32, ...). AH_DTYPE_COUNT where
 * PyTorch defines none: uint16, uint32 or uint64 with another integer dtype or bool, and AH_DTYPE_COUNT with any. */
enum ah_dtype ah_dtype_promote(enum ah_dtype a, enum ah_dtype b);

/* A number as uint64: truncated towards zero, negative ones wrapped around, as in PyTorch. */
static inline uint64_t ah_u64_of(double number)
{
    return number < 0x1p63 ? (uint64_t)(int64_t)number : (uint64_t)number;
}
