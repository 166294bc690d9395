/* NCCL: collectives and messages between two devices of a process and between processes, errors and aborts. */
#include "test.h"

#include <atomic>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <unistd.h>

#include "sim/nccl.h"

using test::Device;

/* Return one id known to all, as NCCL's own NCCL_COMM_ID. */
static ncclUniqueId shared_id()
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    const char *name = getenv("SIM_TEST_NCCL");
    snprintf(id.internal, sizeof id.internal, "%s", name ? name : "");
    return id;
}

/* Two ranks on two devices, made in a group by one thread. */
struct Pair {
    Device first{0}, second{1};
    Device *device[2] = {&first, &second};
    ncclComm_t comm[2] = {};

    Pair()
    {
        ncclUniqueId id;
        CHECK(ncclGetUniqueId(&id) == 0 && ncclGroupStart() == 0);
        for (int r = 0; r < 2; r++) {
            use(r);
            CHECK(ncclCommInitRankConfig(&comm[r], 2, id, r, nullptr) == 0);
        }
        CHECK(ncclGroupEnd() == 0);
    }
    ~Pair()
    {
        for (ncclComm_t each : comm)
            if (each)
                ncclCommDestroy(each);
    }
    void use(int r)
    {
        CHECK(cuCtxSetCurrent(device[r]->context) == 0);
    }
    float *floats(int r, const std::vector<float> &values)
    {
        use(r);
        return device[r]->floats(values);
    }
    std::vector<float> read(int r, const float *at, size_t n)
    {
        use(r);
        return device[r]->read(at, n);
    }
};

TEST("collectives of two devices: all-reduce, reduce, broadcast, all-gather and reduce-scatter, longer than a chunk")
{
    enum { N = 50001 };
    Pair pair;
    std::vector<float> values[2], sum(N);
    for (size_t r = 0; r < 2; r++)
        for (size_t i = 0; i < 2 * N; i++)
            values[r].push_back((float)(i % 997) + (float)r * 0.5f);
    for (size_t i = 0; i < N; i++)
        sum[i] = values[0][i] + values[1][i];
    float *from[2], *to[2];
    for (int r = 0; r < 2; r++) {
        from[r] = pair.floats(r, values[r]);
        to[r] = pair.floats(r, std::vector<float>(2 * N, -1));
    }
    auto all = [&](auto call) {
        for (int r = 0; r < 2; r++)
            CHECK(call(r, pair.comm[r], pair.device[r]->stream) == 0);
    };
    all([&](int r, ncclComm_t comm, CUstream stream) {
        return ncclAllReduce(from[r], to[r], N, ncclFloat32, ncclSum, comm, stream);
    });
    CHECK(pair.read(0, to[0], N) == sum && pair.read(1, to[1], N) == sum);
    all([&](int r, ncclComm_t comm, CUstream stream) {
        return ncclReduce(from[r], to[r], N, ncclFloat32, ncclMax, 1, comm, stream);
    });
    CHECK(pair.read(0, to[0], N) == sum);
    CHECK(pair.read(1, to[1], N) == std::vector<float>(values[1].begin(), values[1].begin() + N));
    all([&](int r, ncclComm_t comm, CUstream stream) {
        return ncclBroadcast(from[r], to[r], N, ncclFloat32, 0, comm, stream);
    });
    CHECK(pair.read(1, to[1], N) == std::vector<float>(values[0].begin(), values[0].begin() + N));
    all([&](int r, ncclComm_t comm, CUstream stream) {
        return ncclAllGather(from[r], to[r], N, ncclFloat32, comm, stream);
    });
    for (int r = 0; r < 2; r++) {
        std::vector<float> got = pair.read(r, to[r], 2 * N);
        CHECK(got[0] == values[0][0] && got[N - 1] == values[0][N - 1] && got[N] == values[1][0] &&
              got[2 * N - 1] == values[1][N - 1]);
    }
    /* In place: a rank's share stays where its part of the input was. */
    all([&](int r, ncclComm_t comm, CUstream stream) {
        return ncclReduceScatter(from[r], from[r] + r * N, N, ncclFloat32, ncclAvg, comm, stream);
    });
    for (size_t r = 0; r < 2; r++) {
        std::vector<float> got = pair.read((int)r, from[r] + r * N, N);
        for (size_t i = 0; i < N; i += 1000)
            CHECK(got[i] == (values[0][r * N + i] + values[1][r * N + i]) / 2);
    }
}

