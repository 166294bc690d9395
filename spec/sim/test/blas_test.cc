/* cuBLASLt: products in all types and layouts, epilogues, refusals. */
#include "test.h"

#include <math.h>

#include "sim/blas.h"

using test::Device;
using test::text_of;

/* A matrix on the device, by columns with two rows to spare, and its values in double. */
struct Operand {
    cublasLtMatrixLayout_t layout;
    CUdeviceptr at = 0;
    int64_t rows, columns, leading;
    int type;
    std::vector<double> values; /* by columns, without the spare rows */

    Operand(Device &device, int its_type, int64_t its_rows, int64_t its_columns, unsigned seed)
        : rows(its_rows), columns(its_columns), leading(its_rows + 2), type(its_type)
    {
        CHECK(cublasLtMatrixLayoutCreate(&layout, type, (uint64_t)rows, (uint64_t)columns, leading) == 0);
        std::vector<char> bytes((size_t)(leading * columns) * sim::size_of_type(type), (char)0xff);
        for (int64_t j = 0; j < columns; j++)
            for (int64_t i = 0; i < rows; i++) {
                seed = seed * 1664525 + 1013904223;
                sim::store_real(type, bytes.data(), j * leading + i, ((int)(seed >> 24) - 128) / 16.0);
                values.push_back(sim::load_real(type, bytes.data(), j * leading + i));
            }
        CHECK(cuMemAlloc_v2(&at, bytes.size()) == 0);
        CHECK(cuMemcpyHtoDAsync_v2(at, bytes.data(), bytes.size(), device.stream) == 0);
    }
    ~Operand()
    {
        cublasLtMatrixLayoutDestroy(layout);
    }
    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    double value(int64_t i, int64_t j) const
    {
        return values[(size_t)(j * rows + i)];
    }
    std::vector<double> read(Device &device) const
    {
        std::vector<char> bytes((size_t)(leading * columns) * sim::size_of_type(type));
        std::vector<double> result;
        CHECK(cuMemcpyDtoHAsync_v2(bytes.data(), at, bytes.size(), device.stream) == 0);
        for (int64_t j = 0; j < columns; j++)
            for (int64_t i = 0; i < rows; i++)
                result.push_back(sim::load_real(type, bytes.data(), j * leading + i));
        return result;
    }
    void *pointer() const
    {
        return reinterpret_cast<void *>(at);
    }
};

/* One product of 5 x 7 by 7 x 3 and all around it. */
struct Trial {
    Device device;
    int type, result_type, ta, tb;
    Operand a, b, c;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    enum { M = 5, N = 3, K = 7 };

    Trial(int its_type, int its_result, int compute, int transpose_a = 0, int transpose_b = 0)
        : type(its_type), result_type(its_result), ta(transpose_a), tb(transpose_b),
          a(device, type, ta ? K : M, ta ? M : K, 1), b(device, type, tb ? N : K, tb ? K : N, 2),
          c(device, result_type, M, N, 3)
    {
        CHECK(cublasLtCreate(&handle) == 0);
        CHECK(cublasLtMatmulDescCreate(&product, compute, type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F) == 0);
        set(CUBLASLT_MATMUL_DESC_TRANSA, ta);
        set(CUBLASLT_MATMUL_DESC_TRANSB, tb);
    }
    ~Trial()
    {
        cublasLtMatmulDescDestroy(product);
        cublasLtDestroy(handle);
    }
    template <class T> void set(int attribute, T value)
    {
        CHECK(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value) == 0);
    }
    cublasStatus_t run(double alpha, double beta, const Operand &d)
    {
        float alpha32 = (float)alpha, beta32 = (float)beta;
        bool wide = type == CUDA_R_64F;
        return cublasLtMatmul(handle, product, wide ? (void *)&alpha : &alpha32, a.pointer(), a.layout, b.pointer(),
                              b.layout, wide ? (void *)&beta : &beta32, c.pointer(), c.layout, d.pointer(), d.layout,
                              nullptr, nullptr, 0, device.stream);
    }
    double sum(int64_t i, int64_t j) const
    {
        double total = 0;
        for (int64_t k = 0; k < K; k++)
            total += (ta ? a.value(k, i) : a.value(i, k)) * (tb ? b.value(j, k) : b.value(k, j));
        return total;
    }
};

