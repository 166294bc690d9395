/* Tensors in another dtype, on another device, in pinned memory: t:to and its kin. */
#include <string.h>

#include "autograd/graph/graph.h"
#include "base/status/status.h"
#include "bind/lua/function.h"
#include "bind/tensor/memory_format.h"
#include "bind/tensor/op.h"
#include "bind/tensor/tensor.h"
#include "ops/dispatch/op.h"
#include "tensor/prefetch.h"

/* The target of t:to. */
struct target {
    enum ah_dtype dtype;
    struct ah_device *device;
    bool non_blocking, copy;
    enum ah_memory_format format;
};

/* Copy a tensor to the device while its kernels run; *out is NULL where it must be copied in their order. */
static int tensor_prefetch(struct ah_tensor **out, struct ah_tensor *tensor, struct ah_device *device)
{
    bool fits = ah_on_cpu(tensor) && device->type->prefetch && ah_tensor_is_pinned(tensor) &&
                !ah_requires_grad(tensor) && ah_tensor_is_contiguous(tensor);
    *out = NULL;
    if (!fits)
        return 0;
    AH_TRY(ah_tensor_row_major(tensor));
    AH_TRY(ah_prefetch_tensor(out, tensor, device));
    int status = ah_prefetch_join(device);
    if (status < 0)
        ah_tensor_release(*out);
    return status;
}

/* Convert the tensor on top to a memory format: in place if it is new, else as another tensor. */
static void push_format(lua_State *L, const struct ah_tensor *before, enum ah_memory_format format)
{
    struct ah_tensor *tensor = ah_check_tensor(L, lua_gettop(L));
    bool row_major = format == AH_FORMAT_CONTIGUOUS;
    if (format == AH_FORMAT_PRESERVE)
        return;
    if (tensor == before && ah_is_in_format(L, tensor, format) && !(row_major && tensor->storage->channels_last))
        return;
    if (tensor == before) {
        ah_push_op(L, AH_OP_clone, (const struct ah_value[]){AH_T(tensor)}, 1);
        tensor = ah_check_tensor(L, lua_gettop(L));
    }
    ah_set_format(L, tensor, format, false, "to");
}

/* Push the tensor at 1 converted to the target; the tensor itself if it needs no conversion. */
static int tensor_convert(lua_State *L, const struct target *target)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *before = tensor, *fed = NULL;
    lua_settop(L, 1);
    if (tensor->dtype != target->dtype) {
        ah_push_op(L, AH_OP_to, (const struct ah_value[]){AH_T(tensor), AH_D(target->dtype)}, 2);
        tensor = ah_check_tensor(L, 2);
    }
    if (tensor->storage->device != target->device) {
        if (target->non_blocking)
            ah_check(L, tensor_prefetch(&fed, tensor, target->device));
        if (fed)
            ah_push_tensor(L, fed);
        else
            ah_push_op(L, AH_OP_to_device, (const struct ah_value[]){AH_T(tensor), AH_DEV(target->device)}, 2);
    } else if (target->copy && tensor == before) {
        ah_push_op(L, AH_OP_clone, (const struct ah_value[]){AH_T(tensor)}, 1);
    }
    push_format(L, before, target->format);
    return 1;
}

/* t:float() and its kin: `memory_format` alone may be given, in a table. */
static int tensor_cast(lua_State *L, enum ah_dtype dtype, const char *name)
{
    struct target target = {.dtype = dtype, .device = ah_check_tensor(L, 1)->storage->device};
    if (!lua_isnoneornil(L, 2)) {
        ah_check_options(L, 2, name, (const char *const[]){"memory_format", NULL});
        target.format = ah_opt_memory_format(L, 2, name);
    }
    return tensor_convert(L, &target);
}

/* The table of options at `index`. */
static void read_options(lua_State *L, int index, bool whole, struct target *target)
{
    static const char *const known[] = {"dtype", "device", "non_blocking", "copy", "memory_format", NULL};
    const char *dtype = ah_opt_string(L, index, "dtype", NULL), *device = ah_opt_string(L, index, "device", NULL);
    ah_check_options(L, index, "to", known);
    if (device && !whole)
        ah_raise_text(L, "to: the device was already passed before the options");
    if (dtype)
        ah_check(L, ah_dtype_parse(dtype, &target->dtype));
    if (device)
        ah_check(L, ah_device_find(device, &target->device));
    target->non_blocking = ah_opt_flag(L, index, "non_blocking", false);
    target->copy = ah_opt_flag(L, index, "copy", false);
    target->format = ah_opt_memory_format(L, index, "to");
}

/* The word that the target is; true when it is a device's. Dtypes are compared first: an unknown device is searched
 * for among the files of plugins, at three system calls. */
static bool read_word(lua_State *L, const char *word, struct target *target)
{
    if (ah_dtype_parse(word, &target->dtype) == 0)
        return false;
    if (!ah_device_is_name(word)) {
        ah_dtype_parse(word, &target->dtype);
        ah_raise_text(L, "to: %s, and there is no such device", ah_error_text());
    }
    ah_check(L, ah_device_find(word, &target->device));
    return true;
}

