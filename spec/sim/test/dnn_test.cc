/* cuDNN's graph interface: convolutions forward and backward, refusals. */
#include "test.h"

#include "sim/dnn.h"

using test::Device;

/* A descriptor that its scope destroys. */
struct Made {
    cudnnBackendDescriptor_t at = nullptr;
    explicit Made(int type)
    {
        CHECK(cudnnBackendCreateDescriptor(type, &at) == 0);
    }
    ~Made()
    {
        cudnnBackendDestroyDescriptor(at);
    }
    Made(const Made &) = delete;
    Made &operator=(const Made &) = delete;

    template <class T> Made &set(int name, int type, const std::vector<T> &values)
    {
        CHECK(cudnnBackendSetAttribute(at, name, type, (int64_t)values.size(), values.data()) == 0);
        return *this;
    }
    Made &set(int name, const Made &other)
    {
        return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector<void *>{other.at});
    }
    int finish()
    {
        return cudnnBackendFinalize(at);
    }
};

typedef std::vector<int64_t> Sizes;

/* 2 x 4 x 5 x 6 in two groups to 6 channels, 3 x 2 taps, all by channels last. */
struct Setup {
    enum { N = 2, C = 4, H = 5, W = 6, K = 6, R = 3, S = 2, P = 3, Q = 5, PER = 2 };
    Device device;
    cudnnHandle_t handle;
    std::vector<float> x, w, y;
    float *at_x, *at_w, *at_y;

    Setup()
    {
        for (int i = 0; i < N * C * H * W; i++)
            x.push_back((float)(i * 7 % 11) - 5);
        for (int i = 0; i < K * PER * R * S; i++)
            w.push_back((float)(i * 5 % 7) - 3);
        for (int i = 0; i < N * K * P * Q; i++)
            y.push_back((float)(i * 3 % 13) - 6);
        at_x = device.floats(x);
        at_w = device.floats(w);
        at_y = device.floats(y);
        CHECK(cudnnCreate(&handle) == 0 && cudnnSetStream(handle, device.stream) == 0);
    }
    ~Setup()
    {
        cudnnDestroy(handle);
    }

    static void tensor(Made &made, int64_t id, const Sizes &n)
    {
        Sizes strides = {n[1] * n[2] * n[3], 1, n[3] * n[1], n[1]};
        made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, Sizes{id})
            .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, Sizes{16})
            .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector<int>{CUDNN_DATA_FLOAT})
            .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n)
            .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
        CHECK(made.finish() == 0);
    }

    /* From the tensors to the run; `names` are the operation's geometry, x, w, y, alpha, beta. Its last status. */
    int run(int kind, const int (&names)[6], float beta, int64_t rows_out = P, float *other_y = nullptr)
    {
        Made tx(CUDNN_BACKEND_TENSOR_DESCRIPTOR), tw(CUDNN_BACKEND_TENSOR_DESCRIPTOR),
            ty(CUDNN_BACKEND_TENSOR_DESCRIPTOR), geometry(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), operation(kind),
            graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR),
            config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
            pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        tensor(tx, 'x', {N, C, H, W});
        tensor(tw, 'w', {K, PER, R, S});
        tensor(ty, 'y', {N, K, rows_out, Q});
        geometry.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector<int>{CUDNN_DATA_FLOAT})
            .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                 std::vector<int>{CUDNN_CROSS_CORRELATION})
            .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, Sizes{2})
            .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, Sizes{1, 0})
            .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, Sizes{1, 1})
            .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, Sizes{2, 1})
            .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, Sizes{1, 2});
        CHECK(geometry.finish() == 0);
        operation.set(names[0], geometry).set(names[1], tx).set(names[2], tw).set(names[3], ty);
        operation.set(names[4], CUDNN_TYPE_FLOAT, std::vector<float>{1});
        operation.set(names[5], CUDNN_TYPE_FLOAT, std::vector<float>{beta});
        if (int status = operation.finish())
            return status;
        graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
        graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector<void *>{handle});
        CHECK(graph.finish() == 0);
        heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
        heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector<int>{CUDNN_HEUR_MODE_FALLBACK});
        CHECK(heuristic.finish() == 0);
        int64_t count = 0, workspace = -1;
        CHECK(cudnnBackendGetAttribute(heuristic.at, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                       &count, &config.at) == 0 && count == 1);
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
        CHECK(plan.finish() == 0);
        CHECK(cudnnBackendGetAttribute(plan.at, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                       &workspace) == 0 && workspace == 0);
        pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, Sizes{'w', 'y', 'x'})
            .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                 std::vector<void *>{at_w, other_y ? other_y : at_y, at_x});
        CHECK(pack.finish() == 0);
        if (proposals)
            propose(graph, pack);
        return cudnnBackendExecute(handle, plan.at, pack.at);
    }

    bool proposals = false; /* also ask for the engines that the heuristics name first */

    void propose(const Made &graph, const Made &pack)
    {
        static const int64_t notes[] = {1, 1, 0}, workspaces[] = {0, 512, 4096};
        Made heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), a(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
            b(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), c(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
        heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector<int>{CUDNN_HEUR_MODE_A});
        CHECK(heuristic.finish() == 0);
        cudnnBackendDescriptor_t configs[] = {a.at, b.at, c.at};
        int64_t count = 0, workspace = -1;
        CHECK(cudnnBackendGetAttribute(heuristic.at, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 3,
                                       &count, configs) == 0 && count == 3);
        const Made *config[] = {&a, &b, &c};
        for (int i = 0; i < 3; i++) {
            Made engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR), plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
            int note[4];
            CHECK(cudnnBackendGetAttribute(config[i]->at, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                           1, &count, &engine.at) == 0);
            CHECK(cudnnBackendGetAttribute(engine.at, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 4,
                                           &count, note) == 0 && count == notes[i]);
            plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *config[i]);
            CHECK(plan.finish() == 0);
            CHECK(cudnnBackendGetAttribute(plan.at, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                           &count, &workspace) == 0 && workspace == workspaces[i]);
            CHECK((cudnnBackendExecute(handle, plan.at, pack.at) == 0) == (workspace == 0));
        }
    }
};

