/* accelhost [run] script.lua args...: one rank, or a whole run in one process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <luajit.h>
#include <lualib.h>

#include "autograd/graph.h"
#include "base/nearest.h"
#include "base/status.h"
#include "base/tell.h"
#include "bind/library.h"
#include "cli/command.h"
#include "comm/rank.h"
#include "cpu/device.h"

static const char help[] =
    "usage: accelhost [run] [options] script.lua [arguments]\n"
    "       accelhost [run] [options] -e CODE [arguments]\n"
    "\n"
    "Runs a Lua script in this process. Arguments after the script are its own (the global `arg`).\n"
    "\n"
    "options:\n"
    "  -e CODE        run this text instead of a file\n"
    "  --jit on|off   LuaJIT's compiler (default on)\n"
    "  --gc-stress    collect garbage at every tensor op (finds lifetime errors)\n"
    "  -h, --help     this text\n"
    "\n"
    "exit codes: 0 ok, 1 script error, 2 usage\n";

struct run_options {
    const char *code, *script;
    bool jit_off, gc_stress;
    int first_argument; /* index of the script's first own argument */
};

/* 0: go on; else the exit code plus one. */
static int parse(int argc, char **argv, struct run_options *options)
{
    int i = 0;
    for (; i < argc; i++) {
        const char *flag = argv[i];
        if (!strcmp(flag, "-h") || !strcmp(flag, "--help")) {
            fputs(help, stdout);
            return 1;
        } else if (!strcmp(flag, "-e")) {
            if (i + 1 == argc)
                return 1 + ah_usage("run", "-e expects code");
            options->code = argv[++i];
            i++;
            break;
        } else if (!strcmp(flag, "--jit") || !strncmp(flag, "--jit=", 6)) {
            const char *value = flag[5] ? flag + 6 : i + 1 < argc ? argv[++i] : "";
            if (strcmp(value, "on") && strcmp(value, "off"))
                return 1 + ah_usage("run", "--jit expects on or off, got '%s'", value);
            options->jit_off = !strcmp(value, "off");
        } else if (!strcmp(flag, "--gc-stress")) {
            options->gc_stress = true;
        } else if (flag[0] == '-' && flag[1]) {
            static const char *const known[] = {"--help", "--jit", "--gc-stress", "-e", NULL};
            const char *near = ah_nearest(flag, known);
            return 1 + ah_usage("run", near ? "unknown option '%s' (did you mean '%s'?)" : "unknown option '%s'",
                                flag, near);
        } else {
            options->script = flag;
            i++;
            break;
        }
    }
    options->first_argument = i;
    if (!options->code && !options->script)
        return 1 + ah_usage("run", "expected a script");
    return 0;
}

static void set_arguments(lua_State *L, int argc, char **argv, const struct run_options *options)
{
    lua_newtable(L);
    lua_pushstring(L, options->script ? options->script : "-e");
    lua_rawseti(L, -2, 0);
    for (int i = options->first_argument; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - options->first_argument + 1);
    }
    lua_setglobal(L, "arg");
}

/* Machine code must lie near LuaJIT's own; a short hot loop claims that memory before anything else maps it. */
static void warm_up(lua_State *L)
{
    if (luaL_dostring(L, "local s = 0 for i = 1, 200 do s = s + i end"))
        lua_pop(L, 1);
}

static int load(lua_State *L, const struct run_options *options)
{
    if (options->code)
        return luaL_loadbuffer(L, options->code, strlen(options->code), "=-e");
    return luaL_loadfile(L, options->script);
}

/* With ACCELHOST_CLOSE the state is closed at the end, whichever way the script leaves. The end of the process frees
 * the same; a search for leaks wants to see it done. */
static bool closes(void)
{
    return getenv("ACCELHOST_CLOSE") != NULL;
}

static int finish(lua_State *L, int code)
{
    fflush(NULL);
    if (code == 0 && ferror(stdout)) {
        fputs("accelhost: could not write all that the script printed\n", stderr);
        code = 1;
    }
    if (closes()) {
        lua_close(L);
        ah_device_close_all();
        return code;
    }
    _exit(code);
}

static int fail(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    fflush(stdout);
    if (!ah_board_report_failure(text ? text : "?", false))
        fprintf(stderr, "%s\n", text ? text : "?");
    return finish(L, 1);
}

static void tell(const char *line)
{
    fflush(stdout);
    fprintf(stderr, "accelhost: %s\n", line);
}

int ah_cli_run(int argc, char **argv)
{
    struct run_options options = {0};
    int parsed = parse(argc, argv, &options);
    if (parsed)
        return parsed - 1;
    if (!options.code && ah_check_script("run", options.script))
        return 2;
    ah_tell_to(tell);
    struct ah_board *board;
    if (ah_board_attach(&board) < 0) {
        fprintf(stderr, "accelhost: %s\n", ah_error_text());
        return 1;
    }
    ah_cpu_open();
    ah_autograd_open();
    lua_State *L = luaL_newstate();
    if (!L) {
        fputs("accelhost: out of memory\n", stderr);
        return 1;
    }
    ah_library_open(L);
    if (options.jit_off)
        luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
    else
        warm_up(L);
    if (options.gc_stress && luaL_dostring(L, "package.loaded['accelhost._C'].system.collect_stress(true)"))
        return fail(L);
    if (closes() && luaL_dostring(L, "local exit = os.exit; os.exit = function(code) exit(code, true) end"))
        return fail(L);
    set_arguments(L, argc, argv, &options);
    lua_pushcfunction(L, ah_traceback);
    if (load(L, &options))
        return fail(L);
    int count = 0;
    luaL_checkstack(L, argc + 8, "too many arguments");
    for (int i = options.first_argument; i < argc; i++, count++)
        lua_pushstring(L, argv[i]);
    if (lua_pcall(L, count, 0, -count - 2))
        return fail(L);
    return finish(L, ah_board_report_end() ? 0 : 1);
}