/* non_blocking and copy by position, from `at` up to the table of options or the end; `first` is the other possible
 * name of the first of them. */
static void read_flags(lua_State *L, int at, int end, const char *first, struct target *target)
{
    bool *const flag[] = {&target->non_blocking, &target->copy};
    for (int i = 0; at < end; i++, at++) {
        if (i == 2 || !(lua_isboolean(L, at) || lua_isnil(L, at)))
            ah_raise_text(L, "to: expected %s%s or a table of options, got %s", i == 0 ? first : "",
                          i == 0 ? "non_blocking (true or false)" : i == 1 ? "copy (true or false)" : "nothing more",
                          ah_value_text(L, at));
        *flag[i] = lua_toboolean(L, at);
    }
}

/* t:to("float64"), t:to("cuda:0"), t:to("cuda:0", "float64"), t:to(other), t:to{dtype = ..., device = ...}, the first
 * four with non_blocking and copy or with a table of options after them */
static int method_to(lua_State *L)
{
    const struct ah_tensor *tensor = ah_check_tensor(L, 1), *other = ah_to_tensor(L, 2);
    struct target target = {.dtype = tensor->dtype, .device = tensor->storage->device};
    int last = lua_gettop(L);
    bool whole = lua_istable(L, 2), options = last > 1 && lua_istable(L, last);
    bool named = lua_type(L, 2) == LUA_TSTRING && read_word(L, lua_tostring(L, 2), &target);
    if (other) {
        target.dtype = other->dtype;
        target.device = other->storage->device;
    } else if (!whole && lua_type(L, 2) != LUA_TSTRING) {
        return ah_raise_text(L, "to: expected a dtype, a device, a tensor or {dtype=, device=}, got %s",
                             luaL_typename(L, 2));
    }
    bool second = named && (lua_type(L, 3) == LUA_TSTRING || lua_isnil(L, 3));
    if (second && lua_type(L, 3) == LUA_TSTRING)
        target.dtype = ah_check_dtype(L, 3);
    read_flags(L, second ? 4 : 3, options ? last : last + 1, named && !second ? "a dtype, " : "", &target);
    if (options)
        read_options(L, last, whole, &target);
    return tensor_convert(L, &target);
}

