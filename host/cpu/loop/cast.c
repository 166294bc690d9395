/* Conversion between any two dtypes, strided on both sides: one loop per pair of representations from a macro table,
 * with F16C for the two hot half conversions. Same dtypes are moved as bits, so that a NaN's payload survives. */
#include <string.h>

#include "base/numeric/half.h"
#include "cpu/loop/f16_item.h"
#include "cpu/loop/lanes.h"
#include "cpu/loop/iterate.h"

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Every pair of dtypes goes through read_X (to a C value) and write_Y. Halves are read as float. */
typedef uint8_t t_b8;
typedef uint8_t t_u8;
typedef int32_t t_i32;
typedef int64_t t_i64;
typedef uint16_t t_f16;
typedef uint16_t t_bf16;
typedef float t_f32;
typedef double t_f64;
typedef int8_t t_i8;
typedef int16_t t_i16;
typedef uint16_t t_u16;
typedef uint32_t t_u32;
typedef uint64_t t_u64;

#define read_b8(x) (x)
#define read_u8(x) (x)
#define read_i32(x) (x)
#define read_i64(x) (x)
#define read_f16(x) ah_f16_item_to_f32(x)
#define read_bf16(x) ah_bf16_to_f32(x)
#define read_f32(x) (x)
#define read_f64(x) (x)
#define read_i8(x) (x)
#define read_i16(x) (x)
#define read_u16(x) (x)
#define read_u32(x) (x)
#define read_u64(x) (x)
#define write_b8(x) ((x) != 0)
#define write_u8(x) ((uint8_t)(int64_t)(x))
#define write_i32(x) ((int32_t)(x))
#define write_i64(x) ((int64_t)(x))
#define write_f16(x) ah_f32_to_f16_item((float)(x))
#define write_bf16(x) ah_f32_to_bf16((float)(x))
#define write_f32(x) ((float)(x))
#define write_f64(x) ((double)(x))
#define write_u16(x) ((uint16_t)(int64_t)(x))
#define write_u32(x) ((uint32_t)(int64_t)(x))
#define write_u64(x) \
    _Generic((x), float: ah_u64_of((double)(x)), double: ah_u64_of((double)(x)), default: (uint64_t)(x))

typedef void (*cast_fn)(int64_t n, void *out, int64_t out_stride, const void *input, int64_t input_stride);

/* One loop for all sources of a value: not inlined. */
#define FILL(to)                                                                                              \
    static __attribute__((noinline)) void fill_##to(int64_t n, t_##to *out, int64_t so, t_##to value)          \
    {                                                                                                         \
        for (int64_t i = 0; i < n; i++)                                                                       \
            out[i * so] = value;                                                                              \
    }
FILL(b8) FILL(u8) FILL(u16) FILL(u32) FILL(u64) FILL(i32) FILL(i64) FILL(f16) FILL(bf16) FILL(f32) FILL(f64)

/* The last loop advances pointers: of an index times a stride, GCC makes a second loop for two strides of 1. */
#define CAST(from, to)                                                                                        \
    static void cast_##from##_##to(int64_t n, void *out, int64_t so, const void *input, int64_t si)            \
    {                                                                                                         \
        t_##to *restrict y = out;                                                                             \
        const t_##from *restrict x = input;                                                                   \
        if (so == 1 && si == 1)                                                                               \
            for (int64_t i = 0; i < n; i++)                                                                   \
                y[i] = write_##to(read_##from(x[i]));                                                         \
        else if (si == 0 && n > 0)                                                                            \
            fill_##to(n, y, so, write_##to(read_##from(x[0])));                                               \
        else                                                                                                  \
            for (int64_t i = 0; i < n; i++, y += so, x += si)                                                 \
                *y = write_##to(read_##from(*x));                                                             \
    }
/* A loop serves all pairs with the same bits: a bool is read as a u8, an integer is written as the unsigned one of its
 * width, and where the result is no wider than the source, the source's sign does not matter. */
