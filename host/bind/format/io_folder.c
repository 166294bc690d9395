/* accelhost._C.io: folders, files as such, and checksums of memory and files. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io/file_system.h"
#include "base/io/folder.h"
#include "base/numeric/sha256.h"
#include "base/status/status.h"
#include "bind/format/io.h"
#include "bind/lua/bind.h"
#include "io/mapping.h"
#include "tensor/tensor.h"

/* make_folder(path): with all that leads to it; nil and the reason when it cannot be made */
static int make_folder(lua_State *L)
{
    if (ah_folder_make(luaL_checkstring(L, 1)) == 0) {
        lua_pushboolean(L, true);
        return 1;
    }
    return ah_push_error(L);
}

/* sha256({text or tensor, ...}) -> the hash of their bytes, one after the other, as 64 digits */
static int folder_sha256(lua_State *L)
{
    struct ah_sha256 hash;
    char text[AH_SHA256_TEXT];
    luaL_checktype(L, 1, LUA_TTABLE);
    ah_sha256_begin(&hash);
    int count = (int)lua_objlen(L, 1);
    for (int i = 1; i <= count; i++) {
        size_t bytes;
        lua_rawgeti(L, 1, i);
        const struct ah_tensor *tensor = lua_isstring(L, -1) ? NULL : ah_check_plain(L, lua_gettop(L), "sha256");
        const void *from = tensor ? ah_tensor_data(tensor) : lua_tolstring(L, -1, &bytes);
        ah_sha256_add(&hash, from, tensor ? ah_tensor_bytes(tensor) : bytes);
        lua_pop(L, 1);
    }
    ah_sha256_end_text(&hash, text);
    lua_pushstring(L, text);
    return 1;
}

/* sha256_file(path) -> hash, size; nil and the reason when it cannot be read */
static int sha256_file(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    char text[AH_SHA256_TEXT];
    struct stat info;
    if (ah_sha256_file(path, text) < 0 || stat(path, &info))
        return ah_push_error(L);
    lua_pushstring(L, text);
    lua_pushnumber(L, (double)info.st_size);
    return 2;
}

/* remove_file(path): a regular file; nil and the reason when it stays */
static int remove_file(lua_State *L)
{
    if (ah_folder_remove_file(luaL_checkstring(L, 1)) == 0) {
        lua_pushboolean(L, true);
        return 1;
    }
    return ah_push_error(L);
}

/* check_file(tensor): nil, or the reason why the tensor has changed: its mapped file was overwritten */
static int check_file(lua_State *L)
{
    if (ah_mapping_check(ah_check_tensor(L, 1)) == 0)
        return 0;
    lua_pushstring(L, ah_error_text());
    return 1;
}

/* is_shared(path): may other hosts have files of its file system open? */
AH_LUA_VALUE(is_shared, lua_pushboolean, ah_path_is_shared(luaL_checkstring(L, 1)))

void ah_register_folder_functions(lua_State *L)
{
    static const luaL_Reg list[] = {
        {"make_folder", make_folder},
        {"remove_file", remove_file},
        {"check_file", check_file},
        {"is_shared", is_shared},
        {"sha256", folder_sha256},
        {"sha256_file", sha256_file},
        {NULL, NULL},
    };
    luaL_register(L, NULL, list);
}
