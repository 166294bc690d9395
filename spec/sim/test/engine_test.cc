/* Blocks, threads, barriers, warps, shared memory, halves. */
#include "test.h"

#include <set>
#include <string.h>

#include "sim/sim.h"
#include "sim/test/kernels.h"

extern "C" {
#include "base/numeric/half.h"
}

using test::Device;
using test::text_of;

/* Integers on the device, zero at first, and after a kernel. */
struct Integers {
    Device device;
    CUdeviceptr to = 0, count = 0;
    size_t n;

    explicit Integers(size_t count_of) : n(count_of)
    {
        CHECK(cuMemAlloc_v2(&to, n * 4) == 0 && cuMemAlloc_v2(&count, 4096) == 0);
        CHECK(cuMemsetD32Async(to, 0, n, device.stream) == 0 && cuMemsetD8Async(count, 0, 4096, device.stream) == 0);
    }
    CUresult run(const char *name, dim3 grid, dim3 block, unsigned shared = 0, int number = 0)
    {
        kernel_args args = {reinterpret_cast<int *>(to), reinterpret_cast<int *>(count), number};
        size_t bytes = sizeof args;
        void *extra[] = {(void *)1, &args, (void *)2, &bytes, nullptr};
        CHECK(cuLaunchKernel(device.function("kernels", name), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                             shared, device.stream, nullptr, extra) == 0);
        return device.wait();
    }
    std::vector<int> read(CUdeviceptr from, size_t m)
    {
        std::vector<int> values(m);
        CHECK(cuMemcpyDtoHAsync_v2(values.data(), from, m * 4, device.stream) == 0);
        return values;
    }
    bool all(size_t m)
    {
        for (int value : read(to, m))
            if (value != 1)
                return false;
        return true;
    }
};

TEST("blocks and threads run once each, in an order that changes with the run and after each barrier")
{
    enum { BLOCKS = 6, THREADS = 64, N = BLOCKS * THREADS };
    std::vector<std::vector<int>> orders;
    for (int run = 0; run < 2; run++) {
        Integers numbers(2 * N);
        CHECK(numbers.run("order_of_arrival", {BLOCKS}, {THREADS}) == 0);
        orders.push_back(numbers.read(numbers.to, 2 * N));
    }
    const std::vector<int> &order = orders[0];
    CHECK(std::set<int>(order.begin(), order.begin() + N).size() == N);
    CHECK(order != orders[1]);
    for (int block = 0; block < BLOCKS; block++) {
        std::vector<int> second(order.begin() + N + block * THREADS, order.begin() + N + (block + 1) * THREADS);
        CHECK(std::set<int>(second.begin(), second.end()).size() == THREADS);
        std::vector<int> sorted(second.size());
        for (int i = 0; i < THREADS; i++)
            sorted[(size_t)i] = i;
        CHECK(second != sorted);
    }
}

TEST("threadIdx, blockIdx and the sizes are right in three dims, up to 1024 threads")
{
    Integers numbers(12 * 60);
    CHECK(numbers.run("places", {2, 3, 2}, {5, 4, 3}) == 0);
    std::vector<int> places = numbers.read(numbers.to, 12 * 60);
    bool fine = true;
    for (int i = 0; i < 12 * 60; i++)
        fine = fine && places[(size_t)i] == i / 60 * 1000 + i % 60;
    CHECK(fine);
    Integers many(1024);
    CHECK(many.run("places", {}, {1024}) == 0);
    CHECK(many.read(many.to, 1024)[1023] == 1023);
}

TEST("shared memory is poison when a block begins")
{
    Integers numbers(50);
    CHECK(numbers.run("fresh_shared", {50}, {1}, 32) == 0);
    CHECK(numbers.all(50));
}

