/* Tensors as userdata: a handle holds one reference; a tensor that C hands out again has one handle at a time, found in
 * a weak table. Native bytes behind handles are counted, and Lua's collector is run by that account. Invariant: counted
 * bytes are subtracted with the handle that counted them, and LuaJIT is entered through the state that
 * is inside C, no other. */
#include "bind/lua/handle.h"

#include <time.h>

#include "base/memory/alloc.h"
#include "base/trace/counters.h"
#include "bind/lua/lua_heap.h"

/* Identities of the tensor metatables: of the state opened last, and of all that are open. */
enum { STATES = 64 };
static const void *metatable, *metatables[STATES];
static char metatable_key, methods_key, shared_key;

enum { SMALL_HEAP_KB = 8192, DEVICES = 16, LEAST_GROWTH = 8 << 20, WINDOW = 4 };
#define MIB ((size_t)1 << 20)

static struct {
    size_t live;         /* bytes counted by handles that exist */
    size_t debt;         /* bytes counted since the last collect, less those that free() has released */
    size_t earlier;      /* the debt when this step began */
    uint64_t backwards;  /* that had begun then */
    size_t recent;       /* bytes counted by handles that exist, since the last collect at a boundary of a step */
    uint32_t collection; /* number of the next collect */
    uint32_t interval;   /* number of collects at boundaries */
    double scale;        /* raised while collecting costs more than 2 % of the time */
    int64_t spent, since;
    int collects; /* since `since` */
    bool collecting;
    bool stress;
} account = {.scale = 1, .collection = 1};

/* The account of a device that reports its free memory: its live bytes are no measure for the garbage that it can
 * hold. */
static struct device_account {
    struct ah_device *device;
    size_t debt;
    size_t limit; /* of the debt inside ops, from the last reading of the free memory; 0: none since a collection */
} device_accounts[DEVICES];
static int device_count;

static struct device_account *find_device(struct ah_device *device)
{
    if (device == &ah_cpu || !device->type->memory_info)
        return NULL;
    for (int i = 0; i < device_count; i++)
        if (device_accounts[i].device == device)
            return &device_accounts[i];
    if (device_count == DEVICES)
        return NULL;
    device_accounts[device_count].device = device;
    return &device_accounts[device_count++];
}

/* The allocator's free blocks count like the driver's free memory. */
static size_t device_limit(struct ah_device *device)
{
    size_t available = 0, total = 0, pinned = 0;
    struct ah_memory_stats stats = {0};
    if (device->type->memory_info(device, &available, &total, &pinned) < 0)
        return SIZE_MAX;
    device->type->memory_stats(device, &stats);
    available += stats.cached;
    double limit = available / 10 > 64 * MIB ? (double)(available / 10) : 64.0 * MIB;
    limit = limit * account.scale < (double)available / 2 ? limit * account.scale : (double)available / 2;
    return limit > 8.0 * MIB ? (size_t)limit : 8 * MIB;
}

static bool is_device_due(struct device_account *of, size_t threshold)
{
    if (threshold)
        return (double)of->debt > (double)threshold * account.scale;
    if (of->debt <= of->limit)
        return false;
    of->limit = device_limit(of->device);
    return of->debt > of->limit;
}

void ah_set_collect_stress(bool on)
{
    account.stress = on;
}

/* Return the processor time of this thread, which does not depend on other load of the machine. */
static int64_t thread_ns(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (int64_t)spent.tv_sec * 1000000000 + spent.tv_nsec;
}

