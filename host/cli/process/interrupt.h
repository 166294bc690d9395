/* Ctrl-C in a script that runs in this process: print the script's current line, then end the process by the signal as
 * by default. */
#pragma once

#include <lua.h>

/* Watch for SIGINT while the state runs; once per process, and not where the parent has it ignored. */
void ah_interrupt_watch(lua_State *L);