#define CAST(name, dtype)                   \
    static int method_##name(lua_State *L)  \
    {                                       \
        return tensor_cast(L, dtype, #name);       \
    }
CAST(float, AH_F32)
CAST(double, AH_F64)
CAST(half, AH_F16)
CAST(bfloat16, AH_BF16)
CAST(long, AH_I64)
CAST(int, AH_I32)
CAST(short, AH_I16)
CAST(char, AH_I8)
CAST(byte, AH_U8)
CAST(bool, AH_BOOL)

static int method_type_as(lua_State *L)
{
    const struct ah_tensor *other = ah_check_tensor(L, 2);
    return tensor_convert(L, &(struct target){.dtype = other->dtype, .device = other->storage->device});
}

static int method_cpu(lua_State *L)
{
    struct target target = {.dtype = ah_check_tensor(L, 1)->dtype, .device = &ah_cpu};
    if (!lua_isnoneornil(L, 2)) {
        ah_check_options(L, 2, "cpu", (const char *const[]){"memory_format", NULL});
        target.format = ah_opt_memory_format(L, 2, "cpu");
    }
    return tensor_convert(L, &target);
}

/* "cuda" or "cuda:1" of nothing, a number or a name. */
static const char *cuda_name(lua_State *L, int index, const char *what)
{
    if (lua_isnoneornil(L, index))
        return "cuda";
    if (lua_type(L, index) == LUA_TNUMBER)
        return lua_pushfstring(L, "cuda:%d", (int)lua_tointeger(L, index));
    const char *name = lua_tostring(L, index);
    if (!name || strncmp(name, "cuda", 4))
        ah_raise_text(L, "%s: device: expected a number or the name of a CUDA device, got %s", what,
                      ah_value_text(L, index));
    return name;
}

static int method_cuda(lua_State *L)
{
    int last = lua_gettop(L);
    struct target target = {.dtype = ah_check_tensor(L, 1)->dtype};
    bool options = last > 1 && lua_istable(L, last);
    if (options) {
        ah_check_options(L, last, "cuda", (const char *const[]){"device", "non_blocking", "memory_format", NULL});
        target.non_blocking = ah_opt_flag(L, last, "non_blocking", false);
        target.format = ah_opt_memory_format(L, last, "cuda");
        lua_getfield(L, last, "device");
        if (!lua_isnil(L, -1) || last == 2)
            lua_replace(L, 2);
    }
    ah_check(L, ah_device_find(cuda_name(L, 2, "cuda"), &target.device));
    return tensor_convert(L, &target);
}

static int method_pin_memory(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *dense = NULL, *pinned = NULL;
    struct ah_device *device;
    if (!ah_on_cpu(tensor))
        return ah_raise_text(L, "pin_memory: expected a tensor on the CPU, got one on %s",
                             tensor->storage->device->name);
    if (ah_tensor_is_pinned(tensor)) {
        lua_settop(L, 1);
        return 1;
    }
    if (ah_device_find(cuda_name(L, 2, "pin_memory"), &device) < 0)
        return ah_raise_text(L, "pin_memory: %s", ah_error_text());
    bool before = ah_grad_switch(false);
    int status = ah_op1(AH_OP_contiguous, &dense, AH_T(tensor));
    ah_grad_switch(before);
    if (status == 0)
        status = ah_tensor_empty_pinned(&pinned, dense->size, dense->ndim, dense->dtype, device);
    if (status == 0)
        memcpy(ah_tensor_data(pinned), ah_tensor_data(dense), ah_tensor_bytes(dense));
    ah_tensor_release(dense);
    ah_check(L, status);
    ah_push_tensor(L, pinned);
    return 1;
}

AH_LUA_VALUE(method_is_pinned, lua_pushboolean, ah_tensor_is_pinned(ah_check_tensor(L, 1)))

const struct ah_function ah_tensor_move_methods[] = {
    /* A copy in another dtype or on another device, or the tensor itself where nothing changes: t:to "float64",
     * t:to "cpu", t:to("cpu", "float64"), t:to(other), t:to{dtype = ..., device = ...}. Gradients flow through it.
     * With non_blocking = true a copy of a pinned tensor to a device runs while the device and the script continue:
     * that tensor is not to be written before the copy is made (accelhost.cuda.synchronize waits for it). Other copies
     * from the CPU have read the values when they return, and a copy to the CPU has completed. With copy = true the
     * result is never the tensor itself. memory_format = "channels_last" is the order of a 4-d result's elements in
     * memory (accelhost.channels_last); float(), half() and the other casts accept it too.
     *     a:to "int64"  --> tensor([1, 2, 3])
     * @return Tensor */
    {"to", method_to, "input:T, target:*, dtype:*?, non_blocking:*?, copy:*?, options:*?"},
    /* The tensor in the dtype and on the device of another one.
     *     a:type_as(labels).dtype  --> int64
     * @return Tensor */
    {"type_as", method_type_as, "input:T, other:T"},
    /* The tensor as float32.
     *     labels:float().dtype  --> float32
     * @return Tensor */
    {"float", method_float, "input:T, options:*?"},
    /* The tensor as float64.
     *     a:double().dtype  --> float64
     * @return Tensor */
    {"double", method_double, "input:T, options:*?"},
    /* The tensor as float16.
     *     a:half().dtype  --> float16
     * @return Tensor */
    {"half", method_half, "input:T, options:*?"},
    /* The tensor as bfloat16.
     *     a:bfloat16().dtype  --> bfloat16
     * @return Tensor */
    {"bfloat16", method_bfloat16, "input:T, options:*?"},
    /* The tensor as int64; floats are cut towards zero.
     *     a:long().dtype  --> int64
     * @return Tensor */
    {"long", method_long, "input:T, options:*?"},
    /* The tensor as int32; floats are cut towards zero.
     *     a:int().dtype  --> int32
     * @return Tensor */
    {"int", method_int, "input:T, options:*?"},
    /* The tensor as int16; floats are cut towards zero, and values out of range wrap around.
     *     a:short().dtype  --> int16
     * @return Tensor */
    {"short", method_short, "input:T, options:*?"},
    /* The tensor as int8; floats are cut towards zero, and values out of range wrap around.
     *     a:char().dtype  --> int8
     * @return Tensor */
    {"char", method_char, "input:T, options:*?"},
    /* The tensor as uint8.
     *     a:byte().dtype  --> uint8
     * @return Tensor */
    {"byte", method_byte, "input:T, options:*?"},
    /* The tensor as bool: true where an element is not 0.
     *     a:bool()  --> tensor([true, true, true])
     * @return Tensor */
    {"bool", method_bool, "input:T, options:*?"},
    /* The tensor on the CPU: itself if it is there.
     *     a:cpu().device  --> cpu
     * @return Tensor */
    {"cpu", method_cpu, "input:T, options:*?"},
    /* The tensor on a CUDA device: the current one, or that of a number or name; with non_blocking = true as t:to does.
     *     if accelhost.cuda.is_available() then a = a:cuda() end
     * @return Tensor */
    {"cuda", method_cuda, "input:T, device:*?, options:*?"},
    /* A copy in pinned memory of the host, which CUDA devices read by themselves while the host continues; the tensor
     * itself when it is there already. Freed blocks are kept for the next such tensors.
     *     if accelhost.cuda.is_available() then a = a:pin_memory():to("cuda", {non_blocking = true}) end
     * @return Tensor */
    {"pin_memory", method_pin_memory, "input:T, device:*?"},
    /* Is it in pinned memory?
     *     a:is_pinned()  --> false
     * @return boolean */
    {"is_pinned", method_is_pinned, "input:T"},
    {NULL, NULL, NULL},
};
