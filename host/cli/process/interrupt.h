/* Ctrl-C in a script that runs in this process: one line says where it was, then the signal ends it as it would any
 * program. */
#ifndef AH_CLI_INTERRUPT_H
#define AH_CLI_INTERRUPT_H

#include <lua.h>

/* Watch for SIGINT while the state runs; once per process, and not where the parent has it ignored. */
void ah_interrupt_watch(lua_State *L);

#endif