#define CAST_TO_FLOATS(from) CAST(from, f16) CAST(from, bf16) CAST(from, f32) CAST(from, f64)
#define CAST_FLOAT(from)                                                                                      \
    CAST(from, b8) CAST(from, u8) CAST(from, u16) CAST(from, i32) CAST(from, u32) CAST(from, i64) CAST(from, u64)

CAST_TO_FLOATS(u8) CAST(u8, b8) CAST(u8, u8) CAST(u8, u16) CAST(u8, u32) CAST(u8, u64)
CAST_TO_FLOATS(i8) CAST(i8, u16) CAST(i8, u32) CAST(i8, u64)
CAST_TO_FLOATS(u16) CAST(u16, b8) CAST(u16, u8) CAST(u16, u16) CAST(u16, u32) CAST(u16, u64)
CAST_TO_FLOATS(i16) CAST(i16, u32) CAST(i16, u64)
CAST_TO_FLOATS(u32) CAST(u32, b8) CAST(u32, u8) CAST(u32, u16) CAST(u32, u32) CAST(u32, u64)
CAST_TO_FLOATS(i32) CAST(i32, u64)
CAST_TO_FLOATS(u64) CAST(u64, b8) CAST(u64, u8) CAST(u64, u16) CAST(u64, u32) CAST(u64, u64)
CAST_TO_FLOATS(i64)
CAST_FLOAT(f16) CAST(f16, bf16) CAST(f16, f32) CAST(f16, f64)
CAST_FLOAT(bf16) CAST(bf16, f16) CAST(bf16, f32) CAST(bf16, f64)
CAST_FLOAT(f32) CAST(f32, f16) CAST(f32, bf16) CAST(f32, f64)
CAST_FLOAT(f64) CAST(f64, f16) CAST(f64, bf16) CAST(f64, f32)

