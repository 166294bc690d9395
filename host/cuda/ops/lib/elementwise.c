/* The iteration over an elementwise kernel's operands is planned here: dims of size 1 are dropped, the others are
 * ordered by the output's strides and merged, numbers of the CPU become part of the arguments, and operands that the
 * kernel cannot read are converted or copied first. */
#include "cuda/ops/lib/elementwise.h"

#include <string.h>

#include "base/status/status.h"
#include "cuda/driver/stream/copy.h"
#include "tensor/overlap.h"

static void swap_dims(struct ah_ew_args *args, int count, int i, int k)
{
    int64_t size = args->size[i];
    args->size[i] = args->size[k];
    args->size[k] = size;
    for (int n = 0; n < count; n++) {
        int64_t *stride = args->operand[n].stride, kept = stride[i];
        stride[i] = stride[k];
        stride[k] = kept;
    }
}

/* Does dim `d` continue dim `d` + 1 in every operand? */
static bool elementwise_continues(const struct ah_ew_args *args, int count, int d)
{
    for (int n = 0; n < count; n++)
        if (args->operand[n].stride[d] != args->operand[n].stride[d + 1] * args->size[d + 1])
            return false;
    return true;
}

static void drop_dim(struct ah_ew_args *args, int count, int d)
{
    for (int e = d; e + 1 < args->ndim; e++)
        swap_dims(args, count, e, e + 1);
    args->ndim--;
}

static void elementwise_simplify(struct ah_ew_args *args, int count)
{
    const int64_t *order = args->operand[0].stride;
    for (int d = args->ndim - 1; d >= 0; d--)
        if (args->size[d] == 1)
            drop_dim(args, count, d);
    for (int i = 1; i < args->ndim; i++)
        for (int d = i; d > 0 && order[d - 1] < order[d]; d--)
            swap_dims(args, count, d - 1, d);
    for (int d = args->ndim - 2; d >= 0; d--) {
        if (elementwise_continues(args, count, d)) {
            args->size[d + 1] *= args->size[d];
            drop_dim(args, count, d);
        }
    }
    if (args->ndim == 0) {
        args->ndim = 1;
        args->size[0] = 1;
        for (int n = 0; n < count; n++)
            args->operand[n].stride[0] = n == 0;
    }
}

/* Numbers that divide by the sizes without a division (Granlund and Montgomery). */
static void prepare_division(struct ah_ew_args *args)
{
    args->narrow = args->numel < INT32_MAX;
    for (int d = 0; args->narrow && d < args->ndim; d++) {
        uint32_t shift = 0;
        while (((uint64_t)1 << shift) < (uint64_t)args->size[d])
            shift++;
        uint64_t one = (uint64_t)1 << shift;
        args->shift[d] = shift;
        args->multiplier[d] = (uint32_t)((((uint64_t)1 << 32) * (one - (uint64_t)args->size[d])) /
                                         (uint64_t)args->size[d] + 1);
    }
}

static bool is_wide(const struct ah_ew_args *args, int count)
{
    for (int n = 0; n < count; n++) {
        const struct ah_ew_operand *operand = &args->operand[n];
        if (!operand->single && (args->ndim > 1 || operand->stride[0] != 1 || operand->at % 16))
            return false;
    }
    return true;
}

/* Can the last dim be read in runs of AH_EW_PACK elements? Marks the operands that have one value there. */
static bool has_rows(struct ah_ew_args *args, int count)
{
    int last = args->ndim - 1;
    if (args->size[last] % AH_EW_PACK != 0 || args->operand[0].stride[last] != 1)
        return false;
    for (int n = 0; n < count; n++) {
        struct ah_ew_operand *operand = &args->operand[n];
        uint64_t item = ah_dtype_size((enum ah_dtype)operand->dtype), places = operand->at;
        uint64_t each = item == 1 ? AH_EW_PACK : 16; /* bytes of an access */
        operand->repeats = !operand->single && operand->stride[last] == 0;
        if (operand->single || operand->repeats)
            continue;
        for (int d = 0; d < last; d++)
            places |= (uint64_t)operand->stride[d] * item;
        if (operand->stride[last] != 1 || places % each != 0)
            return false;
    }
    return true;
}

/* A 0-dim tensor of the CPU as a value of `dtype`; a half, which only kernels that move bits read, as its bits. */
static uint64_t value_bits(const struct ah_tensor *tensor, enum ah_dtype dtype)
{
    bool whole = !ah_dtype_is_float(tensor->dtype);
    int64_t integer = whole ? ah_tensor_get_int(tensor, 0) : 0;
    double number = ah_tensor_get(tensor, 0);
    union {
        uint64_t bits;
        uint8_t u8;
        uint16_t u16;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } value = {0};
    switch (dtype) {
    case AH_BOOL: value.u8 = whole ? integer != 0 : number != 0; break;
    case AH_U8: value.u8 = (uint8_t)(whole ? integer : (int64_t)number); break;
    case AH_I32: value.i32 = (int32_t)(whole ? integer : (int64_t)number); break;
    case AH_I64: value.i64 = whole ? integer : (int64_t)number; break;
    case AH_F16:
    case AH_BF16: memcpy(&value.u16, ah_tensor_data(tensor), sizeof value.u16); break;
    case AH_F32: value.f32 = whole ? (float)integer : (float)number; break;
    default: value.f64 = whole ? (double)integer : number; break;
    }
    return value.bits;
}

