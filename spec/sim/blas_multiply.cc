/* Products by plain loops, so that a stream's thread enters no library with its own threads. Sums are made in
 * double in the order of k; the operands are rounded first where the compute type requires it. */
#include "blas.h"

#include "base/numeric/fp8.h"

#include <algorithm>
#include <math.h>
#include <string.h>

namespace sim
{
static bool is_fp8(int type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

size_t size_of_type(int type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : is_fp8(type) ? 1 : 2;
}

double load_real(int type, const void *from, int64_t index)
{
    switch (type) {
    case CUDA_R_64F:
        return static_cast<const double *>(from)[index];
    case CUDA_R_32F:
        return static_cast<const float *>(from)[index];
    case CUDA_R_16F:
        return to_float(static_cast<const half_t *>(from)[index]);
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
        return ah_fp8_decode(static_cast<const uint8_t *>(from)[index], type == CUDA_R_8F_E5M2);
    default:
        return to_float(static_cast<const bf16_t *>(from)[index]);
    }
}

void store_real(int type, void *to, int64_t index, double value)
{
    switch (type) {
    case CUDA_R_64F:
        static_cast<double *>(to)[index] = value;
        return;
    case CUDA_R_32F:
        static_cast<float *>(to)[index] = (float)value;
        return;
    case CUDA_R_16F:
        static_cast<half_t *>(to)[index] = from_float<half_t>((float)value);
        return;
    default:
        static_cast<bf16_t *>(to)[index] = from_float<bf16_t>((float)value);
    }
}

static bool known_type(uint32_t type)
{
    return type == CUDA_R_32F || type == CUDA_R_64F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

/* 8-bit floats: A and B along the depth, of lines and sizes that are multiples of 16, at most one in e5m2. */
static const char *refuse_fp8(const Product &p)
{
    if (!is_fp8((int)p.a.type) || !is_fp8((int)p.b.type))
        return "8-bit floats times other numbers";
    if (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2)
        return "both operands in e5m2";
    if (p.c.type != p.d.type || !known_type(p.d.type) || p.d.type == CUDA_R_64F)
        return "a result of 8-bit floats that is not f32, f16 or bf16";
    if (p.how.scale != CUDA_R_32F || p.how.compute != CUBLAS_COMPUTE_32F)
        return "a compute or scale type other than f32 for 8-bit floats";
    if (p.how.transpose_a != CUBLAS_OP_T || p.how.transpose_b != CUBLAS_OP_N)
        return "8-bit floats that are not read along the depth";
    if (p.a.rows % 16 || p.d.rows % 16 || p.a.leading % 16 || p.b.leading % 16 || p.a.batch != 1)
        return "8-bit floats of sizes that are no multiples of 16";
    bool biased = p.how.epilogue == CUBLASLT_EPILOGUE_BIAS;
    if (p.how.epilogue != CUBLASLT_EPILOGUE_DEFAULT && (!biased || p.d.type == CUDA_R_32F))
        return "an epilogue that 8-bit floats do not have";
    return nullptr;
}

static const char *refuse_types(const Product &p)
{
    if (is_fp8((int)p.a.type) || is_fp8((int)p.b.type))
        return refuse_fp8(p);
    if (!known_type(p.a.type) || !known_type(p.c.type) || p.a.type != p.b.type || p.c.type != p.d.type)
        return "types other than f32, f64, f16 and bf16, or A's and B's, C's and D's not the same";
    if (p.d.type != p.a.type && (p.d.type != CUDA_R_32F || p.a.type == CUDA_R_64F))
        return "a result of another type than the operands', which may be f32 for halves only";
    bool real64 = p.a.type == CUDA_R_64F;
    if (p.how.scale != (real64 ? CUDA_R_64F : CUDA_R_32F) || (p.how.compute == CUBLAS_COMPUTE_64F) != real64)
        return "a compute or scale type that does not fit the operands";
    return nullptr;
}

static const char *refuse_layout(const ah_cublas_layout &layout)
{
    if (layout.order != CUBLASLT_ORDER_COL && layout.order != CUBLASLT_ORDER_ROW)
        return "an order other than columns or rows";
    uint64_t line = layout.order == CUBLASLT_ORDER_ROW ? layout.columns : layout.rows;
    if (layout.leading < (int64_t)line)
        return "a leading dimension that is too small";
    return layout.batch < 1 ? "a batch of nothing" : nullptr;
}

static const char *refuse_epilogue(const Product &p)
{
    switch (p.how.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_GELU:
        return nullptr;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        return p.how.bias ? nullptr : "an epilogue with a bias, and no pointer to it";
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
        if (p.how.aux_leading % 128 || p.how.aux_leading < (int64_t)p.d.rows)
            return "a mask whose leading dimension is not a multiple of 128 from the rows on";
        break;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
        if (p.how.aux_leading % 8 || p.how.aux_leading < (int64_t)p.d.rows)
            return "a GELU input whose leading dimension is not a multiple of 8 from the rows on";
        break;
    default:
        return "an epilogue that is not simulated";
    }
    if (p.d.order != CUBLASLT_ORDER_COL)
        return "an auxiliary buffer, and D not by columns";
    bool has_bias = p.how.epilogue & (CUBLASLT_EPILOGUE_BIAS | 16);
    if (!p.how.aux || (has_bias && !p.how.bias))
        return "an epilogue without the pointers that it needs";
    return nullptr;
}

static uint64_t height(const ah_cublas_layout &layout, int transpose)
{
    return transpose == CUBLAS_OP_N ? layout.rows : layout.columns;
}

static uint64_t width(const ah_cublas_layout &layout, int transpose)
{
    return transpose == CUBLAS_OP_N ? layout.columns : layout.rows;
}

const char *refuse_product(const Product &p)
{
    for (const ah_cublas_layout *layout : {&p.a, &p.b, &p.c, &p.d})
        if (const char *refused = refuse_layout(*layout))
            return refused;
    if (const char *refused = refuse_types(p))
        return refused;
    if (height(p.a, p.how.transpose_a) != p.d.rows || width(p.b, p.how.transpose_b) != p.d.columns ||
        width(p.a, p.how.transpose_a) != height(p.b, p.how.transpose_b) || p.c.rows != p.d.rows ||
        p.c.columns != p.d.columns)
        return "sizes that do not fit";
    if (p.b.batch != p.a.batch || p.c.batch != p.a.batch || p.d.batch != p.a.batch)
        return "batches of different counts";
    return refuse_epilogue(p);
}

/* An operand's numbers keep as many bits as the compute type reads. */
static double rounded(int compute, double value)
{
    if (compute == CUBLAS_COMPUTE_32F_FAST_16BF)
        return to_float(from_float<bf16_t>((float)value));
    if (compute != CUBLAS_COMPUTE_32F_FAST_TF32 || !isfinite(value))
        return value;
    uint32_t bits = (uint32_t)bits_of((float)value);
    return value_of<float>((bits + 0xfff + (bits >> 13 & 1)) & ~(uint64_t)0x1fff & 0xffffffff);
}

/* Rows and columns of one matrix of a batch. */
struct Matrix {
    const ah_cublas_layout &layout;
    char *at;

    Matrix(const ah_cublas_layout &its_layout, const void *first, int batch)
        : layout(its_layout), at(static_cast<char *>(const_cast<void *>(first)) +
                                 batch * its_layout.stride * (int64_t)size_of_type((int)its_layout.type))
    {
    }
    int64_t place(int64_t row, int64_t column) const
    {
        return layout.order == CUBLASLT_ORDER_ROW ? row * layout.leading + column : column * layout.leading + row;
    }
    double load(int64_t row, int64_t column) const
    {
        return load_real((int)layout.type, at, place(row, column));
    }
    void store(int64_t row, int64_t column, double value) const
    {
        store_real((int)layout.type, at, place(row, column), value);
    }
    /* All of them, transposed or not, row by row; rows have `pitch` numbers, those after the columns are 0. */
    std::vector<double> read(int transpose, int compute, int64_t pitch) const
    {
        int64_t rows = (int64_t)height(layout, transpose), columns = (int64_t)width(layout, transpose);
        std::vector<double> values((size_t)(rows * pitch));
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                values[(size_t)(i * pitch + j)] =
                    rounded(compute, transpose == CUBLAS_OP_N ? load(i, j) : load(j, i));
        return values;
    }
};

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

/* The bias and the auxiliary buffer of one matrix of a batch. */
struct Epilogue {
    const ah_cublas_matmul &how;
    int type, bias_type, aux_type, batch;

    Epilogue(const Product &p, int its_batch)
        : how(p.how), type((int)p.d.type), bias_type(p.how.bias_type < 0 ? type : p.how.bias_type),
          aux_type(p.how.aux_type < 0 ? type : p.how.aux_type), batch(its_batch)
    {
    }
    double bias(int64_t i) const
    {
        return load_real(bias_type, how.bias, batch * how.bias_stride + i);
    }
    void store_bias(int64_t i, double value) const
    {
        store_real(bias_type, how.bias, batch * how.bias_stride + i, value);
    }
    bool bit(int64_t place) const
    {
        return static_cast<const uint8_t *>(how.aux)[place / 8] >> place % 8 & 1;
    }
    void store_bit(int64_t place, bool value) const
    {
        uint8_t *byte = static_cast<uint8_t *>(how.aux) + place / 8;
        *byte = (uint8_t)((*byte & ~(1 << place % 8)) | value << place % 8);
    }
    double apply(double x, int64_t row, int64_t column) const
    {
        int64_t place = batch * how.aux_stride + column * how.aux_leading + row;
        switch (how.epilogue & ~(uint32_t)(CUBLASLT_EPILOGUE_BIAS | 16)) {
        case CUBLASLT_EPILOGUE_RELU_AUX:
            store_bit(place, x > 0);
            return x > 0 ? x : x < 0 ? 0 : x;
        case CUBLASLT_EPILOGUE_RELU:
            return x > 0 ? x : x < 0 ? 0 : x;
        case CUBLASLT_EPILOGUE_GELU_AUX:
            store_real(aux_type, how.aux, place, x);
            return gelu(x);
        case CUBLASLT_EPILOGUE_GELU:
            return gelu(x);
        case CUBLASLT_EPILOGUE_DRELU:
            return bit(place) ? x : 0;
        case CUBLASLT_EPILOGUE_DGELU:
            return x * gelu_slope(load_real(aux_type, how.aux, place));
        default:
            return x;
        }
    }
};

/* A bias's gradient from an operand: its sums over k. */
static void sum_over_k(const Epilogue &end, const std::vector<double> &values, int64_t count, int64_t k, int64_t step,
                       int64_t step_k)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t p = 0; p < k; p++)
            sum += values[(size_t)(i * step + p * step_k)];
        end.store_bias(i, sum);
    }
}

