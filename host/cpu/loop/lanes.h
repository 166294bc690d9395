/* Vectors of the widest kind that the level has, for loops whose registers are laid out by hand: types ah_lanes_*, as
 * ah_lanes_at_* unaligned in arrays, ah_lane_ints_* of as many integers of their size; ah_spread_* of one number,
 * ah_fma_* (a b + c), ah_larger_* and ah_smaller_* (the second one where either is NaN or both are equal);
 * ah_lane_tests_* of a condition per lane: ah_unordered_* (either is NaN), ah_any_*, ah_nan_where_*. bfloat16 is loaded
 * as float. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define AH_LANES_BYTES 64
#define AH_LANES_REGISTERS 32
#elif defined(__FMA__)
#define AH_LANES_BYTES 32
#define AH_LANES_REGISTERS 16
#elif defined(__aarch64__)
#define AH_LANES_BYTES 16
#define AH_LANES_REGISTERS 32
#else
#define AH_LANES_BYTES 16
#define AH_LANES_REGISTERS 16
#endif

/* Can a function be compiled for sums of products of pairs of bfloat16 (AVX512-BF16, FEAT_BF16), by which pragma? Run
 * it where ah_bf16_pairs() (cpu/loop/bf16.h). */
#if defined(__AVX512BW__) && defined(__GNUC__) && !defined(__clang__)
#define AH_LANES_PAIRS _Pragma("GCC target(\"avx512bf16\")")
#define AH_LANES_BYTE_DOTS /* and for those of four int8 numbers (AVX512-VNNI)? */
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
#define AH_LANES_PAIRS _Pragma("GCC target(\"arch=armv8.2-a+bf16\")")
#endif

typedef float ah_lanes_f32 __attribute__((vector_size(AH_LANES_BYTES)));
typedef double ah_lanes_f64 __attribute__((vector_size(AH_LANES_BYTES)));
typedef ah_lanes_f32 ah_lanes_at_f32 __attribute__((aligned(4), may_alias));
typedef ah_lanes_f64 ah_lanes_at_f64 __attribute__((aligned(8), may_alias));
typedef int32_t ah_lane_ints_f32 __attribute__((vector_size(AH_LANES_BYTES)));
typedef int64_t ah_lane_ints_f64 __attribute__((vector_size(AH_LANES_BYTES)));
typedef uint32_t ah_lane_bits_f32 __attribute__((vector_size(AH_LANES_BYTES)));
typedef uint64_t ah_lane_bits_f64 __attribute__((vector_size(AH_LANES_BYTES)));