static bool near(double got, double wanted, double tolerance)
{
    return fabs(got - wanted) <= tolerance * (1 + fabs(wanted));
}

TEST("cublasLtMatmul multiplies in each type, transposed and not, with alpha and beta, between leading dimensions")
{
    struct {
        int type, result, compute;
        double tolerance;
    } cases[] = {{CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1e-6},
                 {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 1e-6},
                 {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 1e-15},
                 {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 4e-3},
                 {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 5e-4},
                 {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1e-6}};
    for (auto each : cases)
        for (int way = 0; way < 4; way++) {
            Trial trial(each.type, each.result, each.compute, way & 1, way >> 1);
            Operand d(trial.device, each.result, Trial::M, Trial::N, 4);
            CHECK(trial.run(1.5, -0.5, d) == 0);
            std::vector<double> got = d.read(trial.device);
            for (int i = 0; i < Trial::M; i++)
                for (int j = 0; j < Trial::N; j++)
                    CHECK(near(got[(size_t)(j * Trial::M + i)], 1.5 * trial.sum(i, j) - 0.5 * trial.c.value(i, j),
                               each.tolerance));
        }
}

TEST("with beta 0 the contents of C do not matter; tf32 and bf16 computing lose the bits that a card's do")
{
    Trial trial(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F);
    Operand d(trial.device, CUDA_R_32F, Trial::M, Trial::N, 4);
    CHECK(cuMemsetD8Async(trial.c.at, 0xff, 4 * 7 * 3, trial.device.stream) == 0);
    CHECK(trial.run(1, 0, d) == 0);
    CHECK(near(d.read(trial.device)[0], trial.sum(0, 0), 1e-6));
    for (int compute : {CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F_FAST_16BF}) {
        Trial rough(CUDA_R_32F, CUDA_R_32F, compute);
        float one = 1 + 0x1p-9f + 0x1p-11f + 0x1p-20f, kept = compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? 1 + 0x1p-9f : 1;
        std::vector<float> a(9 * 7), b(9 * 3);
        for (size_t i = 0; i < 7; i++)
            a[i * 7] = i == 0 ? one : 0;
        b[0] = 1;
        CHECK(cuMemcpyHtoDAsync_v2(rough.a.at, a.data(), 7 * 7 * 4, rough.device.stream) == 0);
        CHECK(cuMemcpyHtoDAsync_v2(rough.b.at, b.data(), 9 * 3 * 4, rough.device.stream) == 0);
        CHECK(rough.run(1, 0, rough.c) == 0);
        CHECK((float)rough.c.read(rough.device)[0] - kept < 0x1p-9f && rough.c.read(rough.device)[0] != one);
    }
}