static void handle_collect(lua_State *L)
{
    int64_t begin = thread_ns();
    account.collecting = true;
    atomic_store_explicit(&ah_counters->collects, 1, memory_order_relaxed);
    ah_lua_heap_load();
    lua_gc(L, LUA_GCCOLLECT, 0);
    atomic_store_explicit(&ah_counters->collects, 0, memory_order_relaxed);
    account.collecting = false;
    int64_t end = thread_ns();
    account.debt = account.earlier = 0;
    account.collection += account.collection == UINT32_MAX ? 2 : 1;
    for (int i = 0; i < device_count; i++)
        device_accounts[i].debt = device_accounts[i].limit = 0;
    account.spent += end - begin;
    if (++account.collects < WINDOW)
        return;
    /* Collecting less often saves a pass over live objects, which costs little while the Lua heap is small; freeing
     * the dead costs the same whenever it is done. A script that holds a data set's lines pays 8 ms in each step of
     * 90 ms, so the scale follows at once: each later rise would let the process grow again. */
    double share = (double)account.spent / (double)(end - account.since);
    for (; share > 0.02 && account.scale < 16 && lua_gc(L, LUA_GCCOUNT, 0) > SMALL_HEAP_KB; share /= 2)
        account.scale *= 2;
    account.since = end;
    account.spent = 0;
    account.collects = 0;
}

/* At a boundary: the first one after a backward begins the next step. */
static void handle_begin_step(void)
{
    uint64_t backwards = atomic_load_explicit(&ah_counters->backwards, memory_order_relaxed);
    if (backwards == account.backwards || atomic_load_explicit(&ah_counters->in_backward, memory_order_relaxed))
        return;
    account.backwards = backwards;
    account.earlier = account.debt;
}

void ah_collect_if_due(lua_State *L, size_t threshold)
{
    size_t of_host = threshold ? threshold : account.live / 16 > 40 * MIB ? account.live / 16 : 40 * MIB;
    size_t bytes = threshold ? account.recent : account.debt;
    bool due = account.stress || (double)bytes > (double)of_host * account.scale;
    for (int i = 0; !due && i < device_count; i++)
        due = is_device_due(&device_accounts[i], threshold);
    if (threshold)
        handle_begin_step();
    if (!due)
        return;
    handle_collect(L);
    if (threshold) {
        account.recent = 0;
        account.interval++;
    }
}

static lua_State *handle_entered;
static _Thread_local bool handle_here; /* this thread has set `entered` */

lua_State *ah_enter(lua_State *L)
{
    lua_State *outer = handle_entered;
    handle_entered = L;
    handle_here = true;
    return outer;
}

void ah_leave(lua_State *outer)
{
    handle_entered = outer;
}

lua_State *ah_entered(void)
{
    return handle_here ? handle_entered : NULL;
}

/* Does a collection before the process grows save enough? Inside a step of a CNN it costs 0.4 ms for a Lua heap of
 * 1 MB, which the step's data have evicted from the caches; the page faults of 1 MiB cost 0.1 ms, and half of the bytes
 * since the last collection were dead. By time alone the limit would be 8 heaps; with 20 the peak of a recomputing step
 * rises from 19 to 29 MB. */
static bool is_growth_due(void)
{
    size_t debt = account.debt > account.earlier ? account.debt - account.earlier : 0;
    if (debt < LEAST_GROWTH)
        return false;
    size_t live = ah_memory_stats().live, heap = (size_t)lua_gc(handle_entered, LUA_GCCOUNT, 0) * 1024;
    size_t least = live / 32 > 4 * heap ? live / 32 : 4 * heap;
    return (double)debt > (double)least * account.scale;
}

/* From half of the limit on: of two ranks that collect at different times, one waits for the other with more than half
 * of it, joins in, and from then on both collect at once. */
static bool is_join_due(void)
{
    size_t bytes = account.recent < account.debt ? account.recent : account.debt;
    return 2.0 * (double)bytes > AH_COLLECT_STEP * account.scale;
}

static bool is_due(enum ah_collect_reason reason)
{
    return reason == AH_COLLECT_EMPTY || (reason == AH_COLLECT_GROWTH ? is_growth_due() : is_join_due());
}

static bool collect_under_pressure(enum ah_collect_reason reason)
{
    if (!handle_here || !handle_entered || account.collecting || !is_due(reason))
        return false;
    handle_collect(handle_entered);
    return true;
}

static bool is_metatable(const void *found)
{
    if (found == metatable)
        return true;
    for (int i = 0; i < STATES; i++)
        if (found == metatables[i])
            return true;
    return false;
}

