/* Operations of which cuDNN's fused engines make one kernel, checked one by one and as a graph. Accepted are
 * attention's operations; only cuDNN itself knows the whole graphs that its engines recognise
 * (spec/device/cuda_attention_dnn_check.c). */
#include "dnn_descriptor.h"

#include <algorithm>
#include <set>

namespace sim
{
int refuse(int code, const char *text)
{
    report(CUDA_ERROR_INVALID_VALUE, std::string("cuDNN: ") + text);
    return code;
}

static bool is_float(const Dnn_tensor &t)
{
    return t.type == CUDNN_DATA_FLOAT || t.type == CUDNN_DATA_HALF || t.type == CUDNN_DATA_BFLOAT16;
}

/* Each dim of the same size, or 1. */
static bool stretches(const Dnn_tensor &from, const Dnn_tensor &to)
{
    for (int i = 0; i < DIMS; i++)
        if (from.size[i] != to.size[i] && from.size[i] != 1)
            return false;
    return true;
}

static bool same_size(const Dnn_tensor &a, const Dnn_tensor &b)
{
    return std::equal(a.size, a.size + DIMS, b.size);
}

static const char *refuse_matmul(const Step &s)
{
    const int64_t *a = s.x.size, *b = s.b.size, *c = s.y.size;
    if (a[0] != b[0] || a[0] != c[0] || a[1] != c[1] || a[1] % b[1] || a[4] != b[3] || a[3] != c[3] || b[4] != c[4])
        return "a product of matrices whose sizes do not fit";
    if (!is_float(s.x) || !is_float(s.b) || !is_float(s.y) || s.b.type == CUDNN_DATA_FLOAT ||
        (!s.x.is_virtual && s.x.type != s.b.type))
        return "a product whose factors are not halves";
    return nullptr;
}

static const char *refuse_pointwise(const Step &s)
{
    bool unary = s.mode == CUDNN_POINTWISE_EXP || s.mode == CUDNN_POINTWISE_LOG || s.mode == CUDNN_POINTWISE_IDENTITY ||
                 s.mode == CUDNN_POINTWISE_GEN_INDEX;
    bool select = s.mode == CUDNN_POINTWISE_BINARY_SELECT;
    if (s.has_b == unary || s.has_t != select)
        return "a pointwise operation with too few or too many inputs";
    if (!same_size(s.x, s.y) || (s.has_b && !stretches(s.b, s.y)) || (s.has_t && !same_size(s.t, s.y)))
        return "a pointwise operation whose sizes do not fit";
    if (s.mode == CUDNN_POINTWISE_GEN_INDEX)
        return s.y.type == CUDNN_DATA_INT32 ? nullptr : "an index that is no int32";
    if (s.mode == CUDNN_POINTWISE_CMP_GE)
        return s.x.type == CUDNN_DATA_INT32 && s.b.type == CUDNN_DATA_INT32 && s.y.type == CUDNN_DATA_BOOLEAN
                   ? nullptr
                   : "a comparison of anything but int32 to a boolean";
    if (!is_float(s.x) || !is_float(s.y) || (s.has_b && !is_float(s.b)) || (select && s.t.type != CUDNN_DATA_BOOLEAN))
        return "a pointwise operation of types that do not fit";
    return nullptr;
}

static const char *refuse_reduction(const Step &s)
{
    for (int i = 0; i < DIMS; i++)
        if (s.x.size[i] % s.y.size[i])
            return "a reduction whose sizes do not fit";
    return is_float(s.x) && is_float(s.y) ? nullptr : "a reduction of no floats";
}

/* Dims in another order. */
static const char *refuse_reshape(const Step &s)
{
    typedef std::pair<int64_t, int64_t> Dim;
    std::multiset<Dim> from, to;
    for (int i = 0; i < DIMS; i++) {
        from.insert({s.x.size[i], s.x.stride[i]});
        to.insert({s.y.size[i], s.y.stride[i]});
    }
    return from == to && s.y.is_virtual ? nullptr : "a view that is no exchange of dims";
}

const char *refuse_step(const Step &step)
{
    switch (step.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return refuse_matmul(step);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return refuse_pointwise(step);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return refuse_reduction(step);
    default:
        return refuse_reshape(step);
    }
}

static std::vector<const Dnn_tensor *> inputs_of(const Step &step)
{
    std::vector<const Dnn_tensor *> all = {&step.x};
    if (step.has_b)
        all.push_back(&step.b);
    if (step.has_t)
        all.push_back(&step.t);
    return all;
}

/* Operations follow those that make their inputs; one makes a tensor, which is not an input from outside too. */
const char *refuse_graph(const Dnn_graph &graph)
{
    std::set<int64_t> made, given;
    int products = 0;
    for (const Step &step : graph) {
        for (const Dnn_tensor *t : inputs_of(step)) {
            if (t->is_virtual && !made.count(t->id))
                return "a virtual tensor that no operation before makes";
            if (!made.count(t->id))
                given.insert(t->id);
        }
        if (step.y.by_value || given.count(step.y.id) || !made.insert(step.y.id).second)
            return "an output that is another's, an input or a value";
        products += step.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    }
    return products == 2 || products == 5 ? nullptr : "a graph of neither 2 nor 5 products, which attention has";
}

Dnn_tensors tensors_of(const Dnn_graph &graph)
{
    Dnn_tensors all;
    for (const Step &step : graph) {
        for (const Dnn_tensor *t : inputs_of(step))
            if (!t->is_virtual)
                all.emplace(t->id, *t);
        if (!step.y.is_virtual)
            all.emplace(step.y.id, step.y);
    }
    return all;
}

/* Finish the attributes of an operation: its compute type, and further ones. */
int finish_how(Descriptor &d)
{
    bool pointwise = d.type == CUDNN_BACKEND_POINTWISE_DESCRIPTOR, matmul = d.type == CUDNN_BACKEND_MATMUL_DESCRIPTOR;
    const int *type = d.get<int>(matmul      ? CUDNN_ATTR_MATMUL_COMP_TYPE
                                 : pointwise ? CUDNN_ATTR_POINTWISE_MATH_PREC
                                             : CUDNN_ATTR_REDUCTION_COMP_TYPE,
                                 CUDNN_TYPE_DATA_TYPE, 1);
    const int *mode = pointwise ? d.get<int>(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1)
                                : d.get<int>(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1);
    auto axis = d.get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1);
    if (!type || (!mode && !matmul))
        return refuse(CUDNN_STATUS_BAD_PARAM, "an operation needs a compute type, and a mode unless it is a product");
    d.step.mode = mode ? *mode : 0;
    if (*type != (pointwise && *mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT))
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a compute type that is not simulated");
    if (pointwise && (*mode == CUDNN_POINTWISE_GEN_INDEX) != (axis && *axis >= 0 && *axis < 4))
        return refuse(CUDNN_STATUS_BAD_PARAM, "an index, and nothing else, needs an axis from 0 to 3");
    d.step.axis = axis ? (int)(*axis < 2 ? *axis : *axis + 1) : 0; /* of 4 dims among DIMS */
    return CUDNN_STATUS_SUCCESS;
}

