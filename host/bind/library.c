/* accelhost._C and the library in Lua that travels inside the binary, both found by require. */
#include "bind/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "bind/lua/bind.h"
#include "bind/lua/embedded.h"
#include "bind/lua/handle.h"
#include "bind/lua/pairs.h"
#include "bind/tensor/op.h"
#include "bind/tensor/tensor.h"

static const struct {
    const char *name;
    int (*open)(lua_State *L);
} modules[] = {
#define MODULE(name) {#name, ah_open_##name},
#include "bind/lua/modules.def"
#undef MODULE
};

/* The module's text from a checkout, when ACCELHOST_LUA names one; pushes the chunk or returns false. */
static bool load_from_checkout(lua_State *L, const struct ah_embedded *entry, const char *chunk)
{
    const char *root = getenv("ACCELHOST_LUA");
    char path[1024];
    if (!root || !*root)
        return false;
    snprintf(path, sizeof path, "%s/%s", root, entry->path);
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    for (;;) {
        char *part = luaL_prepbuffer(&text);
        size_t got = fread(part, 1, LUAL_BUFFERSIZE, file);
        luaL_addsize(&text, got);
        if (got < LUAL_BUFFERSIZE)
            break;
    }
    fclose(file);
    luaL_pushresult(&text);
    size_t length;
    const char *source = lua_tolstring(L, -1, &length);
    if (luaL_loadbuffer(L, source, length, chunk))
        lua_error(L);
    lua_remove(L, -2);
    return true;
}

/* Push the text's memory; from->length bytes of it count. */
static const char *push_unpacked(lua_State *L, const struct ah_packed *from)
{
    uLongf bytes = (uLongf)from->length;
    char *text = lua_newuserdata(L, bytes);
    if (uncompress((Bytef *)text, &bytes, (const Bytef *)from->packed, (uLong)from->bytes) != Z_OK)
        luaL_error(L, "a text in the program is damaged");
    return text;
}

/* A loader as require calls it; upvalue 1: the embedded module */
static int load_module(lua_State *L)
{
    const struct ah_embedded *entry = lua_touserdata(L, lua_upvalueindex(1));
    char chunk[256];
    snprintf(chunk, sizeof chunk, AH_LIBRARY_CHUNK "%s", entry->path + strlen("accelhost/"));
    if (!load_from_checkout(L, entry, chunk)) {
        const char *bytecode = push_unpacked(L, &entry->bytecode);
        if (luaL_loadbuffer(L, bytecode, entry->bytecode.length, chunk))
            return lua_error(L);
    }
    lua_pushstring(L, entry->module);
    lua_call(L, 1, 1);
    return 1;
}

static int load_packed(lua_State *L, const struct ah_packed *from)
{
    lua_pushlstring(L, push_unpacked(L, from), from->length);
    return 1;
}

/* The text of the documentation is the module. */
static int load_docs(lua_State *L)
{
    return load_packed(L, &ah_docs);
}

static int load_sources(lua_State *L)
{
    return load_packed(L, &ah_sources);
}

/* The plugin's modules, of which there is one. */
static const struct ah_embedded *library_added;

void ah_library_add(const struct ah_embedded *added)
{
    library_added = added;
}

static const struct ah_embedded *library_find(const struct ah_embedded *entry, const char *name)
{
    for (; entry && entry->module; entry++)
        if (!strcmp(entry->module, name))
            return entry;
    return NULL;
}

/* package.loaders entry: the module of this name. */
static int find_module(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    if (!strcmp(name, "accelhost._docs") || !strcmp(name, "accelhost._sources")) {
        lua_pushcfunction(L, !strcmp(name, "accelhost._docs") ? load_docs : load_sources);
        return 1;
    }
    const struct ah_embedded *entry = library_find(ah_embedded, name);
    if (!entry)
        entry = library_find(library_added, name);
    if (entry) {
        lua_pushlightuserdata(L, (void *)(uintptr_t)entry);
        lua_pushcclosure(L, load_module, 1);
        return 1;
    }
    lua_pushfstring(L, "\n\tno module '%s' in the program", name);
    return 1;
}

static void open_c_module(lua_State *L)
{
    lua_newtable(L);
    int module = lua_gettop(L);
    ah_handle_open(L);
    ah_push_metatable(L);
    ah_push_methods(L);
    ah_ops_open(L, module, module + 2);
    ah_tensor_open(L, module + 1, module + 2, module);
    lua_setfield(L, module, "methods");
    lua_settop(L, module);
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        modules[i].open(L);
        lua_setfield(L, module, modules[i].name);
    }
}

void ah_library_open(lua_State *L)
{
    luaL_openlibs(L);
    ah_pairs_open(L);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "loaded");
    open_c_module(L);
    lua_setfield(L, -2, "accelhost._C");
    lua_pop(L, 1);
    lua_getfield(L, -1, "loaders");
    for (int i = (int)lua_objlen(L, -1); i > 1; i--) { /* behind package.preload, before files */
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushcfunction(L, find_module);
    lua_rawseti(L, -2, 2);
    lua_pop(L, 2);
}
