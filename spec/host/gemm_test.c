/* Products of matrices: exact where the sums are; of bfloat16 with the bits that cpu/linear/gemm_blocks.h states. */
#include <stdlib.h>

#include "base/numeric/half.h"
#include "base/process/threads.h"
#include "cpu/linear/gemm.h"
#include "cpu/linear/gemm_blocks.h"
#include "test.h"

enum { MOST = 160 };

static uint16_t left[MOST * MOST], right[MOST * MOST], bias[MOST], result[MOST * MOST];
static float wide[MOST * MOST];

/* The larger numbers of bfloat16's exponents from -8 to 7 differ by less than 2^53 in products and their sums, so that
 * doubles hold these exactly. */
static uint16_t random_item(bool whole)
{
    int number = rand() % 17 - 8;
    return ah_f32_to_bf16(whole ? (float)number : ldexpf((float)(128 + rand() % 128), rand() % 16 - 15) *
                                                      (number < 0 ? -1.0f : 1.0f));
}

static void fill(bool whole)
{
    for (int i = 0; i < MOST * MOST; i++) {
        left[i] = random_item(whole);
        right[i] = random_item(whole);
    }
    for (int i = 0; i < MOST; i++)
        bias[i] = random_item(whole);
}

/* Round to odd: towards zero, and the last bit is set where that is not exact. */
static float round_to_odd(double exact)
{
    float rounded = (float)exact;
    if ((double)rounded == exact)
        return rounded;
    if (fabs((double)rounded) > fabs(exact))
        rounded = nextafterf(rounded, 0);
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    bits |= 1;
    memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

static double product_at(int64_t a, int64_t b)
{
    return (double)ah_bf16_to_f32(left[a]) * (double)ah_bf16_to_f32(right[b]);
}

/* One product against sums of pairs; rows of `left` and `right` are MOST items. */
static bool is_right(bool ta, bool tb, int64_t m, int64_t n, int64_t k, bool biased)
{
    memset(result, 0xff, sizeof result);
    int done = ah_gemm_bf16(ta, tb, m, n, k, left, MOST, right, MOST, biased ? bias : NULL, result, MOST);
    int sums = ah_gemm_bf16_wide(ta, tb, m, n, k, left, MOST, right, MOST, wide, MOST);
    for (int64_t i = 0; i < m && done > 0; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t d = 0; d < k; d += 2) {
                double pair = 0;
                for (int64_t e = d; e < k && e < d + 2; e++)
                    pair += product_at(ta ? e * MOST + i : i * MOST + e, tb ? j * MOST + e : e * MOST + j);
                sum = round_to_odd((double)sum + (double)round_to_odd(pair));
            }
            if (sums > 0 && wide[i * MOST + j] != sum)
                return false;
            if (result[i * MOST + j] != ah_f32_to_bf16(sum + (biased ? ah_bf16_to_f32(bias[j]) : 0)))
                return false;
        }
    for (int64_t i = 0; i < MOST * MOST && done > 0; i++)
        if ((i / MOST >= m || i % MOST >= n) && result[i] != 0xffff)
            return false;
    return done >= 0 && sums >= 0;
}

static const int64_t sizes[][3] = {{1, 3, 5},     {5, 1, 7},      {1, 1, 9},     {31, 9, 1},
                                   {8, 8, 4},     {9, 17, 6},     {70, 33, 31},  {129, 113, 160},
                                   {64, 150, 160}, {150, 1, 160}, {1, 150, 160}, {150, 160, 3}};

static void check_sizes(bool whole)
{
    fill(whole);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int way = 0; way < 8; way++)
            CHECK(is_right(way & 1, way & 2, sizes[i][0], sizes[i][1], sizes[i][2], way & 4));
}

AH_TEST(products_of_bfloat16_are_exact_where_their_sums_are)
{
    check_sizes(true);
}

AH_TEST(products_of_bfloat16_by_blocks_add_pairs_in_order)
{
    if (ah_gemm_blocks_found())
        check_sizes(false);
}