int finish_step(Descriptor &d)
{
    static const struct {
        int kind, how, x, b, t, y, how_type;
    } rows[] = {
        {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
         CUDNN_ATTR_OPERATION_MATMUL_BDESC, -1, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_BACKEND_MATMUL_DESCRIPTOR},
        {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
         CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
         CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
        {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
         CUDNN_ATTR_OPERATION_REDUCTION_XDESC, -1, -1, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
         CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
        {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, -1, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, -1, -1,
         CUDNN_ATTR_OPERATION_RESHAPE_YDESC, -1},
    };
    auto row = std::find_if(std::begin(rows), std::end(rows), [&](auto &r) { return r.kind == d.type; });
    const Descriptor *how = d.other(row->how, row->how_type), *tensors[4];
    const int names[4] = {row->x, row->b, row->t, row->y};
    for (int i = 0; i < 4; i++) {
        tensors[i] = d.other(names[i], CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        if (!tensors[i] && d.count(names[i]))
            return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an operation with a tensor that is not finalized");
    }
    if (!tensors[0] || !tensors[3] || (row->how >= 0 && !how) ||
        (d.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !tensors[1]))
        return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "an operation without a tensor, or its kind, finalized");
    Step s = how ? how->step : Step();
    s.kind = d.type;
    s.x = tensors[0]->tensor;
    s.y = tensors[3]->tensor;
    s.has_b = tensors[1];
    s.has_t = tensors[2];
    s.b = (s.has_b ? tensors[1] : tensors[0])->tensor;
    s.t = (s.has_t ? tensors[2] : tensors[0])->tensor;
    d.step = s;
    const char *refused = refuse_step(s);
    return refused ? refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, refused) : CUDNN_STATUS_SUCCESS;
}

int finish_steps(Descriptor &d)
{
    int64_t count = d.count(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    auto at = d.get<Descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count);
    auto graph = std::make_shared<Dnn_graph>();
    for (int64_t i = 0; at && i < count; i++) {
        if (!at[i] || !at[i]->finalized || !at[i]->step.kind)
            return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a graph of an operation that is not finalized, or a convolution");
        graph->push_back(at[i]->step);
    }
    const char *refused = refuse_graph(*graph);
    if (refused)
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, refused);
    d.graph = graph;
    return CUDNN_STATUS_SUCCESS;
}
} // namespace sim
