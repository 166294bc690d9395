/* accelhost._C.system: threads, memory, time, errors. */
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/numeric/level.h"
#include "base/process/program.h"
#include "base/process/signals.h"
#include "base/process/threads.h"
#include "base/status/nearest.h"
#include "base/status/version.h"
#include "base/trace/time.h"
#include "bind/lua/bind.h"
#include "bind/lua/function.h"
#include "bind/lua/handle.h"
#include "bind/tensor/op.h"
#include "comm/group/group.h"
#include "cpu/linear/gemm.h"
#include "cpu/loop/bf16.h"
#include "cpu/loop/onednn.h"

AH_LUA_CHECKED(set_num_threads, ah_set_num_threads((int)luaL_checkinteger(L, 1)))

/* libraries() -> versions of OpenBLAS and oneDNN, which are loaded; nil without the library */
static int system_libraries(lua_State *L)
{
    lua_pushstring(L, ah_blas_version());
    lua_pushstring(L, ah_onednn_version());
    return 2;
}

AH_LUA_VALUE(get_num_threads, lua_pushinteger, ah_num_threads())
AH_LUA_VALUE(cpu_count, lua_pushinteger, ah_cpu_count())

/* memory_stats(device = "cpu") -> {live, peak, cached, allocations, system_calls, retries, ooms} of a device, and
 * {page_faults, max_rss, rss} of this process, in bytes and counts */
static int memory_stats(lua_State *L)
{
    struct ah_device *device = lua_isnoneornil(L, 1) ? &ah_cpu : ah_check_device(L, 1);
    struct ah_memory_stats stats;
    device->type->memory_stats(device, &stats);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    long resident = 0, pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (statm) {
        if (fscanf(statm, "%ld %ld", &pages, &resident) != 2)
            resident = 0;
        fclose(statm);
    }
    lua_newtable(L);
    ah_set_number(L, "live", (double)stats.live);
    ah_set_number(L, "peak", (double)stats.peak);
    ah_set_number(L, "cached", (double)stats.cached);
    ah_set_number(L, "allocations", (double)stats.allocations);
    ah_set_number(L, "system_calls", (double)stats.system_calls);
    ah_set_number(L, "retries", (double)stats.retries);
    ah_set_number(L, "ooms", (double)stats.ooms);
    ah_set_number(L, "page_faults", (double)(usage.ru_minflt + usage.ru_majflt));
    ah_set_number(L, "max_rss", (double)usage.ru_maxrss * 1024);
    ah_set_number(L, "rss", (double)resident * (double)sysconf(_SC_PAGESIZE));
    return 1;
}

static int empty_cache(lua_State *L)
{
    lua_gc(L, LUA_GCCOLLECT, 0);
    struct ah_device *device;
    for (int i = 0; (device = ah_device_open_at(i)); i++)
        device->type->trim(device);
    ah_group_trim(NULL);
    return 0;
}

/* now() -> seconds of the monotonic clock */
AH_LUA_VALUE(system_now, lua_pushnumber, (double)ah_now_ns() * 1e-9)

static int wall_time(lua_State *L)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    lua_pushnumber(L, (double)time.tv_sec + (double)time.tv_nsec * 1e-9);
    return 1;
}

static int host_name(lua_State *L)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    lua_pushstring(L, name);
    return 1;
}

/* sleep(seconds): a signal ends it early */
static int sleep_for(lua_State *L)
{
    double seconds = lua_tonumber(L, 1);
    if (!(seconds >= 0 && seconds <= 1e6))
        return ah_raise_text(L, "sleep: expected seconds, got %g", seconds);
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
    return 0;
}

static int working_folder(lua_State *L)
{
    char path[4096];
    lua_pushstring(L, getcwd(path, sizeof path) ? path : ".");
    return 1;
}

AH_LUA_CALL(collect_stress, ah_set_collect_stress(lua_toboolean(L, 1)))
AH_LUA_VALUE(process_id, lua_pushinteger, getpid())

/* program() -> the path of the running program; nil where it cannot be found */
static int program_path(lua_State *L)
{
    char path[4096];
    lua_pushstring(L, ah_program_path(path, sizeof path) ? path : NULL);
    return 1;
}

