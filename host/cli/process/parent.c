/* One channel per process; a fork of the process has none. While a message is being sent, incoming ones are read, so
 * that two sides that both send first do not wait for each other. */
#include "cli/process/parent.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io/frames.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "bind/lua/bind.h"

static struct ah_frames *parent_channel;
static pid_t parent_channel_owner;

int ah_parent_attach(void)
{
    const char *text = getenv("ACCELHOST_CHANNEL");
    char *end;
    if (parent_channel || !text)
        return 0;
    errno = 0;
    long fd = strtol(text, &end, 10);
    if (errno || end == text || *end || fd < 0 || fd > INT_MAX)
        return ah_fail(AH_EINVAL, "ACCELHOST_CHANNEL: expected a descriptor number, got '%s'", text);
    AH_TRY(ah_frames_open(&parent_channel, (int)fd));
    unsetenv("ACCELHOST_CHANNEL"); /* the number means nothing to programs that the script starts */
    parent_channel_owner = getpid();
    return 0;
}

static struct ah_frames *check_channel(lua_State *L, const char *what)
{
    if (!parent_channel || parent_channel_owner != getpid())
        ah_raise_text(L, "channel.%s: this process was started by no job, or is a fork of one that was", what);
    return parent_channel;
}

static int parent_lose(lua_State *L, const char *what, int status)
{
    if (status == AH_EPEER)
        return ah_raise_text(L, "channel.%s: the process that started this job has gone", what);
    return ah_raise(L, status);
}

/* Wait until the parent has sent bytes or can receive some; 0 when the time is up or a signal arrived. */
static int wait_for(struct ah_frames *frames, int64_t until)
{
    struct pollfd at = {.fd = ah_frames_fd(frames), .events = POLLIN};
    int64_t left = until - ah_now_ns();
    if (ah_frames_is_unsent(frames))
        at.events |= POLLOUT;
    int ready = poll(&at, 1, until < 0 ? -1 : left <= 0 ? 0 : (int)((left + 999999) / 1000000));
    return ready > 0;
}

static int channel_send(lua_State *L)
{
    size_t count;
    const char *bytes = luaL_checklstring(L, 1, &count);
    struct ah_frames *frames = check_channel(L, "send");
    int status = ah_frames_put(frames, bytes, count);
    if (status == 0)
        status = ah_frames_push(frames);
    while (status == 0 && ah_frames_is_unsent(frames)) {
        wait_for(frames, -1);
        status = ah_frames_pull(frames);
        if (status == 0)
            status = ah_frames_push(frames);
    }
    return status < 0 ? parent_lose(L, "send", status) : 0;
}

static int64_t check_deadline(lua_State *L, int index)
{
    double seconds = luaL_optnumber(L, index, -1);
    if (lua_isnoneornil(L, index))
        return -1;
    luaL_argcheck(L, seconds >= 0, index, "expected seconds, 0 or more");
    return ah_now_ns() + (int64_t)((seconds < 1e9 ? seconds : 1e9) * 1e9);
}

static int channel_receive(lua_State *L)
{
    int64_t until = check_deadline(L, 1);
    struct ah_frames *frames = check_channel(L, "receive");
    char *bytes;
    size_t count;
    for (;;) {
        int status = ah_frames_pull(frames);
        if (ah_frames_take(frames, &bytes, &count)) {
            lua_pushlstring(L, bytes, count);
            free(bytes);
            return 1;
        }
        if (status < 0)
            return parent_lose(L, "receive", status);
        if (!wait_for(frames, until))
            break;
    }
    lua_pushnil(L);
    return 1;
}

AH_LUA_VALUE(channel_is_open, lua_pushboolean, parent_channel && parent_channel_owner == getpid())

void ah_parent_open_lua(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"send", channel_send}, {"receive", channel_receive}, {"is_open", channel_is_open}, {NULL, NULL}};
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "channel");
}
