/* Memory, streams, events, several devices, errors on request. */
#include "test.h"

#include <string.h>

#include "sim/settings.h"

using test::Device;
using test::text_of;

static CUdeviceptr address(const float *at)
{
    return reinterpret_cast<CUdeviceptr>(at);
}

TEST("a stream keeps its order, and synchronise waits for all of it")
{
    Device device;
    float *at = device.floats({1, 2, 3, 4});
    for (int i = 0; i < 200; i++)
        CHECK(device.launch("tail", "increment", {at, at, 4}, 1, 64) == 0);
    CHECK(device.wait() == 0);
    CHECK(cuStreamQuery(device.stream) == 0);
    CHECK((device.read(at, 4) == std::vector<float>{201, 202, 203, 204}));
}

TEST("a copy has read pageable memory when it returns; it reads pinned memory later")
{
    Device device;
    enum { N = 1000 };
    float *at = device.floats(N);
    std::vector<float> pageable(N, 1);
    void *block = nullptr;
    CHECK(cuMemAllocHost_v2(&block, N * 4) == 0);
    float *pinned = static_cast<float *>(block);
    int late = 0;
    for (int i = 0; i < 300; i++) {
        pageable[7] = (float)i;
        CHECK(cuMemcpyHtoDAsync_v2(address(at), pageable.data(), N * 4, device.stream) == 0);
        pageable[7] = -1;
        CHECK(device.read(at, N)[7] == (float)i);
        pinned[7] = (float)i;
        CHECK(cuMemcpyHtoDAsync_v2(address(at), pinned, N * 4, device.stream) == 0);
        pinned[7] = -1;
        late += device.read(at, N)[7] == -1;
    }
    CHECK(late > 0);
    /* To pinned memory: there when the stream has completed. */
    CHECK(cuMemsetD8Async(address(at), 0, N * 4, device.stream) == 0);
    CHECK(cuMemcpyDtoHAsync_v2(pinned, address(at), N * 4, device.stream) == 0);
    CHECK(device.wait() == 0 && pinned[7] == 0);
    CHECK(cuMemFreeHost(pinned) == 0);
    CHECK(cuMemFreeHost(pinned) == CUDA_ERROR_INVALID_VALUE);
}

TEST("events report when a stream has reached them, and the time between two")
{
    Device device;
    CUevent start, end, blind;
    CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT) == 0 && cuEventCreate(&end, CU_EVENT_DEFAULT) == 0);
    CHECK(cuEventCreate(&blind, CU_EVENT_DISABLE_TIMING) == 0);
    CHECK(cuEventQuery(start) == 0);
    float *at = device.floats(std::vector<float>(100000, 1)), taken = -1;
    CHECK(cuEventElapsedTime(&taken, start, end) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuEventRecord(start, device.stream) == 0);
    CHECK(device.launch("tail", "increment", {at, at, 100000}, 400, 256) == 0);
    CHECK(cuEventRecord(end, device.stream) == 0 && cuEventRecord(blind, device.stream) == 0);
    CUresult early = cuEventQuery(end);
    CHECK(early == 0 || early == CUDA_ERROR_NOT_READY);
    CHECK(cuEventSynchronize(end) == 0 && cuEventQuery(end) == 0);
    CHECK(cuEventElapsedTime(&taken, start, end) == 0 && taken > 0);
    CHECK(cuEventSynchronize(blind) == 0);
    CHECK(cuEventElapsedTime(&taken, start, blind) == CUDA_ERROR_INVALID_HANDLE);
    for (CUevent event : {start, end, blind})
        CHECK(cuEventDestroy_v2(event) == 0);
}

