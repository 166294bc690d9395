/* Blocking collectives on tensors.
 *
 * all_reduce(t, op) broadcast(t, root)         in place; return t
 * all_gather(t) all_gather_ragged(t)           concatenation on dim 0; ragged: its size may differ between ranks
 * gather(t, root)                              nil on all ranks but the root
 * reduce_scatter(t, op) all_to_all(t)          dim 0 is split into one part per rank
 * barrier()
 * arena_empty(shape, dtype)                    a tensor in the group's memory: collectives on it copy nothing
 *
 * The shape is part of the fingerprint: ranks that pass the same number of elements in another shape disagree. Tensors
 * of other devices use the device communicator (comm/group/device_comm.h), or are copied through the CPU. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/graph/graph.h"
#include "bind/comm/comm.h"
#include "sync/arena.h"
#include "tensor/capture.h"

int ah_check_whole(lua_State *L, int index, const char *what)
{
    lua_Number value = luaL_checknumber(L, index);
    if (!(value >= INT_MIN && value <= INT_MAX) || value != (int)value)
        ah_raise_text(L, "expected a whole number as %s, got %g", what, value);
    return (int)value;
}

enum ah_reduce_op ah_check_reduce_op(lua_State *L, int index)
{
    const char *name = lua_isnoneornil(L, index) ? "sum" : luaL_checkstring(L, index);
    for (int i = 0; i < AH_REDUCE_OPS; i++)
        if (!strcmp(ah_reduce_name((enum ah_reduce_op)i), name))
            return (enum ah_reduce_op)i;
    ah_raise_text(L, "expected the reduction sum, mean, max, min, product, and, or or xor, got '%s'", name);
    return AH_REDUCE_SUM;
}

static int check_root(lua_State *L, int index)
{
    return lua_isnoneornil(L, index) ? 0 : ah_check_whole(L, index, "root");
}

/* Run a one-output op without recording it. */
static int call_quietly(enum ah_opid op, struct ah_tensor **out, struct ah_tensor *a, struct ah_tensor *b)
{
    AH_GRAD_SCOPE(false);
    return b ? ah_op1(op, out, AH_T(a), AH_T(b)) : ah_op1(op, out, AH_T(a));
}

int ah_comm_reach(lua_State *L, struct ah_group *group, enum ah_collective_kind kind, enum ah_reduce_op op,
                  const struct ah_tensor *any, struct ah_device **out)
{
    struct ah_device *device = any ? any->storage->device : &ah_cpu;
    bool reached;
    *out = NULL;
    if (device == &ah_cpu)
        return ah_capture_refuse(ah_collective_name(kind, false), "a collective of the script",
                                 "call it outside of the step (averages of gradients are captured)");
    AH_TRY(ah_group_reach(group, device, device->type->device_comm, ah_call_site(L), &reached));
    struct ah_collective call = {.kind = kind, .dtype = any->dtype, .reduce = op};
    if (reached && ah_group_takes(group, &call))
        *out = device;
    return 0;
}

int ah_comm_pack(struct ah_tensor **out, struct ah_tensor *tensor, struct ah_device *device)
{
    AH_TRY(ah_tensor_row_major(tensor));
    if (device && tensor->storage->device != device)
        return ah_fail(AH_EINVAL, "a collective's tensors must be on one device: one is on %s, another on %s",
                       device->name, tensor->storage->device->name);
    if (!device && tensor->storage->device != &ah_cpu)
        return ah_host_copy(out, tensor);
    if (!ah_tensor_is_contiguous(tensor))
        return call_quietly(AH_OP_contiguous, out, tensor, NULL);
    *out = ah_tensor_retain(tensor);
    return 0;
}

