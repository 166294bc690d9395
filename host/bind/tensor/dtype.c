/* accelhost._C.dtype: PyTorch's functions of dtypes.
 *
 * promote_types(a, b)          the smallest dtype that both convert to
 * result_type(a, b)            the dtype of a + b, of tensors and numbers
 * can_cast(from_, to)          may a result of `from_` be written in place into `to`? categories do not fall
 * finfo(type?), iinfo(type)    the limits of a floating dtype (float32), of an integer one */
#include <float.h>
#include <string.h>

#include "bind/lua/bind.h"
#include "bind/lua/function.h"
#include "bind/tensor/op.h"
#include "bind/tensor/tensor.h"

static int push_dtype(lua_State *L, enum ah_dtype dtype)
{
    lua_pushstring(L, ah_dtype_name(dtype));
    return 1;
}

static int no_promotion(lua_State *L, const char *what, enum ah_dtype a, enum ah_dtype b)
{
    return ah_raise_text(L, "%s: %s and %s have no common dtype: uint16, uint32 and uint64 promote with floats only",
                         what, ah_dtype_name(a), ah_dtype_name(b));
}

static int promote_types(lua_State *L)
{
    enum ah_dtype a = ah_check_dtype(L, 1), b = ah_check_dtype(L, 2), promoted = ah_dtype_promote(a, b);
    return promoted < AH_DTYPE_COUNT ? push_dtype(L, promoted) : no_promotion(L, "promote_types", a, b);
}

AH_LUA_VALUE(can_cast, lua_pushboolean,
             ah_dtype_category(ah_check_dtype(L, 1)) <= ah_dtype_category(ah_check_dtype(L, 2)))

/* A number as the wrapped tensor that an op would make of it, owned by Lua. */
static struct ah_tensor *dtype_operand(lua_State *L, int index)
{
    struct ah_value value = ah_check_operand(L, index, "result_type");
    struct ah_tensor *wrapped = value.tensor;
    if (value.kind == AH_TENSOR)
        return wrapped;
    enum ah_dtype dtype = value.kind == AH_NUMBER ? AH_F64 : value.kind == AH_INT ? AH_I64 : AH_BOOL;
    ah_check(L, ah_tensor_scalar(&wrapped, value.kind == AH_NUMBER ? value.number : 1, dtype, &ah_cpu));
    wrapped->wrapped = true;
    ah_push_tensor(L, wrapped);
    return wrapped;
}

static int result_type(lua_State *L)
{
    struct ah_call call = {.arg = {AH_T(dtype_operand(L, 1)), AH_T(dtype_operand(L, 2))}};
    enum ah_dtype promoted = ah_call_promote(&call, 2);
    if (promoted == AH_DTYPE_COUNT)
        return no_promotion(L, "result_type", call.arg[0].tensor->dtype, call.arg[1].tensor->dtype);
    return push_dtype(L, promoted);
}

static int push_limits(lua_State *L, enum ah_dtype dtype, double least, double most)
{
    lua_newtable(L);
    push_dtype(L, dtype);
    lua_setfield(L, -2, "dtype");
    ah_set_number(L, "bits", 8.0 * (double)ah_dtype_size(dtype));
    ah_set_number(L, "min", least);
    ah_set_number(L, "max", most);
    return 1;
}