/* The loops of an integer source; of1 to of8: the source whose loops write results of 1 to 8 bytes. */
#define INTEGER(from, of1, of2, of4, of8)                                                                     \
    {[AH_BOOL] = cast_##of1##_b8, [AH_U8] = cast_##of1##_u8,   [AH_I8] = cast_##of1##_u8,                     \
     [AH_I16] = cast_##of2##_u16, [AH_U16] = cast_##of2##_u16, [AH_I32] = cast_##of4##_u32,                   \
     [AH_U32] = cast_##of4##_u32, [AH_I64] = cast_##of8##_u64, [AH_U64] = cast_##of8##_u64,                   \
     [AH_F16] = cast_##from##_f16, [AH_BF16] = cast_##from##_bf16, [AH_F32] = cast_##from##_f32,              \
     [AH_F64] = cast_##from##_f64}
#define FLOAT(from)                                                                                           \
    [AH_BOOL] = cast_##from##_b8, [AH_U8] = cast_##from##_u8,   [AH_I8] = cast_##from##_u8,                   \
    [AH_I16] = cast_##from##_u16, [AH_U16] = cast_##from##_u16, [AH_I32] = cast_##from##_i32,                 \
    [AH_U32] = cast_##from##_u32, [AH_I64] = cast_##from##_i64, [AH_U64] = cast_##from##_u64

/* Pairs of the same dtype are moved below. */
static const cast_fn casts[AH_DTYPE_COUNT][AH_DTYPE_COUNT] = {
    [AH_BOOL] = INTEGER(u8, u8, u8, u8, u8),
    [AH_U8] = INTEGER(u8, u8, u8, u8, u8),
    [AH_I8] = INTEGER(i8, u8, i8, i8, i8),
    [AH_U16] = INTEGER(u16, u16, u16, u16, u16),
    [AH_I16] = INTEGER(i16, u16, u16, i16, i16),
    [AH_U32] = INTEGER(u32, u32, u32, u32, u32),
    [AH_I32] = INTEGER(i32, u32, u32, u32, i32),
    [AH_U64] = INTEGER(u64, u64, u64, u64, u64),
    [AH_I64] = INTEGER(i64, u64, u64, u64, u64),
    [AH_F16] = {FLOAT(f16), [AH_BF16] = cast_f16_bf16, [AH_F32] = cast_f16_f32, [AH_F64] = cast_f16_f64},
    [AH_BF16] = {FLOAT(bf16), [AH_F16] = cast_bf16_f16, [AH_F32] = cast_bf16_f32, [AH_F64] = cast_bf16_f64},
    [AH_F32] = {FLOAT(f32), [AH_F16] = cast_f32_f16, [AH_BF16] = cast_f32_bf16, [AH_F64] = cast_f32_f64},
    [AH_F64] = {FLOAT(f64), [AH_F16] = cast_f64_f16, [AH_BF16] = cast_f64_bf16, [AH_F32] = cast_f64_f32},
};

#ifdef __AVX512BW__
/* Round to bfloat16, 32 numbers at a time; those among which is a NaN one by one. Returns the number converted. */
static int64_t cast_f32_bf16_lanes(int64_t n, uint16_t *restrict y, const float *restrict x)
{
    const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1), odd = _mm512_set1_epi32(0x10000);
    uint16_t upper_of[32]; /* the upper half of each number of two vectors */
    for (int i = 0; i < 32; i++)
        upper_of[i] = (uint16_t)(2 * i + 1);
    const __m512i upper = _mm512_loadu_si512(upper_of);
    int64_t done = 0;
    for (; done + 32 <= n; done += 32) {
        __m512 low = _mm512_loadu_ps(x + done), high = _mm512_loadu_ps(x + done + 16);
        __m512i a = _mm512_add_epi32(_mm512_castps_si512(low), half);
        __m512i b = _mm512_add_epi32(_mm512_castps_si512(high), half);
        a = _mm512_mask_add_epi32(a, _mm512_test_epi32_mask(_mm512_castps_si512(low), odd), a, one);
        b = _mm512_mask_add_epi32(b, _mm512_test_epi32_mask(_mm512_castps_si512(high), odd), b, one);
        _mm512_storeu_si512(y + done, _mm512_permutex2var_epi16(a, upper, b));
        if (__builtin_expect(_mm512_cmp_ps_mask(low, high, _CMP_UNORD_Q) != 0, 0))
            for (int i = 0; i < 32; i++)
                y[done + i] = ah_f32_to_bf16(x[done + i]);
    }
    return done;
}
#elif defined(__AVX2__)
static int64_t cast_f32_bf16_lanes(int64_t n, uint16_t *restrict y, const float *restrict x)
{
    int64_t done = 0;
    for (; done + 16 <= n; done += 16) {
        const ah_lanes_at_f32 *from = (const ah_lanes_at_f32 *)(x + done);
        ah_narrow_two_bf16(y + done, from[0], from[1]);
    }
    return done;
}
#endif

#ifdef __aarch64__
/* Between fp16 and float32, 4 numbers at a time; other pairs are left alone. Returns the number converted. */
static int64_t cast_f16_lanes(int64_t n, void *out, enum ah_dtype out_dtype, const void *input,
                              enum ah_dtype input_dtype)
{
    int64_t done = 0;
    if (input_dtype == AH_F16 && out_dtype == AH_F32)
        for (; done + 4 <= n; done += 4)
            vst1q_f32((float *)out + done, vcvt_f32_f16(vld1_f16((const float16_t *)input + done)));
    else if (input_dtype == AH_F32 && out_dtype == AH_F16)
        for (; done + 4 <= n; done += 4)
            vst1_f16((float16_t *)out + done, vcvt_f16_f32(vld1q_f32((const float *)input + done)));
    return done;
}
#endif

/* Same dtype: bits only, so that a NaN's payload survives. */
#define MOVE(type)                                                                                            \
    static void move_##type(int64_t n, void *out, int64_t so, const void *input, int64_t si)                   \
    {                                                                                                         \
        type *restrict y = out;                                                                               \
        const type *restrict x = input;                                                                       \
        if (so == 1 && si == 0)                                                                               \
            for (int64_t i = 0; i < n; i++)                                                                   \
                y[i] = x[0];                                                                                  \
        else if (so == 1)                                                                                     \
            for (int64_t i = 0; i < n; i++)                                                                   \
                y[i] = x[i * si];                                                                             \
        else                                                                                                  \
            for (int64_t i = 0; i < n; i++)                                                                   \
                y[i * so] = x[i * si];                                                                        \
    }