TEST("each device has its own memory: a kernel of one cannot touch the other's, a peer copy can")
{
    Device first(0), second(1);
    CUcontext contexts[] = {first.context, second.context};
    CHECK(cuCtxSetCurrent(contexts[1]) == 0);
    float *there = second.floats({5, 6, 7});
    CHECK(second.wait() == 0);
    CHECK(cuCtxSetCurrent(contexts[0]) == 0);
    float *here = first.floats({1, 2, 3});
    CHECK(cuMemcpyPeerAsync(address(here), contexts[0], address(there), contexts[1], 8, first.stream) == 0);
    CHECK((first.read(here, 3) == std::vector<float>{5, 6, 3}));
    CHECK(cuMemcpyDtoDAsync_v2(address(here), address(there), 8, first.stream) == CUDA_ERROR_INVALID_VALUE);
#ifndef __SANITIZE_ADDRESS__
    CHECK(first.launch("tail", "increment", {here, there, 3}, 1, 32) == 0);
    CHECK(first.wait() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_SAYS(text_of(CUDA_ERROR_ILLEGAL_ADDRESS), "memory of cuda:1, byte ");
    CHECK(cuCtxSetCurrent(contexts[1]) == 0);
    CHECK((second.read(there, 3) == std::vector<float>{5, 6, 7}));
#endif
}

TEST("copies past an allocation, of host memory as device memory, and of freed blocks are refused")
{
    Device device;
    float *at = device.floats(100), host[101];
    CHECK(cuMemcpyHtoDAsync_v2(address(at), host, 404, device.stream) == CUDA_ERROR_INVALID_VALUE);
    CHECK_SAYS(text_of(CUDA_ERROR_INVALID_VALUE), "404 bytes that begins at byte 0 of an allocation of 400 bytes");
    CHECK(cuMemcpyHtoDAsync_v2(address(host), host, 4, device.stream) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree_v2(address(at + 1)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree_v2(address(at)) == 0);
    CHECK(cuMemFree_v2(address(at)) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemcpyHtoDAsync_v2(address(at), host, 4, device.stream) == CUDA_ERROR_INVALID_VALUE);
}

TEST("new memory is poison, and a write into freed memory is reported when the memory is reused")
{
    Device device;
    std::vector<float> fresh = device.read(device.floats(10), 10);
    CHECK(fresh[0] != fresh[0] && fresh[9] != fresh[9]);
#ifndef __SANITIZE_ADDRESS__
    float *at = device.floats(1000);
    CHECK(cuMemFree_v2(address(at)) == 0);
    float *from = device.floats(std::vector<float>(1000, 1));
    CHECK(device.launch("tail", "increment", {at, from, 1000}, 4, 256) == 0);
    CHECK(device.wait() == 0);
    CUdeviceptr block;
    CUresult code = 0;
    size_t total, available;
    CHECK(cuMemGetInfo_v2(&available, &total) == 0);
    for (size_t given = 0; code == 0 && given < 4 * total; given += total / 8) {
        code = cuMemAlloc_v2(&block, total / 8);
        code = code ? code : cuMemFree_v2(block);
    }
    CHECK(code == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_SAYS(text_of(code), "freed memory was written: byte 0 of a block of about");
#endif
}

TEST("allocation fails at the end of the device's memory, and freed memory is available again")
{
    Device device;
    size_t total = 0, available = 0, after = 0;
    CHECK(cuMemGetInfo_v2(&available, &total) == 0 && available == total);
    CUdeviceptr large = 0, more = 0;
    CHECK(cuMemAlloc_v2(&large, total - (4 << 20)) == 0);
    CHECK(cuMemAlloc_v2(&more, 8 << 20) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemGetInfo_v2(&after, &total) == 0 && after <= 4 << 20);
    CHECK(cuMemFree_v2(large) == 0);
    CHECK(cuMemAlloc_v2(&more, 8 << 20) == 0);
    CHECK(cuMemAlloc_v2(&more, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST("the n-th allocation, launch or copy fails on request, and a lost device stays lost")
{
    {
        test::Setting fail("ACCELHOST_SIM_FAIL", "alloc:2");
        Device device;
        CUdeviceptr block;
        CHECK(cuMemAlloc_v2(&block, 4) == 0);
        CHECK(cuMemAlloc_v2(&block, 4) == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(cuMemAlloc_v2(&block, 4) == 0);
    }
    {
        test::Setting fail("ACCELHOST_SIM_FAIL", "pinned:1,launch:2");
        Device device;
        void *block;
        CHECK(cuMemAllocHost_v2(&block, 4) == CUDA_ERROR_OUT_OF_MEMORY);
        float *at = device.floats(std::vector<float>{1});
        CHECK(device.launch("tail", "increment", {at, at, 1}, 1, 32) == 0);
        CHECK(device.wait() == 0);
        CHECK(device.launch("tail", "increment", {at, at, 1}, 1, 32) == 0);
        CHECK(device.wait() == CUDA_ERROR_LAUNCH_FAILED);
        CHECK_SAYS(text_of(CUDA_ERROR_LAUNCH_FAILED), "kernel increment failed, as ACCELHOST_SIM_FAIL asked");
        CHECK(device.wait() == CUDA_ERROR_LAUNCH_FAILED);
    }
    {
        test::Setting fail("ACCELHOST_SIM_FAIL", "copy:1");
        Device device;
        device.floats(std::vector<float>{1});
        CHECK(device.wait() == CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    {
        test::Setting fail("ACCELHOST_SIM_FAIL", "lost:2");
        Device device;
        CHECK(device.wait() == 0);
        CHECK(device.wait() == CUDA_ERROR_UNKNOWN);
        CUdeviceptr block;
        CHECK(cuMemAlloc_v2(&block, 4) == CUDA_ERROR_UNKNOWN);
    }
    Device whole;
    CHECK(whole.wait() == 0);
}

TEST("calls without a context, with a foreign handle or a wrong launch are refused")
{
    Device device;
    CUmodule module;
    CUfunction function;
    CUdeviceptr block;
    CHECK(cuModuleLoadData(&module, "nothing") == CUDA_ERROR_INVALID_IMAGE);
    CHECK(cuModuleLoadData(&module, "tail") == 0);
    CHECK(cuModuleGetFunction(&function, module, "reverse") == CUDA_ERROR_NOT_FOUND);
    CHECK(device.launch("tail", "increment", {}, 1, 257) == CUDA_ERROR_INVALID_VALUE);
    CHECK_SAYS(text_of(CUDA_ERROR_INVALID_VALUE), "kernel increment: more threads than the kernel is made for");
    CHECK(device.launch("tail", "increment", {}, 0, 32) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuModuleUnload(module) == 0);
    CHECK(cuStreamSynchronize(reinterpret_cast<CUstream>(&block)) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(cuCtxSetCurrent(nullptr) == 0);
    CHECK(cuMemAlloc_v2(&block, 4) == CUDA_ERROR_INVALID_CONTEXT);
    const char *name = nullptr;
    CHECK(cuGetErrorName(CUDA_ERROR_INVALID_CONTEXT, &name) == 0 && strcmp(name, "CUDA_ERROR_INVALID_CONTEXT") == 0);
    CHECK(cuGetErrorName(12345, &name) == CUDA_ERROR_INVALID_VALUE);
}

TEST("apart: memory that is never freed")
{
    cuInit(0);
    sim::settings.leaks = true;
    CUcontext context;
    CUdeviceptr block;
    cuDevicePrimaryCtxRetain(&context, 1);
    cuCtxSetCurrent(context);
    cuMemAlloc_v2(&block, 100);
}

TEST("memory that is never freed is reported at the end, on request")
{
    std::string said;
    CHECK(test::run_apart("apart: memory that is never freed", &said) == 0);
    CHECK(said == "simulated GPU: 1 allocation of cuda:1, of 100 bytes in all, was never freed\n");
}