#if defined(__AVX512F__)
#define ah_spread_f32(x) ((ah_lanes_f32)_mm512_set1_ps(x))
#define ah_spread_f64(x) ((ah_lanes_f64)_mm512_set1_pd(x))
#define ah_fma_f32(a, b, c) ((ah_lanes_f32)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define ah_fma_f64(a, b, c) ((ah_lanes_f64)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define ah_larger_f32(a, b) ((ah_lanes_f32)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define ah_larger_f64(a, b) ((ah_lanes_f64)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define ah_smaller_f32(a, b) ((ah_lanes_f32)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define ah_smaller_f64(a, b) ((ah_lanes_f64)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#define ah_sqrt_f32(a) ((ah_lanes_f32)_mm512_sqrt_ps((__m512)(a)))
#elif defined(__FMA__)
#define ah_spread_f32(x) ((ah_lanes_f32)_mm256_set1_ps(x))
#define ah_spread_f64(x) ((ah_lanes_f64)_mm256_set1_pd(x))
#define ah_fma_f32(a, b, c) ((ah_lanes_f32)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define ah_fma_f64(a, b, c) ((ah_lanes_f64)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#define ah_larger_f32(a, b) ((ah_lanes_f32)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define ah_larger_f64(a, b) ((ah_lanes_f64)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define ah_smaller_f32(a, b) ((ah_lanes_f32)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define ah_smaller_f64(a, b) ((ah_lanes_f64)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define ah_sqrt_f32(a) ((ah_lanes_f32)_mm256_sqrt_ps((__m256)(a)))
#elif defined(__aarch64__)
#define ah_spread_f32(x) ((ah_lanes_f32)vdupq_n_f32(x))
#define ah_spread_f64(x) ((ah_lanes_f64)vdupq_n_f64(x))
#define ah_fma_f32(a, b, c) ((ah_lanes_f32)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define ah_fma_f64(a, b, c) ((ah_lanes_f64)vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b)))
#define ah_larger_f32(a, b) ((ah_lanes_f32)ah_choose_f32((a) > (b), (a), (b)))
#define ah_larger_f64(a, b) ((ah_lanes_f64)ah_choose_f64((a) > (b), (a), (b)))
#define ah_smaller_f32(a, b) ((ah_lanes_f32)ah_choose_f32((a) < (b), (a), (b)))
#define ah_smaller_f64(a, b) ((ah_lanes_f64)ah_choose_f64((a) < (b), (a), (b)))
#else
#define ah_spread_f32(x) ((x) - (ah_lanes_f32){0})
#define ah_spread_f64(x) ((x) - (ah_lanes_f64){0})
#define ah_fma_f32(a, b, c) ((a) * (b) + (c))
#define ah_fma_f64(a, b, c) ((a) * (b) + (c))
#define ah_larger_f32(a, b) ((ah_lanes_f32)ah_choose_f32((a) > (b), (a), (b)))
#define ah_larger_f64(a, b) ((ah_lanes_f64)ah_choose_f64((a) > (b), (a), (b)))
#define ah_smaller_f32(a, b) ((ah_lanes_f32)ah_choose_f32((a) < (b), (a), (b)))
#define ah_smaller_f64(a, b) ((ah_lanes_f64)ah_choose_f64((a) < (b), (a), (b)))
#endif

#if defined(__AVX512F__)
typedef __mmask16 ah_lane_tests_f32;
typedef __mmask8 ah_lane_tests_f64;
#define ah_unordered_f32(a, b) _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_UNORD_Q)
#define ah_unordered_f64(a, b) _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_UNORD_Q)
#define ah_any_f32(tests) ((tests) != 0)
#define ah_any_f64(tests) ((tests) != 0)
#define ah_nan_where_f32(tests, a) \
    ((ah_lanes_f32)_mm512_mask_mov_ps((__m512)(a), tests, (__m512)ah_spread_f32(__builtin_nanf(""))))
#else
typedef ah_lane_ints_f32 ah_lane_tests_f32;
typedef ah_lane_ints_f64 ah_lane_tests_f64;
#define ah_unordered_f32(a, b) (((a) != (a)) | ((b) != (b)))
#define ah_unordered_f64(a, b) (((a) != (a)) | ((b) != (b)))
#define ah_nan_where_f32(tests, a) ((ah_lanes_f32)((ah_lane_ints_f32)(a) | (tests))) /* all ones: a NaN */

static inline int ah_any_f32(ah_lane_ints_f32 tests)
{
    int32_t any = 0;
    for (int i = 0; i < AH_LANES_BYTES / 4; i++)
        any |= tests[i];
    return any != 0;
}

static inline int ah_any_f64(ah_lane_ints_f64 tests)
{
    int64_t any = 0;
    for (int i = 0; i < AH_LANES_BYTES / 8; i++)
        any |= tests[i];
    return any != 0;
}
#endif

/* a where the bits of `choice` are ones, b where they are zeros. */
static inline ah_lanes_f32 ah_choose_f32(ah_lane_ints_f32 choice, ah_lanes_f32 a, ah_lanes_f32 b)
{
    return (ah_lanes_f32)(((ah_lane_ints_f32)a & choice) | ((ah_lane_ints_f32)b & ~choice));
}

static inline ah_lanes_f64 ah_choose_f64(ah_lane_ints_f64 choice, ah_lanes_f64 a, ah_lanes_f64 b)
{
    return (ah_lanes_f64)(((ah_lane_ints_f64)a & choice) | ((ah_lane_ints_f64)b & ~choice));
}

/* e^(x - n log 2) - 1. The polynomials are those of cpu/elementwise/elementwise_math.h and
 * cpu/elementwise/special_vector.h. */