/* A partial sum as it is stored in the workspace. */
static double rounded_part(const Product &p, double sum)
{
    int type = p.by.rounds ? (int)p.d.type : p.how.scale;
    double stored = 0;
    store_real(type, &stored, 0, sum);
    return load_real(type, &stored, 0);
}

/* A tile of sums: rows of a times columns of b, which fit into the processor's registers. */
enum { TILE_ROWS = 4, LANES = 8, TILE_COLUMNS = 2 * LANES };
typedef double Lanes __attribute__((vector_size(LANES * sizeof(double))));

/* Multiply `rows` rows of a, of depth k, by a tile's columns of b, from place begin to end of the depth; each sum is
 * made in the order of the depth. `from` is in b's first row; rows of b have `pitch` numbers. */
static void multiply_tile(const double *a, int rows, int64_t k, const double *from, int64_t pitch, int64_t begin,
                          int64_t end, double sums[TILE_ROWS][TILE_COLUMNS])
{
    const double *row[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i++)
        row[i] = a + (i < rows ? i : 0) * k;
    Lanes left[TILE_ROWS] = {}, right[TILE_ROWS] = {};
    for (int64_t q = begin; q < end; q++) {
        Lanes b_left, b_right;
        memcpy(&b_left, from + q * pitch, sizeof b_left);
        memcpy(&b_right, from + q * pitch + LANES, sizeof b_right);
#pragma GCC unroll 4
        for (int i = 0; i < TILE_ROWS; i++) {
            left[i] += row[i][q] * b_left;
            right[i] += row[i][q] * b_right;
        }
    }
    for (int i = 0; i < TILE_ROWS; i++) {
        memcpy(sums[i], &left[i], sizeof left[i]);
        memcpy(sums[i] + LANES, &right[i], sizeof right[i]);
    }
}

