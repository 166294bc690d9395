/* accelhost._C.trace: the recorder of base/trace/trace.h. A recording is a userdata; lua/accelhost/profiler is made of
 * it. */
#include "base/trace/trace.h"

#include <stdio.h>
#include <string.h>

#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/handle.h"
#include "io/trace_file.h"

enum { DEPTH = 256 };
static const struct ah_class recording_class;

/* Ranges that are open, innermost last; deeper ones are not recorded. */
static struct {
    struct ah_trace_mark mark;
    const char *name;
    enum ah_trace_kind kind;
} open_spans[DEPTH];
static int trace_depth;

static const char *site_now(void)
{
    lua_State *L = ah_entered();
    return L ? ah_call_site(L) : NULL;
}

/* The modules that run, as errors name them. */
static const char *module_now(void)
{
    static char text[160];
    lua_State *L = ah_entered();
    if (!L || !lua_checkstack(L, 8))
        return NULL;
    int top = lua_gettop(L);
    lua_getfield(L, LUA_REGISTRYINDEX, "accelhost.module_path");
    ah_leave(NULL); /* Lua runs */
    bool given = lua_isfunction(L, -1) && lua_pcall(L, 0, 1, 0) == 0 && lua_isstring(L, -1);
    ah_enter(L);
    if (given)
        snprintf(text, sizeof text, "%s", lua_tostring(L, -1));
    lua_settop(L, top);
    return given ? text : NULL;
}

/* start(shapes, memory, sites, modules, spans) */
static int trace_start(lua_State *L)
{
    struct ah_trace_options options = {
        .shapes = lua_toboolean(L, 1), .memory = lua_toboolean(L, 2), .sites = lua_toboolean(L, 3),
        .modules = lua_toboolean(L, 4), .spans = (size_t)luaL_optnumber(L, 5, 0),
    };
    ah_trace_site = site_now;
    ah_trace_module = module_now;
    ah_check(L, ah_trace_start(&options));
    return 0;
}

/* stop() -> the recording */
static int trace_stop(lua_State *L)
{
    struct ah_trace **held = ah_class_new(L, &recording_class, sizeof *held);
    ah_check(L, ah_trace_stop(held));
    return 1;
}

AH_LUA_CALL(trace_forget, ah_trace_forget())
AH_LUA_VALUE(trace_running, lua_pushboolean, ah_tracing)

/* push(name, kind): a range begins; kind as in the file, default "range" */
static int trace_push(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1), *kind = luaL_optstring(L, 2, "range");
    if (trace_depth < DEPTH) {
        open_spans[trace_depth].mark = ah_trace_begin(name);
        open_spans[trace_depth].name = ah_trace_is_recording() ? ah_trace_text(name) : NULL;
        open_spans[trace_depth].kind = AH_TRACE_RANGE;
        for (int k = 0; k < AH_TRACE_KINDS; k++)
            if (!strcmp(kind, ah_trace_kind_name((enum ah_trace_kind)k)))
                open_spans[trace_depth].kind = (enum ah_trace_kind)k;
    }
    trace_depth++;
    return 0;
}

/* pop(): the innermost range ends */
static int trace_pop(lua_State *L)
{
    if (trace_depth == 0)
        return 0;
    if (--trace_depth >= DEPTH)
        return 0;
    if (open_spans[trace_depth].name && ah_trace_is_recording())
        ah_trace_end(open_spans[trace_depth].mark, open_spans[trace_depth].kind, open_spans[trace_depth].name);
    else
        ah_trace_leave(open_spans[trace_depth].mark);
    return 0;
}

/* Recordings. */

static struct ah_trace *check_trace(lua_State *L)
{
    struct ah_trace **held = ah_class_check(L, 1, &recording_class);
    luaL_argcheck(L, *held, 1, "the recording was freed");
    return *held;
}

AH_CLASS_CLOSER(free_trace, recording_class, struct ah_trace, ah_trace_free)

/* recording:count() -> spans, spans that were lost, texts that were left out */
static int trace_count(lua_State *L)
{
    const struct ah_trace *trace = check_trace(L);
    lua_pushnumber(L, (double)trace->count);
    lua_pushnumber(L, (double)trace->dropped);
    lua_pushnumber(L, (double)trace->left_out);
    return 3;
}

/* recording:span(i) -> name, kind, track, begin, end (nanoseconds since the start), bytes, shapes, kernel; i from 0 */
static int trace_span(lua_State *L)
{
    const struct ah_trace *trace = check_trace(L);
    double index = luaL_checknumber(L, 2);
    luaL_argcheck(L, index >= 0 && index < (double)trace->count, 2, "no such span");
    const struct ah_trace_span *at = &trace->span[(size_t)index];
    lua_pushstring(L, at->name);
    lua_pushstring(L, ah_trace_kind_name((enum ah_trace_kind)at->kind));
    lua_pushinteger(L, at->thread);
    lua_pushnumber(L, (double)(at->begin_ns - trace->begin_ns));
    lua_pushnumber(L, (double)(at->end_ns - trace->begin_ns));
    lua_pushnumber(L, (double)at->bytes);
    lua_pushstring(L, at->shapes ? at->shapes : "");
    lua_pushstring(L, at->kernel);
    return 8;
}

/* recording:memory() -> events of the memory log, events that were lost, bytes live at the start */
static int trace_memory(lua_State *L)
{
    const struct ah_memory_log *log = &check_trace(L)->memory;
    lua_pushnumber(L, (double)log->count);
    lua_pushnumber(L, (double)log->lost);
    lua_pushnumber(L, (double)log->live);
    return 3;
}

/* recording:memory_event(i) -> block (a number), bytes (negative: freed), op or nil, in backward, bytes of freed
 * blocks, time as of system.now(), and, where known, dtype and shape, the script's line, the modules; i from 0 */
static int trace_memory_event(lua_State *L)
{
    const struct ah_memory_log *log = &check_trace(L)->memory;
    double index = luaL_checknumber(L, 2);
    luaL_argcheck(L, index >= 0 && index < (double)log->count, 2, "no such event");
    const struct ah_memory_event *at = &log->event[(size_t)index];
    lua_pushnumber(L, (double)at->block);
    lua_pushnumber(L, (double)at->bytes);
    lua_pushstring(L, at->op ? ah_op_get((enum ah_opid)(at->op - 1))->name : NULL);
    lua_pushboolean(L, at->in_backward);
    lua_pushnumber(L, (double)at->cached);
    lua_pushnumber(L, (double)at->time_ns / 1e9);
    lua_pushstring(L, at->tensor);
    lua_pushstring(L, at->site);
    lua_pushstring(L, at->module);
    return 9;
}

/* recording:write(path, rank) */
static int write_file(lua_State *L)
{
    const struct ah_trace *trace = check_trace(L);
    ah_check(L, ah_trace_file_write(trace, luaL_checkstring(L, 2), (int)luaL_checkinteger(L, 3)));
    return 0;
}

static const luaL_Reg recording_methods[] = {
    {"count", trace_count}, {"span", trace_span}, {"write", write_file},
    {"memory", trace_memory}, {"memory_event", trace_memory_event}, {NULL, NULL}};
static const struct ah_class recording_class = {"accelhost.recording", recording_methods, NULL, free_trace};

int ah_open_trace(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"start", trace_start},
        {"stop", trace_stop},
        {"forget", trace_forget},
        {"running", trace_running},
        {"push", trace_push},
        {"pop", trace_pop},
        {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