static bool elementwise_readable(enum ah_dtype own, enum ah_dtype read)
{
    return own == read || (read == AH_F32 && (own == AH_F16 || own == AH_BF16)) || (own == AH_BOOL && read == AH_U8);
}

/* Fill in an operand; *copy becomes the tensor that has to live until the launch. */
static int set_operand(struct ah_device *device, struct ah_ew_args *args, int n, const struct ah_cuda_operand *given,
                       const struct ah_tensor *out, struct ah_tensor **copy)
{
    struct ah_ew_operand *operand = &args->operand[n];
    struct ah_tensor *tensor = given->tensor;
    operand->single = n > 0 && tensor->numel == 1;
    if (n > 0 && ah_on_cpu(tensor)) {
        operand->bits = value_bits(tensor, given->dtype);
        operand->dtype = (int32_t)given->dtype;
        return 0;
    }
    bool meets = n > 0 && ah_memory_meets(out, tensor) && !ah_same_memory(out, tensor);
    if (n > 0 && (meets || !elementwise_readable(tensor->dtype, given->dtype))) {
        enum ah_dtype dtype = elementwise_readable(tensor->dtype, given->dtype) ? tensor->dtype : given->dtype;
        AH_TRY(ah_tensor_empty(copy, tensor->size, tensor->ndim, dtype, device));
        AH_TRY(ah_cuda_assign(device, *copy, tensor));
        tensor = *copy;
    }
    operand->at = (uintptr_t)ah_tensor_data(tensor);
    operand->dtype = (int32_t)tensor->dtype;
    ah_broadcast_strides(tensor, out->size, out->ndim, operand->stride);
    return 0;
}

int ah_cuda_iter_open(struct ah_cuda_iter *iter, struct ah_device *device, const struct ah_cuda_operand *given,
                      int count, const double *numbers)
{
    const struct ah_tensor *out = given[0].tensor;
    struct ah_ew_args *args = &iter->args;
    *iter = (struct ah_cuda_iter){.args = {.numel = out->numel, .ndim = out->ndim}, .count = count};
    AH_TRY(ah_check_writable(out));
    memcpy(args->size, out->size, (size_t)out->ndim * sizeof args->size[0]);
    for (int n = 0; numbers && n < AH_EW_NUMBERS; n++)
        args->number[n] = numbers[n];
    for (int n = 0; n < count; n++)
        AH_TRY(set_operand(device, args, n, &given[n], out, &iter->copy[n]));
    elementwise_simplify(args, count);
    prepare_division(args);
    args->wide = is_wide(args, count);
    args->rows = !args->wide && has_rows(args, count);
    return 0;
}

void ah_cuda_iter_close(struct ah_cuda_iter *iter)
{
    for (int n = 0; n < iter->count; n++)
        ah_tensor_release(iter->copy[n]);
}

int ah_cuda_iterate(struct ah_device *device, const char *op_name, struct ah_cuda_kernel *kernel,
                    const struct ah_cuda_operand *given, int count, const double *numbers)
{
    AH_CLEANUP(ah_cuda_iter_close) struct ah_cuda_iter iter = {0};
    if (given[0].tensor->numel == 0)
        return 0;
    AH_TRY(ah_cuda_iter_open(&iter, device, given, count, numbers));
    bool runs = iter.args.wide || iter.args.rows;
    unsigned blocks = ah_cuda_blocks(iter.args.numel, AH_EW_THREADS * (runs ? AH_EW_PACK : 1));
    return ah_cuda_launch(device, kernel, op_name, ah_cuda_grid_of(blocks, AH_EW_THREADS, 0), &iter.args);
}

int ah_cuda_elementwise(struct ah_call *call, struct ah_cuda_kernel *loops, int inputs, enum ah_dtype in,
                        enum ah_dtype out, const double *numbers)
{
    in = ah_compute_dtype(in);
    enum ah_dtype loop = in == AH_BOOL && !loops[AH_BOOL].name ? AH_U8 : in;
    if (!loops[loop].name)
        return ah_fail(AH_ENOTIMPL, "%s: not defined for %s", call->op->name, ah_dtype_name(in));
    struct ah_tensor *target = call->out[0], *made = NULL;
    enum ah_dtype written = ah_compute_dtype(out);
    if (!elementwise_readable(target->dtype, written)) {
        AH_TRY(ah_tensor_empty(&made, target->size, target->ndim, written, call->device));
        target = made;
    }
    struct ah_cuda_operand operand[AH_EW_OPERANDS] = {{target, written}};
    for (int i = 0; i < inputs; i++)
        operand[i + 1] = (struct ah_cuda_operand){call->arg[i].tensor, in};
    int status = ah_cuda_iterate(call->device, call->op->name, &loops[loop], operand, inputs + 1, numbers);
    if (made && status == 0)
        status = ah_cuda_assign(call->device, call->out[0], made);
    ah_tensor_release(made);
    return status;
}

