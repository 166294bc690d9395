/* Status signals of a running script: on SIGURG it writes its current line to its progress counters
 * (base/trace/counters.h), on SIGUSR2 its traceback to stderr. Neither ends it. */
#pragma once

#include <lua.h>

/* Answer from now on. Once per process. */
void ah_status_signal_watch(lua_State *L);

/* The state is about to be closed: answer no more. */
void ah_status_signal_end(void);