int ah_comm_unpack(struct ah_tensor *tensor, struct ah_tensor *packed, int status)
{
    /* Devices have no kernels for dtypes without arithmetic. */
    bool as_bytes = !ah_dtype_computes(tensor->dtype) && ah_tensor_is_contiguous(tensor);
    if (status == 0 && packed != tensor && as_bytes) {
        status = ah_device_copy(ah_tensor_data(tensor), tensor->storage->device, ah_tensor_data(packed),
                                packed->storage->device, ah_tensor_bytes(packed));
    } else if (status == 0 && packed != tensor) {
        struct ah_tensor *same = NULL;
        status = call_quietly(AH_OP_copy_, &same, tensor, packed);
        ah_tensor_release(same);
    }
    ah_tensor_touch(tensor);
    ah_tensor_release(packed);
    return status;
}

int ah_comm_bring_home(struct ah_tensor **result, const struct ah_tensor *like)
{
    struct ah_tensor *here = *result, *home;
    struct ah_device *device = like->storage->device;
    if (device == here->storage->device)
        return 0;
    AH_TRY(ah_tensor_empty(&home, here->size, here->ndim, here->dtype, device));
    int status = ah_device_copy(ah_tensor_data(home), device, ah_tensor_data(here), &ah_cpu,
                                ah_tensor_bytes(here));
    if (status < 0) {
        ah_tensor_release(home);
        return status;
    }
    ah_tensor_release(here);
    *result = home;
    return 0;
}

int ah_comm_result(struct ah_tensor **out, const char *name, const struct ah_tensor *in, enum ah_shape_rule rule,
                   int ranks, struct ah_device *device)
{
    int64_t size[AH_MAX_DIMS] = {1};
    int ndim = in->ndim ? in->ndim : 1;
    memcpy(size, in->size, (size_t)in->ndim * sizeof *size);
    if (rule != AH_SHAPE_GROW && size[0] % ranks)
        return ah_fail(AH_EINVAL, "%s: dim 0 of %s does not divide by %d ranks", name, ah_shape(in), ranks);
    if (rule == AH_SHAPE_GROW && __builtin_mul_overflow(size[0], (int64_t)ranks, &size[0]))
        return ah_fail(AH_EINVAL, "%s: the result of %s from %d ranks is too large", name, ah_shape(in), ranks);
    if (rule == AH_SHAPE_SHRINK)
        size[0] /= ranks;
    return ah_tensor_empty(out, size, ndim, in->dtype, device ? device : &ah_cpu);
}

static int run_at(lua_State *L, struct ah_group *group, struct ah_collective call, const struct ah_tensor *shape)
{
    call.where = ah_call_site(L);
    if (shape) {
        call.ndim = shape->ndim;
        call.size = shape->size;
    }
    return ah_group_run(group, call);
}

/* In place. */

static int all_reduce(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    struct ah_tensor *tensor = ah_check_tensor(L, entry.first), *buffer;
    enum ah_reduce_op op = ah_check_reduce_op(L, entry.first + 1);
    struct ah_device *device;
    ah_check(L, ah_comm_reach(L, entry.group, AH_ALL_REDUCE, op, tensor, &device));
    ah_check(L, ah_comm_pack(&buffer, tensor, device));
    struct ah_collective call = ah_collective_all_reduce(ah_tensor_data(buffer), tensor->numel, tensor->dtype, op);
    call.device = device;
    ah_check(L, ah_comm_unpack(tensor, buffer, run_at(L, entry.group, call, tensor)));
    lua_settop(L, entry.first);
    return 1;
}

static int call_broadcast(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    struct ah_tensor *tensor = ah_check_tensor(L, entry.first), *buffer;
    int root = check_root(L, entry.first + 1);
    struct ah_device *device;
    ah_check(L, ah_comm_reach(L, entry.group, AH_BROADCAST, AH_REDUCE_SUM, tensor, &device));
    ah_check(L, ah_comm_pack(&buffer, tensor, device));
    struct ah_collective call = ah_collective_broadcast(ah_tensor_data(buffer), tensor->numel, tensor->dtype, root);
    call.device = device;
    ah_check(L, ah_comm_unpack(tensor, buffer, run_at(L, entry.group, call, tensor)));
    lua_settop(L, entry.first);
    return 1;
}

/* With a new result. */

struct exchange {
    const char *name;
    enum ah_collective_kind kind;
    enum ah_shape_rule rule;
};

