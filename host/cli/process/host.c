/* Every entry into Lua that may need memory is protected: an error while the library opens is a status as much as a
 * script's. The error's text stays in the registry under the address of its key, where its place is made beforehand. */
#include "cli/process/host.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lauxlib.h>
#include <luajit.h>
#include <lualib.h>

#include "autograd/graph/graph.h"
#include "base/status/notice.h"
#include "base/status/status.h"
#include "bind/library.h"
#include "capture/graph.h"
#include "cli/job/job_object.h"
#include "cli/process/parent.h"
#include "cpu/device.h"
#include "meta/device.h"

enum { FIRST_COLLECT_KB = 2048 };

static const char error_key;

/* The interpreter rounds a * b before it adds c, and so must compiled code, or the same expression has other bits once
 * its loop is hot. Debian 12's LuaJIT fuses them on aarch64, without an option for that alone (host/decisions.md). */
static const char round_products[] =
    "if jit.arch == 'arm64' and not pcall(jit.opt.start, '-fma') then jit.opt.start '-fuse' end";

/* Machine code must be near LuaJIT's own; a short hot loop has that memory found (bind/lua/lua_code.c) before anything
 * else is mapped there. */
static const char warm_up[] = "local s = 0 for i = 1, 200 do s = s + i end";

/* Pop the error value from the stack. */
static int keep_error(lua_State *L)
{
    if (lua_type(L, -1) != LUA_TSTRING) {
        lua_pop(L, 1);
        lua_pushboolean(L, 0);
    }
    lua_pushlightuserdata(L, (void *)(uintptr_t)&error_key);
    lua_insert(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
    return AH_ELUA;
}

int ah_host_keep_error(struct ah_host *host)
{
    return keep_error(host->lua);
}

const char *ah_host_error(struct ah_host *host)
{
    lua_pushlightuserdata(host->lua, (void *)(uintptr_t)&error_key);
    lua_rawget(host->lua, LUA_REGISTRYINDEX);
    const char *text = lua_tostring(host->lua, -1);
    lua_pop(host->lua, 1); /* the registry holds it */
    return text ? text : "?";
}

/* Some systems let no program make code; LuaJIT ends the process when it learns that too late. */
static bool may_make_code(void)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return true;
    bool may = !mprotect(page, bytes, PROT_READ | PROT_EXEC);
    munmap(page, bytes);
    return may;
}

/* Add the parts of accelhost._C that only a program has: jobs, and the channel to the process that started it. */
static void open_own_modules(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
    lua_getfield(L, -1, "accelhost._C");
    ah_job_object_open_lua(L);
    ah_parent_open_lua(L);
    lua_pop(L, 2);
}

/* Let the collector begin when the heap has this many KB. Objects made while the library loads live on, and marking
 * them again at each doubling was a tenth of a small script's start-up time. */
static void collect_from(lua_State *L, int kilobytes)
{
    int held = lua_gc(L, LUA_GCCOUNT, 0);
    int pause = lua_gc(L, LUA_GCSETPAUSE, 100 * kilobytes / (held ? held : 1));
    lua_gc(L, LUA_GCCOLLECT, 0);
    lua_gc(L, LUA_GCSETPAUSE, pause);
}

static int open_library(lua_State *L)
{
    const struct ah_host_options *options = lua_touserdata(L, 1);
    bool jit = !options->jit_off && may_make_code();
    lua_pushlightuserdata(L, (void *)(uintptr_t)&error_key);
    lua_pushboolean(L, 0);
    lua_rawset(L, LUA_REGISTRYINDEX);
    if (!jit)
        luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
    if (!jit && !options->jit_off)
        ah_notice("this system lets no program make code: LuaJIT's compiler is off");
    collect_from(L, FIRST_COLLECT_KB);
    ah_library_open(L);
    open_own_modules(L);
    if (luaL_dostring(L, round_products))
        return lua_error(L);
    if (!jit)
        luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF); /* opening its library has switched it on */
    else if (luaL_dostring(L, warm_up))
        return lua_error(L);
    if (options->gc_stress && luaL_dostring(L, "package.loaded['accelhost._C'].system.collect_stress(true)"))
        return lua_error(L);
    return 0;
}