static const int forward_names[6] = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
static const int data_names[6] = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
static const int filter_names[6] = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
enum {
    FORWARD = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    DATA = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    FILTER = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
};

TEST("a convolution with groups, padding, stride and dilation, by channels last, equals its sum")
{
    Setup s;
    CHECK(s.run(FORWARD, forward_names, 1) == 0);
    std::vector<float> got = s.device.read(s.at_y, s.y.size());
    size_t wrong = 0;
    for (int n = 0; n < Setup::N; n++)
        for (int k = 0; k < Setup::K; k++)
            for (int p = 0; p < Setup::P; p++)
                for (int q = 0; q < Setup::Q; q++) {
                    int at = ((n * Setup::P + p) * Setup::Q + q) * Setup::K + k;
                    float sum = s.y[(size_t)at];
                    for (int c = 0; c < Setup::PER; c++)
                        for (int r = 0; r < Setup::R; r++)
                            for (int t = 0; t < Setup::S; t++) {
                                int h = 2 * p - 1 + r, w = q + 2 * t, from = k / 3 * Setup::PER + c;
                                if (h < 0 || h >= Setup::H || w >= Setup::W)
                                    continue;
                                sum += s.x[(size_t)(((n * Setup::H + h) * Setup::W + w) * Setup::C + from)] *
                                       s.w[(size_t)(((k * Setup::R + r) * Setup::S + t) * Setup::PER + c)];
                            }
                    wrong += got[(size_t)at] != sum;
                }
    CHECK(wrong == 0);
}

TEST("the heuristics name engines that a program has to choose from, and their workspace has to be given")
{
    Setup s;
    s.proposals = true;
    CHECK(s.run(FORWARD, forward_names, 0) == 0);
}

static double dot(const std::vector<float> &a, const std::vector<float> &b)
{
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++)
        sum += (double)a[i] * b[i];
    return sum;
}

TEST("the gradients of input and filter are the convolution's adjoints")
{
    Setup s;
    float *out = s.device.floats(s.y.size());
    CHECK(s.run(FORWARD, forward_names, 0, Setup::P, out) == 0);
    double expected = dot(s.device.read(out, s.y.size()), s.y);
    CHECK(s.run(DATA, data_names, 0) == 0);
    CHECK(dot(s.device.read(s.at_x, s.x.size()), s.x) == expected);
    CUdeviceptr at_x = reinterpret_cast<CUdeviceptr>(s.at_x);
    CHECK(cuMemcpyHtoDAsync_v2(at_x, s.x.data(), s.x.size() * 4, s.device.stream) == 0);
    CHECK(s.run(FILTER, filter_names, 0) == 0);
    CHECK(dot(s.device.read(s.at_w, s.w.size()), s.w) == expected);
}