static int dtype_finfo(lua_State *L)
{
    static const struct {
        double eps, tiny, resolution;
    } limits[AH_DTYPE_COUNT] = {
        [AH_F16] = {0x1p-10, 0x1p-14, 1e-3},
        [AH_BF16] = {0x1p-7, 0x1p-126, 1e-2},
        [AH_F32] = {FLT_EPSILON, 0x1p-126, 1e-6},
        [AH_F64] = {DBL_EPSILON, DBL_MIN, 1e-15},
    };
    enum ah_dtype dtype = lua_isnoneornil(L, 1) ? ah_default_dtype : ah_check_dtype(L, 1);
    if (!ah_dtype_is_float(dtype))
        return ah_raise_text(L, "finfo: type: expected a floating dtype, got %s; iinfo knows it", ah_dtype_name(dtype));
    push_limits(L, dtype, -ah_float_largest(dtype), ah_float_largest(dtype));
    ah_set_number(L, "eps", limits[dtype].eps);
    ah_set_number(L, "tiny", limits[dtype].tiny);
    ah_set_number(L, "smallest_normal", limits[dtype].tiny);
    ah_set_number(L, "resolution", limits[dtype].resolution);
    return 1;
}

static int get_default_dtype(lua_State *L)
{
    return push_dtype(L, ah_default_dtype);
}

static int set_default_dtype(lua_State *L)
{
    enum ah_dtype dtype = ah_check_dtype(L, 1);
    if (!ah_dtype_is_float(dtype))
        return ah_raise_text(L, "set_default_dtype: d: expected a floating dtype, got %s", ah_dtype_name(dtype));
    ah_default_dtype = dtype;
    return 0;
}

static int dtype_iinfo(lua_State *L)
{
    enum ah_dtype dtype = ah_check_dtype(L, 1);
    int64_t least, most;
    if (ah_dtype_category(dtype) != AH_CATEGORY_INT || !ah_dtype_int_range(dtype, &least, &most))
        return ah_raise_text(L, "iinfo: type: expected an integer dtype, got %s", ah_dtype_name(dtype));
    return push_limits(L, dtype, (double)least, dtype == AH_U64 ? 0x1p64 : (double)most);
}

int ah_open_dtype(lua_State *L)
{
    static const struct ah_function functions[] = {
        /* The dtype that two dtypes promote to: that of the sum of their tensors.
         *     accelhost.promote_types("int64", "float32")  --> float32
         * @return string */
        {"promote_types", promote_types, "type1:d, type2:d"},
        /* May a result of one dtype be written in place into a tensor of the other? Floats do not go into integers, nor
         * anything but bool into bool.
         *     accelhost.can_cast("float32", "int64")  --> false
         * @return boolean */
        {"can_cast", can_cast, "from_:d, to:d"},
        /* The dtype of tensor1 + tensor2, which may be numbers.
         *     accelhost.result_type(labels, 0.5)  --> float32
         * @return string */
        {"result_type", result_type, "tensor1:O, tensor2:O"},
        /* The limits of a floating dtype, the default dtype unless named: a table with bits, eps, max, min, tiny and
         * resolution.
         *     accelhost.finfo("float16").max  --> 65504
         * @return table<string, number> */
        {"finfo", dtype_finfo, "type:d?"},
        /* The limits of an integer dtype: a table with bits, max and min. No Lua number is 2^63 - 1 or 2^64 - 1, so the
         * max of int64 reads 2^63 and that of uint64 2^64, which is one more; the largest numbers that their tensors
         * accept are 2^63 - 1024 and 2^64 - 2048.
         *     accelhost.iinfo("uint8").max  --> 255
         * @return table<string, number> */
        {"iinfo", dtype_iinfo, "type:d"},
        /* The dtype of tensors made of numbers, of constructors without `dtype`, and of floating results of integers.
         *     accelhost.get_default_dtype()  --> float32
         * @return string */
        {"get_default_dtype", get_default_dtype, ""},
        /* Set the default dtype: float32 until now, or float64, float16, bfloat16. A process that the script starts
         * (accelhost.launcher) begins with it; loaders, metrics and pretrained models keep the dtypes that they name.
         *     accelhost.set_default_dtype "float64"
         *     accelhost.tensor{1, 2}.dtype  --> float64
         *     accelhost.set_default_dtype "float32" */
        {"set_default_dtype", set_default_dtype, "d:d"},
        {NULL, NULL, NULL}};
    return ah_new_library(L, functions);
}
