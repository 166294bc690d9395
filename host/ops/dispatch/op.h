/* Ops: the table, calls, and the dispatcher of every op.
 *
 * A row of the table (host/ops/schema/table.def and the family files that it includes) defines an op's name, parameters
 * and flags; its gradient is a row of host/autograd/graph/rules.def. ah_op_call is the dispatcher: it fills defaults,
 * rewrites channels-last inputs that the op is not flagged for, runs the forward, and records a node when gradients are
 * wanted.
 *
 * Forward functions (FAMILY.c in host/ops/shape, math, nn, named by their rows, which may share one) check shapes and
 * dtypes, allocate call->out, and run the device's kernel by ah_call_kernel. Composite ops call other ops instead and
 * have no rule. */
#pragma once

#include "tensor/device.h"
#include "tensor/tensor.h"

enum { AH_MAX_ARGS = 12, AH_MAX_OUTS = 4, AH_MAX_EXTRA = 4 };

/* Kinds of parameters, with the letter used in a signature; a ? after it lets the argument be nil. */
enum ah_kind {
    AH_NONE,    /* absent: an optional argument that is nil */
    AH_TENSOR,  /* T   a tensor */
    AH_OPERAND, /* O   a tensor, a number (which becomes a wrapped 0-dim tensor: int64 if integral, else float64) or a
                       boolean; in a call its kind reads AH_TENSOR */
    AH_LIST,    /* L   a Lua array of tensors */
    AH_INT,     /* i */
    AH_INTS,    /* I   a table of integers, one integer, or (as the last parameter) trailing integers */
    AH_NUMBER,  /* n */
    AH_FLAG,    /* b */
    AH_DTYPE,   /* d */
    AH_STRING,  /* s */
    AH_DEVICE,  /* D   nil: the device of the tensor arguments, else the default device */
};

struct ah_value {
    enum ah_kind kind;
    union {
        struct ah_tensor *tensor;
        struct {
            struct ah_tensor **item; /* owned by the caller of the op */
            int count;
        } list;
        int64_t integer;
        double number;
        bool flag;
        enum ah_dtype dtype;
        const char *string; /* static or owned by the caller */
        struct ah_device *device;
        struct {
            int64_t at[AH_MAX_DIMS];
            int count;
        } ints;
    };
};

/* In output_size of adaptive pools: as large as the input. */
#define AH_SAME_SIZE INT64_MIN

/* Build values in C calls: AH_T(x), AH_I(3), ... A NULL tensor is "absent". */
#define AH_T(x) ((struct ah_value){.kind = (x) ? AH_TENSOR : AH_NONE, .tensor = (x)})
#define AH_L(items, n) ((struct ah_value){.kind = AH_LIST, .list = {(items), (n)}})
#define AH_I(x) ((struct ah_value){.kind = AH_INT, .integer = (x)})
#define AH_N(x) ((struct ah_value){.kind = AH_NUMBER, .number = (x)})
#define AH_B(x) ((struct ah_value){.kind = AH_FLAG, .flag = (x)})
#define AH_D(x) ((struct ah_value){.kind = AH_DTYPE, .dtype = (x)})
#define AH_S(x) ((struct ah_value){.kind = AH_STRING, .string = (x)})
#define AH_DEV(x) ((struct ah_value){.kind = (x) ? AH_DEVICE : AH_NONE, .device = (x)})
#define AH_NIL ((struct ah_value){.kind = AH_NONE})
#define AH_INTS_OF(...) ah_ints_value(__VA_ARGS__) /* (at, count) */
struct ah_value ah_ints_value(const int64_t *at, int count); /* copies; count <= AH_MAX_DIMS */

/* The tensor, or NULL where it is absent (optional, or a rule's argument that was not saved). */
static inline struct ah_tensor *ah_given(const struct ah_value *value)
{
    return value->kind == AH_TENSOR ? value->tensor : NULL;
}

/* Arguments by the names in the row's signature, of a call or of a rule:
 *     const struct ah_args_conv2d *arg = ah_args(call, conv2d);    then arg->stride, ah_given(&arg->bias), ...
 * The structs are made from the table (scripts/op-args.sh), one for each op, forward, kernel and rule; where rows share
 * one, it has the parameters on whose name and place they agree. */
