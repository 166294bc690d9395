/* accelhost generate: words in, a text out; options, their help and everything else are Lua (lua/accelhost/generate),
 * since the options are those of the library's GenerationConfig. */
#include <stdio.h>

#include <lua.h>

#include "base/status/status.h"
#include "cli/command/command.h"
#include "cli/process/host.h"

int ah_cli_generate(int argc, char **argv)
{
    static const char chunk[] = "exit_code = require 'accelhost.generate'(...)\n";
    struct ah_host host = {0};
    int code = 1, status = ah_host_open(&host, &(struct ah_host_options){0});
    if (status == 0)
        status = ah_host_run_text(&host, chunk, sizeof chunk - 1, "=generate", argc, argv);
    if (status < 0) {
        fprintf(stderr, "accelhost generate: %s\n", status == AH_ELUA ? ah_host_error(&host) : ah_error_text());
    } else {
        lua_getglobal(host.lua, "exit_code");
        code = (int)lua_tointeger(host.lua, -1);
    }
    if (host.lua)
        ah_host_close(&host);
    return code;
}
