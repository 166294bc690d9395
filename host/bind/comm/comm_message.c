/* Messages between two ranks.
 *
 * send(t, peer, tag = 0, async = false)     blocking: until it is received; async -> message request
 * recv(t, peer, tag = 0, async = false)     into t; peer nil: the first sender's; -> its rank, async -> message request
 * request:wait() -> the peer's rank
 * request:is_completed()
 *
 * A message request that is collected before it was waited for: a sent message can still be received; a message that it
 * would have received is left to other calls. */
#include <stdlib.h>
#include <string.h>

#include "autograd/graph/graph.h"
#include "bind/comm/comm.h"
#include "bind/lua/class.h"
#include "comm/group/message.h"
#include "tensor/capture.h"

static const struct ah_class message_class;

/* The contents of a message; freed with its last reference. */
struct parcel {
    struct ah_tensor *tensor; /* of a receive; its handle lives in the userdata's environment */
    struct ah_tensor *dense;  /* its elements, dense, on its own device */
    struct ah_tensor *host;   /* the same on the CPU, where they pass through it; NULL: they do not */
};

struct request {
    struct ah_group *group;
    struct ah_message_request *request;
    struct parcel *parcel;
    int peer;
    bool sends;
};

static void free_parcel(void *held)
{
    struct parcel *parcel = held;
    if (!parcel)
        return;
    ah_tensor_release(parcel->tensor);
    ah_tensor_release(parcel->dense);
    ah_tensor_release(parcel->host);
    free(parcel);
}

static int host_to_send(void *context, void **memory)
{
    struct parcel *parcel = context;
    AH_TRY(ah_host_copy(&parcel->host, parcel->dense));
    *memory = ah_tensor_data(parcel->host);
    return 0;
}

static int host_to_receive(void *context, void **memory)
{
    struct parcel *parcel = context;
    const struct ah_tensor *like = parcel->dense;
    AH_TRY(ah_tensor_empty(&parcel->host, like->size, like->ndim, like->dtype, &ah_cpu));
    *memory = ah_tensor_data(parcel->host);
    return 0;
}

static int new_parcel(struct parcel **out, struct ah_tensor *tensor, bool sends, bool async)
{
    struct ah_device *device = tensor->storage->device;
    struct parcel *parcel = calloc(1, sizeof *parcel);
    if (!parcel)
        return ah_fail(AH_ENOMEM, "%s: out of memory", sends ? "send" : "recv");
    *out = parcel;
    parcel->tensor = ah_tensor_retain(tensor);
    AH_TRY(ah_comm_pack(&parcel->dense, tensor, device == &ah_cpu ? NULL : device));
    if (!async || !sends || device == &ah_cpu || parcel->dense != tensor)
        return 0;
    ah_tensor_release(parcel->dense); /* the script may change it at once */
    parcel->dense = NULL;
    AH_GRAD_SCOPE(false);
    return ah_op1(AH_OP_clone, &parcel->dense, AH_T(tensor));
}

static struct request *message_begin(lua_State *L, struct ah_group *group, int index, bool sends, bool async)
{
    struct ah_tensor *tensor = ah_check_tensor(L, index);
    struct request *request = ah_class_new(L, &message_class, sizeof *request);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, index);
    lua_rawseti(L, -2, 1);
    lua_setfenv(L, -2);
    request->group = ah_group_retain(group);
    request->sends = sends;
    ah_check(L, new_parcel(&request->parcel, tensor, sends, async));
    return request;
}

/* Copy the received elements into the script's tensor. */
static int message_deliver(struct parcel *parcel, int status)
{
    struct ah_tensor *from = parcel->host ? parcel->host : parcel->dense;
    return ah_comm_unpack(parcel->tensor, ah_tensor_retain(from), status);
}

static int message_finish(struct request *request)
{
    struct ah_message_request *pending = request->request;
    struct parcel *parcel = request->parcel;
    request->request = NULL;
    request->parcel = NULL;
    int status = ah_message_wait(pending, &request->peer);
    if (!request->sends)
        status = message_deliver(parcel, status);
    free_parcel(parcel);
    return status;
}

static int message_transfer(lua_State *L, bool sends)
{
    struct ah_entry entry = ah_comm_enter(L);
    int first = entry.first;
    ah_check(L, ah_capture_refuse(sends ? "send" : "recv", "a message of the script", "call it outside of the step"));
    lua_settop(L, first + 3);
    bool async = lua_toboolean(L, first + 3);
    int peer = !sends && lua_isnil(L, first + 1) ? AH_ANY_PEER : ah_check_whole(L, first + 1, "rank");
    if (!lua_isnil(L, first + 1) && peer < 0)
        ah_raise_text(L, "%s: expected a rank in 0..%d, got %d", sends ? "send" : "recv",
                      ah_group_size(entry.group) - 1, peer);
    struct request *request = message_begin(L, entry.group, first, sends, async);
    const struct ah_tensor *tensor = request->parcel->tensor, *dense = request->parcel->dense;
    struct ah_message message = {.peer = peer,
                                 .tag = lua_isnil(L, first + 2) ? 0 : ah_check_whole(L, first + 2, "tag"),
                                 .memory = ah_tensor_data(dense),
                                 .count = dense->numel,
                                 .dtype = dense->dtype,
                                 .ndim = tensor->ndim,
                                 .size = tensor->size,
                                 .where = ah_call_site(L)};
    if (dense->storage->device != &ah_cpu) {
        message.device = dense->storage->device;
        message.device_comm = message.device->type->device_comm;
        message.host = sends ? host_to_send : host_to_receive;
        message.context = request->parcel;
    }
    ah_check(L, sends ? ah_group_send(entry.group, message, !async, &request->request)
                      : ah_group_receive(entry.group, message, &request->request));
    if (async)
        return 1;
    ah_check(L, message_finish(request));
    lua_pushinteger(L, request->peer);
    return 1;
}

static int message_send(lua_State *L)
{
    return message_transfer(L, true);
}

static int message_recv(lua_State *L)
{
    return message_transfer(L, false);
}

static int message_wait(lua_State *L)
{
    struct request *request = ah_class_check(L, 1, &message_class);
    if (request->request)
        ah_check(L, message_finish(request));
    lua_pushinteger(L, request->peer);
    return 1;
}

static int message_is_completed(lua_State *L)
{
    struct request *request = ah_class_check(L, 1, &message_class);
    bool done = true;
    if (request->request)
        ah_check(L, ah_message_test(request->request, &done));
    lua_pushboolean(L, done);
    return 1;
}

static int message_gc(lua_State *L)
{
    struct request *request = ah_class_check(L, 1, &message_class);
    if (request->request)
        ah_message_abandon(request->request, free_parcel, request->parcel);
    else
        free_parcel(request->parcel);
    ah_group_close(request->group);
    memset(request, 0, sizeof *request);
    return 0;
}

const luaL_Reg ah_comm_messages[] = {{"send", message_send}, {"recv", message_recv}, {NULL, NULL}};

static const luaL_Reg message_methods[] = {
    {"wait", message_wait}, {"is_completed", message_is_completed}, {NULL, NULL}};
static const struct ah_class message_class = {"accelhost.comm.message", message_methods, NULL, message_gc};
