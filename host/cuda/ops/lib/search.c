/* Threads that find an element update the minimum index by an atomic; the order does not matter. */
#include "cuda/ops/lib/search.h"

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/copy.h"
#include "cuda/kernels/index/search.h"

static int search_run(struct ah_device *device, const char *op_name, struct ah_cuda_kernel *kernels,
                      const struct ah_tensor *tensor, struct ah_search_args *args, int64_t *at)
{
    struct ah_cuda_memory *memory = ah_cuda_state(device)->memory;
    struct ah_cuda_kernel *kernel = &kernels[tensor->dtype == AH_I64 ? 2 : tensor->dtype == AH_I32 ? 1 : 0];
    uint64_t found = UINT64_MAX;
    void *place;
    AH_TRY(ah_cuda_memory_take(memory, sizeof found, &place));
    args->at = (uintptr_t)ah_tensor_data(tensor);
    args->found = (uintptr_t)place;
    args->numel = tensor->numel;
    int status = ah_cuda_fill(device, place, 0xff, sizeof found);
    if (status == 0)
        status = ah_cuda_launch(device, kernel, op_name, ah_cuda_grid_for(tensor->numel, AH_SEARCH_THREADS), args);
    if (status == 0)
        status = ah_cuda_copy(device, &found, &ah_cpu, place, device, sizeof found, NULL);
    ah_cuda_memory_give(memory, place);
    if (status == 0 && found != UINT64_MAX)
        *at = (int64_t)found;
    return status;
}

int ah_cuda_find_zero(struct ah_device *device, const char *op_name, const struct ah_tensor *tensor, int64_t *at)
{
    static struct ah_cuda_kernel kernels[] = {AH_CUDA_KERNEL("search", "find_zero_u8"),
                                              AH_CUDA_KERNEL("search", "find_zero_i32"),
                                              AH_CUDA_KERNEL("search", "find_zero_i64")};
    struct ah_search_args args = {0};
    return tensor->numel ? search_run(device, op_name, kernels, tensor, &args, at) : 0;
}

int ah_cuda_find_outside(struct ah_device *device, const char *op_name, const struct ah_tensor *tensor, int64_t low,
                         int64_t high, int64_t *at, int64_t *value)
{
    static struct ah_cuda_kernel kernels[] = {AH_CUDA_KERNEL("search", "find_outside_u8"),
                                              AH_CUDA_KERNEL("search", "find_outside_i32"),
                                              AH_CUDA_KERNEL("search", "find_outside_i64")};
    struct ah_search_args args = {.low = low, .high = high};
    int64_t found = -1;
    if (tensor->numel)
        AH_TRY(search_run(device, op_name, kernels, tensor, &args, &found));
    if (found < 0)
        return 0;
    size_t item = ah_dtype_size(tensor->dtype);
    union {
        uint8_t u8;
        int32_t i32;
        int64_t i64;
    } bits;
    AH_TRY(ah_cuda_copy(device, &bits, &ah_cpu, (const char *)ah_tensor_data(tensor) + (size_t)found * item, device,
                        item, NULL));
    *value = item == 8 ? bits.i64 : item == 4 ? bits.i32 : bits.u8;
    *at = found;
    return 0;
}