TEST("every type is combined as itself, halves in float and rounded once")
{
    struct {
        int type, op;
        std::vector<uint8_t> a, b, want;
    } cases[] = {{ncclInt8, ncclSum, {100}, {100}, {200}},
                 {ncclUint8, ncclMin, {7}, {200}, {7}},
                 {ncclInt32, ncclProd, {3, 0, 0, 0}, {255, 255, 255, 255}, {253, 255, 255, 255}},
                 {ncclInt64, ncclMax, {1, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 128}, {1, 0, 0, 0, 0, 0, 0, 0}},
                 {ncclUint64, ncclMin, {1, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 128}, {1, 0, 0, 0, 0, 0, 0, 0}},
                 {ncclFloat16, ncclAvg, {0, 0x3c}, {0, 0x42}, {0, 0x40}},
                 {ncclBfloat16, ncclSum, {0x80, 0x3f}, {0x00, 0x40}, {0x40, 0x40}}};
    for (auto each : cases) {
        std::vector<char> both(each.a.size() * 2);
        memcpy(both.data(), each.a.data(), each.a.size());
        memcpy(both.data() + each.a.size(), each.b.data(), each.b.size());
        std::vector<uint8_t> got(each.want.size());
        sim::combine(each.type, each.op, reinterpret_cast<char *>(got.data()), both.data(), each.a.size(), 2, 1);
        CHECK(got == each.want);
    }
}

TEST("messages of a group are concurrent, in both directions, longer than a box, in order, also to the sender")
{
    enum { N = 10000 };
    Pair pair;
    std::vector<float> values[2];
    float *from[2], *to[2], *self[2];
    for (size_t r = 0; r < 2; r++) {
        values[r].assign(N, (float)r + 1);
        values[r][N - 1] = 7;
        from[r] = pair.floats((int)r, values[r]);
        to[r] = pair.floats((int)r, std::vector<float>(N, -1));
        self[r] = pair.floats((int)r, std::vector<float>(N, -1));
    }
    CHECK(ncclGroupStart() == 0);
    for (int r = 0; r < 2; r++) {
        CUstream stream = pair.device[r]->stream;
        CHECK(ncclSend(from[r], N - 1, ncclFloat32, 1 - r, pair.comm[r], stream) == 0);
        CHECK(ncclSend(from[r] + N - 1, 1, ncclFloat32, 1 - r, pair.comm[r], stream) == 0);
        CHECK(ncclRecv(to[r], N - 1, ncclFloat32, 1 - r, pair.comm[r], stream) == 0);
        CHECK(ncclRecv(to[r] + N - 1, 1, ncclFloat32, 1 - r, pair.comm[r], stream) == 0);
        CHECK(ncclRecv(self[r], N, ncclFloat32, r, pair.comm[r], stream) == 0);
        CHECK(ncclSend(from[r], N, ncclFloat32, r, pair.comm[r], stream) == 0);
    }
    CHECK(ncclGroupEnd() == 0);
    for (int r = 0; r < 2; r++) {
        CHECK(pair.read(r, to[r], N) == values[1 - r]);
        CHECK(pair.read(r, self[r], N) == values[r]);
    }
}

