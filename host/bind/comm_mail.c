/* Messages between two ranks.
 *
 * send(t, peer, tag = 0, async = false)     blocking: until it is received; async -> mail
 * recv(t, peer, tag = 0, async = false)     into t; peer nil: whoever's is there first; -> its rank, async -> mail
 * mail:wait() -> the peer's rank            mail:is_completed()
 *
 * A mail that is collected before it was waited for: what was sent can still be received, what was to be received is
 * left to others. */
#include <string.h>

#include "bind/comm.h"
#include "comm/mail.h"

#define MAIL "accelhost.comm.mail"

struct mail {
    struct ah_group *group;
    struct ah_mail *mail;
    struct ah_tensor *tensor; /* of a receive; its handle lives in the userdata's environment */
    struct ah_tensor *buffer; /* its elements, dense on the CPU */
    int peer;
    bool sends;
};

static struct mail *begin(lua_State *L, struct ah_group *group, int index)
{
    struct ah_tensor *tensor = ah_check_tensor(L, index);
    struct mail *mail = lua_newuserdata(L, sizeof *mail);
    memset(mail, 0, sizeof *mail);
    luaL_getmetatable(L, MAIL);
    lua_setmetatable(L, -2);
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, index);
    lua_rawseti(L, -2, 1);
    lua_setfenv(L, -2);
    mail->group = ah_group_retain(group);
    mail->tensor = ah_tensor_retain(tensor);
    ah_check(L, ah_comm_pack(&mail->buffer, tensor, NULL));
    return mail;
}

static int finish(struct mail *mail)
{
    struct ah_mail *pending = mail->mail;
    struct ah_tensor *buffer = mail->buffer;
    mail->mail = NULL;
    mail->buffer = NULL;
    int status = ah_mail_wait(pending, &mail->peer);
    if (!mail->sends)
        return ah_comm_unpack(mail->tensor, buffer, status);
    ah_tensor_release(buffer);
    return status;
}

static int transfer(lua_State *L, bool sends)
{
    struct ah_entry entry = ah_comm_enter(L);
    int first = entry.first;
    lua_settop(L, first + 3);
    bool async = lua_toboolean(L, first + 3);
    int peer = !sends && lua_isnil(L, first + 1) ? AH_ANY_PEER : ah_check_whole(L, first + 1, "rank");
    if (!lua_isnil(L, first + 1) && peer < 0)
        ah_raise_text(L, "%s: expected a rank in 0..%d, got %d", sends ? "send" : "recv",
                      ah_group_size(entry.group) - 1, peer);
    struct mail *mail = begin(L, entry.group, first);
    mail->sends = sends;
    struct ah_message message = {
        .peer = peer, .tag = lua_isnil(L, first + 2) ? 0 : ah_check_whole(L, first + 2, "tag"),
        .memory = ah_tensor_data(mail->buffer), .count = mail->buffer->numel, .dtype = mail->buffer->dtype,
        .ndim = mail->tensor->ndim, .size = mail->tensor->size, .where = ah_call_site(L)};
    ah_check(L, sends ? ah_group_send(entry.group, message, !async, &mail->mail)
                      : ah_group_receive(entry.group, message, &mail->mail));
    if (async)
        return 1;
    ah_check(L, finish(mail));
    lua_pushinteger(L, mail->peer);
    return 1;
}

static int send(lua_State *L)
{
    return transfer(L, true);
}

static int recv(lua_State *L)
{
    return transfer(L, false);
}

static int mail_wait(lua_State *L)
{
    struct mail *mail = luaL_checkudata(L, 1, MAIL);
    if (mail->mail)
        ah_check(L, finish(mail));
    lua_pushinteger(L, mail->peer);
    return 1;
}

static int mail_is_completed(lua_State *L)
{
    struct mail *mail = luaL_checkudata(L, 1, MAIL);
    bool done = true;
    if (mail->mail)
        ah_check(L, ah_mail_test(mail->mail, &done));
    lua_pushboolean(L, done);
    return 1;
}

static int mail_gc(lua_State *L)
{
    struct mail *mail = luaL_checkudata(L, 1, MAIL);
    if (mail->mail)
        ah_mail_abandon(mail->mail);
    ah_tensor_release(mail->buffer);
    ah_tensor_release(mail->tensor);
    ah_group_close(mail->group);
    memset(mail, 0, sizeof *mail);
    return 0;
}

const luaL_Reg ah_comm_mails[] = {{"send", send}, {"recv", recv}, {NULL, NULL}};

void ah_open_mail_class(lua_State *L)
{
    static const luaL_Reg methods[] = {{"wait", mail_wait}, {"is_completed", mail_is_completed}, {NULL, NULL}};
    ah_new_class(L, MAIL, methods, mail_gc);
}