static struct ah_collective exchange_call(const struct exchange *x, struct ah_tensor *out, struct ah_tensor *in,
                                          int ranks, int argument)
{
    void *to = out ? ah_tensor_data(out) : NULL;
    const void *from = ah_tensor_data(in);
    int64_t part = in->numel / ranks;
    switch (x->kind) {
    case AH_GATHER:
        return ah_collective_gather(to, from, in->numel, in->dtype, argument);
    case AH_REDUCE_SCATTER:
        return ah_collective_reduce_scatter(to, from, part, in->dtype, (enum ah_reduce_op)argument);
    case AH_ALL_TO_ALL:
        return ah_collective_all_to_all(to, from, part, in->dtype);
    default:
        return ah_collective_all_gather(to, from, in->numel, in->dtype);
    }
}

static int call_exchange(lua_State *L, struct ah_tensor **out, const struct exchange *x, struct ah_group *group,
                         struct ah_tensor *tensor, bool wanted, int argument)
{
    struct ah_tensor *in = NULL, *result = NULL;
    struct ah_device *device;
    int ranks = ah_group_size(group), status;
    enum ah_reduce_op op = x->kind == AH_REDUCE_SCATTER ? (enum ah_reduce_op)argument : AH_REDUCE_SUM;
    AH_TRYGO(ah_comm_reach(L, group, x->kind, op, tensor, &device), out);
    AH_TRYGO(ah_comm_pack(&in, tensor, device), out);
    if (wanted)
        AH_TRYGO(ah_comm_result(&result, x->name, tensor, x->rule, ranks, device), out);
    struct ah_collective call = exchange_call(x, result, in, ranks, argument);
    call.device = device;
    AH_TRYGO(run_at(L, group, call, tensor), out);
    if (wanted)
        AH_TRYGO(ah_comm_bring_home(&result, tensor), out);
    *out = result;
    result = NULL;
out:
    ah_tensor_release(in);
    ah_tensor_release(result);
    return status;
}

static int push_exchange(lua_State *L, const struct exchange *x)
{
    struct ah_entry entry = ah_comm_enter(L);
    struct ah_tensor *tensor = ah_check_tensor(L, entry.first), *result = NULL;
    int argument = 0;
    if (x->kind == AH_GATHER)
        argument = check_root(L, entry.first + 1);
    else if (x->kind == AH_REDUCE_SCATTER)
        argument = (int)ah_check_reduce_op(L, entry.first + 1);
    bool wanted = x->kind != AH_GATHER || ah_group_rank(entry.group) == argument;
    ah_check(L, call_exchange(L, &result, x, entry.group, tensor, wanted, argument));
    ah_push_tensor(L, result);
    return 1;
}

