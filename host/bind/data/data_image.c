/* accelhost._C.data: images from files and folders of them, images of another size, turned images. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "bind/data/data.h"
#include "bind/lua/bind.h"
#include "bind/lua/handle.h"
#include "data/image.h"
#include "data/resample.h"
#include "data/warp.h"
#include "io/mapping.h"

static const char *const image_modes[] = {"unchanged", "gray", "gray_alpha", "rgb", "rgb_alpha", NULL};

/* read_image(path, mode) -> uint8 [channels, rows, columns] */
static int read_image(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    enum ah_image_mode mode = (enum ah_image_mode)luaL_checkoption(L, 2, "unchanged", image_modes);
    struct ah_mapping *file = NULL;
    struct ah_tensor *image = NULL;
    int status = ah_mapping_open(&file, path);
    if (status == 0)
        status = ah_image_decode(&image, file->bytes, file->count, mode);
    ah_mapping_release(file);
    if (status < 0)
        return ah_raise(L, ah_fail_prefix(status, "'%s'", path));
    ah_push_tensor(L, image);
    return 1;
}

/* decode_image(text, mode): the same of a file's bytes */
static int decode_image(lua_State *L)
{
    size_t count;
    const char *bytes = luaL_checklstring(L, 1, &count);
    struct ah_tensor *image = NULL;
    ah_check(L, ah_image_decode(&image, bytes, count,
                                (enum ah_image_mode)luaL_checkoption(L, 2, "unchanged", image_modes)));
    ah_push_tensor(L, image);
    return 1;
}

/* encode_png(uint8 [channels, rows, columns]) -> the bytes of the file */
static int encode_png(lua_State *L)
{
    struct ah_tensor *image = ah_check_tensor(L, 1);
    unsigned char *bytes = NULL;
    size_t count = 0;
    ah_check(L, ah_tensor_row_major(image));
    if (!ah_on_cpu(image) || !ah_tensor_is_contiguous(image))
        return ah_raise_text(L, "encode_png: expected a contiguous image on the CPU");
    ah_check(L, ah_image_encode_png(&bytes, &count, image));
    lua_pushlstring(L, (const char *)bytes, count);
    free(bytes);
    return 1;
}

/* list_folder(path) -> table of the names in it */
static int list_folder(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct dirent **names = NULL;
    int count = scandir(path, &names, NULL, NULL);
    if (count < 0)
        return ah_raise_text(L, "cannot read '%s': %s", path, strerror(errno));
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        bool here = !strcmp(names[i]->d_name, ".") || !strcmp(names[i]->d_name, "..");
        if (!here) {
            lua_pushstring(L, names[i]->d_name);
            lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
        }
        free(names[i]);
    }
    free(names);
    return 1;
}

/* resize(image, rows, columns, mode, antialias): uint8, float32 or float64 [..., rows, columns], contiguous, on cpu */
static int image_resize(lua_State *L)
{
    static const char *const modes[] = {"nearest", "nearest-exact", "bilinear", "bicubic", "lanczos", "box", "hamming",
                                        NULL};
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
static int image_warp(lua_State *L)
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
    static const luaL_Reg list[] = {
        {"read_image", read_image},
        {"decode_image", decode_image},
        {"list_folder", list_folder},
        {"resize", image_resize},
        {"warp", image_warp},
        {"encode_png", encode_png},
        {NULL, NULL},
    };
    luaL_register(L, NULL, list);
}
