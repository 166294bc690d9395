/* The debug hook by which signal handlers reach the running script. LuaJIT allows a handler only to set a hook, which
 * runs before the script's next instruction; compiled code runs no hooks. The process has one such hook for all
 * handlers; the script's own hook is restored when no handler needs it any more.
 *
 * ah_signal_hook_watch and ah_signal_timer_create belong to the main thread; the others may be called in a handler. */
#pragma once

#include <time.h>

#include <lua.h>

/* Watch the state. Once per process and state, on the main thread, before the other functions. */
void ah_signal_hook_watch(lua_State *L);

/* Run `hook` before each instruction of the watched state, in addition to the other purpose's; NULL: no more. */
enum ah_signal_purpose { AH_SIGNAL_INTERRUPT, AH_SIGNAL_STATUS, AH_SIGNAL_PURPOSES };
void ah_signal_hook_set(enum ah_signal_purpose purpose, lua_Hook hook);

/* In a handler of signal `number`: is this the main thread? On another thread of the process the signal is sent to the
 * main thread. AH_SIGNAL_FORKED: the process is a fork of the one that watches. */
enum ah_signal_thread { AH_SIGNAL_MAIN, AH_SIGNAL_SENT_ON, AH_SIGNAL_FORKED };
enum ah_signal_thread ah_signal_thread(int number);

/* Create a timer that sends signal `number` to the main thread. -1: errno. */
int ah_signal_timer_create(int number, timer_t *timer);
