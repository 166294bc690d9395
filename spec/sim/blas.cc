/* cuBLASLt: descriptions, heuristics, and products as works of a stream. */
#include "blas.h"

#include <string.h>
#include <unistd.h>

using namespace sim;

namespace
{
struct Attribute {
    int id;
    size_t place, bytes;
};
#define FIELD(id, type, field) {id, offsetof(type, field), sizeof(((type *)nullptr)->field)}

const Attribute product_attributes[] = {
    FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, ah_cublas_matmul, compute),
    FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, ah_cublas_matmul, scale),
    FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, ah_cublas_matmul, pointer_mode),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSA, ah_cublas_matmul, transpose_a),
    FIELD(CUBLASLT_MATMUL_DESC_TRANSB, ah_cublas_matmul, transpose_b),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, ah_cublas_matmul, epilogue),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, ah_cublas_matmul, bias),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, ah_cublas_matmul, bias_stride),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, ah_cublas_matmul, aux),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ah_cublas_matmul, aux_leading),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, ah_cublas_matmul, aux_stride),
    FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, ah_cublas_matmul, aux_type),
    FIELD(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, ah_cublas_matmul, bias_type),
    FIELD(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, ah_cublas_matmul, scale_a),
    FIELD(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, ah_cublas_matmul, scale_b),
};

const Attribute layout_attributes[] = {
    FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, ah_cublas_layout, type),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, ah_cublas_layout, order),
    FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, ah_cublas_layout, rows),
    FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, ah_cublas_layout, columns),
    FIELD(CUBLASLT_MATRIX_LAYOUT_LD, ah_cublas_layout, leading),
    FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, ah_cublas_layout, batch),
    FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, ah_cublas_layout, stride),
};

const Attribute preference_attributes[] = {
    FIELD(CUBLASLT_MATMUL_PREF_SEARCH_MODE, ah_cublas_preference, search),
    FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, ah_cublas_preference, workspace),
    FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, ah_cublas_preference, schemes),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, ah_cublas_preference, alignment[0]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, ah_cublas_preference, alignment[1]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, ah_cublas_preference, alignment[2]),
    FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, ah_cublas_preference, alignment[3]),
};

template <size_t N>
cublasStatus_t set(const Attribute (&rows)[N], void *object, int id, const void *value, size_t bytes)
{
    for (const Attribute &row : rows) {
        if (row.id != id)
            continue;
        if (!object || !value || bytes != row.bytes)
            return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(static_cast<char *>(object) + row.place, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

template <class T> cublasStatus_t destroy(T *object)
{
    delete object;
    return object ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* By number, from 1 on. Those that split the depth want a workspace. */
const Algorithm algorithms[] = {{0, 1, false}, {1 << 16, 3, false}, {1 << 16, 2, true}, {1 << 16, 1, false}};
/* In the order of the heuristics: an algorithm that rounds partial sums to fp16 is first, so that a caller that allows
 * it detects it. */
const int proposed[] = {3, 1, 2, 4};

bool is_allowed(const Algorithm &by, const ah_cublas_preference &preference, const ah_cublas_layout &result)
{
    bool half = result.type == CUDA_R_16F || result.type == CUDA_R_16BF;
    if (by.rounds && !(half && preference.schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE))
        return false;
    if (by.parts > 1 && !by.rounds && !(preference.schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))
        return false;
    return by.workspace <= preference.workspace;
}
} // namespace

SIM_API size_t cublasLtGetVersion()
{
    return 130100;
}

SIM_API const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
#define NAME(name) \
    case name:     \
        return #name;
        NAME(CUBLAS_STATUS_SUCCESS)
        NAME(CUBLAS_STATUS_NOT_INITIALIZED)
        NAME(CUBLAS_STATUS_ALLOC_FAILED)
        NAME(CUBLAS_STATUS_INVALID_VALUE)
        NAME(CUBLAS_STATUS_EXECUTION_FAILED)
        NAME(CUBLAS_STATUS_NOT_SUPPORTED)
#undef NAME
    default:
        return "CUBLAS_STATUS_UNKNOWN";
    }
}

SIM_API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    Api hold(api);
    CUcontext context;
    if (current(&context))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext{context};
    return CUBLAS_STATUS_SUCCESS;
}

SIM_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy(handle);
}

SIM_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                                cudaDataType_t scale)
{
    *out = new ah_cublas_matmul();
    **out = {};
    (*out)->compute = compute;
    (*out)->scale = scale;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    (*out)->aux_type = (*out)->bias_type = -1;
    return CUBLAS_STATUS_SUCCESS;
}

SIM_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    return destroy(product);
}

SIM_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                                      cublasLtMatmulDescAttributes_t attribute, const void *value,
                                                      size_t bytes)
{
    return set(product_attributes, product, attribute, value, bytes);
}

SIM_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                                                  uint64_t columns, int64_t leading)
{
    *out = new ah_cublas_layout{(uint32_t)type, CUBLASLT_ORDER_COL, rows, columns, leading, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

SIM_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy(layout);
}

SIM_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                        cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                        size_t bytes)
{
    return set(layout_attributes, layout, attribute, value, bytes);
}

SIM_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = new ah_cublas_preference{0, 0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

SIM_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy(preference);
}