/* raise(text): an error that names the script's line, not the library's */
static int system_raise(lua_State *L)
{
    return ah_raise_top(L);
}

AH_LUA_VALUE(call_site, lua_pushstring, ah_call_site(L))

/* nearest(word, words) -> the one of the words that `word` may have meant, or nil */
static int system_nearest(lua_State *L)
{
    const char *word = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    int count = (int)lua_objlen(L, 2);
    const char **list = lua_newuserdata(L, ((size_t)count + 1) * sizeof *list);
    list[count] = NULL;
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        /* The table keeps the string; numbers would be converted on the stack only. */
        list[i] = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
        lua_pop(L, 1);
        if (!list[i])
            break;
    }
    lua_pushstring(L, ah_nearest(word, list));
    return 1;
}

/* signature(function) -> name, "input:T, dim:i?" of an op or a plain C function; nil for others */
static int system_signature(lua_State *L)
{
    const struct ah_function *function = ah_to_function(L, 1);
    const struct ah_op *op = function ? NULL : ah_to_op(L, 1);
    if (!function && !op)
        return 0;
    lua_pushstring(L, function ? function->name : op->name);
    lua_pushstring(L, function ? function->signature : op->signature);
    return 2;
}

/* catch_signal(name): note it from now on; false when there is no such name */
static int catch_signal(lua_State *L)
{
    int number = ah_signal_number(luaL_checkstring(L, 1));
    if (number)
        ah_check(L, ah_signal_catch(number));
    lua_pushboolean(L, number != 0);
    return 1;
}

/* take_signal() -> the name of the signal received since the last call, or nil */
AH_LUA_VALUE(take_signal, lua_pushstring, ah_signal_take())
AH_LUA_VALUE(is_a_terminal, lua_pushboolean, isatty((int)lua_tointeger(L, 1)))

int ah_open_system(lua_State *L)
{
    static const struct ah_function list[] = {
        /* Set the number of threads that kernels use from now on.
         *     accelhost.set_num_threads(1)
         *     accelhost.get_num_threads()  --> 1 */
        {"set_num_threads", set_num_threads, "count:i"},
        /* The number of threads that kernels use.
         * @return integer */
        {"get_num_threads", get_num_threads, ""},
        {"cpu_count", cpu_count, ""},
        {"libraries", system_libraries, ""},
        {"isatty", is_a_terminal, "fd:i"},
        /* The memory of a device and this process, in bytes and counts: {live, peak, cached, allocations,
         * system_calls, retries, ooms} of the device (default the CPU), {page_faults, max_rss, rss} of the process.
         *     accelhost.memory_stats().live > 0  --> true
         * @return table<string, number> */
        {"memory_stats", memory_stats, "device:D?"},
        /* Return memory that is cached for reuse to the system.
         *     accelhost.empty_cache()
         *     accelhost.memory_stats().cached  --> 0 */
        {"empty_cache", empty_cache, ""},
        {"now", system_now, ""},
        /* The wall clock: seconds since 1970 with their fraction, as Python's time.time(). os.time() has whole seconds,
         * os.clock() is processor time.
         *     local began = accelhost.time()
         *     accelhost.time() - began < 60  --> true
         * @return number */
        {"time", wall_time, ""},
        {"host_name", host_name, ""},
        {"sleep", sleep_for, "seconds:f"},
        {"working_folder", working_folder, ""},
        {"collect_stress", collect_stress, "on:b"},
        {"process_id", process_id, ""},
        {"program", program_path, ""},
        {"raise", system_raise, "text:s"},
        {"call_site", call_site, ""},
        {"nearest", system_nearest, "word:s, words:*"},
        {"signature", system_signature, "function:F"},
        {"catch_signal", catch_signal, "name:s"},
        {"take_signal", take_signal, ""},
        {NULL, NULL, NULL},
    };
    ah_new_library(L, list);
    lua_pushliteral(L, AH_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushstring(L, ah_level_name());
    lua_setfield(L, -2, "kernels");
    lua_pushstring(L, ah_bf16_text());
    lua_setfield(L, -2, "bf16");
    return 1;
}
