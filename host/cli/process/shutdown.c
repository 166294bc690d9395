/* Invariant: each way out passes `ah_shutdown_finish`, so that output that could not be written is never lost in
 * silence. */
#include "cli/process/shutdown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#include "base/status/status.h"
#include "cli/base/error_file.h"
#include "cli/process/status_signal.h"
#include "comm/group/group.h"
#include "comm/join/rank.h"
#include "comm/net/mpi.h"
#include "io/saver.h"
#include "tensor/device.h"

/* With ACCELHOST_CLOSE the state is closed at the end, whichever way the script leaves. The end of the process frees
 * the same; a search for leaks wants to see it done. */
static bool shutdown_closes(void)
{
    return getenv("ACCELHOST_CLOSE") != NULL;
}

/* Has all output reached the system? A full disk shows at the flush, a remote one at close. */
static bool is_written(void)
{
    bool written = fflush(NULL) == 0 && !ferror(stdout) && !ferror(stderr);
    int fd = dup(STDOUT_FILENO);
    return (fd < 0 || close(fd) == 0) && written;
}

/* Print the table of the CUDA devices' work, where it was requested. */
static void shutdown_report_times(struct ah_host *host)
{
    static const char chunk[] = "require('accelhost.profiler.device_times').report()";
    const char *asked = getenv("ACCELHOST_CUDA_TIMES");
    if (host->lua && asked && !strcmp(asked, "1") && luaL_loadbuffer(host->lua, chunk, strlen(chunk), "=times") == 0)
        lua_pcall(host->lua, 0, 0, 0);
}

int ah_shutdown_finish(struct ah_host *host, int code)
{
    shutdown_report_times(host);
    /* Saves under way are part of the run. */
    if (ah_saver_finish_all(code == 0) < 0 && code == 0)
        return ah_shutdown_fail(host, ah_error_text());
    /* So are collectives that peers still need this rank's device for. */
    if (code == 0 && ah_groups_settle() < 0)
        return ah_shutdown_fail(host, ah_error_text());
    if (!is_written() && code == 0) {
        fputs("accelhost: could not write all that the script printed\n", stderr);
        code = 1;
    }
    if (!ah_rank_report_end() && code == 0)
        code = 1;
    if (code == 0)
        ah_mpi_end();
    if (shutdown_closes()) {
        ah_status_signal_end();
        ah_host_close(host);
        ah_device_close_all();
        exit(code);
    }
    _exit(code);
}

int ah_shutdown_fail(struct ah_host *host, const char *text)
{
    const char *file = getenv("TORCHELASTIC_ERROR_FILE");
    fflush(stdout);
    if (!ah_rank_report_failure(text, false)) {
        fprintf(stderr, "%s\n", text);
        if (file && *file)
            ah_error_file_write(file, text, 0, ah_rank_lost_peer());
    }
    return ah_shutdown_finish(host, 1);
}

void ah_shutdown_give_up(const char *text)
{
    ah_shutdown_fail(&(struct ah_host){NULL}, text);
}

void ah_shutdown_report(const char *line)
{
    fflush(stdout);
    fprintf(stderr, "accelhost: %s\n", line);
}

/* os.exit([code]): true and nil mean 0, false 1. Upvalue: the host. */
static int os_exit(lua_State *L)
{
    int code = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : luaL_optint(L, 1, 0);
    return ah_shutdown_finish(lua_touserdata(L, lua_upvalueindex(1)), code);
}

static int replace_os_exit(lua_State *L)
{
    lua_getglobal(L, "os");
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, os_exit, 1);
    lua_setfield(L, -2, "exit");
    return 0;
}

int ah_shutdown_take_exit(struct ah_host *host)
{
    return lua_cpcall(host->lua, replace_os_exit, host) ? ah_host_keep_error(host) : 0;
}