#include "op_args.h"
#define ah_args(from, row)                                                       \
    _Generic(&(from)->arg[0],                                                    \
             struct ah_value *: (struct ah_args_##row *)(from)->arg,             \
             const struct ah_value *: (const struct ah_args_##row *)(from)->arg)

enum ah_opid {
#define OP(name, forward, kernel, signature, flags) AH_OP_##name,
#include "ops/schema/table.def"
#undef OP
    AH_OP_COUNT
};

/* Flags of a row. */
enum {
    AH_METHOD = 1 << 0,        /* callable as tensor:name(...), parameter 0 being the tensor */
    AH_FUNCTION = 1 << 1,      /* callable as accelhost.name(...) */
    AH_INPLACE = 1 << 2,       /* also exists as name_: writes its result into parameter 0 */
    AH_GROUPS_LAST = 1 << 3, /* accepts and may return storages marked channels-last */
    AH_COMPOSITE = 1 << 4,     /* made of other ops, which record themselves */
    AH_VIEW = 1 << 5,          /* out[0] shares arg[0]'s storage */
    AH_MUTATES = 1 << 6,       /* always writes into parameter 0 (copy_, fill_): out[0] is arg[0] */
    AH_FUNCTIONAL = 1 << 7,    /* also listed in accelhost.nn.functional */
    AH_INTERNAL = 1 << 8,      /* reachable from accelhost._C only */
    AH_ANY_DEVICE = 1 << 9,    /* its tensors may be on several devices */
    AH_MAKES = 1 << 10,        /* creates tensors, from nothing or like another: accepts requires_grad */
    AH_FROM_ZERO = 1 << 11,    /* f(high, size) is f(0, high, size) */
    AH_RANDOM = 1 << 12,       /* draws from the default generator, or from the one that `generator` names */
    AH_UNBIASED = 1 << 13,     /* a boolean in place of dim or correction selects the unbiased result */
    AH_OPEN_SIZE = 1 << 14,    /* false in a table of integers is AH_SAME_SIZE */
    AH_FORMATS = 1 << 15,      /* accepts memory_format, the order of the result's elements in memory */
    AH_ANY_DTYPE = 1 << 16,    /* its CPU kernel accepts every dtype, those without arithmetic included (views and
                                  composites do without this flag) */
    AH_API = AH_METHOD | AH_FUNCTION,
};

struct ah_param {
    const char *name;
    enum ah_kind kind;
    bool optional;            /* nil is accepted and kept as AH_NONE */
    bool has_default;
    struct ah_value fallback; /* when has_default */
};

struct ah_op;

/* State that a forward passes to its kernel and its rule in addition to the arguments, by family. */
union ah_state {
    struct { double start, step; } sequence;                /* arange */
    struct { double scale; } dropout;                       /* 1 / (1 - p), rounded as the dtype is */
    struct { uint32_t dims; double correction; } reduce;    /* the reduced dims as a bit mask; of var and std */
    struct { int dim; } join;                               /* cat and stack: counted from 0 */
    struct { int covered; } place;                          /* index_put: number of leading dims that the index spans */
    struct { int weight, bias, other; } affine;             /* which inputs they are; 0: absent */
    struct { double eps; } root;                            /* rms_norm: given or the dtype's */
    struct {                                                /* as_strided: the view's offset, the input's geometry */
        int64_t offset, input_offset, input_stride[AH_MAX_DIMS];
    } strided;
};

struct ah_call {
    const struct ah_op *op;
    struct ah_device *device; /* of the outputs, the kernel and all tensors, except 0-dim operands on the CPU and ops
                                 with AH_ANY_DEVICE */
    struct ah_value arg[AH_MAX_ARGS]; /* all op->param_count of them, defaults filled */
    struct ah_tensor *out[AH_MAX_OUTS]; /* owned by the call until handed to the caller */
    int out_count;
    bool inplace;               /* out[0] was preset to arg[0]; the forward writes into it */
    bool stored_dtype;          /* a tensor or dtype among the arguments has no arithmetic (ah_dtype_computes) */
    bool float_result;          /* set by autocast: the result of fp16 and bf16 arguments is float32 */
    bool rounds_weight;         /* set by autocast: a float32 weight is rounded in the product with bfloat16 rows */
    bool recording;             /* a node will be made: forwards may then fill `extra` for their rule */
    struct ah_tensor *place;    /* out[0] is this tensor, where it has its shape and dtype; borrowed, or NULL */
    struct ah_tensor *original;            /* in place: the former value of arg[0], when the rule needs it; owned */
    struct ah_tensor *extra[AH_MAX_EXTRA]; /* further tensors for the rule (a mask, batch statistics); owned */
    union ah_state state;       /* set by the forwards that have a part in it */
};

struct ah_op {
    const char *name;
    const char *signature;
    int (*forward)(struct ah_call *call);
    uint32_t flags;
    enum ah_opid id;
    int param_count, tensor_count; /* tensor_count: leading parameters that are tensors or operands */
    struct ah_param param[AH_MAX_ARGS];
};

/* The parsed table; first use parses the signatures (idempotent). */
const struct ah_op *ah_op_get(enum ah_opid id);
const struct ah_op *ah_op_find(const char *name); /* by its name or an alias; NULL if unknown */

/* Other names of rows (host/ops/schema/alias.def), up to one without a name. */
struct ah_alias {
    const char *name;
    enum ah_opid id;
};
extern const struct ah_alias ah_aliases[];

/* Call an op. `args` holds `count` values in parameter order; missing ones have their defaults. Outputs (new
 * references) go to out[0..*out_count). With `inplace` the result replaces args[0]'s contents and out[0] is args[0]
 * retained. On error out[] is unchanged; the text names the failing op, unless memory ran out. */
int ah_op_call(enum ah_opid id, const struct ah_value *args, int count, bool inplace, struct ah_tensor **out,
               int *out_count);

/* The same, with out[0] stored in `place`, a contiguous tensor that is no argument: out[0] is then `place` retained,
 * but a new tensor where it has another shape, dtype or device, or where the op makes it by other ops. Nothing is
 * recorded for autograd. */
int ah_op_call_into(enum ah_opid id, const struct ah_value *args, int count, struct ah_tensor *place,
                    struct ah_tensor **out, int *out_count);

/* For one-output ops in C: ah_op1(AH_OP_add, &out, AH_T(a), AH_T(b)). */
#define ah_op1(id, out, ...)                                                              \
    ah_op_call1((id), (out), (const struct ah_value[]){__VA_ARGS__},                      \
                (int)(sizeof((struct ah_value[]){__VA_ARGS__}) / sizeof(struct ah_value)))
int ah_op_call1(enum ah_opid id, struct ah_tensor **out, const struct ah_value *args, int count);

/* Run the kernel of call->op on call->device; AH_ENOTIMPL when the device has none. */
int ah_call_kernel(struct ah_call *call);
/* The same after allocating out[0] (ah_call_output). */
int ah_call_single(struct ah_call *call, const int64_t *size, int ndim, enum ah_dtype dtype);

/* Within a kernel: the device's kernel of another op, from arguments that are as its forward leaves them into `result`,
 * which has the right shape and dtype. */
#define ah_call_part(call, id, result, ...)                                                 \
    ah_call_part_of((call), (id), (result), (const struct ah_value[]){__VA_ARGS__},         \
                    (int)(sizeof((struct ah_value[]){__VA_ARGS__}) / sizeof(struct ah_value)))
int ah_call_part_of(const struct ah_call *call, enum ah_opid id, struct ah_tensor *result,
                    const struct ah_value *args, int count);

/* Return the dtype of PyTorch's promotion for the tensors among arg[0..count) (by category, then dimensioned tensors
 * before 0-dim ones before wrapped numbers). AH_DTYPE_COUNT where there is none, which only ops with AH_ANY_DTYPE can
 * meet (ah_call_expect_promotion). */
enum ah_dtype ah_call_promote(const struct ah_call *call, int count);

/* AH_EINVAL "op: uint16 and int32 have no common dtype ..." when `promoted` is AH_DTYPE_COUNT. */
int ah_call_expect_promotion(const struct ah_call *call, enum ah_dtype promoted);

/* Allocate out[index], or, in place, check that out[0] has this shape and can hold this dtype. */
int ah_call_output(struct ah_call *call, int index, const int64_t *size, int ndim, enum ah_dtype dtype);

/* The recording functions of host/autograd; set at start-up, so that ops do not depend on it. */
struct ah_recorder {
    bool (*wanted)(const struct ah_call *call);          /* is a node to be recorded for this call? */
    int (*before_inplace)(struct ah_call *call);         /* may arg[0] be written now? keeps its value if needed */
    int (*record)(struct ah_call *call); /* after the forward, in place before the write is counted */
    int (*track_view)(struct ah_call *call);             /* out[0] is a differentiable view of arg[0] */
    bool (*is_recording)(void);                          /* are nodes recorded now? */
    bool (*is_parameter)(const struct ah_tensor *tensor); /* is it a leaf that requires grad, and no view? */
};
extern const struct ah_recorder *ah_recorder;

/* The values of a tensor where the host can read them: the tensor itself (retained, made row-major) when it is on the
 * CPU, else a dense copy there, without history. */
int ah_host_copy(struct ah_tensor **out, struct ah_tensor *tensor);

/* A number that is stored, not computed with, must be in the range of `dtype` (ah_number_fits): AH_EINVAL names
 * parameter, number and dtype unless arg[i] is; tensors pass. */
int ah_call_expect_fits(const struct ah_call *call, int arg, enum ah_dtype dtype);

/* AH_EINVAL "op: NAME: expected float32 or float64, got int64" unless arg[i]'s dtype is floating. */
int ah_call_expect_float(const struct ah_call *call, int arg);
