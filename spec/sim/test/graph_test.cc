/* Capture and replay. */
#include "test.h"

using test::Device;

static CUdeviceptr address(const float *at)
{
    return reinterpret_cast<CUdeviceptr>(at);
}

TEST("a captured graph runs nothing while it is captured, and replays kernels, copies and fills as they were given")
{
    Device device;
    float *a = device.floats({1, 2, 3, 4}), *b = device.floats(4);
    CUgraph graph;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    CHECK(cuStreamBeginCapture_v2(device.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == 0);
    CHECK(cuStreamIsCapturing(device.stream, &status) == 0 && status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUfunction function = nullptr;
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&relaxed) == 0);
    function = device.function("tail", "increment");
    CHECK(cuThreadExchangeStreamCaptureMode(&relaxed) == 0);
    planted_args args = {a, a, 4};
    void *params[] = {&args};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, device.stream, params, nullptr) == 0);
    args.n = 0;
    CHECK(cuMemcpyDtoDAsync_v2(address(b), address(a), 16, device.stream) == 0);
    CHECK(cuMemsetD32Async(address(a) + 4, 0, 1, device.stream) == 0);
    CHECK(cuStreamEndCapture(device.stream, &graph) == 0);
    CHECK((device.read(a, 4) == std::vector<float>{1, 2, 3, 4}));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
    CHECK(cuGraphDestroy(graph) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(cuGraphLaunch(exec, device.stream) == 0);
    CHECK((device.read(b, 4) == std::vector<float>{4, 1, 6, 7}));
    CHECK((device.read(a, 4) == std::vector<float>{4, 0, 6, 7}));
    CHECK(cuGraphExecDestroy(exec) == 0);
}

TEST("a capture spreads over streams by events, and has to be joined")
{
    Device device;
    CUstream side;
    CUevent fork, join, outside;
    CHECK(cuStreamCreateWithPriority(&side, CU_STREAM_NON_BLOCKING, 0) == 0);
    for (CUevent *event : {&fork, &join, &outside})
        CHECK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING) == 0);
    CUfunction function = device.function("tail", "increment");
    float *a = device.floats({1, 2}), *b = device.floats({10, 20});
    planted_args to_b = {b, a, 2}, to_a = {a, b, 2};
    void *first[] = {&to_b}, *second[] = {&to_a};
    CUgraph graph;
    CUgraphExec exec;
    CHECK(device.wait() == 0);
    CHECK(cuStreamBeginCapture_v2(device.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, device.stream, first, nullptr) == 0);
    CHECK(cuEventRecord(fork, device.stream) == 0 && cuStreamWaitEvent(side, fork, 0) == 0);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, side, second, nullptr) == 0);
    CHECK(cuEventRecord(join, side) == 0);
    CHECK(cuEventQuery(join) == 907);
    CHECK(cuStreamWaitEvent(device.stream, join, 0) == 0);
    CHECK(cuStreamEndCapture(device.stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    for (bool joined : {false, true}) {
        CHECK(cuStreamBeginCapture_v2(device.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
        CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, device.stream, first, nullptr) == 0);
        CHECK(cuEventRecord(fork, device.stream) == 0 && cuStreamWaitEvent(side, fork, 0) == 0);
        CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, side, second, nullptr) == 0);
        CHECK(cuEventRecord(join, side) == 0);
        if (joined)
            CHECK(cuStreamWaitEvent(device.stream, join, 0) == 0);
        CHECK(cuStreamEndCapture(side, &graph) == 903);
        CHECK(cuStreamEndCapture(device.stream, &graph) == (joined ? 0 : 904));
    }
    CHECK(cuEventQuery(join) == 907 && cuEventSynchronize(fork) == 907);
    CUgraph whole = graph;
    CHECK(cuGraphInstantiateWithFlags(&exec, whole, 0) == 0);
    for (int i = 0; i < 10; i++)
        CHECK(cuGraphLaunch(exec, device.stream) == 0);
    CHECK((device.read(a, 2) == std::vector<float>{21, 22}));
    CHECK(cuStreamBeginCapture_v2(device.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == 0);
    CHECK(cuEventRecord(outside, side) == 0);
    CHECK(cuStreamWaitEvent(device.stream, outside, 0) == 905);
    CHECK(cuStreamEndCapture(device.stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(cuGraphExecDestroy(exec) == 0 && cuGraphDestroy(whole) == 0);
    for (CUevent event : {fork, join, outside})
        CHECK(cuEventDestroy_v2(event) == 0);
}

TEST("allocations, waits and pageable copies break a capture")
{
    Device device;
    float *a = device.floats({1, 2}), host[2];
    CUgraph graph;
    for (int what = 0; what < 4; what++) {
        CHECK(cuStreamBeginCapture_v2(device.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == 0);
        CUdeviceptr block;
        CUresult code = what == 0   ? cuMemAlloc_v2(&block, 4)
                        : what == 1 ? device.wait()
                        : what == 2 ? cuMemcpyDtoHAsync_v2(host, address(a), 8, device.stream)
                                    : cuStreamQuery(device.stream);
        CHECK(code == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(cuStreamEndCapture(device.stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    CHECK((device.read(a, 2) == std::vector<float>{1, 2}));
}

/* A graph of one kernel that writes `to` from `from`. */
static CUgraphExec captured(Device &device, float *to, float *from, int n)
{
    CUgraph graph;
    CUgraphExec exec = nullptr;
    CUfunction function = device.function("tail", "increment");
    planted_args args = {to, from, n};
    void *params[] = {&args};
    CHECK(device.wait() == 0);
    CHECK(cuStreamBeginCapture_v2(device.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, device.stream, params, nullptr) == 0);
    CHECK(cuStreamEndCapture(device.stream, &graph) == 0);
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
    CHECK(cuGraphDestroy(graph) == 0);
    return exec;
}

TEST("a replay after memory that it uses was freed breaks the context, also when the address was given out again")
{
    for (bool again : {false, true}) {
        Device device;
        float *a = device.floats({1, 2}), *b = device.floats(2);
        CUgraphExec exec = captured(device, b, a, 2);
        CHECK(cuGraphLaunch(exec, device.stream) == 0);
        CHECK((device.read(b, 2) == std::vector<float>{2, 3}));
        CHECK(cuMemFree_v2(address(a)) == 0);
        if (again)
            device.floats({5, 6});
        CHECK(cuGraphLaunch(exec, device.stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(device.wait() == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK(cuGraphExecDestroy(exec) == 0);
    }
}