TEST("a convolution of sizes that do not fit, or on host memory, is refused")
{
    Setup s;
    float host[1000];
    CHECK(s.run(FORWARD, forward_names, 0, Setup::P + 1) == CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    CHECK_SAYS(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH), "cuDNN: an output of another size");
    CHECK(s.run(FORWARD, forward_names, 0, Setup::P, host) == CUDNN_STATUS_BAD_PARAM);
    CHECK(s.run(FORWARD, forward_names, 0, Setup::P, s.at_y + 1) == CUDNN_STATUS_BAD_PARAM);
    Made graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    CHECK(graph.finish() == CUDNN_STATUS_NOT_SUPPORTED);
}

/* A tensor of fp16 (2, 3, rows, width), or of `type`, virtual or not. */
static void sheet(Made &made, int64_t id, int64_t rows, int64_t width, int type, bool is_virtual)
{
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, Sizes{id})
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, Sizes{16})
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector<int>{type})
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, Sizes{2, 3, rows, width})
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, Sizes{3 * rows * width, rows * width, width, 1})
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, std::vector<char>{is_virtual});
    CHECK(made.finish() == 0);
}

TEST("the compute types of a graph's operations have to be those that cuDNN supports")
{
    Made product(CUDNN_BACKEND_MATMUL_DESCRIPTOR), typed(CUDNN_BACKEND_MATMUL_DESCRIPTOR),
        pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), index(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
        reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const std::vector<int> as_float{CUDNN_DATA_FLOAT}, exponential{CUDNN_POINTWISE_EXP};
    CHECK(product.finish() == CUDNN_STATUS_BAD_PARAM);
    CHECK(typed.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_INT64, Sizes{0}).finish() == CUDNN_STATUS_BAD_PARAM);
    pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, as_float);
    CHECK(pointwise.finish() == CUDNN_STATUS_BAD_PARAM);
    CHECK(pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, exponential).finish() == 0);
    index.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, as_float)
        .set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector<int>{CUDNN_POINTWISE_GEN_INDEX});
    CHECK(index.finish() == CUDNN_STATUS_BAD_PARAM);
    CHECK(index.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, Sizes{3}).finish() == 0);
    reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, as_float);
    CHECK(reduction.finish() == CUDNN_STATUS_BAD_PARAM);
}

TEST("operations of a graph are refused where sizes, types or the order do not fit")
{
    Made a(CUDNN_BACKEND_TENSOR_DESCRIPTOR), b(CUDNN_BACKEND_TENSOR_DESCRIPTOR), c(CUDNN_BACKEND_TENSOR_DESCRIPTOR),
        other(CUDNN_BACKEND_TENSOR_DESCRIPTOR), how(CUDNN_BACKEND_MATMUL_DESCRIPTOR),
        value(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    sheet(a, 1, 4, 8, CUDNN_DATA_HALF, true);
    sheet(b, 2, 8, 5, CUDNN_DATA_HALF, false);
    sheet(c, 3, 4, 5, CUDNN_DATA_FLOAT, true);
    sheet(other, 4, 4, 5, CUDNN_DATA_FLOAT, false);
    value.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, std::vector<char>{1})
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, Sizes{5})
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, Sizes{16})
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector<int>{CUDNN_DATA_FLOAT})
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, Sizes{1, 1, 1, 2})
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, Sizes{2, 2, 2, 1});
    CHECK(value.finish() == CUDNN_STATUS_BAD_PARAM);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector<int>{CUDNN_DATA_FLOAT});
    CHECK(how.finish() == 0);
    const struct {
        const Made &x, &y;
        int status;
    } products[] = {{a, b, 0}, {b, a, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH},
                    {a, other, CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH}, {a, value, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED}};
    for (const auto &product : products) {
        Made operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR), graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how)
            .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, product.x)
            .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
        CHECK(operation.finish() == CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, product.y);
        CHECK(operation.finish() == product.status);
        graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
        CHECK(graph.finish() == CUDNN_STATUS_NOT_SUPPORTED);
    }
    CHECK_SAYS(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED), "cuDNN: a graph of an operation that is not finalized");
}