/* LuaJIT ends the process by itself when an error is not caught. */
static void (*give_up)(const char *text);

static int host_panic(lua_State *L)
{
    char line[256];
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error that nothing caught";
    int held = lua_gc(L, LUA_GCCOUNT, 0);
    if (strstr(text, "not enough memory"))
        snprintf(line, sizeof line, "not enough memory: Lua held %d MiB", held / 1024);
    else
        snprintf(line, sizeof line, "%s", text);
    give_up(line);
    return 0;
}

int ah_host_open(struct ah_host *host, const struct ah_host_options *options)
{
    ah_cpu_open();
    ah_capture_open();
    ah_meta_open();
    ah_autograd_open();
    host->lua = luaL_newstate();
    AH_TRY_MEMORY(host->lua, "out of memory");
    if (options->give_up) {
        give_up = options->give_up;
        lua_atpanic(host->lua, host_panic);
    }
    if (!lua_cpcall(host->lua, open_library, (void *)(uintptr_t)options))
        return 0;
    const char *text = lua_tostring(host->lua, -1);
    int status = ah_fail(AH_ELUA, "%s", text ? text : "?");
    ah_host_close(host);
    return status;
}

void ah_host_close(struct ah_host *host)
{
    if (host->lua)
        lua_close(host->lua);
    host->lua = NULL;
}

/* The arguments of the protected functions below. */
struct call {
    const char *name;
    const char *text; /* of a chunk, NULL: of the file `name` */
    size_t bytes;
    int argc;
    char **argv;
};

/* Load a module's file from a folder that package.path cannot name, upvalue 1. */
static int load_from_folder(lua_State *L)
{
    const char *folder = lua_tostring(L, lua_upvalueindex(1));
    static const char *const forms[] = {"%s/%s.lua", "%s/%s/init.lua"};
    const char *name = luaL_gsub(L, luaL_checkstring(L, 1), ".", "/");
    lua_pushliteral(L, "");
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const char *path = lua_pushfstring(L, forms[i], folder, name);
        if (!access(path, R_OK))
            return !luaL_loadfile(L, path) ? 1
                       : luaL_error(L, "error loading module '%s' from file '%s':\n\t%s", lua_tostring(L, 1), path,
                                    lua_tostring(L, -1));
        lua_pushfstring(L, "%s\n\tno file '%s'", lua_tostring(L, -2), path);
    }
    return 1;
}

/* `require` searches the script's folder as well, after all other places: a script with the name of a module that it
 * needs (scripts/busted.lua) must not find itself. package.path has no way to write ';' and '?' in a folder's name. */
static void set_path(lua_State *L, const char *script)
{
    const char *slash = strrchr(script, '/');
    int length = slash ? (int)(slash - script) : 1;
    const char *folder = slash == script ? "/" : slash ? script : ".";
    int top = lua_gettop(L);
    lua_pushlstring(L, folder, (size_t)length);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "path");
    lua_getfield(L, -2, "loaders");
    if (strpbrk(lua_tostring(L, top + 1), ";?") && lua_istable(L, -1)) {
        lua_pushvalue(L, top + 1);
        lua_pushcclosure(L, load_from_folder, 1);
        lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    } else if (lua_isstring(L, -2)) {
        folder = lua_tostring(L, top + 1);
        lua_pushfstring(L, "%s;%s/?.lua;%s/?/init.lua", lua_tostring(L, -2), folder, folder);
        lua_setfield(L, top + 2, "path");
    }
    lua_settop(L, top);
}

