/* Planted errors are caught, their correct twins pass. */
#include "test.h"

#include <signal.h>

using test::Device;
using test::text_of;

static std::vector<float> counted(size_t n)
{
    std::vector<float> values;
    for (size_t i = 0; i < n; i++)
        values.push_back((float)i + 1);
    return values;
}

/* The code that a kernel of the planted ones ends with, 256 threads over n numbers. */
static CUresult outcome(const char *file, const char *name, int n, std::string *text, std::vector<float> *result)
{
    Device device;
    float *from = device.floats(counted(256)), *to = device.floats(256);
    CHECK(device.launch(file, name, {to, from, n}, 1, 256) == 0);
    CUresult code = device.wait();
    *text = text_of(code);
    if (code == 0)
        *result = device.read(to, 256);
    return code;
}

static bool is_reversed(const std::vector<float> &values, float times)
{
    for (size_t i = 0; i < values.size(); i++)
        if (values[i] != times * (float)(values.size() - i))
            return false;
    return true;
}

TEST("a missing barrier causes other numbers in a drawn order of threads, and an error when each kernel runs twice")
{
    std::string text;
    std::vector<float> result;
    CHECK(outcome("barrier", "reverse", 0, &text, &result) == 0);
    CHECK(is_reversed(result, 1));
    CHECK(outcome("barrier", "reverse_without_barrier", 0, &text, &result) == 0);
    CHECK(!is_reversed(result, 1));
    test::Setting twice("ACCELHOST_SIM_TWICE", "1");
    CHECK(outcome("barrier", "reverse", 0, &text, &result) == 0);
    CHECK(is_reversed(result, 1));
    CHECK(outcome("barrier", "reverse_without_barrier", 0, &text, &result) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK_SAYS(text, "kernel reverse_without_barrier: the result depends on the order of its threads");
}

TEST("a barrier missing at the end of a turn is caught in the same two ways")
{
    std::string text;
    std::vector<float> result;
    CHECK(outcome("barrier", "reverse_turns", 3, &text, &result) == 0);
    CHECK(is_reversed(result, 6));
    CHECK(outcome("barrier", "reverse_turns_one_barrier", 3, &text, &result) == 0);
    CHECK(!is_reversed(result, 6));
    test::Setting twice("ACCELHOST_SIM_TWICE", "1");
    CHECK(outcome("barrier", "reverse_turns", 3, &text, &result) == 0);
    CHECK(is_reversed(result, 6));
    CHECK(outcome("barrier", "reverse_turns_one_barrier", 3, &text, &result) == CUDA_ERROR_LAUNCH_FAILED);
}

TEST("a barrier that not all threads reach is an error that names both places")
{
    std::string text;
    std::vector<float> result;
    CHECK(outcome("barrier", "half_at_barrier", 0, &text, &result) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK_SAYS(text, "kernel half_at_barrier, block (0, 0, 0), thread (");
    CHECK_SAYS(text, "__syncthreads of barrier.cu:");
    CHECK_SAYS(text, "ACCELHOST_SIM_SEED=");
    CHECK(outcome("barrier", "two_barriers", 0, &text, &result) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK_SAYS(text, "threads are at different barriers");
    CHECK(outcome("barrier", "same_barrier", 0, &text, &result) == 0);
}

TEST("a write behind the tail of an allocation is an error that names the kernel and the byte")
{
    Device device;
    float *from = device.floats(counted(1000)), *to = device.floats(1000);
    CHECK(device.launch("tail", "increment", {to, from, 1000}, 4, 256) == 0);
    CHECK(device.wait() == 0);
    std::vector<float> result = device.read(to, 1000);
    CHECK(result[0] == 2 && result[999] == 1001);
#ifndef __SANITIZE_ADDRESS__
    CHECK(device.launch("tail", "increment_one_more", {to, from, 1000}, 4, 256) == 0);
    CHECK(device.wait() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_SAYS(text_of(CUDA_ERROR_ILLEGAL_ADDRESS),
               "kernel increment_one_more: byte 0 behind an allocation of 4000 bytes was written");
    CUdeviceptr more;
    CHECK(cuMemAlloc_v2(&more, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
#endif
}

TEST("apart: a write behind the tail of an allocation, under AddressSanitizer")
{
    Device device;
    float *from = device.floats(counted(1000)), *to = device.floats(1000);
    device.launch("tail", "increment_one_more", {to, from, 1000}, 4, 256);
    device.wait();
}

TEST("a write behind shared memory is an error")
{
    Device device;
    float *from = device.floats(counted(256)), *to = device.floats(256);
    CHECK(device.launch("tail", "shared_tail", {to, from, 64}, 1, 256) == 0);
    CHECK(device.wait() == 0);
    CHECK(device.read(to, 64) == counted(64));
#ifndef __SANITIZE_ADDRESS__
    CHECK(device.launch("tail", "shared_tail", {to, from, 65}, 1, 256) == 0);
    CHECK(device.wait() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_SAYS(text_of(CUDA_ERROR_ILLEGAL_ADDRESS), "shared memory was written behind rows of 256 bytes");
#else
    std::string said;
    CHECK(test::run_apart("apart: a write behind the tail of an allocation, under AddressSanitizer", &said) != 0);
    CHECK_SAYS(said, "use-after-poison");
#endif
}

TEST("a 16-byte access that is not aligned is an error, as is an address that is no allocation's")
{
    std::string text;
    std::vector<float> result;
    CHECK(outcome("access", "copy16", 256, &text, &result) == 0);
    CHECK(result == counted(256));
    CHECK(outcome("access", "copy16_from_one", 256, &text, &result) == CUDA_ERROR_MISALIGNED_ADDRESS);
    CHECK_SAYS(text, "kernel copy16_from_one, block (0, 0, 0), thread (");
#ifndef __SANITIZE_ADDRESS__
    CHECK(outcome("access", "write_to_null", 64, &text, &result) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_SAYS(text, "kernel write_to_null, block (0, 0, 0), thread (3, 0, 0): touched address 0x40: no device memory");
    CHECK(outcome("access", "endless_stack", 0, &text, &result) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_SAYS(text, "kernel endless_stack");
#endif
}

TEST("a shuffle whose mask names lanes that do not arrive is an error")
{
    std::string text;
    std::vector<float> result;
    CHECK(outcome("shuffle", "warp_sum", 256, &text, &result) == 0);
    CHECK(result[0] == 32 * 33 / 2);
    CHECK(outcome("shuffle", "warp_sum_of_some", 256, &text, &result) == 0);
    CHECK(outcome("shuffle", "warp_sum_of_some", 250, &text, &result) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK_SAYS(text, "kernel warp_sum_of_some");
    CHECK_SAYS(text, "__shfl_xor_sync (mask 0xffffffff) of shuffle.cu:");
    CHECK(outcome("shuffle", "crossed_meetings", 0, &text, &result) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK_SAYS(text, "threads wait for each other");
    CHECK(outcome("shuffle", "mask_without_me", 0, &text, &result) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK_SAYS(text, "the mask does not name the lane 0 that calls");
}

static bool is_product(const std::vector<float> &result)
{
    bool same = true;
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < 8; column++) {
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += (float)(row * 16 + k + 1) * (float)((k + column) % 8);
            same = same && result[(size_t)(row * 8 + column)] == sum;
        }
    }
    return same;
}

TEST("a warp's product has its fragments where PTX has them, and wrong ones return other numbers")
{
    Device device;
    std::vector<float> factors = counted(256);
    for (int i = 0; i < 128; i++)
        factors.push_back((float)((i / 8 + i % 8) % 8));
    float *from = device.floats(factors), *to = device.floats(128);
    CHECK(device.launch("matrix", "product", {to, from, 0}, 1, 32) == 0);
    CHECK(device.wait() == 0);
    CHECK(is_product(device.read(to, 128)));
    CHECK(device.launch("matrix", "product_of_swapped", {to, from, 0}, 1, 32) == 0);
    CHECK(device.wait() == 0);
    CHECK(!is_product(device.read(to, 128)));
    CHECK(device.launch("matrix", "product_of_some", {to, from, 31}, 1, 32) == 0);
    CHECK(device.wait() == CUDA_ERROR_LAUNCH_FAILED);
    CHECK_SAYS(text_of(CUDA_ERROR_LAUNCH_FAILED), "kernel product_of_some");
}

/* 0 .. 127 twice, of which 64 and on are zeros, from behind. */
static bool is_copied(const std::vector<float> &result)
{
    for (size_t i = 0; i < 256; i++)
        if (result[255 - i] != (i % 128 < 64 ? (float)(i % 128) + 1 : 0))
            return false;
    return true;
}

TEST("a copy to shared memory that is not waited for is not there, or is an error when each kernel runs twice")
{
    Device device;
    float *from = device.floats(counted(64)), *to = device.floats(256);
    CHECK(device.launch("matrix", "copies", {to, from, 0}, 1, 32) == 0);
    CHECK(is_copied(device.read(to, 256)));
    CHECK(device.launch("matrix", "copies_not_waited_for", {to, from, 0}, 1, 32) == 0);
    CHECK(!is_copied(device.read(to, 256)));
    test::Setting twice("ACCELHOST_SIM_TWICE", "1");
    CHECK(device.launch("matrix", "copies", {to, from, 0}, 1, 32) == 0);
    CHECK(is_copied(device.read(to, 256)));
    CHECK(device.launch("matrix", "copies_not_waited_for", {to, from, 0}, 1, 32) == 0);
    CHECK(device.wait() == CUDA_ERROR_LAUNCH_FAILED);
    CHECK_SAYS(text_of(CUDA_ERROR_LAUNCH_FAILED), "the result depends on the order of its threads");
}

/* Copies on one stream, a kernel that reads them on another; how many of `turns` read something else. */
static int wrong_turns(bool wait, int turns)
{
    Device device;
    CUstream copies;
    CUevent copied, used;
    enum { N = 256 };
    void *pinned = nullptr;
    CHECK(cuStreamCreateWithPriority(&copies, CU_STREAM_NON_BLOCKING, 0) == 0);
    CHECK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING) == 0 && cuEventCreate(&used, CU_EVENT_DISABLE_TIMING) == 0);
    CHECK(cuMemAllocHost_v2(&pinned, N * sizeof(float)) == 0);
    float *host = static_cast<float *>(pinned), *from = device.floats(N), *to = device.floats(N);
    CUdeviceptr at = reinterpret_cast<CUdeviceptr>(from);
    int wrong = 0;
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < N; i++)
            host[i] = (float)turn;
        CHECK(cuMemcpyHtoDAsync_v2(at, host, N * sizeof(float), copies) == 0);
        CHECK(cuEventRecord(copied, copies) == 0);
        if (wait)
            CHECK(cuStreamWaitEvent(device.stream, copied, 0) == 0);
        CHECK(device.launch("tail", "increment", {to, from, N}, 1, 256) == 0);
        wrong += device.read(to, N)[0] != (float)turn + 1;
        CHECK(cuEventSynchronize(copied) == 0);
    }
    CHECK(cuMemFreeHost(pinned) == 0);
    cuEventDestroy_v2(copied);
    cuEventDestroy_v2(used);
    return wrong;
}

TEST("a missing wait between two streams is seen within some hundred turns, and with the wait never")
{
    CHECK(wrong_turns(true, 300) == 0);
    CHECK(wrong_turns(false, 300) > 0);
}

TEST("apart: the host reads device memory")
{
    Device device;
    volatile float *from = device.floats(counted(100));
    device.wait();
    test::failed(__FILE__, __LINE__, std::to_string(from[3]));
}

TEST("the host's own touch of device memory ends the process with one line")
{
    std::string said;
    CHECK(test::run_apart("apart: the host reads device memory", &said) == 128 + SIGSEGV);
    CHECK_SAYS(said, "simulated GPU: the host touched device memory at 0x");
    CHECK_SAYS(said, "byte 12 of an allocation of 400 bytes\n");
}