TEST("calls are captured on a stream and replayed in order; a communicator outlives its graphs")
{
    Pair pair;
    float *x[2], *y[2];
    CUstream side[2];
    CUevent event;
    CUgraph graph;
    CUgraphExec exec[2];
    for (int r = 0; r < 2; r++) {
        x[r] = pair.floats(r, {1, (float)r});
        y[r] = pair.floats(r, {0, 0});
        CUstream stream = pair.device[r]->stream;
        CHECK(cuStreamCreateWithPriority(&side[r], CU_STREAM_NON_BLOCKING, 0) == 0);
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == 0);
        CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
        CHECK(cuEventRecord(event, stream) == 0 && cuStreamWaitEvent(side[r], event, 0) == 0);
        CHECK(ncclAllReduce(x[r], y[r], 2, ncclFloat32, ncclSum, pair.comm[r], side[r]) == 0);
        CHECK(ncclAllReduce(y[r], x[r], 2, ncclFloat32, ncclAvg, pair.comm[r], side[r]) == 0);
        CHECK(cuEventRecord(event, side[r]) == 0 && cuStreamWaitEvent(stream, event, 0) == 0);
        CHECK(cuStreamEndCapture(stream, &graph) == 0);
        CHECK(cuGraphInstantiateWithFlags(&exec[r], graph, 0) == 0 && cuGraphDestroy(graph) == 0);
    }
    CHECK((pair.read(0, x[0], 2) == std::vector<float>{1, 0}));
    for (int turn = 0; turn < 2; turn++)
        for (int r = 0; r < 2; r++) {
            pair.use(r);
            CHECK(cuGraphLaunch(exec[r], pair.device[r]->stream) == 0);
        }
    for (int r = 0; r < 2; r++)
        CHECK((pair.read(r, x[r], 2) == std::vector<float>{4, 2}));
    std::atomic<bool> ended{false};
    std::thread ending([&] {
        CHECK(ncclCommDestroy(pair.comm[0]) == 0);
        ended = true;
    });
    usleep(20000);
    CHECK(!ended);
    for (int r = 0; r < 2; r++)
        CHECK(cuGraphExecDestroy(exec[r]) == 0);
    ending.join();
    pair.comm[0] = nullptr;
}

/* Poll until a communicator has an error. */
static int wait_for_error(ncclComm_t comm)
{
    ncclResult_t error = ncclSuccess;
    for (int i = 0; i < 20000 && !error; i++) {
        CHECK(ncclCommGetAsyncError(comm, &error) == 0);
        usleep(500);
    }
    return error;
}

TEST("ranks at different collectives get an error that names both, and are free after an abort")
{
    Pair pair;
    float *at[2];
    for (int r = 0; r < 2; r++)
        at[r] = pair.floats(r, {1, 2, 3});
    CHECK(ncclAllReduce(at[0], at[0], 3, ncclFloat32, ncclSum, pair.comm[0], pair.first.stream) == 0);
    CHECK(ncclBroadcast(at[1], at[1], 2, ncclFloat32, 0, pair.comm[1], pair.second.stream) == 0);
    for (int r = 0; r < 2; r++)
        CHECK(wait_for_error(pair.comm[r]) == ncclInternalError);
    CHECK_SAYS(ncclGetLastError(pair.comm[0]), "AllReduce of 3");
    CHECK_SAYS(ncclGetLastError(pair.comm[0]), "Broadcast of 2");
    CHECK(cuStreamQuery(pair.first.stream) == CUDA_ERROR_NOT_READY);
    CHECK(ncclAllReduce(at[0], at[0], 3, ncclFloat32, ncclSum, pair.comm[0], pair.first.stream) == ncclInternalError);
    for (int r = 0; r < 2; r++) {
        CHECK(ncclCommAbort(pair.comm[r]) == 0);
        pair.comm[r] = nullptr;
        pair.use(r);
        CHECK(pair.device[r]->wait() == 0);
    }
}

