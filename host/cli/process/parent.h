/* accelhost._C.channel: messages between this process and the one that started it as a rank (cli/job/job.h).
 *
 * C.channel.is_open() -> whether there is such a channel
 * C.channel.send(text) waits until the text is in the socket's buffer or with the parent
 * C.channel.receive([seconds]) -> the next message; nil when none arrived within that time (nil: waits for ever), or
 * when a signal did, so that its hook may run
 *
 * send and receive raise when there is no channel or the parent has closed it. A message is a text of at most 256
 * MiB. */
#pragma once

#include <lua.h>

/* Open the channel whose descriptor is in ACCELHOST_CHANNEL, so that no child of this process inherits it; without the
 * variable nothing. AH_EINVAL. */
int ah_parent_attach(void);

/* Add C.channel to the table on top of the stack. */
void ah_parent_open_lua(lua_State *L);