TEST("batches are strided, and matrices may be row-major")
{
    Device device;
    std::vector<float> a(2 * 6), b(2 * 12), want(2 * 8);
    for (size_t i = 0; i < 12; i++)
        a[i] = (float)i - 4;
    for (size_t i = 0; i < 24; i++)
        b[i] = (float)(i % 7) - 3;
    for (size_t s = 0; s < 2; s++)
        for (size_t i = 0; i < 2; i++)
            for (size_t j = 0; j < 4; j++)
                for (size_t k = 0; k < 3; k++)
                    want[s * 8 + i * 4 + j] += a[s * 6 + i * 3 + k] * b[s * 12 + k * 4 + j];
    float *at_a = device.floats(a), *at_b = device.floats(b), *at_c = device.floats(16);
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layouts[3];
    CHECK(cublasLtCreate(&handle) == 0 && cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0);
    const int64_t shapes[3][3] = {{2, 3, 6}, {3, 4, 12}, {2, 4, 8}};
    for (int i = 0; i < 3; i++) {
        int32_t order = CUBLASLT_ORDER_ROW, count = 2;
        CHECK(cublasLtMatrixLayoutCreate(&layouts[i], CUDA_R_32F, (uint64_t)shapes[i][0], (uint64_t)shapes[i][1],
                                         shapes[i][1]) == 0);
        CHECK(cublasLtMatrixLayoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_ORDER, &order, 4) == 0);
        CHECK(cublasLtMatrixLayoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, 4) == 0);
        CHECK(cublasLtMatrixLayoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &shapes[i][2],
                                               8) == 0);
    }
    float one = 1, zero = 0;
    CHECK(cublasLtMatmul(handle, product, &one, at_a, layouts[0], at_b, layouts[1], &zero, at_c, layouts[2], at_c,
                         layouts[2], nullptr, nullptr, 0, device.stream) == 0);
    CHECK(device.read(at_c, 16) == want);
    for (cublasLtMatrixLayout_t layout : layouts)
        cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(product);
    cublasLtDestroy(handle);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* The forward epilogues with their bias and the buffers that the backward ones read. */
static void run_epilogue_pair(int forward, int backward, bool relu)
{
    Trial trial(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F);
    enum { M = Trial::M, N = Trial::N };
    float bias[M] = {1, -2, 3, -4, 5};
    CUdeviceptr at_bias, aux;
    CHECK(cuMemAlloc_v2(&at_bias, sizeof bias) == 0 && cuMemAlloc_v2(&aux, 4 * 128 * N) == 0);
    CHECK(cuMemcpyHtoDAsync_v2(at_bias, bias, sizeof bias, trial.device.stream) == 0);
    trial.set(CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)forward);
    trial.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<void *>(at_bias));
    trial.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, reinterpret_cast<void *>(aux));
    trial.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)(relu ? 128 : 8));
    CHECK(trial.run(1, 0, trial.c) == 0);
    std::vector<double> got = trial.c.read(trial.device);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double x = trial.sum(i, j) + bias[i];
            CHECK(near(got[(size_t)(j * M + i)], relu ? fmax(x, 0) : gelu(x), 1e-5));
        }
    trial.set(CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)backward);
    CHECK(trial.run(1, 0, trial.c) == 0);
    got = trial.c.read(trial.device);
    float sums[M];
    CHECK(cuMemcpyDtoHAsync_v2(sums, at_bias, sizeof sums, trial.device.stream) == 0);
    for (int i = 0; i < M; i++) {
        double total = 0;
        for (int j = 0; j < N; j++) {
            double g = trial.sum(i, j), x = g + bias[i];
            double slope = relu ? x > 0 : (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4;
            CHECK(near(got[(size_t)(j * M + i)], g * slope, 1e-5));
            total += g * slope;
        }
        CHECK(near(sums[i], total, 1e-4));
    }
}

TEST("RELU and GELU with bias and auxiliary buffer, and the gradients that read it")
{
    run_epilogue_pair(CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU_BGRAD, true);
    run_epilogue_pair(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU_BGRAD, false);
}

TEST("BGRADA and BGRADB sum an operand over k")
{
    for (int which : {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
        Trial trial(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1, 0);
        CUdeviceptr at;
        float sums[5];
        CHECK(cuMemAlloc_v2(&at, sizeof sums) == 0);
        trial.set(CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)which);
        trial.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<void *>(at));
        CHECK(trial.run(1, 0, trial.c) == 0);
        CHECK(cuMemcpyDtoHAsync_v2(sums, at, sizeof sums, trial.device.stream) == 0);
        int count = which == CUBLASLT_EPILOGUE_BGRADA ? Trial::M : Trial::N;
        for (int i = 0; i < count; i++) {
            double total = 0;
            for (int k = 0; k < Trial::K; k++)
                total += which == CUBLASLT_EPILOGUE_BGRADA ? trial.a.value(k, i) : trial.b.value(k, i);
            CHECK(near(sums[i], total, 1e-6));
        }
    }
}