static inline ah_lanes_f32 ah_expm1_series_f32(ah_lanes_f32 x, ah_lanes_f32 n)
{
    ah_lanes_f32 r = ah_fma_f32(n, ah_spread_f32(-0x1.62e4p-1f), x);
    r = ah_fma_f32(n, ah_spread_f32(-0x1.7f7d1cp-20f), r);
    ah_lanes_f32 p = ah_spread_f32(0.000198527617612853646278381f);
    p = ah_fma_f32(p, r, ah_spread_f32(0.00139304355252534151077271f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.00833336077630519866943359f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.0416664853692054748535156f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.166666671633720397949219f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.5f));
    return ah_fma_f32(r * r, p, r);
}

static inline ah_lanes_f32 ah_exp_series_f32(ah_lanes_f32 x, ah_lanes_f32 n)
{
    return ah_expm1_series_f32(x, n) + ah_spread_f32(1.0f);
}

/* 2^x for x from -126 to 128, whose power is infinity; a NaN stays. */
static inline ah_lanes_f32 ah_exp2_middle_f32(ah_lanes_f32 x)
{
#if defined(__AVX512F__)
    ah_lanes_f32 n = (ah_lanes_f32)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    ah_lanes_f32 shifted = x + ah_spread_f32(0x1.8p23f), n = shifted - ah_spread_f32(0x1.8p23f);
#endif
    ah_lanes_f32 r = x - n, p = ah_spread_f32(0.00015353362f);
    p = ah_fma_f32(p, r, ah_spread_f32(0.0013398875f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.00961843692f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.0555033237f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.240226477f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.693147182f));
    p = ah_fma_f32(p, r, ah_spread_f32(1.0f));
#if defined(__AVX512F__)
    return (ah_lanes_f32)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    return p * (ah_lanes_f32)(((ah_lane_bits_f32)shifted << 23) + (ah_lane_bits_f32)ah_spread_f32(1.0f));
#endif
}

/* 2^x for x that is not above 0, but for rounding; 0 where it would leave the normal numbers. */
static inline ah_lanes_f32 ah_exp2_down_f32(ah_lanes_f32 x)
{
    const ah_lanes_f32 least = ah_spread_f32(-126.0f);
    return (ah_lanes_f32)((ah_lane_ints_f32)ah_exp2_middle_f32(ah_larger_f32(least, x)) & ~(x < least));
}

/* p 2^n for whole numbers n from -152 to 130, with infinite and subnormal results; `shifted` is n + 0x1.8p23f. */
static inline ah_lanes_f32 ah_times_power_f32(ah_lanes_f32 p, ah_lanes_f32 shifted)
{
#if defined(__AVX512F__)
    return (ah_lanes_f32)_mm512_scalef_ps((__m512)p, (__m512)(shifted - ah_spread_f32(0x1.8p23f)));
#else
    ah_lane_ints_f32 k = (ah_lane_ints_f32)shifted - 0x4b400000, half = k >> 1;
    return p * (ah_lanes_f32)((half + 127) << 23) * (ah_lanes_f32)((k - half + 127) << 23);
#endif
}

/* e^x for x that is not above 90, with subnormal results, as ah_expf has; NaN stays. */
static inline ah_lanes_f32 ah_exp_low_f32(ah_lanes_f32 x)
{
    const ah_lanes_f32 magic = ah_spread_f32(0x1.8p23f);
    ah_lanes_f32 c = ah_larger_f32(ah_spread_f32(-105.0f), x);
    ah_lanes_f32 shifted = ah_fma_f32(c, ah_spread_f32(0x1.715476p0f), magic);
    return ah_times_power_f32(ah_exp_series_f32(c, shifted - magic), shifted);
}

/* e^x of any x, as ah_expf. */
static inline ah_lanes_f32 ah_exp_f32(ah_lanes_f32 x)
{
    return ah_exp_low_f32(ah_smaller_f32(ah_spread_f32(90.0f), x));
}

/* e^x - 1 = 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)), which keeps small results exact to the last bit or two; 2^(n-1) is
 * finite wherever the result is. */