/* Many rows, and depths of more than one part; the float32 items are between two of bfloat16. */
static bool rounded_is_right(bool tb, int64_t m, int64_t n, int64_t k, bool biased)
{
    int64_t lda = k + 1, ldb = (tb ? k : n) + 3, ldc = n + 2;
    uint16_t *a = calloc((size_t)(m * lda), sizeof *a), *c = calloc((size_t)(m * ldc), sizeof *c);
    float *b = calloc((size_t)((tb ? n : k) * ldb), sizeof *b);
    for (int64_t i = 0; i < m * lda; i++)
        a[i] = random_item(false);
    for (int64_t i = 0; i < (tb ? n : k) * ldb; i++)
        b[i] = ah_bf16_to_f32(random_item(false)) * (1 + 0x1p-10f);
    memset(c, 0xff, (size_t)(m * ldc) * sizeof *c);
    bool exact = ah_gemm_rounded(tb, m, n, k, a, lda, b, ldb, biased ? bias : NULL, c, ldc) == 0;
    for (int64_t i = 0; i < m && exact; i += m / 3 + 1)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t d = 0; d < k; d += 2) {
                double pair[2] = {0, 0};
                for (int64_t e = d; e < k && e < d + 2; e++)
                    pair[e - d] = (double)ah_bf16_to_f32(a[i * lda + e]) *
                                  (double)ah_bf16_to_f32(ah_f32_to_bf16(b[tb ? j * ldb + e : e * ldb + j]));
                sum = (float)((double)(float)((double)sum + pair[1]) + pair[0]);
            }
            exact &= c[i * ldc + j] == ah_f32_to_bf16(sum + (biased ? ah_bf16_to_f32(bias[j]) : 0));
        }
    for (int64_t i = 0; i < m; i++)
        exact &= c[i * ldc + n] == 0xffff && c[i * ldc + n + 1] == 0xffff;
    free(a);
    free(b);
    free(c);
    return exact;
}

AH_TEST(products_of_a_rounded_matrix_add_pairs_in_order_for_any_number_of_threads)
{
    static const int64_t shapes[][3] = {{1, 1, 1},     {7, 16, 2},     {8, 48, 64},     {9, 49, 33},  {64, 33, 95},
                                        {70, 97, 128}, {65, 50, 2049}, {1030, 51, 2080}, {200, MOST, 257}};
    int before = ah_num_threads();
    fill(false);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && ah_gemm_rounds(); i++)
        for (int way = 0; way < 8; way++) {
            ah_set_num_threads(1 + (way & 1));
            CHECK(rounded_is_right(way & 2, shapes[i][0], shapes[i][1], shapes[i][2], way & 4));
        }
    ah_set_num_threads(before);
}

enum { DEEP_ROWS = 33, DEEP_COLS = 65, DEEP = 2500 };

/* Whole numbers, so that the sums are exact in any order; a product of this shape is divided along its sums. */
AH_TEST(deep_products_of_float32_are_exact_for_any_number_of_threads)
{
    static float a[DEEP_ROWS * DEEP], b[DEEP_COLS * DEEP], biases[DEEP_COLS], exact[DEEP_ROWS * DEEP_COLS];
    float c[DEEP_ROWS * (DEEP_COLS + 3)];
    int before = ah_num_threads();
    for (int i = 0; i < DEEP_ROWS * DEEP; i++)
        a[i] = (float)(rand() % 17 - 8);
    for (int i = 0; i < DEEP_COLS * DEEP; i++)
        b[i] = (float)(rand() % 17 - 8);
    for (int j = 0; j < DEEP_COLS; j++)
        biases[j] = (float)(rand() % 17 - 8);
    for (int i = 0; i < DEEP_ROWS; i++)
        for (int j = 0; j < DEEP_COLS; j++) {
            exact[i * DEEP_COLS + j] = biases[j];
            for (int d = 0; d < DEEP; d++)
                exact[i * DEEP_COLS + j] += a[i * DEEP + d] * b[j * DEEP + d];
        }
    for (int threads = 1; threads <= 5; threads++) {
        ah_set_num_threads(threads);
        for (int i = 0; i < DEEP_ROWS * (DEEP_COLS + 3); i++)
            c[i] = -1;
        CHECK_OK(ah_gemm_bias_f32(false, true, DEEP_ROWS, DEEP_COLS, DEEP, a, DEEP, b, DEEP, biases, c, DEEP_COLS + 3));
        int wrong = 0;
        for (int i = 0; i < DEEP_ROWS; i++)
            for (int j = 0; j < DEEP_COLS + 3; j++)
                wrong += c[i * (DEEP_COLS + 3) + j] != (j < DEEP_COLS ? exact[i * DEEP_COLS + j] : -1);
        CHECK(wrong == 0);
    }
    ah_set_num_threads(before);
}