TEST("a write behind the dynamic shared memory is an error, and so is more than was allowed")
{
    Integers numbers(1);
    CUfunction function = numbers.device.function("kernels", "past_dynamic");
    kernel_args args = {nullptr, nullptr, 3};
    void *params[] = {&args};
    CUstream stream = numbers.device.stream;
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 100000, stream, params, nullptr) == CUDA_ERROR_INVALID_VALUE);
    CHECK_SAYS(text_of(CUDA_ERROR_INVALID_VALUE), "kernel past_dynamic: more dynamic shared memory");
    CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000) == 0);
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 100000, stream, params, nullptr) == 0);
    CHECK(numbers.run("past_dynamic", {}, {}, 16, 3) == 0);
#ifndef __SANITIZE_ADDRESS__
    CHECK(numbers.run("past_dynamic", {}, {}, 16, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_SAYS(text_of(CUDA_ERROR_ILLEGAL_ADDRESS), "written behind the dynamic shared memory of 16 bytes");
#endif
}

TEST("votes and shuffles return to each lane the results of CUDA")
{
    Integers numbers(1024 * 8);
    CHECK(numbers.run("votes", {}, {96}) == 0);
    CHECK(numbers.all(96));
    CHECK(numbers.run("shuffles", {}, {64}) == 0);
    std::vector<int> got = numbers.read(numbers.to, 64 * 8);
    for (int thread = 0; thread < 64; thread++) {
        int lane = thread % 32, *to = &got[(size_t)(8 * thread)], in8 = lane % 8;
        CHECK(to[0] == 5 && to[1] == lane / 8 * 8 + 3);
        CHECK(to[2] == (in8 < 3 ? lane : lane - 3) && to[3] == (in8 > 4 ? lane : lane + 3));
        CHECK(to[4] == ((lane ^ 12) >= lane / 8 * 8 + 8 ? lane : lane ^ 12));
        CHECK(to[5] == (lane ^ 1) && to[7] == 31);
        CHECK(to[6] == (lane < 15 ? lane + 1 : lane == 15 ? -1 : 0));
    }
}

TEST("atomics of integers add up over blocks")
{
    Integers numbers(1);
    CHECK(numbers.run("atomics", {3}, {64}) == 0);
    std::vector<int> count = numbers.read(numbers.count, 10);
    CHECK(count[0] == 192 && count[1] == 63 && count[2] == -63 && count[3] == -1 && count[4] == 0);
    CHECK(count[5] == 9 && count[6] == 4 && count[8] == 0 && count[9] == 192);
}

TEST("the integer functions and vector types are CUDA's")
{
    Integers numbers(32);
    CHECK(numbers.run("bits", {}, {32}) == 0);
    CHECK(numbers.all(32));
}

template <class T> static bool all_bits_agree(float (*host)(uint16_t))
{
    for (unsigned bits = 0; bits < 65536; bits++) {
        T value = {(uint16_t)bits};
        float ours = to_float(value), theirs = host((uint16_t)bits);
        bool same = isnan(theirs) ? sim::bits_of(ours) == 0x7fffffff : sim::bits_of(ours) == sim::bits_of(theirs);
        T back = from_float<T>(ours);
        if (!same || back.bits != (isnan(theirs) ? 0x7fff : bits))
            return false;
    }
    return true;
}

TEST("halves have the bits of the host's over all 65,536 of them and two million floats; NaN is the card's")
{
    CHECK(all_bits_agree<half_t>(ah_f16_to_f32));
    CHECK(all_bits_agree<bf16_t>(ah_bf16_to_f32));
    int different = 0;
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 2099) {
        float x = sim::value_of<float>(bits);
        bool nan = isnan(x);
        different += from_float<half_t>(x).bits != (nan ? 0x7fff : ah_f32_to_f16(x));
        different += from_float<bf16_t>(x).bits != (nan ? 0x7fff : ah_f32_to_bf16(x));
    }
    /* Ties and their neighbours. */
    for (unsigned half = 0; half < 0x7bff; half++) {
        float between = (ah_f16_to_f32((uint16_t)half) + ah_f16_to_f32((uint16_t)(half + 1))) / 2;
        for (float x : {between, nextafterf(between, 0), nextafterf(between, 1e9f), -between})
            different += from_float<half_t>(x).bits != ah_f32_to_f16(x);
    }
    CHECK(different == 0);
}
