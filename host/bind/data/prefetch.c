/* accelhost._C.prefetch: asynchronous copies of batches to a device (tensor/prefetch.h).
 *
 * is_there(device)       does this device copy batches while its kernels run?
 * is_pinned(tensor)      is it in pinned memory?
 * fetch(tensor, device)  the tensor on the device, not to be used before a join
 * join(device)           kernels launched from now on wait for all fetched tensors
 * event(device, timed)   an event: an object with set (record), reached (query), wait and elapsed(other) */
#include "autograd/graph/graph.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/function.h"
#include "ops/dispatch/op.h"
#include "tensor/prefetch.h"

AH_LUA_VALUE(is_there, lua_pushboolean, ah_check_device(L, 1)->type->prefetch != NULL)
AH_LUA_VALUE(is_pinned, lua_pushboolean, ah_tensor_is_pinned(ah_check_tensor(L, 1)))

static int prefetch_fetch(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *dense = NULL, *there = NULL;
    struct ah_device *device = ah_check_device(L, 2);
    if (!ah_on_cpu(tensor) || !device->type->prefetch || ah_requires_grad(tensor))
        return ah_raise_text(L, "fetch: expected a tensor on the CPU without gradient, and a device that is fed");
    ah_check(L, ah_tensor_row_major(tensor));
    ah_check(L, ah_op1(AH_OP_contiguous, &dense, AH_T(tensor)));
    int status = ah_prefetch_tensor(&there, dense, device);
    ah_tensor_release(dense);
    ah_check(L, status);
    ah_push_tensor(L, there);
    return 1;
}

AH_LUA_CHECKED(prefetch_join, ah_prefetch_join(ah_check_device(L, 1)))

/* Marks. */

struct box {
    const struct ah_device_event_functions *functions;
    struct ah_device_event *event;
};

static const struct ah_class event_class;

static struct box *to_event(lua_State *L, int index)
{
    struct box *box = ah_class_to(L, index, &event_class);
    if (!box || !box->event)
        ah_raise_text(L, "expected an event that was recorded, got %s", luaL_typename(L, index));
    return box;
}

static int new_event(lua_State *L)
{
    struct ah_device *device = ah_check_device(L, 1);
    if (!device->type->events)
        return ah_raise_text(L, "Event: device \"%s\" has none", device->name);
    struct box *box = ah_class_new(L, &event_class, sizeof *box);
    box->functions = device->type->events;
    ah_check(L, device->type->events->open(device, lua_toboolean(L, 2), &box->event));
    return 1;
}

static int close_event(lua_State *L)
{
    struct box *box = lua_touserdata(L, 1);
    if (box->event)
        box->functions->close(box->event);
    box->event = NULL;
    return 0;
}

static int set_event(lua_State *L)
{
    const struct box *box = to_event(L, 1);
    ah_check(L, box->functions->set(box->event));
    return 0;
}

static int prefetch_reached(lua_State *L)
{
    const struct box *box = to_event(L, 1);
    bool there;
    ah_check(L, box->functions->reached(box->event, &there));
    lua_pushboolean(L, there);
    return 1;
}

static int wait_for(lua_State *L)
{
    const struct box *box = to_event(L, 1);
    ah_check(L, box->functions->wait(box->event));
    return 0;
}

static int prefetch_elapsed(lua_State *L)
{
    const struct box *from = to_event(L, 1), *to = to_event(L, 2);
    double milliseconds;
    ah_check(L, from->functions->elapsed(from->event, to->event, &milliseconds));
    lua_pushnumber(L, milliseconds);
    return 1;
}

static const luaL_Reg event_methods[] = {
    {"set", set_event}, {"reached", prefetch_reached}, {"wait", wait_for}, {"elapsed", prefetch_elapsed}, {NULL, NULL},
};
static const struct ah_class event_class = {"accelhost.event", event_methods, NULL, close_event};

int ah_open_prefetch(lua_State *L)
{
    static const struct ah_function functions[] = {
        {"is_there", is_there, "device:D"},
        {"is_pinned", is_pinned, "tensor:T"},
        {"fetch", prefetch_fetch, "tensor:T, device:D"},
        {"join", prefetch_join, "device:D"},
        {"event", new_event, "device:D, timed:b?"},
        {NULL, NULL, NULL},
    };
    return ah_new_library(L, functions);
}
