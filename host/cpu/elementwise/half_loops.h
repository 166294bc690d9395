/* Loops of one or two fp16 or bf16 inputs that are widened, computed in float32 and rounded in registers, where the
 * level has AVX-512; elsewhere the iterator converts them in buffers. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/numeric/half.h"
#include "cpu/loop/lanes.h"

#ifdef __AVX512F__

static inline ah_lanes_f32 ah_wide_f16(const uint16_t *x)
{
    return (ah_lanes_f32)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

static inline ah_lanes_f32 ah_wide_bf16(const uint16_t *x)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x));
    return (ah_lanes_f32)_mm512_slli_epi32(wide, 16);
}

static inline void ah_narrow_f16(uint16_t *y, ah_lanes_f32 x)
{
    _mm256_storeu_si256((__m256i *)(void *)y, _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
}

static inline void ah_narrow_bf16(uint16_t *y, ah_lanes_f32 x)
{
    __m512i bits = (__m512i)x, rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    rounded = _mm512_mask_add_epi32(rounded, _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)), rounded,
                                    _mm512_set1_epi32(1));
    rounded = _mm512_mask_or_epi32(rounded, ah_unordered_f32(x, x), bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i *)(void *)y, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

/* As LOOP1 and LOOP2 (cpu/elementwise/elementwise.h), of an expression of vectors; the last one is filled up. */
#define AH_HALF_LOOP1(name, half, expr)                                                                 \
    static void name##_##half(int64_t n, void *const *data, const int64_t *step, const void *context)   \
    {                                                                                                   \
        uint16_t *y = data[0], last[16] = {0};                                                          \
        const uint16_t *x = data[1];                                                                    \
        for (int64_t i = 0; i < n; i += 16) {                                                           \
            size_t left = n - i < 16 ? (size_t)(n - i) * sizeof *y : 0;                                 \
            ah_lanes_f32 a = ah_wide_##half(left ? memcpy(last, x + i, left) : x + i);                  \
            ah_narrow_##half(left ? last : y + i, (expr));                                              \
            if (left)                                                                                   \
                memcpy(y + i, last, left);                                                              \
        }                                                                                               \
    }
#define AH_HALF_LOOPS1(name, expr) AH_HALF_LOOP1(name, f16, expr) AH_HALF_LOOP1(name, bf16, expr)
#define AH_HALF_LOOP2(name, half, expr)                                                                 \
    static void name##_##half(int64_t n, void *const *data, const int64_t *step, const void *context)   \
    {                                                                                                   \
        uint16_t *y = data[0], first[16], second[16];                                                   \
        const uint16_t *p = data[1], *q = data[2];                                                      \
        for (int i = 0; i < 16; i++) {                                                                  \
            first[i] = p[0];                                                                            \
            second[i] = q[0];                                                                           \
        }                                                                                               \
        for (int64_t i = 0; i < n; i += 16) {                                                           \
            size_t left = n - i < 16 ? (size_t)(n - i) * sizeof *y : 0;                                 \
            if (left && step[1])                                                                        \
                memcpy(first, p + i, left);                                                             \
            if (left && step[2])                                                                        \
                memcpy(second, q + i, left);                                                            \
            ah_lanes_f32 a = ah_wide_##half(left || !step[1] ? first : p + i);                          \
            ah_lanes_f32 b = ah_wide_##half(left || !step[2] ? second : q + i);                         \
            ah_narrow_##half(left ? first : y + i, (expr));                                             \
            if (left)                                                                                   \
                memcpy(y + i, first, left);                                                             \
        }                                                                                               \
    }
#define AH_HALF_LOOPS2(name, expr) AH_HALF_LOOP2(name, f16, expr) AH_HALF_LOOP2(name, bf16, expr)
#define AH_HALF_ENTRIES(name) [AH_F16] = name##_f16, [AH_BF16] = name##_bf16,

#else
#define AH_HALF_LOOPS1(name, expr)
#define AH_HALF_LOOPS2(name, expr)
#define AH_HALF_ENTRIES(name)
#endif