#define EXCHANGE(name, kind, rule)                                    \
    static int name(lua_State *L)                                     \
    {                                                                 \
        return push_exchange(L, &(struct exchange){#name, kind, rule}); \
    }
EXCHANGE(all_gather, AH_ALL_GATHER, AH_SHAPE_GROW)
EXCHANGE(gather, AH_GATHER, AH_SHAPE_GROW)
EXCHANGE(reduce_scatter, AH_REDUCE_SCATTER, AH_SHAPE_SHRINK)
EXCHANGE(all_to_all, AH_ALL_TO_ALL, AH_SHAPE_KEEP)

/* Ragged. */

static int gather_counts(lua_State *L, struct ah_group *group, const struct ah_tensor *tensor, int64_t *counts,
                         int64_t *size)
{
    int64_t inner = 1, own = tensor->ndim ? tensor->size[0] : 1;
    for (int d = 1; d < tensor->ndim; d++)
        inner *= tensor->size[d];
    struct ah_collective call = ah_collective_all_gather(counts, &own, 1, AH_I64);
    call.ndim = 0; /* other calls gather a count first, too */
    call.purpose = AH_FOR_GATHER;
    AH_TRY(run_at(L, group, call, NULL));
    *size = 0;
    for (int r = 0; r < ah_group_size(group); r++) {
        *size += counts[r];
        counts[r] *= inner;
    }
    return 0;
}

static int call_ragged(lua_State *L, struct ah_tensor **out, struct ah_group *group, struct ah_tensor *tensor)
{
    struct ah_tensor *in = NULL, *result = NULL;
    int ndim = tensor->ndim ? tensor->ndim : 1, status = 0;
    int64_t size[AH_MAX_DIMS] = {1}, own[AH_MAX_DIMS], *counts = malloc((size_t)ah_group_size(group) * sizeof *counts);
    AH_TRY_MEMORY(counts, "all_gather_ragged: out of memory");
    memcpy(size, tensor->size, (size_t)tensor->ndim * sizeof *size);
    memcpy(own, size, sizeof own);
    struct ah_device *device;
    AH_TRYGO(ah_comm_reach(L, group, AH_ALL_GATHER_V, AH_REDUCE_SUM, tensor, &device), out);
    AH_TRYGO(ah_comm_pack(&in, tensor, device), out);
    AH_TRYGO(gather_counts(L, group, tensor, counts, &size[0]), out);
    AH_TRYGO(ah_tensor_empty(&result, size, ndim, tensor->dtype, device ? device : &ah_cpu), out);
    struct ah_collective call = ah_collective_all_gather_v(ah_tensor_data(result), ah_tensor_data(in), counts,
                                                           ah_group_rank(group), tensor->dtype);
    /* Ranks whose inner sizes differ would disagree on the counts: with the shape the error names the difference. */
    call.ndim = ndim;
    call.size = own;
    call.device = device;
    call.purpose = AH_FOR_GATHER;
    AH_TRYGO(run_at(L, group, call, NULL), out);
    AH_TRYGO(ah_comm_bring_home(&result, tensor), out);
    *out = result;
    result = NULL;
out:
    free(counts);
    ah_tensor_release(in);
    ah_tensor_release(result);
    return status;
}

static int all_gather_ragged(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    struct ah_tensor *tensor = ah_check_tensor(L, entry.first), *result = NULL;
    ah_check(L, call_ragged(L, &result, entry.group, tensor));
    ah_push_tensor(L, result);
    return 1;
}

AH_LUA_CHECKED(call_barrier, run_at(L, ah_comm_enter(L).group, ah_collective_barrier(), NULL))

/* Memory. */

static int bytes_of_shape(const int64_t *size, int ndim, enum ah_dtype dtype, int64_t *bytes)
{
    *bytes = (int64_t)ah_dtype_size(dtype);
    for (int d = 0; d < ndim; d++)
        if (size[d] < 0 || __builtin_mul_overflow(*bytes, size[d], bytes))
            return ah_fail(AH_EINVAL, "arena_empty: shape %s is out of range", ah_shape_text(size, ndim));
    return 0;
}

static int arena_empty(lua_State *L)
{
    struct ah_entry entry = ah_comm_enter(L);
    int64_t size[AH_MAX_DIMS], bytes;
    int ndim = ah_check_ints(L, entry.first, size, AH_MAX_DIMS, "arena_empty");
    enum ah_dtype dtype = lua_isnoneornil(L, entry.first + 1) ? AH_F32 : ah_check_dtype(L, entry.first + 1);
    struct ah_arena *arena;
    struct ah_tensor *tensor;
    ah_check(L, bytes_of_shape(size, ndim, dtype, &bytes));
    ah_check(L, ah_arena_new(&arena, (size_t)bytes, &ah_cpu, entry.group));
    int status = ah_arena_tensor(&tensor, arena, 0, size, ndim, dtype);
    ah_arena_release(arena);
    ah_check(L, status);
    ah_push_tensor(L, tensor);
    return 1;
}

const luaL_Reg ah_comm_calls[] = {
    {"all_reduce", all_reduce},   {"broadcast", call_broadcast},
    {"all_gather", all_gather},   {"all_gather_ragged", all_gather_ragged},
    {"gather", gather},           {"reduce_scatter", reduce_scatter},
    {"all_to_all", all_to_all},   {"barrier", call_barrier},
    {"arena_empty", arena_empty}, {NULL, NULL},
};