static inline ah_lanes_f32 ah_expm1_f32(ah_lanes_f32 x)
{
    const ah_lanes_f32 magic = ah_spread_f32(0x1.8p23f), half = ah_spread_f32(0.5f);
    ah_lanes_f32 c = ah_larger_f32(ah_spread_f32(-30.0f), ah_smaller_f32(ah_spread_f32(89.0f), x));
    ah_lanes_f32 shifted = ah_fma_f32(c, ah_spread_f32(0x1.715476p0f), magic);
    ah_lanes_f32 scale = (ah_lanes_f32)(((ah_lane_bits_f32)shifted << 23) + (ah_lane_bits_f32)half);
    ah_lanes_f32 r = ah_fma_f32(scale, ah_expm1_series_f32(c, shifted - magic), scale - half);
    ah_lanes_f32 size = (ah_lanes_f32)((ah_lane_bits_f32)x & 0x7fffffffu);
    return ah_choose_f32(size < ah_spread_f32(0x1p-100f), x, r + r);
}

/* 2^x of any x, to about a unit in the last place; whole x have exact powers. */
static inline ah_lanes_f32 ah_exp2_f32(ah_lanes_f32 x)
{
    const ah_lanes_f32 magic = ah_spread_f32(0x1.8p23f);
    ah_lanes_f32 c = ah_larger_f32(ah_spread_f32(-152.0f), ah_smaller_f32(ah_spread_f32(130.0f), x));
    ah_lanes_f32 shifted = c + magic, r = c - (shifted - magic), p = ah_spread_f32(0.00015353362f);
    p = ah_fma_f32(p, r, ah_spread_f32(0.0013398875f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.009618437f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.055503324f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.24022648f));
    p = ah_fma_f32(p, r, ah_spread_f32(0.6931472f));
    return ah_times_power_f32(ah_fma_f32(p, r, ah_spread_f32(1.0f)), shifted);
}

static inline ah_lanes_f64 ah_exp2_down_f64(ah_lanes_f64 x)
{
    static const double series[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                    1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
    const ah_lanes_f64 magic = ah_spread_f64(0x1.8p52), one = ah_spread_f64(1.0), least = ah_spread_f64(-1022.0);
    ah_lanes_f64 c = ah_larger_f64(least, x), p = ah_spread_f64(1.0 / 479001600), shifted = c + magic;
    ah_lanes_f64 r = (c - (shifted - magic)) * ah_spread_f64(0x1.62e42fefa39efp-1);
    for (int i = 0; i < 12; i++)
        p = ah_fma_f64(p, r, ah_spread_f64(series[i]));
    p *= (ah_lanes_f64)(((ah_lane_bits_f64)shifted << 52) + (ah_lane_bits_f64)one);
    return (ah_lanes_f64)((ah_lane_ints_f64)p & ~(x < least));
}

/* As many items of bfloat16 as there are lanes of float: read; rounded as ah_f32_to_bf16 does, still as float; and
 * rounded and written. */
#if defined(__AVX512BW__)
static inline ah_lanes_f32 ah_wide_bf16(const uint16_t *x)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x));
    return (ah_lanes_f32)_mm512_slli_epi32(wide, 16);
}

static inline __m512i ah_round_bits_bf16(ah_lanes_f32 x)
{
    __m512i bits = (__m512i)x, rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    rounded = _mm512_mask_add_epi32(rounded, _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)), rounded,
                                    _mm512_set1_epi32(1));
    return _mm512_mask_or_epi32(rounded, ah_unordered_f32(x, x), bits, _mm512_set1_epi32(0x400000));
}

static inline ah_lanes_f32 ah_rounded_bf16(ah_lanes_f32 x)
{
    return (ah_lanes_f32)_mm512_and_epi32(ah_round_bits_bf16(x), _mm512_set1_epi32((int)0xffff0000));
}

static inline void ah_narrow_bf16(uint16_t *y, ah_lanes_f32 x)
{
    __m256i items = _mm512_cvtepi32_epi16(_mm512_srli_epi32(ah_round_bits_bf16(x), 16));
    _mm256_storeu_si256((__m256i *)(void *)y, items);
}
#elif defined(__AVX2__)
static inline ah_lanes_f32 ah_wide_bf16(const uint16_t *x)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
    return (ah_lanes_f32)_mm256_slli_epi32(wide, 16);
}