/* Copies. */

static struct ah_cuda_kernel moves[] = {AH_CUDA_KERNEL("convert", "move_1"), AH_CUDA_KERNEL("convert", "move_2"),
                                        AH_CUDA_KERNEL("convert", "move_4"), AH_CUDA_KERNEL("convert", "move_8")};
static ah_cuda_loops converts = {
    [AH_BOOL] = AH_CUDA_KERNEL("convert", "convert_u8"), [AH_U8] = AH_CUDA_KERNEL("convert", "convert_u8"),
    [AH_I32] = AH_CUDA_KERNEL("convert", "convert_i32"), [AH_I64] = AH_CUDA_KERNEL("convert", "convert_i64"),
    [AH_F16] = AH_CUDA_KERNEL("convert", "convert_f16"), [AH_BF16] = AH_CUDA_KERNEL("convert", "convert_bf16"),
    [AH_F32] = AH_CUDA_KERNEL("convert", "convert_f32"), [AH_F64] = AH_CUDA_KERNEL("convert", "convert_f64")};

/* Kernels that move bits read them as an unsigned type, which its operands name by a dtype of that size. */
static const enum ah_dtype bits_of[] = {AH_U8, AH_U8, AH_I32, AH_I64};

static int elementwise_move(struct ah_device *device, struct ah_tensor *out, struct ah_tensor *input)
{
    size_t item = ah_dtype_size(out->dtype);
    int kind = item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : 3;
    if (!ah_on_cpu(input) && ah_tensor_is_contiguous(out) && ah_tensor_is_contiguous(input) &&
        ah_same_shape(out, input))
        return ah_cuda_copy(device, ah_tensor_data(out), device, ah_tensor_data(input), device,
                            (size_t)out->numel * item, NULL);
    struct ah_tensor as[2] = {*out, *input};
    as[0].dtype = as[1].dtype = kind == 1 ? out->dtype : bits_of[kind];
    const struct ah_cuda_operand operand[] = {{&as[0], as[0].dtype}, {&as[1], as[1].dtype}};
    return ah_cuda_iterate(device, "copy", &moves[kind], operand, 2, NULL);
}

/* A number of the CPU is converted there, and goes as an argument of the kernel. */
static int assign_number(struct ah_device *device, struct ah_tensor *out, struct ah_tensor *number)
{
    AH_OWNED struct ah_tensor *same = NULL;
    AH_TRY(ah_tensor_empty(&same, NULL, 0, out->dtype, &ah_cpu));
    if (ah_dtype_is_float(number->dtype))
        ah_tensor_set(same, 0, ah_tensor_get(number, 0));
    else
        ah_tensor_set_int(same, 0, ah_tensor_get_int(number, 0));
    return elementwise_move(device, out, same);
}

int ah_cuda_assign(struct ah_device *device, struct ah_tensor *out, struct ah_tensor *input)
{
    if (out->numel == 0 || ah_same_memory(out, input))
        return 0;
    if (ah_on_cpu(input))
        return assign_number(device, out, input);
    if (out->dtype == input->dtype)
        return elementwise_move(device, out, input);
    const struct ah_cuda_operand operand[] = {{out, out->dtype}, {input, input->dtype}};
    return ah_cuda_iterate(device, "copy", &converts[input->dtype], operand, 2, NULL);
}

int ah_cuda_dense(struct ah_device *device, struct ah_tensor **out, struct ah_tensor *input, enum ah_dtype dtype)
{
    if (!ah_on_cpu(input) && input->dtype == dtype && ah_tensor_is_contiguous(input)) {
        *out = ah_tensor_retain(input);
        return 0;
    }
    struct ah_tensor *fresh;
    AH_TRY(ah_tensor_empty(&fresh, input->size, input->ndim, dtype, device));
    int status = ah_cuda_assign(device, fresh, input);
    if (status < 0)
        ah_tensor_release(fresh);
    else
        *out = fresh;
    return status;
}

struct ah_tensor *ah_cuda_input(struct ah_cuda_inputs *in, struct ah_tensor *given, enum ah_dtype dtype)
{
    struct ah_tensor **tensor = &in->tensor[in->count];
    if (!given || in->status < 0)
        return NULL;
    in->status = ah_cuda_dense(in->device, tensor, given, dtype);
    in->count += in->status == 0;
    return in->status == 0 ? *tensor : NULL;
}

struct ah_tensor *ah_cuda_input_last(struct ah_cuda_inputs *in, struct ah_tensor *given, bool last)
{
    if (last)
        return given;
    if (in->status == 0)
        in->status = ah_tensor_row_major(given);
    return ah_cuda_input(in, given, given->dtype);
}

int ah_cuda_inputs_close(struct ah_cuda_inputs *in)
{
    while (in->count > 0)
        ah_tensor_release(in->tensor[--in->count]);
    return in->status;
}
