/* accelhost._C.channel: what this process and the one that started it as a rank (cli/job/job.h) tell each other.
 *
 * C.channel.is_open() -> whether there is such a channel
 * C.channel.send(text) waits until the parent's side has taken it, or the system for it
 * C.channel.receive([seconds]) -> the next message; nil when none came within that time (nil: waits for ever), or when
 * a signal came, so that its hook may run
 *
 * send and receive raise when there is no channel or the parent has gone. A message is a text of at most 256 MiB. */
#ifndef AH_CLI_PARENT_H
#define AH_CLI_PARENT_H

#include <lua.h>

/* Take the channel whose descriptor is in ACCELHOST_CHANNEL, so that nothing that this process starts inherits it;
 * nothing when there is none. AH_EINVAL. */
int ah_parent_attach(void);

/* Put C.channel into the table on top of the stack. */
void ah_parent_open_lua(lua_State *L);

#endif