SIM_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                            cublasLtMatmulPreferenceAttributes_t attribute,
                                                            const void *value, size_t bytes)
{
    return set(preference_attributes, preference, attribute, value, bytes);
}

SIM_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                      cublasLtMatmulPreference_t preference, int wanted,
                                                      cublasLtMatmulHeuristicResult_t *results, int *found)
{
    count_call();
    *found = 0;
    if (!handle || !product || !a || !b || !c || !d || !preference || wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    Product asked = {*product, *a, *b, *c, *d, 1, 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, {}};
    if (refuse_product(asked))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int number : proposed) {
        const Algorithm &by = algorithms[number - 1];
        if (*found == wanted || !is_allowed(by, *preference, *d))
            continue;
        results[*found] = {};
        results[*found].algo.data[0] = (uint64_t)number;
        results[*found].workspaceSize = by.workspace;
        results[*found].wavesCount = 1;
        ++*found;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Is this in device memory, as a whole where its size is known? */
static bool on_device(CUcontext context, const void *at, size_t bytes)
{
    std::lock_guard<std::mutex> running(context->run);
    return context->memory.find(at, bytes);
}

static size_t bytes_of(const ah_cublas_layout &layout)
{
    bool by_row = layout.order == CUBLASLT_ORDER_ROW;
    int64_t lines = (int64_t)(by_row ? layout.rows : layout.columns);
    int64_t line = (int64_t)(by_row ? layout.columns : layout.rows);
    int64_t last = (lines - 1) * layout.leading + line + (layout.batch - 1) * layout.stride;
    return lines && line ? (size_t)last * size_of_type((int)layout.type) : 0;
}

static const char *refuse_memory(CUcontext context, const Product &p, const void *workspace, uint64_t wanted,
                                 size_t given)
{
    if (!on_device(context, p.at_a, bytes_of(p.a)) || !on_device(context, p.at_b, bytes_of(p.b)))
        return "an operand is not in device memory";
    if (!on_device(context, p.at_d, bytes_of(p.d)) || (p.at_c && !on_device(context, p.at_c, bytes_of(p.c))))
        return "C or D is not in device memory";
    if (!p.at_c && (p.beta != 0 || p.device_beta))
        return "beta without C";
    if (p.how.bias && !on_device(context, p.how.bias, 1))
        return "the bias is not in device memory";
    for (const float *number : {p.how.scale_a, p.how.scale_b})
        if (number && !on_device(context, number, sizeof *number))
            return "a scale is not in device memory";
    if (p.how.aux && !on_device(context, p.how.aux, 1))
        return "the auxiliary buffer is not in device memory";
    if (given < wanted || (wanted && (!on_device(context, workspace, wanted) || (uintptr_t)workspace % 256)))
        return "the workspace is not the size, device or alignment that the algorithm requires";
    return nullptr;
}

SIM_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha,
                                      const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                                      cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                                      cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                                      const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                                      CUstream handle_of_stream)
{
    Api hold(api);
    CUstream stream;
    if (!handle || !product || !alpha || !beta || !a_layout || !b_layout || !c_layout || !d_layout)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (stream_of(handle_of_stream, &stream) || stream->context != handle->context)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    Product p = {*product,
                 *a_layout,
                 *b_layout,
                 *c_layout,
                 *d_layout,
                 1,
                 0,
                 nullptr,
                 nullptr,
                 static_cast<const char *>(a),
                 static_cast<const char *>(b),
                 static_cast<const char *>(c),
                 static_cast<char *>(d),
                 algorithms[0]};
    if (product->pointer_mode == CUBLASLT_POINTER_MODE_HOST) {
        p.alpha = load_real(product->scale, alpha, 0);
        p.beta = load_real(product->scale, beta, 0);
    } else {
        p.device_alpha = alpha;
        p.device_beta = beta;
    }
    if (fault_now(FAULT_BLAS))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    uint64_t which = algo ? algo->data[0] : 1;
    bool known = which >= 1 && which <= sizeof algorithms / sizeof algorithms[0];
    if (known)
        p.by = algorithms[which - 1];
    const char *refused = known ? refuse_product(p) : "an algorithm that no heuristic returned";
    if (!refused)
        refused = refuse_memory(stream->context, p, workspace, p.by.workspace, workspace_bytes);
    bool fp8 = p.a.type == CUDA_R_8F_E4M3 || p.a.type == CUDA_R_8F_E5M2;
    if (!refused && fp8 && ((uintptr_t)a % 16 || (uintptr_t)b % 16 || (uintptr_t)c % 16 || (uintptr_t)d % 16))
        refused = "8-bit floats at an address that is no multiple of 16";
    if (refused) {
        report(CUDA_ERROR_INVALID_VALUE, std::string("cublasLtMatmul: ") + refused);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (which > 1)
        count_call(("cublasLtMatmul:" + std::to_string(which)).c_str());
    bool slow = settings.slow_product && which == 1;
    /* The contents of a workspace are lost. */
    size_t spoilt = p.by.workspace;
    return stream_give(stream, {[=] {
                                    if (spoilt)
                                        memset(workspace, 0xff, spoilt);
                                    if (slow)
                                        usleep(5000);
                                    multiply(p);
                                },
                                true})
               ? CUBLAS_STATUS_EXECUTION_FAILED
               : CUBLAS_STATUS_SUCCESS;
}