struct ah_tensor *ah_to_tensor(lua_State *L, int index)
{
    struct ah_handle *handle = lua_touserdata(L, index);
    if (!handle || !lua_getmetatable(L, index))
        return NULL;
    const void *found = lua_topointer(L, -1);
    lua_pop(L, 1);
    return is_metatable(found) ? handle->tensor : NULL;
}

static bool is_handle(lua_State *L, int index)
{
    if (!lua_touserdata(L, index) || !lua_getmetatable(L, index))
        return false;
    const void *found = lua_topointer(L, -1);
    lua_pop(L, 1);
    return is_metatable(found);
}

bool ah_was_freed(lua_State *L, int index)
{
    return is_handle(L, index) && !ah_to_tensor(L, index);
}

struct ah_tensor *ah_check_tensor(lua_State *L, int index)
{
    struct ah_tensor *tensor = ah_to_tensor(L, index);
    if (tensor)
        return tensor;
    ah_raise_text(L, "argument %d: expected a tensor, got %s", index, ah_value_text(L, index));
    return NULL;
}

struct ah_tensor *ah_opt_tensor(lua_State *L, int index)
{
    return lua_isnoneornil(L, index) ? NULL : ah_check_tensor(L, index);
}

static void handle_push(lua_State *L, struct ah_tensor *tensor, bool fresh)
{
    if (!tensor) {
        lua_pushnil(L);
        return;
    }
    if (tensor->shared_handle) {
        ah_push_shared_tensor(L, tensor);
        ah_tensor_release(tensor);
        return;
    }
    struct ah_handle *handle = lua_newuserdata(L, sizeof *handle);
    handle->tensor = tensor;
    handle->counted = 0;
    handle->on_device = false;
    /* Relaxed: for the account alone, the storage's memory is not touched. */
    if (fresh || atomic_load_explicit(&tensor->storage->refs, memory_order_relaxed) == 1) {
        struct device_account *of = find_device(tensor->storage->device);
        handle->counted = tensor->storage->nbytes;
        tensor->storage->counted = account.collection;
        handle->on_device = of != NULL;
        handle->interval = account.interval;
        account.live += of ? 0 : handle->counted;
        account.recent += of ? 0 : handle->counted;
        *(of ? &of->debt : &account.debt) += handle->counted;
    }
    lua_pushlightuserdata(L, &metatable_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_setmetatable(L, -2);
}

void ah_push_tensor(lua_State *L, struct ah_tensor *tensor)
{
    handle_push(L, tensor, false);
}

/* Push the result of an op. Its bytes count with this handle also when the graph holds it too: the graph is freed after
 * backward, the handle only by the next collection. */
void ah_push_result(lua_State *L, struct ah_tensor *tensor, const struct ah_value *args, int count)
{
    bool fresh = true;
    for (int i = 0; i < count && fresh; i++)
        fresh = args[i].kind != AH_TENSOR || args[i].tensor->storage != tensor->storage;
    handle_push(L, tensor, fresh);
}

void ah_share_handle(lua_State *L, int index)
{
    struct ah_tensor *tensor = ah_to_tensor(L, index);
    if (!tensor || tensor->shared_handle)
        return;
    lua_pushvalue(L, index);
    lua_pushlightuserdata(L, &shared_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_pushlightuserdata(L, tensor);
    lua_pushvalue(L, -3);
    lua_rawset(L, -3);
    lua_pop(L, 2);
    tensor->shared_handle = true;
}

void ah_push_shared_tensor(lua_State *L, struct ah_tensor *tensor)
{
    if (!tensor) {
        lua_pushnil(L);
        return;
    }
    if (tensor->shared_handle) {
        lua_pushlightuserdata(L, &shared_key);
        lua_rawget(L, LUA_REGISTRYINDEX);
        lua_pushlightuserdata(L, tensor);
        lua_rawget(L, -2);
        lua_remove(L, -2);
        if (!lua_isnil(L, -1))
            return;
        lua_pop(L, 1);
        tensor->shared_handle = false;
    }
    ah_tensor_retain(tensor);
    ah_push_tensor(L, tensor);
    ah_share_handle(L, lua_gettop(L));
}

static void handle_drop(lua_State *L, struct ah_handle *handle)
{
    struct ah_tensor *tensor = handle->tensor;
    if (!tensor)
        return;
    account.live -= handle->on_device ? 0 : handle->counted;
    account.recent -= handle->on_device || handle->interval != account.interval ? 0 : handle->counted;
    handle->counted = 0;
    handle->tensor = NULL;
    if (tensor->shared_handle) {
        /* The weak table forgot this userdata already, and may hold a newer one. */
        lua_pushlightuserdata(L, &shared_key);
        lua_rawget(L, LUA_REGISTRYINDEX);
        lua_pushlightuserdata(L, tensor);
        lua_rawget(L, -2);
        struct ah_handle *newer = lua_touserdata(L, -1);
        tensor->shared_handle = newer && newer != handle;
        lua_pop(L, 2);
    }
    ah_tensor_release(tensor);
}

AH_LUA_CALL(handle_gc, handle_drop(L, lua_touserdata(L, 1)))

/* Subtract the bytes of a storage from the debt, where its last holder was freed since they were counted. */
static void handle_settle(const struct ah_storage *storage)
{
    if (storage->counted != account.collection || atomic_load_explicit(&storage->refs, memory_order_relaxed) > 1)
        return;
    struct device_account *of = find_device(storage->device);
    size_t *debt = of ? &of->debt : &account.debt;
    *debt -= *debt < storage->nbytes ? *debt : storage->nbytes;
}

static int handle_free(lua_State *L)
{
    if (!is_handle(L, 1))
        return ah_raise_text(L, "free: expected a tensor, got %s", ah_value_text(L, 1));
    struct ah_handle *handle = lua_touserdata(L, 1);
    if (!handle->tensor)
        return 0;
    struct ah_storage *storage = ah_storage_retain(handle->tensor->storage);
    handle_drop(L, handle);
    handle_settle(storage);
    ah_storage_release(storage);
    return 0;
}

/* Of a userdata that lives as long as its state and holds its place in `metatables`. */
static int forget_metatable(lua_State *L)
{
    const void **place = *(const void ***)lua_touserdata(L, 1);
    if (metatable == *place)
        metatable = NULL;
    *place = NULL;
    return 0;
}

/* The metatable on top of the stack is the tensors' one until the state closes. */
static void keep_metatable(lua_State *L)
{
    const void **place = metatables;
    while (place < metatables + STATES && *place)
        place++;
    if (place == metatables + STATES)
        luaL_error(L, "more than %d states are open", STATES);
    metatable = *place = lua_topointer(L, -1);
    *(const void ***)lua_newuserdata(L, sizeof place) = place;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, forget_metatable);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    luaL_ref(L, LUA_REGISTRYINDEX);
}

void ah_push_methods(lua_State *L)
{
    lua_pushlightuserdata(L, &methods_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
}

void ah_handle_open(lua_State *L)
{
    static const luaL_Reg methods[] = {
        /* Release the memory now, not at the next garbage collection; the handle may not be used any more.
         *     accelhost.zeros(1000, 1000):free() */
        {"free", handle_free},
        {NULL, NULL},
    };
    lua_pushlightuserdata(L, &shared_key);
    lua_newtable(L);
    lua_newtable(L);
    lua_pushliteral(L, "v");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);

    lua_pushlightuserdata(L, &metatable_key);
    lua_newtable(L);
    keep_metatable(L);
    lua_pushcfunction(L, handle_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushliteral(L, "tensor");
    lua_setfield(L, -2, "__metatable");
    lua_rawset(L, LUA_REGISTRYINDEX);

    lua_pushlightuserdata(L, &methods_key);
    lua_newtable(L);
    luaL_register(L, NULL, methods);
    lua_rawset(L, LUA_REGISTRYINDEX);
    ah_block_on_pressure(collect_under_pressure);
}

void ah_push_metatable(lua_State *L)
{
    lua_pushlightuserdata(L, &metatable_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
}