static inline __m256i ah_round_bits_bf16(ah_lanes_f32 x)
{
    __m256i bits = (__m256i)x, odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    return _mm256_blendv_epi8(rounded, quiet, (__m256i)(x != x));
}

static inline ah_lanes_f32 ah_rounded_bf16(ah_lanes_f32 x)
{
    return (ah_lanes_f32)_mm256_and_si256(ah_round_bits_bf16(x), _mm256_set1_epi32((int)0xffff0000));
}

static inline void ah_narrow_bf16(uint16_t *y, ah_lanes_f32 x)
{
    __m256i upper = _mm256_srli_epi32(ah_round_bits_bf16(x), 16);
    __m128i items = _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
    _mm_storeu_si128((__m128i *)(void *)y, items);
}

/* 16 numbers, by the upper halves of the rounded ones. */
static inline void ah_narrow_two_bf16(uint16_t *y, ah_lanes_f32 low, ah_lanes_f32 high)
{
    __m256i a = _mm256_srli_epi32(ah_round_bits_bf16(low), 16), b = _mm256_srli_epi32(ah_round_bits_bf16(high), 16);
    __m256i items = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)y, items);
}
#else
typedef uint16_t ah_lanes_bf16 __attribute__((vector_size(AH_LANES_BYTES / 2)));
typedef ah_lanes_bf16 ah_lanes_at_bf16 __attribute__((aligned(2), may_alias));

static inline ah_lanes_f32 ah_wide_bf16(const uint16_t *x)
{
    return (ah_lanes_f32)(__builtin_convertvector(*(const ah_lanes_at_bf16 *)x, ah_lane_bits_f32) << 16);
}

static inline ah_lanes_f32 ah_rounded_bf16(ah_lanes_f32 x)
{
    ah_lane_bits_f32 bits = (ah_lane_bits_f32)x, number = (ah_lane_bits_f32)(x == x);
    ah_lane_bits_f32 rounded = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
    return (ah_lanes_f32)(((rounded & number) | (quiet & ~number)) & 0xffff0000);
}

static inline void ah_narrow_bf16(uint16_t *y, ah_lanes_f32 x)
{
    *(ah_lanes_at_bf16 *)y = __builtin_convertvector((ah_lane_bits_f32)ah_rounded_bf16(x) >> 16, ah_lanes_bf16);
}
#endif

/* The items from number `at` on of an array of float, or with `half` of bfloat16. */
static inline __attribute__((always_inline)) ah_lanes_f32 ah_lanes_load(const bool half, const void *array, int64_t at)
{
    if (half)
        return ah_wide_bf16((const uint16_t *)array + at);
    return *(const ah_lanes_at_f32 *)((const float *)array + at);
}

static inline __attribute__((always_inline)) void ah_lanes_store(const bool half, void *array, int64_t at,
                                                                 ah_lanes_f32 v)
{
    if (half)
        ah_narrow_bf16((uint16_t *)array + at, v);
    else
        *(ah_lanes_at_f32 *)((float *)array + at) = v;
}

/* to = scale * the transpose of 4 x 4 numbers; steps from row to row. */
static inline void ah_turn_4_f32(float *to, int64_t to_step, const float *from, int64_t from_step, float scale)
{
#if defined(__SSE2__)
    __m128 factor = _mm_set1_ps(scale), a = _mm_mul_ps(_mm_loadu_ps(from), factor);
    __m128 b = _mm_mul_ps(_mm_loadu_ps(from + from_step), factor);
    __m128 c = _mm_mul_ps(_mm_loadu_ps(from + 2 * from_step), factor);
    __m128 d = _mm_mul_ps(_mm_loadu_ps(from + 3 * from_step), factor);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_step, b);
    _mm_storeu_ps(to + 2 * to_step, c);
    _mm_storeu_ps(to + 3 * to_step, d);
#else
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            to[j * to_step + i] = from[i * from_step + j] * scale;
#endif
}

static inline void ah_turn_4_f64(double *to, int64_t to_step, const double *from, int64_t from_step, double scale)
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            to[j * to_step + i] = from[i * from_step + j] * scale;
}