static int set_arguments(lua_State *L)
{
    const struct call *call = lua_touserdata(L, 1);
    set_path(L, call->name);
    lua_createtable(L, call->argc, 1);
    lua_pushstring(L, call->name);
    lua_rawseti(L, -2, 0);
    for (int i = 0; i < call->argc; i++) {
        lua_pushstring(L, call->argv[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setglobal(L, "arg");
    return 0;
}

int ah_host_set_arguments(struct ah_host *host, const char *name, int argc, char **argv)
{
    struct call call = {.name = name, .argc = argc, .argv = argv};
    return lua_cpcall(host->lua, set_arguments, &call) ? keep_error(host->lua) : 0;
}

static int find_module(lua_State *L)
{
    const char *name = lua_touserdata(L, 1);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "searchpath");
    lua_pushstring(L, name);
    lua_getfield(L, -3, "path");
    lua_call(L, 2, 2);
    if (lua_isnil(L, -2))
        return lua_error(L);
    lua_pushlightuserdata(L, (void *)(uintptr_t)&error_key);
    lua_pushvalue(L, -3);
    lua_rawset(L, LUA_REGISTRYINDEX);
    return 0;
}

int ah_host_find_module(struct ah_host *host, const char *name, char *path, size_t room)
{
    int status = lua_cpcall(host->lua, find_module, (void *)(uintptr_t)name) ? keep_error(host->lua) : 0;
    const char *found = ah_host_error(host); /* the path on success */
    if (status < 0)
        return ah_fail(AH_EINVAL, "there is no module '%s':%s", name, found);
    if (snprintf(path, room, "%s", found) >= (int)room)
        return ah_fail(AH_EINVAL, "the path of module '%s' is longer than %zu bytes", name, room - 1);
    return 0;
}

/* Messages quote the line that failed, which for this chunk is in no file. */
static void keep_text(lua_State *L, const struct call *call)
{
    lua_createtable(L, 0, 1);
    lua_pushlstring(L, call->text, call->bytes);
    lua_setfield(L, -2, call->name);
    lua_setfield(L, LUA_REGISTRYINDEX, "accelhost.chunk_sources");
}

static int host_load(lua_State *L, const struct call *call)
{
    if (call->text)
        keep_text(L, call);
    if (call->text)
        return luaL_loadbuffer(L, call->text, call->bytes, call->name);
    return luaL_loadfile(L, strcmp(call->name, "-") ? call->name : NULL);
}

static int host_run(lua_State *L)
{
    const struct call *call = lua_touserdata(L, 1);
    lua_pushcfunction(L, ah_traceback);
    int handler = lua_gettop(L);
    if (host_load(L, call)) {
        ah_explain(L);
        return lua_error(L);
    }
    if (!lua_checkstack(L, call->argc + 8)) {
        lua_pushfstring(L, "%d arguments are more than a script can receive", call->argc);
        return lua_error(L);
    }
    for (int i = 0; i < call->argc; i++)
        lua_pushstring(L, call->argv[i]);
    int status = lua_pcall(L, call->argc, 0, handler);
    if (status == LUA_ERRMEM) {
        int held = lua_gc(L, LUA_GCCOUNT, 0);
        lua_gc(L, LUA_GCCOLLECT, 0); /* frees the script's garbage for this text */
        lua_pushfstring(L, "not enough memory: Lua held %d MiB", held / 1024);
    }
    return status ? lua_error(L) : 0;
}

int ah_host_run_text(struct ah_host *host, const char *text, size_t bytes, const char *name, int argc, char **argv)
{
    struct call call = {name, text, bytes, argc, argv};
    return lua_cpcall(host->lua, host_run, &call) ? keep_error(host->lua) : 0;
}

int ah_host_run_file(struct ah_host *host, const char *path, int argc, char **argv)
{
    struct call call = {.name = path, .argc = argc, .argv = argv};
    return lua_cpcall(host->lua, host_run, &call) ? keep_error(host->lua) : 0;
}

int ah_host_run_command(const char *command, const char *text, const char *name, int argc, char **argv)
{
    struct ah_host host = {0};
    int code = 1, status = ah_host_open(&host, &(struct ah_host_options){0});
    if (status == 0)
        status = ah_host_run_text(&host, text, strlen(text), name, argc, argv);
    if (status < 0) {
        fprintf(stderr, "accelhost %s: %s\n", command, status == AH_ELUA ? ah_host_error(&host) : ah_error_text());
    } else {
        lua_getglobal(host.lua, "exit_code");
        code = (int)lua_tointeger(host.lua, -1);
    }
    if (host.lua)
        ah_host_close(&host);
    return code;
}