TEST("heuristics return algorithms within the allowed workspace, which a product then needs")
{
    Trial trial(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[4];
    int count = 0;
    CHECK(cublasLtMatmulPreferenceCreate(&preference) == 0);
    auto ask = [&] {
        return cublasLtMatmulAlgoGetHeuristic(trial.handle, trial.product, trial.a.layout, trial.b.layout,
                                              trial.c.layout, trial.c.layout, preference, 4, found, &count);
    };
    CHECK(ask() == 0 && count == 1 && found[0].workspaceSize == 0);
    uint64_t room = 1 << 20;
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, 8) == 0);
    CHECK(ask() == 0 && count == 3 && found[1].workspaceSize > 0);
    uint32_t none = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none, 4) == 0);
    CHECK(ask() == 0 && count == 2);
    float one = 1, zero = 0;
    CUdeviceptr workspace;
    CHECK(cuMemAlloc_v2(&workspace, room) == 0);
    for (size_t given : {(size_t)0, (size_t)room}) {
        cublasStatus_t status =
            cublasLtMatmul(trial.handle, trial.product, &one, trial.a.pointer(), trial.a.layout, trial.b.pointer(),
                           trial.b.layout, &zero, trial.c.pointer(), trial.c.layout, trial.c.pointer(), trial.c.layout,
                           &found[1].algo, reinterpret_cast<void *>(workspace), given, trial.device.stream);
        CHECK(status == (given ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE));
    }
    CHECK(near(trial.c.read(trial.device)[0], trial.sum(0, 0), 1e-6));
    CHECK(cublasLtMatmulPreferenceDestroy(preference) == 0);
}

TEST("partial sums of halves are rounded to the type of the result where a preference allows it")
{
    for (uint32_t schemes : {(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, (uint32_t)CUBLASLT_REDUCTION_SCHEME_MASK}) {
        Trial trial(CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F);
        cublasLtMatmulPreference_t preference;
        cublasLtMatmulHeuristicResult_t found[4];
        int count = 0;
        uint64_t room = 1 << 20;
        CHECK(cublasLtMatmulPreferenceCreate(&preference) == 0);
        CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, 8) == 0);
        CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                   4) == 0);
        CHECK(cublasLtMatmulAlgoGetHeuristic(trial.handle, trial.product, trial.a.layout, trial.b.layout,
                                             trial.c.layout, trial.c.layout, preference, 4, found, &count) == 0);
        CHECK(count == (schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE ? 4 : 3));
        CHECK(cublasLtMatmulPreferenceDestroy(preference) == 0);
    }
}

TEST("calls that cuBLASLt would refuse are refused, with a text")
{
    Trial trial(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F);
    Operand small(trial.device, CUDA_R_32F, 4, 3, 5), wide(trial.device, CUDA_R_64F, 5, 3, 5);
    CHECK(trial.run(1, 0, small) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK_SAYS(text_of(CUDA_ERROR_INVALID_VALUE), "cublasLtMatmul: sizes that do not fit");
    CHECK(trial.run(1, 0, wide) == CUBLAS_STATUS_INVALID_VALUE);
    trial.set(CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)CUBLASLT_EPILOGUE_RELU_BIAS);
    CHECK(trial.run(1, 0, trial.c) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK_SAYS(text_of(CUDA_ERROR_INVALID_VALUE), "no pointer to it");
    trial.set(CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)CUBLASLT_EPILOGUE_DEFAULT);
    double host[15];
    trial.c.at = reinterpret_cast<CUdeviceptr>(host);
    CHECK(trial.run(1, 0, trial.c) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK_SAYS(text_of(CUDA_ERROR_INVALID_VALUE), "is not in device memory");
    int32_t value = 1;
    CHECK(cublasLtMatmulDescSetAttribute(trial.product, CUBLASLT_MATMUL_DESC_TRANSA, &value, 8) ==
          CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasLtMatmulDescSetAttribute(trial.product, 99, &value, 4) == CUBLAS_STATUS_INVALID_VALUE);
}
