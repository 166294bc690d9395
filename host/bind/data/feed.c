/* accelhost._C.feed: asynchronous copies of batches to a device (tensor/feed.h).
 *
 * is_there(device)       does this device copy batches while its kernels run?
 * is_pinned(tensor)      is it in pinned memory?
 * fetch(tensor, device)  the tensor on the device, not to be used before a join
 * join(device)           kernels launched from now on wait for all fetched tensors
 * mark(device, timed)    an event: an object with set (record), reached (query), wait and elapsed(other) */
#include "autograd/graph/graph.h"
#include "bind/lua/bind.h"
#include "bind/lua/class.h"
#include "bind/lua/function.h"
#include "ops/dispatch/op.h"
#include "tensor/feed.h"

static int is_there(lua_State *L)
{
    lua_pushboolean(L, ah_check_device(L, 1)->type->feed != NULL);
    return 1;
}

static int is_pinned(lua_State *L)
{
    lua_pushboolean(L, ah_tensor_is_pinned(ah_check_tensor(L, 1)));
    return 1;
}

static int prefetch_fetch(lua_State *L)
{
    struct ah_tensor *tensor = ah_check_tensor(L, 1), *dense = NULL, *there = NULL;
    struct ah_device *device = ah_check_device(L, 2);
    if (!ah_on_cpu(tensor) || !device->type->feed || ah_requires_grad(tensor))
        return ah_raise_text(L, "fetch: expected a tensor on the CPU without gradient, and a device that is fed");
    ah_check(L, ah_tensor_row_major(tensor));
    ah_check(L, ah_op1(AH_OP_contiguous, &dense, AH_T(tensor)));
    int status = ah_feed_tensor(&there, dense, device);
    ah_tensor_release(dense);
    ah_check(L, status);
    ah_push_tensor(L, there);
    return 1;
}

static int prefetch_join(lua_State *L)
{
    ah_check(L, ah_feed_join(ah_check_device(L, 1)));
    return 0;
}

/* Marks. */

struct box {
    const struct ah_mark_functions *functions;
    struct ah_mark *mark;
};

static const struct ah_class mark_class;

static struct box *to_mark(lua_State *L, int index)
{
    struct box *box = ah_class_to(L, index, &mark_class);
    if (!box || !box->mark)
        ah_raise_text(L, "expected an event that was recorded, got %s", luaL_typename(L, index));
    return box;
}

static int new_mark(lua_State *L)
{
    struct ah_device *device = ah_check_device(L, 1);
    if (!device->type->marks)
        return ah_raise_text(L, "Event: device \"%s\" has none", device->name);
    struct box *box = ah_class_new(L, &mark_class, sizeof *box);
    box->functions = device->type->marks;
    ah_check(L, device->type->marks->open(device, lua_toboolean(L, 2), &box->mark));
    return 1;
}

static int close_mark(lua_State *L)
{
    struct box *box = lua_touserdata(L, 1);
    if (box->mark)
        box->functions->close(box->mark);
    box->mark = NULL;
    return 0;
}

static int set_mark(lua_State *L)
{
    const struct box *box = to_mark(L, 1);
    ah_check(L, box->functions->set(box->mark));
    return 0;
}

static int prefetch_reached(lua_State *L)
{
    const struct box *box = to_mark(L, 1);
    bool there;
    ah_check(L, box->functions->reached(box->mark, &there));
    lua_pushboolean(L, there);
    return 1;
}

static int wait_for(lua_State *L)
{
    const struct box *box = to_mark(L, 1);
    ah_check(L, box->functions->wait(box->mark));
    return 0;
}

static int prefetch_elapsed(lua_State *L)
{
    const struct box *from = to_mark(L, 1), *to = to_mark(L, 2);
    double milliseconds;
    ah_check(L, from->functions->elapsed(from->mark, to->mark, &milliseconds));
    lua_pushnumber(L, milliseconds);
    return 1;
}

static const luaL_Reg mark_methods[] = {
    {"set", set_mark}, {"reached", prefetch_reached}, {"wait", wait_for}, {"elapsed", prefetch_elapsed}, {NULL, NULL},
};
static const struct ah_class mark_class = {"accelhost.event", mark_methods, NULL, close_mark};

int ah_open_feed(lua_State *L)
{
    static const struct ah_function functions[] = {
        {"is_there", is_there, "device:D"},
        {"is_pinned", is_pinned, "tensor:T"},
        {"fetch", prefetch_fetch, "tensor:T, device:D"},
        {"join", prefetch_join, "device:D"},
        {"mark", new_mark, "device:D, timed:b?"},
        {NULL, NULL, NULL},
    };
    lua_newtable(L);
    ah_set_functions(L, lua_gettop(L), functions);
    return 1;
}