MOVE(uint8_t)
MOVE(uint16_t)
MOVE(uint32_t)
MOVE(uint64_t)

/* Between fp16 and another dtype than float32: as two casts, of a part at a time. */
static void cast_by_float(int64_t n, char *out, enum ah_dtype out_dtype, const char *input, enum ah_dtype input_dtype)
{
    enum { PART = 512 };
    float part[PART];
    for (int64_t count; n > 0; n -= count) {
        count = n < PART ? n : PART;
        ah_cast(count, part, AH_F32, 1, input, input_dtype, 1);
        ah_cast(count, out, out_dtype, 1, part, AH_F32, 1);
        input += (size_t)count * ah_dtype_size(input_dtype);
        out += (size_t)count * ah_dtype_size(out_dtype);
    }
}

void ah_cast(int64_t n, void *out, enum ah_dtype out_dtype, int64_t out_stride, const void *input,
             enum ah_dtype input_dtype, int64_t input_stride)
{
    if (out_dtype != input_dtype) {
        int64_t done = 0;
        bool by_float = (input_dtype == AH_F16 || out_dtype == AH_F16) && input_dtype != AH_F32 && out_dtype != AH_F32;
        if (by_float && n >= 8 && out_stride == 1 && input_stride == 1) {
            cast_by_float(n, out, out_dtype, input, input_dtype);
            return;
        }
#if defined(__AVX512BW__) || defined(__AVX2__)
        if (input_dtype == AH_F32 && out_dtype == AH_BF16 && out_stride == 1 && input_stride == 1)
            done = cast_f32_bf16_lanes(n, out, input);
#endif
#ifdef __F16C__
        /* The compiler does not vectorise half conversions; the two hot pairs are written out. */
        if (out_stride == 1 && input_stride == 1) {
            if (input_dtype == AH_F16 && out_dtype == AH_F32) {
#ifdef __AVX512F__
                for (; done + 16 <= n; done += 16)
                    _mm512_storeu_ps((float *)out + done, _mm512_cvtph_ps(_mm256_loadu_si256(
                                                              (const void *)((const uint16_t *)input + done))));
#endif
                for (; done + 8 <= n; done += 8)
                    _mm256_storeu_ps((float *)out + done,
                                     _mm256_cvtph_ps(_mm_loadu_si128((const void *)((const uint16_t *)input + done))));
            } else if (input_dtype == AH_F32 && out_dtype == AH_F16) {
#ifdef __AVX512F__
                for (; done + 16 <= n; done += 16)
                    _mm256_storeu_si256((void *)((uint16_t *)out + done),
                                        _mm512_cvtps_ph(_mm512_loadu_ps((const float *)input + done),
                                                        _MM_FROUND_TO_NEAREST_INT));
#endif
                for (; done + 8 <= n; done += 8)
                    _mm_storeu_si128((void *)((uint16_t *)out + done),
                                     _mm256_cvtps_ph(_mm256_loadu_ps((const float *)input + done),
                                                     _MM_FROUND_TO_NEAREST_INT));
            }
        }
#endif
#ifdef __aarch64__
        done = out_stride == 1 && input_stride == 1 ? cast_f16_lanes(n, out, out_dtype, input, input_dtype) : 0;
#endif
        casts[input_dtype][out_dtype](n - done, (char *)out + (size_t)done * ah_dtype_size(out_dtype), out_stride,
                                      (const char *)input + (size_t)done * ah_dtype_size(input_dtype), input_stride);
        return;
    }
    size_t item = ah_dtype_size(out_dtype);
    if (out_stride == 1 && input_stride == 1) {
        if (n > 0 && out != input)
            memcpy(out, input, (size_t)n * item);
        return;
    }
    switch (item) {
    case 1: move_uint8_t(n, out, out_stride, input, input_stride); break;
    case 2: move_uint16_t(n, out, out_stride, input, input_stride); break;
    case 4: move_uint32_t(n, out, out_stride, input, input_stride); break;
    default: move_uint64_t(n, out, out_stride, input, input_stride); break;
    }
}