/* Multiply `rows` rows of a, of depth k, by b, by parts of the depth; rows of b and sums have `pitch` numbers. */
static void multiply_rows(const Product &p, const double *a, int rows, int64_t k, const std::vector<double> &b,
                          int64_t pitch, std::vector<double> &sums)
{
    int64_t each = (k + p.by.parts - 1) / p.by.parts;
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t begin = 0; begin < k; begin += each)
        for (int64_t column = 0; column < pitch; column += TILE_COLUMNS) {
            double part[TILE_ROWS][TILE_COLUMNS];
            multiply_tile(a, rows, k, b.data() + column, pitch, begin, std::min(k, begin + each), part);
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < TILE_COLUMNS; j++)
                    sums[(size_t)(i * pitch + column + j)] +=
                        p.by.parts == 1 ? part[i][j] : rounded_part(p, part[i][j]);
        }
}

static void multiply_one(const Product &p, int batch, double alpha, double beta)
{
    Epilogue end(p, batch);
    Matrix c(p.c, p.at_c, batch), d(p.d, p.at_d, batch);
    int64_t m = (int64_t)p.d.rows, n = (int64_t)p.d.columns, k = (int64_t)width(p.a, p.how.transpose_a);
    int64_t pitch = (n + TILE_COLUMNS - 1) / TILE_COLUMNS * TILE_COLUMNS;
    std::vector<double> a = Matrix(p.a, p.at_a, batch).read(p.how.transpose_a, p.how.compute, k);
    std::vector<double> b = Matrix(p.b, p.at_b, batch).read(p.how.transpose_b, p.how.compute, pitch);
    if (p.how.epilogue == CUBLASLT_EPILOGUE_BGRADA)
        sum_over_k(end, a, m, k, k, 1);
    if (p.how.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        sum_over_k(end, b, n, k, 1, pitch);
    bool biased = p.how.epilogue & CUBLASLT_EPILOGUE_BIAS;
    alpha *= (p.how.scale_a ? *p.how.scale_a : 1.0) * (p.how.scale_b ? *p.how.scale_b : 1.0);
    std::vector<double> sums((size_t)(TILE_ROWS * pitch));
    for (int64_t i = 0; i < m; i++) {
        int64_t row = i % TILE_ROWS;
        if (row == 0)
            multiply_rows(p, a.data() + i * k, (int)std::min(m - i, (int64_t)TILE_ROWS), k, b, pitch, sums);
        double gradient = 0;
        for (int64_t j = 0; j < n; j++) {
            double x = alpha * sums[(size_t)(row * pitch + j)];
            if (beta != 0) /* is added to a sum in registers */
                x = (p.how.scale == CUDA_R_32F ? (float)x : x) + beta * c.load(i, j);
            x += biased ? end.bias(i) : 0;
            x = end.apply(x, i, j);
            d.store(i, j, x);
            gradient += x;
        }
        if (p.how.epilogue & 16)
            end.store_bias(i, gradient);
    }
}

void multiply(const Product &p)
{
    double alpha = p.device_alpha ? load_real(p.how.scale, p.device_alpha, 0) : p.alpha;
    double beta = p.device_beta ? load_real(p.how.scale, p.device_beta, 0) : p.beta;
    for (int batch = 0; batch < p.a.batch; batch++)
        multiply_one(p, batch, alpha, beta);
}
} // namespace sim
