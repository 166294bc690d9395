/* Running elementwise kernels over tensors of any strides and dtypes. */
#pragma once

#include "cuda/driver/stream/launch.h"
#include "cuda/kernels/lib/elementwise.h"
#include "ops/dispatch/op.h"

/* One kernel per dtype that is computed with; those without a name are missing. Static objects. */
typedef struct ah_cuda_kernel ah_cuda_loops[AH_DTYPE_COUNT];

#define AH_CUDA_FLOATS(file, name) \
    [AH_F32] = AH_CUDA_KERNEL(file, name "_f32"), [AH_F64] = AH_CUDA_KERNEL(file, name "_f64")
#define AH_CUDA_INTEGERS(file, name)                                                     \
    [AH_U8] = AH_CUDA_KERNEL(file, name "_u8"), [AH_I32] = AH_CUDA_KERNEL(file, name "_i32"), \
    [AH_I64] = AH_CUDA_KERNEL(file, name "_i64")

struct ah_cuda_operand {
    struct ah_tensor *tensor;
    enum ah_dtype dtype; /* of the kernel's reads or writes */
};

/* A planned iteration over operands: the arguments of a kernel, and the copies that have to live until it is launched.
 * */
struct ah_cuda_iter {
    struct ah_ew_args args;
    struct ah_tensor *copy[AH_EW_OPERANDS];
    int count;
};

/* Plan it as ah_cuda_iterate does; operand[0] has elements. Close it on success and failure. */
int ah_cuda_iter_open(struct ah_cuda_iter *iter, struct ah_device *device, const struct ah_cuda_operand *operand,
                      int count, const double *numbers);
void ah_cuda_iter_close(struct ah_cuda_iter *iter);

/* Run a kernel over operand[0], the output, and the others, which broadcast to it. An operand is converted first unless
 * its dtype is the kernel's, or fp16 or bf16 where that is float32. A 0-dim operand may be on the CPU; inputs that
 * overlap the output otherwise than exactly are copied. AH_EINVAL when several elements of the output share a place.
 * `numbers` (up to 4, NULL: none) reach the kernel as c0..c3. */
int ah_cuda_iterate(struct ah_device *device, const char *op_name, struct ah_cuda_kernel *kernel,
                    const struct ah_cuda_operand *operand, int count, const double *numbers);

/* The kernel for the compute dtype of `in` over out[0] and the first `inputs` arguments. AH_ENOTIMPL when there is
 * none for it. */
int ah_cuda_elementwise(struct ah_call *call, struct ah_cuda_kernel *loops, int inputs, enum ah_dtype in,
                        enum ah_dtype out, const double *numbers);

/* Copy with broadcasting and conversion, on one device; the input may be a 0-dim tensor on the CPU. */
int ah_cuda_assign(struct ah_device *device, struct ah_tensor *out, struct ah_tensor *input);

/* A row-major tensor with the contents of `input` in `dtype`, on the device: `input` itself, retained, when it is that
 * already. */
int ah_cuda_dense(struct ah_device *device, struct ah_tensor **out, struct ah_tensor *input, enum ah_dtype dtype);

/* The inputs of a kernel: initialise the device. After a failure `status` is negative and further inputs are NULL, so
 * that the kernel tests it once, before its launch. */
struct ah_cuda_inputs {
    struct ah_device *device;
    int status, count;
    struct ah_tensor *tensor[8];
};
/* As ah_cuda_dense, released by ah_cuda_inputs_close; NULL of NULL. */
struct ah_tensor *ah_cuda_input(struct ah_cuda_inputs *in, struct ah_tensor *given, enum ah_dtype dtype);
/* A tensor in its own layout if `last` (channels-last), else row-major. */
struct ah_tensor *ah_cuda_input_last(struct ah_cuda_inputs *in, struct ah_tensor *given, bool last);
int ah_cuda_inputs_close(struct ah_cuda_inputs *in); /* returns `status` */
