/* A host: one Lua state with the library in it. Hosts may be opened and closed repeatedly, several at once; each has
 * its own modules, globals and defaults. They share the process's threads, default generator and place in a job. A host
 * belongs to one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <lua.h>

struct ah_host {
    lua_State *lua;
};

struct ah_host_options {
    bool jit_off;   /* run without LuaJIT's compiler */
    bool gc_stress; /* collect garbage at every tensor op */
    /* Ends the process after an uncaught error: some LuaJITs report so that memory is out. One function per process,
     * the last one set; without it LuaJIT prints its own message and exits. */
    void (*give_up)(const char *text);
};

/* AH_ELUA or AH_ENOMEM. Also switches the compiler off where the system lets no program make code. */
int ah_host_open(struct ah_host *host, const struct ah_host_options *options);
void ah_host_close(struct ah_host *host);

/* The global `arg`: the script's name at 0, its arguments from 1. */
int ah_host_set_arguments(struct ah_host *host, const char *name, int argc, char **argv);
/* Write the path of the file that `require` would load for a name; AH_EINVAL: the text has the places searched. */
int ah_host_find_module(struct ah_host *host, const char *name, char *path, size_t room);
/* Compile a text (name: "@train.lua" for a file, "=-e" for other text) or a file, and run it with the arguments.
 * AH_ELUA with message and traceback in ah_host_error. */
int ah_host_run_text(struct ah_host *host, const char *text, size_t bytes, const char *name, int argc, char **argv);
int ah_host_run_file(struct ah_host *host, const char *path, int argc, char **argv);
/* Run a text in a new host. Returns the exit code that it stores in the global `exit_code`, or 1 after printing the
 * error as that of `command`. */
int ah_host_run_command(const char *command, const char *text, const char *name, int argc, char **argv);
/* Pop an error value of the caller's own call from the stack and keep its text; AH_ELUA. */
int ah_host_keep_error(struct ah_host *host);
/* Text of the last AH_ELUA; belongs to the state. */
const char *ah_host_error(struct ah_host *host);