TEST("a call fails on request, and the peer sees that the other has left once it aborts")
{
    Pair pair;
    float *at[2];
    for (int r = 0; r < 2; r++)
        at[r] = pair.floats(r, {1, 2, 3});
    test::Setting fail("ACCELHOST_SIM_FAIL", "nccl:1");
    CHECK(ncclAllReduce(at[0], at[0], 3, ncclFloat32, ncclSum, pair.comm[0], pair.first.stream) == 0);
    CHECK(wait_for_error(pair.comm[0]) == ncclSystemError);
    CHECK_SAYS(ncclGetLastError(pair.comm[0]), "as ACCELHOST_SIM_FAIL asked");
    CHECK(ncclAllReduce(at[1], at[1], 3, ncclFloat32, ncclSum, pair.comm[1], pair.second.stream) == 0);
    CHECK(ncclCommAbort(pair.comm[0]) == 0);
    pair.comm[0] = nullptr;
    CHECK(wait_for_error(pair.comm[1]) == ncclRemoteError);
    CHECK(ncclCommAbort(pair.comm[1]) == 0);
    pair.comm[1] = nullptr;
    CHECK(pair.second.wait() == 0);
}

TEST("two ranks on one device, a buffer of the host, a rank out of range are refused")
{
    Device device;
    ncclUniqueId id;
    ncclComm_t comm[2];
    CHECK(ncclGetUniqueId(&id) == 0 && ncclGroupStart() == 0);
    for (int r = 0; r < 2; r++)
        CHECK(ncclCommInitRankConfig(&comm[r], 2, id, r, nullptr) == 0);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK_SAYS(ncclGetLastError(comm[0]), "Duplicate GPU detected");
    for (ncclComm_t each : comm)
        CHECK(ncclCommDestroy(each) == 0);
    CHECK(ncclCommInitRankConfig(comm, 2, id, 2, nullptr) == ncclInvalidArgument);
    CHECK(ncclGetUniqueId(&id) == 0 && ncclCommInitRankConfig(comm, 1, id, 0, nullptr) == 0);
    float host[2];
    CHECK(ncclAllReduce(host, host, 2, ncclFloat32, ncclSum, comm[0], device.stream) == ncclInvalidArgument);
    CHECK(ncclCommDestroy(comm[0]) == 0);
}

/* A rank of two processes: sums, then the second ends without a word and the first gets an error. */
static void be_rank(int rank)
{
    Device device(rank);
    ncclComm_t comm;
    ncclConfig_t config = AH_NCCL_CONFIG;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&comm, 2, shared_id(), rank, &config) == ncclInProgress);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && ncclCommGetAsyncError(comm, &state) == 0)
        usleep(100);
    CHECK(state == ncclSuccess);
    float *at = device.floats(std::vector<float>{1.5f * (float)(rank + 1), 1});
    CHECK(ncclAllReduce(at, at, 2, ncclFloat32, ncclSum, comm, device.stream) == 0);
    CHECK((device.read(at, 2) == std::vector<float>{4.5f, 2}));
    if (rank == 1)
        _exit(0);
    CHECK(ncclAllReduce(at, at, 2, ncclFloat32, ncclSum, comm, device.stream) == 0);
    CHECK(wait_for_error(comm) == ncclRemoteError);
    CHECK(ncclCommAbort(comm) == 0);
    CHECK(device.wait() == 0);
}

TEST("apart: rank 0 of two processes")
{
    be_rank(0);
}

TEST("apart: rank 1 of two processes")
{
    be_rank(1);
}

TEST("two processes are a communicator, without blocking at its start, and one that ends is an error of the other")
{
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id) == 0);
    setenv("SIM_TEST_NCCL", id.internal, 1);
    std::string said[2];
    int ended[2] = {-1, -1};
    std::thread other([&] { ended[1] = test::run_apart("apart: rank 1 of two processes", &said[1]); });
    ended[0] = test::run_apart("apart: rank 0 of two processes", &said[0]);
    other.join();
    unsetenv("SIM_TEST_NCCL");
    CHECK(ended[0] == 0 && ended[1] == 0);
}
