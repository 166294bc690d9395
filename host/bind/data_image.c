/* accelhost._C.data: images of another size, turned images. */
#include <string.h>

#include "bind/bind.h"
#include "bind/data.h"
#include "bind/handle.h"
#include "data/resample.h"
#include "data/warp.h"

/* resize(image, rows, columns, mode, antialias): uint8, float32 or float64 [..., rows, columns], contiguous, on cpu */
static int resize(lua_State *L)
{
    static const char *const modes[] = {"nearest", "nearest-exact", "bilinear", "bicubic", NULL};
    struct ah_tensor *image = ah_check_tensor(L, 1), *out = NULL;
    ah_check(L, ah_tensor_row_major(image));
    if (image->ndim < 2 || !ah_on_cpu(image) || !ah_tensor_is_contiguous(image) ||
        (image->dtype != AH_U8 && image->dtype != AH_F32 && image->dtype != AH_F64))
        return ah_raise_text(L, "resize: expected a contiguous image of bytes or floats on cpu, got %s %s",
                             ah_dtype_name(image->dtype), ah_shape(image));
    ah_check(L, ah_resample(&out, image, (int64_t)luaL_checknumber(L, 2), (int64_t)luaL_checknumber(L, 3),
                            (enum ah_resample_mode)luaL_checkoption(L, 4, "bilinear", modes), lua_toboolean(L, 5)));
    ah_push_tensor(L, out);
    return 1;
}

/* warp(image, {six numbers}, rows, columns, bilinear, {fill}?): float32 [n, channels, rows, columns] on cpu */
static int warp(lua_State *L)
{
    struct ah_tensor *image = ah_check_tensor(L, 1), *out = NULL;
    struct ah_warp plan = {
        .rows = (int64_t)luaL_checknumber(L, 3),
        .columns = (int64_t)luaL_checknumber(L, 4),
        .bilinear = lua_toboolean(L, 5),
    };
    ah_check(L, ah_tensor_row_major(image));
    if (image->ndim != 4 || image->dtype != AH_F32 || !ah_on_cpu(image) || !ah_tensor_is_contiguous(image))
        return ah_raise_text(L, "warp: expected a contiguous float32 image on cpu, got %s %s",
                             ah_dtype_name(image->dtype), ah_shape(image));
    for (int i = 0; i < 6; i++) {
        lua_rawgeti(L, 2, i + 1);
        plan.matrix[i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    if (lua_istable(L, 6)) {
        int count = (int)lua_objlen(L, 6);
        float *fill = lua_newuserdata(L, ((size_t)image->size[1] + 1) * sizeof *fill);
        if (count != 1 && count != image->size[1])
            return ah_raise_text(L, "fill: %d values for an image of %d channels", count, (int)image->size[1]);
        for (int64_t c = 0; c < image->size[1]; c++) {
            lua_rawgeti(L, 6, count == 1 ? 1 : (int)c + 1);
            fill[c] = (float)lua_tonumber(L, -1);
            lua_pop(L, 1);
        }
        plan.fill = fill;
    }
    ah_check(L, ah_warp(&out, image, &plan));
    ah_push_tensor(L, out);
    return 1;
}

void ah_add_images(lua_State *L)
{
    static const luaL_Reg list[] = {{"resize", resize}, {"warp", warp}, {NULL, NULL}};
    luaL_register(L, NULL, list);
}
