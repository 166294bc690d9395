/* Fuzz target: the pickle of a .pt file, and a file of PyTorch before 1.6 or a bare pickle. accelhost.io.torch runs in
 * an interpreter without the rest of the program: whatever the bytes are, it returns a value or raises a message that
 * contains the file's name; it never fails by an error of Lua's own, and needs memory in proportion to the bytes.
 * Lines of Lua that were run count as coverage.
 * sources: TENSORS host/io/npy.c WRITER */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "io/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { COUNTERS = 1 << 14, MOST_KILOBYTES = 64 * 1024 };
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[COUNTERS];

/* The modules around the readers. A tensor is a table {numel =, item =}; of the file only its bytes are there. */
static const char driver[] =
    "local elements, bytes = ..., nil\n"
    "package.path = 'lua/?.lua;lua/?/init.lua'\n"
    "local size = {bool = 1, uint8 = 1, int8 = 1, int16 = 2, uint16 = 2, int32 = 4, uint32 = 4, int64 = 8,\n"
    "  uint64 = 8, float16 = 2, bfloat16 = 2, float32 = 4, float64 = 8}\n"
    "local function tensor(numel) return {tensor = true, numel = numel, item = function() return 1 end} end\n"
    "local function raise(text) error({text}) end\n"
    "local io = {}\n"
    "function io.npy_elements(path, ...)\n"
    "  local made, reason = elements(...)\n"
    "  if made then return tensor(made) end\n"
    "  if reason then return nil, reason end\n"
    "  raise(\"load: '\" .. path .. \"': npy\")\n"
    "end\n"
    "function io.zip_text() return bytes end\n"
    "function io.zip_tensor(_, _, dtype) return tensor(math.floor(#bytes / size[dtype])) end\n"
    "function io.mapped() return {}, #bytes end\n"
    "function io.mapped_text(_, at, count)\n"
    "  if not (at >= 0 and count >= 0 and at <= #bytes) then raise \"load: 'x': beyond the end\" end\n"
    "  return bytes:sub(at + 1, at + count)\n"
    "end\n"
    "function io.mapped_tensor(_, at, count, dtype)\n"
    "  if not (at >= 0 and count >= 0 and count % 1 == 0 and at + count * size[dtype] <= #bytes) then\n"
    "    raise \"load: 'x': beyond the end\"\n"
    "  end\n"
    "  return tensor(count)\n"
    "end\n"
    "local function as_strided(row, sizes, strides, offset)\n"
    "  local last = offset\n"
    "  if not row.tensor or #sizes ~= #strides then raise \"load: 'x': as_strided\" end\n"
    "  for i = 1, #sizes do last = last + (sizes[i] - 1) * strides[i] end\n"
    "  if not (offset >= 0 and last < row.numel) then raise \"load: 'x': as_strided\" end\n"
    "  return tensor(1)\n"
    "end\n"
    "package.preload['accelhost._C'] = function()\n"
    "  return {io = io, as_strided = as_strided, system = {raise = raise},\n"
    "    is_tensor = function(value) return type(value) == 'table' and value.tensor == true end}\n"
    "end\n"
    "package.preload['accelhost.util.kinds'] = function() return {} end\n"
    "local torch = require 'accelhost.io.torch'\n"
    "local names = {'a/data.pkl', 'a/data/0', 'a/data/1'}\n"
    "local function check(fine, value)\n"
    "  if fine then return end\n"
    "  if type(value) ~= 'table' or not value[1]:find(\"load: 'x'\", 1, true) then\n"
    "    return type(value) == 'table' and value[1] or value\n"
    "  end\n"
    "end\n"
    "return function(text)\n"
    "  bytes = text\n"
    "  return check(pcall(torch.load, 'x', {}, names)) or check(pcall(torch.load_stream, 'x'))\n"
    "end\n";

static void count_line(lua_State *L, lua_Debug *at)
{
    lua_getinfo(L, "Sl", at);
    uint32_t hash = 2166136261u;
    for (const char *c = at->short_src; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    uint8_t *counter = &counters[(hash + (uint32_t)at->currentline * 31) % COUNTERS];
    *counter = *counter < 255 ? *counter + 1 : 255;
}

/* elements(descr, columns, {size, ...}, bytes) -> the number of elements; nil and a reason where there is no dtype;
 * nothing where the bytes do not fit */
static int elements(lua_State *L)
{
    struct ah_npy_layout layout = {.descr = luaL_checkstring(L, 1), .columns = lua_toboolean(L, 2)};
    struct ah_tensor *tensor = NULL;
    size_t count;
    const char *bytes = luaL_checklstring(L, 4, &count);
    if (lua_objlen(L, 3) > AH_MAX_DIMS)
        return 0;
    layout.ndim = (int)lua_objlen(L, 3);
    for (int d = 0; d < layout.ndim; d++) {
        lua_rawgeti(L, 3, d + 1);
        layout.size[d] = (int64_t)lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
    int status = ah_npy_elements(&tensor, &layout, bytes, count);
    if ((status == 0) != (tensor != NULL) || (status < 0 && !*ah_error_text()))
        abort();
    if (status == AH_ENOTIMPL)
        return lua_pushnil(L), lua_pushstring(L, ah_error_text()), 2;
    if (status < 0)
        return 0;
    lua_pushnumber(L, (lua_Number)tensor->numel);
    ah_tensor_release(tensor);
    return 1;
}

static lua_State *open_reader(void)
{
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    if (luaL_dostring(L, "jit.off()") || luaL_loadstring(L, driver))
        abort();
    lua_pushcfunction(L, elements);
    if (lua_pcall(L, 1, 1, 0)) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        abort();
    }
    lua_sethook(L, count_line, LUA_MASKLINE, 0);
    return L;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static lua_State *L;
    if (!L)
        L = open_reader();
    lua_gc(L, LUA_GCCOLLECT, 0);
    lua_pushvalue(L, 1);
    lua_pushlstring(L, (const char *)bytes, count);
    if (lua_pcall(L, 1, 1, 0) || lua_toboolean(L, -1)) {
        fprintf(stderr, "not the file's fault: %s\n", lua_tostring(L, -1));
        abort();
    }
    if (lua_gc(L, LUA_GCCOUNT, 0) > MOST_KILOBYTES) {
        fprintf(stderr, "%d kB of Lua's memory for %zu bytes\n", lua_gc(L, LUA_GCCOUNT, 0), count);
        abort();
    }
    lua_settop(L, 1);
    return 0;
}
